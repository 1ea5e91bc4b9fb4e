/* batches.c -- see batches.h. Random numbers: one stream for the starts of windows, and one for each epoch's order. */
#include "train/step/batches.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "train/step/answers.h"
#include <assert.h>
#include <string.h>

enum { STREAM_STARTS = 1, STREAM_EPOCHS = 2 };

struct token_file {
    struct file_map map;
    int width;
    int64_t first, count; /* position in the concatenated text */
};

struct batch_buffer {
    int32_t *ids, *targets;
    int32_t (*documents)[2]; /* NULL for a Base LM that retrieves nothing */
    int64_t *starts;
};

struct batches {
    struct batches_config config;
    struct model_config model;
    struct token_file *files;
    int n_files, unended;
    int64_t tokens, length, windows;
    uint64_t fingerprint;
    int64_t *starts; /* of documents, ascending; starts[n_documents] = tokens */
    size_t capacity;
    int64_t n_documents;
    int64_t *prompts; /* [n_documents]: ids of each sample's prompt; NULL: no samples */
    size_t prompts_capacity;
    int64_t *order, epoch; /* SAMPLING_EPOCHS: the order of `epoch` */
    batches_arrange *arrange;
    void *arrange_context;
    struct batch_buffer *held;
};

static const char *const sampling_names[] = {[SAMPLING_EPOCHS] = "epochs", [SAMPLING_RANDOM] = "random"};

const char *sampling_name(enum sampling sampling) {
    assert(sampling == SAMPLING_EPOCHS || sampling == SAMPLING_RANDOM);
    return sampling_names[sampling];
}

int sampling_find(const char *name) {
    for (int i = 0; i < (int)ARRAY_LEN(sampling_names); i++)
        if (strcmp(name, sampling_names[i]) == 0) return i;
    return -1;
}

/* ---- files --------------------------------------------------------------------------------------------------------
 */

static int batches_id_bytes(const char *path) {
    size_t n = strlen(path);
    if (n > 4 && strcmp(path + n - 4, ".u16") == 0) return 2;
    return n > 4 && strcmp(path + n - 4, ".u32") == 0 ? 4 : 0;
}

static uint32_t batches_id_at(const struct token_file *f, int64_t i) {
    const uint8_t *p = f->map.data + i * f->width;
    uint32_t low = p[0] | (uint32_t)p[1] << 8;
    return f->width == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static enum status batches_open_file(struct batches *b, const char *path) {
    struct token_file f = {.width = batches_id_bytes(path), .first = b->tokens};
    if (f.width == 0)
        return fail(STATUS_INVALID, "%s: a token file's name ends in .u16 or .u32: make one with drt-tokenizer encode",
                    path);
    TRY(file_map(&f.map, path));
    b->files[b->n_files++] = f;
    if (f.map.size % (size_t)f.width != 0)
        return fail(STATUS_INVALID, "%s: its size of %zu bytes is not a multiple of %d: cut short, or not a token file",
                    path, f.map.size, f.width);
    if (f.map.size == 0) return fail(STATUS_INVALID, "%s: is empty", path);
    b->files[b->n_files - 1].count = (int64_t)(f.map.size / (size_t)f.width);
    b->tokens += b->files[b->n_files - 1].count;
    return STATUS_OK;
}

static enum status batches_add_document(struct batches *b, int64_t start) {
    if (b->n_documents == INT32_MAX - b->config.first_document)
        return fail(STATUS_UNSUPPORTED, "the data has more than 2^31 documents");
    TRY(memory_grow(&b->starts, &b->capacity, (size_t)b->n_documents + 2));
    b->starts[b->n_documents++] = start;
    return STATUS_OK;
}

/* Checks every id, and notes where documents start. */
static enum status batches_scan_file(struct batches *b, const struct token_file *f, const char *path) {
    uint64_t hash = b->fingerprint;
    bool begins = true;
    for (int64_t i = 0; i < f->count; i++) {
        uint32_t id = batches_id_at(f, i);
        if (id >= (uint32_t)b->model.vocab_size)
            return fail(STATUS_MISMATCH,
                        "%s: byte %lld: id %u, but the model's vocabulary has %d ids: these tokens are another "
                        "tokenizer's",
                        path, (long long)(i * f->width), id, b->model.vocab_size);
        if (model_config_landmarks(&b->model) && (int32_t)id == b->model.landmark_id)
            return fail(STATUS_MISMATCH, "%s: byte %lld: id %u is the model's landmark, which no text may hold", path,
                        (long long)(i * f->width), id);
        if (begins) TRY(batches_add_document(b, f->first + i));
        begins = (int64_t)id == b->config.end_id;
        hash = (hash ^ id) * 0x100000001b3u; /* FNV-1a over ids: the same for a .u16 and a .u32 of one text */
    }
    b->fingerprint = hash;
    b->unended += !begins;
    return STATUS_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

static int64_t batches_rows(const struct batches *b) {
    int64_t positions = model_config_positions(&b->model);
    return (int64_t)b->config.sequences * b->config.chunks * positions;
}

/* Number of whole windows in the text, or of samples. */
static int64_t batches_fit(const struct batches *b) {
    return b->prompts ? b->n_documents : b->tokens / b->length;
}

static enum status batches_count_windows(struct batches *b) {
    int64_t fit = batches_fit(b);
    if (fit < 1)
        return fail(STATUS_INVALID, "%s: %lld tokens in all files are fewer than one sequence of %lld (length)",
                    b->config.files[0], (long long)b->tokens, (long long)b->length);
    b->windows = fit;
    /* One window fewer than fit, so that the first one may begin anywhere within a window's length. */
    if (b->config.sampling == SAMPLING_EPOCHS && fit > 1 && !b->prompts) b->windows = fit - 1;
    if (b->config.sampling == SAMPLING_ONCE && b->config.max_windows > 0 && b->config.max_windows < fit)
        b->windows = b->config.max_windows;
    if (b->config.sampling != SAMPLING_EPOCHS) return STATUS_OK;
    b->epoch = -1;
    return memory_allocate(&b->order, (size_t)b->windows);
}

/* Ids of a chunk; 0: batches have no documents. */
static int64_t batches_chunk(const struct batches *b) {
    return b->model.base_lm && !b->config.documents ? 0 : b->model.chunk;
}

static enum status batches_allocate_held(struct batches *b) {
    size_t n = (size_t)batches_rows(b), sequences = (size_t)b->config.sequences;
    int64_t chunk = batches_chunk(b);
    TRY(memory_allocate_zero(&b->held, (size_t)b->config.held));
    for (int i = 0; i < b->config.held; i++) {
        TRY(memory_allocate(&b->held[i].ids, n));
        TRY(memory_allocate(&b->held[i].targets, n));
        TRY(memory_allocate(&b->held[i].starts, sequences));
        if (chunk > 0) TRY(memory_allocate(&b->held[i].documents, sequences * (size_t)(b->length / chunk)));
    }
    return STATUS_OK;
}

/* ---- samples ------------------------------------------------------------------------------------------------------
 */

/* Pads before a sample: with them its prompt ends with the first id of a chunk. */
static int64_t batches_pads(const struct batches *b, int64_t sample) {
    if (!b->config.align) return 0;
    int64_t over = (b->prompts[sample] - 1) % b->model.chunk;
    return over > 0 ? b->model.chunk - over : 0;
}

/* Samples of a file, which are the documents from `first` on. */
static enum status batches_check_answers(struct batches *b, const struct answers *a, const char *path, int64_t first,
                                         int64_t tokens) {
    if (a->samples != b->n_documents - first || a->tokens != tokens)
        return fail(STATUS_MISMATCH,
                    "%s.answers: is of %lld samples and %lld tokens, but the token file has %lld and %lld: it belongs "
                    "to another file, or end_id is wrong",
                    path, (long long)a->samples, (long long)a->tokens, (long long)(b->n_documents - first),
                    (long long)tokens);
    for (int64_t i = 0; i < a->samples; i++) {
        int64_t n = b->starts[first + i + 1] - b->starts[first + i], prompt = answers_prompt(a, i);
        if (prompt < 1 || prompt >= n)
            return fail(STATUS_INVALID, "%s.answers: sample %lld of %lld tokens has a prompt of %lld: make it again",
                        path, (long long)i, (long long)n, (long long)prompt);
        b->prompts[first + i] = prompt;
        int64_t pads = batches_pads(b, first + i), most = b->config.align ? b->length - b->model.chunk : b->length;
        if (n + pads > b->length)
            return fail(STATUS_INVALID,
                        "%s: sample %lld has %lld tokens%s, more than length, %lld: raise length, or make the samples "
                        "with --max-tokens %lld",
                        path, (long long)i, (long long)(n + pads), pads > 0 ? " with the pads of align" : "",
                        (long long)b->length, (long long)most);
        b->fingerprint = (b->fingerprint ^ (uint64_t)prompt) * 0x100000001b3u;
    }
    return STATUS_OK;
}

static enum status batches_open_samples(struct batches *b, const struct token_file *f, const char *path) {
    struct answers a;
    int64_t first = 0;
    while (b->starts[first] < f->first)
        first++;
    TRY(memory_grow(&b->prompts, &b->prompts_capacity, (size_t)b->n_documents));
    TRY(answers_open(&a, path));
    enum status s = batches_check_answers(b, &a, path, first, f->count);
    answers_close(&a);
    return s;
}

static enum status batches_scan_one(struct batches *b, int file) {
    const struct token_file *f = &b->files[file];
    TRY(batches_scan_file(b, f, b->config.files[file]));
    b->starts[b->n_documents] = f->first + f->count; /* the end of the last document, until the next file's first */
    return b->config.samples ? batches_open_samples(b, f, b->config.files[file]) : STATUS_OK;
}

static enum status batches_open_files(struct batches *b) {
    int n = b->config.n_files;
    TRY(memory_allocate_zero(&b->files, (size_t)n));
    for (int i = 0; i < n; i++)
        TRY(batches_open_file(b, b->config.files[i]));
    b->fingerprint = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++)
        TRY(batches_scan_one(b, i));
    TRY(batches_count_windows(b));
    return batches_allocate_held(b);
}

enum status batches_open(struct batches **out, const struct batches_config *config) {
    assert(config->n_files > 0 && config->sequences > 0 && config->chunks > 0 && config->held > 0);
    struct batches *b;
    TRY(memory_allocate_zero(&b, 1));
    b->config = *config;
    b->model = *config->model;
    b->config.model = NULL;
    b->length = config->chunks * model_config_ids(&b->model);
    enum status s = batches_open_files(b);
    b->config.files = NULL; /* borrowed for the call */
    if (s == STATUS_OK)
        *out = b;
    else
        batches_close(b);
    return s;
}

void batches_close(struct batches *b) {
    if (!b) return;
    for (int i = 0; i < b->n_files; i++)
        file_unmap(&b->files[i].map);
    for (int i = 0; b->held && i < b->config.held; i++) {
        memory_free(b->held[i].ids);
        memory_free(b->held[i].targets);
        memory_free(b->held[i].documents);
        memory_free(b->held[i].starts);
    }
    memory_free(b->held);
    memory_free(b->order);
    memory_free(b->starts);
    memory_free(b->prompts);
    memory_free(b->files);
    memory_free(b);
}

int64_t batches_tokens(const struct batches *b) {
    return b->tokens;
}
int64_t batches_documents(const struct batches *b) {
    return b->n_documents;
}
int batches_unended(const struct batches *b) {
    return b->unended;
}
int64_t batches_length(const struct batches *b) {
    return b->length;
}
int64_t batches_windows(const struct batches *b) {
    return b->windows;
}
uint64_t batches_fingerprint(const struct batches *b) {
    return b->fingerprint;
}

/* ---- windows ------------------------------------------------------------------------------------------------------
 */

static int64_t batches_epoch_start(struct batches *b, int64_t epoch) {
    struct rng rng = rng_make(b->config.seed, (uint64_t)STREAM_EPOCHS << 56 | (uint64_t)epoch);
    /* 64 random bits modulo a length far below 2^64: always one draw, and a negligible bias. */
    return b->prompts ? 0 : (int64_t)(rng_u64(&rng) % (uint64_t)(b->tokens - b->windows * b->length + 1));
}

/* The order of an epoch's windows: Fisher and Yates, from the epoch's own stream. Its first number is the start. */
static void batches_shuffle(struct batches *b, int64_t epoch) {
    struct rng rng = rng_make(b->config.seed, (uint64_t)STREAM_EPOCHS << 56 | (uint64_t)epoch);
    (void)rng_u64(&rng);
    for (int64_t i = 0; i < b->windows; i++)
        b->order[i] = i;
    for (int64_t i = b->windows - 1; i > 0; i--) {
        int64_t j = (int64_t)rng_below(&rng, (uint64_t)i + 1), kept = b->order[i];
        b->order[i] = b->order[j];
        b->order[j] = kept;
    }
    b->epoch = epoch;
    if (b->arrange)
        b->arrange(b->arrange_context, b->order, b->windows, batches_epoch_start(b, epoch),
                   (epoch * b->windows) % b->config.sequences);
}

void batches_set_order(struct batches *b, batches_arrange *arrange, void *context) {
    b->arrange = arrange;
    b->arrange_context = context;
    b->epoch = -1;
}

/* Position of window `number` of SAMPLING_ONCE. */
static int64_t batches_once_start(const struct batches *b, int64_t number) {
    int64_t window = (int64_t)((__int128)number * batches_fit(b) / b->windows);
    return b->prompts ? b->starts[window] : window * b->length;
}

/* Position of sequence `number` of the run. */
static int64_t batches_window_start(struct batches *b, int64_t number) {
    if (b->config.sampling == SAMPLING_ONCE) return batches_once_start(b, number);
    if (b->config.sampling == SAMPLING_RANDOM) {
        struct rng rng = rng_make(b->config.seed, (uint64_t)STREAM_STARTS << 56 | (uint64_t)number);
        return (int64_t)rng_below(&rng, (uint64_t)(b->tokens - b->length) + 1);
    }
    int64_t epoch = number / b->windows;
    if (b->epoch != epoch) batches_shuffle(b, epoch);
    if (b->prompts) return b->starts[b->order[number % b->windows]];
    return batches_epoch_start(b, epoch) + b->order[number % b->windows] * b->length;
}

/* Copies n ids of the text from position `at` on. */
static void batches_copy_ids(const struct batches *b, int32_t *out, int64_t at, int64_t n) {
    for (int i = 0; i < b->n_files && n > 0; i++) {
        const struct token_file *f = &b->files[i];
        for (int64_t j = at - f->first; j >= 0 && j < f->count && n > 0; j++, at++, n--)
            *out++ = (int32_t)batches_id_at(f, j);
    }
    assert(n == 0);
}

int64_t batches_document_start(const struct batches *b, int32_t document) {
    assert(document >= b->config.first_document && document - b->config.first_document < b->n_documents);
    return b->starts[document - b->config.first_document];
}

int32_t batches_document_of(const struct batches *b, int64_t at) {
    int64_t low = 0, high = b->n_documents; /* starts[low] <= at < starts[high] */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (b->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return b->config.first_document + (int32_t)low;
}

/* Ids of the window that begins at `start`. */
static int64_t batches_window_length(const struct batches *b, int64_t start) {
    if (!b->prompts) return b->length;
    int64_t document = batches_document_of(b, start) - b->config.first_document;
    return b->starts[document + 1] - b->starts[document];
}

/* First and last document of each chunk of a sequence. Chunks after the end of a sample get numbers that match no other
 * chunk, not even the next. */
static void batches_fill_documents(const struct batches *b, int32_t (*documents)[2], int64_t start) {
    int64_t chunk = batches_chunk(b), n = batches_window_length(b, start);
    if (b->prompts) n += batches_pads(b, batches_document_of(b, start) - b->config.first_document);
    for (int64_t c = 0; c < b->length / chunk; c++) {
        documents[c][0] = -2;
        documents[c][1] = -1;
        if (c * chunk >= n) continue;
        if (b->prompts) {
            documents[c][0] = documents[c][1] = batches_document_of(b, start);
            continue;
        }
        documents[c][0] = batches_document_of(b, start + c * chunk);
        documents[c][1] = batches_document_of(b, start + (c + 1) * chunk - 1);
    }
}

/* First position of a window whose id is predicted. */
static int64_t batches_first_predicted(const struct batches *b, int64_t start) {
    return b->prompts ? b->prompts[batches_document_of(b, start) - b->config.first_document] : 1;
}

/* The sequence of a sample: `ids`, `targets` [C*S], L positions and the landmarks. */
static void batches_fill_sample(const struct batches *b, int32_t *ids, int32_t *targets, int64_t start) {
    const bool landmarks = model_config_landmarks(&b->model);
    int64_t chunk = landmarks ? b->model.chunk : b->length, positions = chunk + landmarks;
    int64_t pads = batches_pads(b, batches_document_of(b, start) - b->config.first_document);
    int64_t end = pads + batches_window_length(b, start), first = pads + batches_first_predicted(b, start);
    for (int64_t c = 0; c < b->length / chunk; c++) {
        int32_t *row = ids + c * positions, *target = targets + c * positions;
        if (landmarks) row[chunk] = b->model.landmark_id, target[chunk] = -1;
        for (int64_t i = 0; i < chunk; i++) {
            int64_t at = c * chunk + i, next = at + 1;
            row[i] = target[i] = -1;
            if (at >= pads && at < end) batches_copy_ids(b, &row[i], start + at - pads, 1);
            if (next >= first && next < end) batches_copy_ids(b, &target[i], start + next - pads, 1);
        }
    }
}

/* One sequence: `ids`, `targets` [C*S]. */
static void batches_fill_text(const struct batches *b, int32_t *ids, int32_t *targets, int64_t start) {
    const bool landmarks = model_config_landmarks(&b->model);
    int64_t chunk = landmarks ? b->model.chunk : b->length, chunks = b->length / chunk;
    int64_t positions = chunk + landmarks;
    for (int64_t c = 0; c < chunks; c++) {
        int32_t *row = ids + c * positions, *target = targets + c * positions;
        batches_copy_ids(b, row, start + c * chunk, chunk);
        if (landmarks) row[chunk] = b->model.landmark_id, target[chunk] = -1;
        for (int64_t i = 0; i + 1 < chunk; i++)
            target[i] = row[i + 1];
        target[chunk - 1] = -1;
        if (c + 1 < chunks) batches_copy_ids(b, &target[chunk - 1], start + (c + 1) * chunk, 1);
    }
}

/* Returns how many targets are scored. */
static int64_t batches_fill(const struct batches *b, int32_t *ids, int32_t *targets, int64_t start, bool scored) {
    int64_t rows = batches_rows(b) / b->config.sequences, count = 0;
    (b->prompts ? batches_fill_sample : batches_fill_text)(b, ids, targets, start);
    for (int64_t i = 0; i < rows; i++) {
        if (!scored) targets[i] = -1;
        count += targets[i] >= 0;
    }
    return count;
}

void batches_get(struct batches *b, struct batch *out, int held, int64_t number) {
    assert(held >= 0 && held < b->config.held && number >= 0);
    const struct batch_buffer *h = &b->held[held];
    int64_t rows = batches_rows(b) / b->config.sequences;
    *out = (struct batch){.sequences = b->config.sequences,
                          .chunks = b->config.chunks,
                          .ids = h->ids,
                          .targets = h->targets,
                          .documents = (const int32_t(*)[2])h->documents,
                          .samples = b->prompts != NULL,
                          .starts = h->starts};
    int64_t chunk = batches_chunk(b), documents = chunk > 0 ? b->length / chunk : 0;
    for (int64_t i = 0; i < b->config.sequences; i++) {
        int64_t window = number * b->config.sequences + i;
        bool beyond = b->config.sampling == SAMPLING_ONCE && window >= b->windows;
        h->starts[i] = batches_window_start(b, beyond ? window % b->windows : window);
        out->scored += batches_fill(b, h->ids + i * rows, h->targets + i * rows, h->starts[i], !beyond);
        if (chunk > 0) batches_fill_documents(b, h->documents + i * documents, h->starts[i]);
    }
}

int64_t batches_predicted(const struct batches *b, int32_t *out, int64_t window) {
    assert(b->config.sampling == SAMPLING_ONCE && window >= 0 && window < b->windows);
    int64_t start = batches_once_start(b, window), first = batches_first_predicted(b, start);
    int64_t n = batches_window_length(b, start) - first;
    if (out) batches_copy_ids(b, out, start + first, n);
    return n;
}

int batches_window_file(const struct batches *b, int64_t window) {
    assert(b->config.sampling == SAMPLING_ONCE && window >= 0 && window < b->windows);
    int64_t at = batches_once_start(b, window);
    int file = 0;
    while (at >= b->files[file].first + b->files[file].count)
        file++;
    return file;
}

/* ---- the corpus ---------------------------------------------------------------------------------------------------
 */

/* Ids of a document without its end. */
static int64_t batches_document_length(const struct batches *b, int64_t document) {
    int64_t n = b->starts[document + 1] - b->starts[document];
    int32_t last;
    batches_copy_ids(b, &last, b->starts[document + 1] - 1, 1);
    return last == b->config.end_id ? n - 1 : n;
}

enum status batches_corpus_make(struct batches_corpus *out, const struct batches *b) {
    struct batches_corpus c = {0};
    int64_t chunk = b->model.chunk, at = 0;
    for (int64_t i = 0; i < b->n_documents; i++)
        c.chunks += (batches_document_length(b, i) + chunk - 1) / chunk;
    if (c.chunks == 0) return fail(STATUS_INVALID, "all documents are empty");
    TRY(memory_allocate(&c.ids, (size_t)(c.chunks * chunk)));
    enum status s = memory_allocate(&c.documents, (size_t)c.chunks);
    if (s != STATUS_OK) {
        memory_free(c.ids);
        return s;
    }
    for (int64_t i = 0; i < b->n_documents; i++) {
        int64_t n = batches_document_length(b, i);
        for (int64_t j = 0; j < n; j += chunk, at++) {
            int64_t here = n - j < chunk ? n - j : chunk;
            batches_copy_ids(b, c.ids + at * chunk, b->starts[i] + j, here);
            for (int64_t k = here; k < chunk; k++)
                c.ids[at * chunk + k] = -1;
            c.documents[at][0] = c.documents[at][1] = b->config.first_document + (int32_t)i;
        }
    }
    *out = c;
    return STATUS_OK;
}

enum status batches_corpus_append(struct batches_corpus *c, const struct batches *b) {
    struct batches_corpus more = {0}, both = {0};
    size_t chunk = (size_t)b->model.chunk;
    enum status s;
    TRY_GOTO(s, batches_corpus_make(&more, b), out);
    both.chunks = c->chunks + more.chunks;
    TRY_GOTO(s, memory_allocate(&both.ids, (size_t)both.chunks * chunk), out);
    TRY_GOTO(s, memory_allocate(&both.documents, (size_t)both.chunks), out);
    size_t ids = (size_t)c->chunks * chunk;
    memcpy(both.ids, c->ids, ids * sizeof *both.ids);
    memcpy(both.ids + ids, more.ids, (size_t)more.chunks * chunk * sizeof *both.ids);
    memcpy(both.documents, c->documents, (size_t)c->chunks * sizeof *both.documents);
    memcpy(both.documents + c->chunks, more.documents, (size_t)more.chunks * sizeof *both.documents);
out:
    batches_corpus_free(&more);
    batches_corpus_free(c);
    if (s == STATUS_OK)
        *c = both;
    else
        batches_corpus_free(&both);
    return s;
}

void batches_corpus_free(struct batches_corpus *c) {
    memory_free(c->ids);
    memory_free(c->documents);
    *c = (struct batches_corpus){0};
}
