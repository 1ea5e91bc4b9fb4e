/* test_indexer.c -- text to store: contents, resuming, refusals. A tiny random model and a real tokenizer file. */
#include "base/half.h"
#include "base/rng.h"
#include "indexer/build/indexer.h"
#include "indexer/build/indexer_internal.h"
#include "session/model_folder.h"
#include "tests/test.h"

enum { DOCUMENTS = 120, SHARD = 40 };

static struct model_config config;
static struct params *params;
static struct tokenizer *tokenizer;
static struct device *device;
static struct encoder *encoder;
static char corpus[600], texts[DOCUMENTS][6000];

static const char *path_of(char out[600], const char *name) {
    snprintf(out, 600, "%s/%s", test_folder(), name);
    return out;
}

static void write_file(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
}

/* Lines of random words; document 7 is empty, 20 copies 10, 50 is long (many chunks). */
static void make_corpus(void) {
    static const char *const words[] = {"the",   "and",   "river", "stone", "winding",
                                        "north", "other", "sand",  "ring",  "on"};
    struct rng rng = rng_make(test_seed(), 1);
    FILE *f = fopen(path_of(corpus, "corpus.jsonl"), "wb");
    CHECK(f);
    for (int i = 0; i < DOCUMENTS; i++) {
        size_t length = i == 50 ? 5500 : rng_below(&rng, 900), n = 0;
        while (n < length)
            n += (size_t)sprintf(texts[i] + n, "%s ", words[rng_below(&rng, ARRAY_LEN(words))]);
        if (i != 7) sprintf(texts[i] + n, "document %d.", i);
        if (i == 7) texts[i][0] = 0;
        if (i == 20) strcpy(texts[20], texts[10]);
        fprintf(f, "{\"text\": \"%s\", \"meta\": {\"id\": \"d%d\"}}\n", texts[i], i);
    }
    CHECK(fclose(f) == 0);
}

static void load_model(void) {
    char path[700];
    const char *source = getenv("DRT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/cli/tiny", source ? source : ".");
    CHECK_OK(model_config_load(&config, path));
    CHECK_OK(params_init(&params, &config, 3));
    snprintf(path, sizeof path, "%s/tests/cli/tiny/tokenizer.json", source ? source : ".");
    CHECK_OK(tokenizer_open(&tokenizer, path));
    CHECK_OK(device_open(&device, "cpu", 2));
    struct weights weights = weights_of_params(params);
    CHECK_OK(encoder_create(&encoder, device, &config, &weights, 0));
}

static struct indexer_config base_config(const char *const *input, const char *store) {
    return (struct indexer_config){.reader = {.inputs = input, .n_inputs = 1, .format = READER_JSONL, .eod_id = -1},
                                   .tokenizer = tokenizer,
                                   .model = &config,
                                   .params = params,
                                   .device = device,
                                   .encoder = encoder,
                                   .store = store,
                                   .shard_chunks = SHARD};
}

struct snapshot {
    struct store_info info;
    int32_t *ids;
    float *landmarks;
    int64_t *documents;
};

static struct snapshot read_store(const char *dir) {
    struct store *store;
    struct store_view *view;
    struct snapshot s;
    CHECK_OK(store_open(&store, dir));
    CHECK_OK(store_view_open(&view, store));
    store_view_info(view, &s.info);
    size_t n = (size_t)s.info.chunks;
    s.ids = malloc(n * (size_t)config.chunk * sizeof *s.ids);
    s.landmarks = malloc(n * (size_t)config.hidden * sizeof *s.landmarks);
    s.documents = malloc(n * sizeof *s.documents);
    for (int64_t i = 0; i < s.info.chunks; i++) {
        struct store_chunk c;
        CHECK_OK(store_view_chunk(view, &c, s.ids + i * config.chunk, i));
        CHECK_OK(store_view_landmark(view, s.landmarks + i * config.hidden, i));
        s.documents[i] = c.document;
    }
    store_view_close(view);
    store_close(store);
    return s;
}

static void free_snapshot(struct snapshot *s) {
    free(s->ids);
    free(s->landmarks);
    free(s->documents);
}

static void check_same(const struct snapshot *a, const struct snapshot *b) {
    CHECK_EQ(a->info.chunks, b->info.chunks);
    CHECK_EQ(a->info.documents, b->info.documents);
    CHECK_EQ(a->info.tokens, b->info.tokens);
    CHECK_EQ(a->info.duplicates, b->info.duplicates);
    size_t n = (size_t)a->info.chunks;
    CHECK(memcmp(a->ids, b->ids, n * (size_t)config.chunk * sizeof *a->ids) == 0);
    CHECK(memcmp(a->landmarks, b->landmarks, n * (size_t)config.hidden * sizeof *a->landmarks) == 0);
    CHECK(memcmp(a->documents, b->documents, n * sizeof *a->documents) == 0);
}

/* Every chunk is what the tokenizer and the encoder make of its document alone. */
static void test_contents(const struct snapshot *s) {
    struct tokenizer_scratch *scratch;
    CHECK_OK(tokenizer_scratch_create(&scratch, tokenizer));
    int64_t chunk = 0;
    int32_t *ids = malloc((size_t)config.chunk * sizeof *ids);
    float *row = malloc((size_t)config.hidden * sizeof *row);
    for (int i = 0; i < DOCUMENTS; i++) {
        const int32_t *all;
        size_t n;
        if (i == 7 || i == 20) continue;
        CHECK_OK(tokenizer_encode(tokenizer, scratch, texts[i], strlen(texts[i]), TOKENIZER_LITERAL, &all, &n));
        for (size_t at = 0; at < n; at += (size_t)config.chunk, chunk++) {
            for (int j = 0; j < config.chunk; j++)
                ids[j] = at + (size_t)j < n ? all[at + (size_t)j] : -1;
            CHECK(memcmp(ids, s->ids + chunk * config.chunk, (size_t)config.chunk * sizeof *ids) == 0);
            const struct encoder_output out = {.landmarks = row};
            encoder_encode(encoder, &out, ids, 1);
            for (int j = 0; j < config.hidden; j++)
                row[j] = half_from_f16(half_to_f16(row[j]));
            CHECK(memcmp(row, s->landmarks + chunk * config.hidden, (size_t)config.hidden * sizeof *row) == 0);
        }
    }
    CHECK_EQ(chunk, s->info.chunks);
    free(row);
    free(ids);
    tokenizer_scratch_free(scratch);
}

static struct snapshot test_build(const char *const *input) {
    char store[600];
    struct indexer_report r;
    struct indexer_config c = base_config(input, path_of(store, "whole"));
    CHECK_OK(indexer_run(&r, &c));
    CHECK_EQ(r.documents, DOCUMENTS);
    CHECK_EQ(r.empty, 1);
    CHECK_EQ(r.duplicates, 1);
    struct snapshot s = read_store(store);
    CHECK_EQ(r.chunks, s.info.chunks);
    CHECK_EQ(r.tokens, s.info.tokens);
    CHECK_EQ(s.info.documents, DOCUMENTS - 2);
    CHECK(s.info.shards > 4);
    CHECK(!r.already_built);
    CHECK_OK(indexer_run(&r, &c)); /* the same again: nothing to do */
    CHECK(r.already_built && r.resumed_chunks == s.info.chunks && r.generation == 1);
    c.index = "IVF4,Flat";
    CHECK_FAILS(indexer_run(&r, &c), STATUS_INVALID, "its index is");
    c.index = "auto";
    c.shard_chunks = SHARD + 1;
    CHECK_FAILS(indexer_run(&r, &c), STATUS_INVALID, "built here already");
    return s;
}

/* Requests a stop at the nth call. */
struct stopper {
    int64_t asked, at;
};
static bool stop_at(void *context) {
    struct stopper *s = context;
    return ++s->asked >= s->at;
}

static void test_interrupted(const char *const *input, const struct snapshot *whole) {
    for (int64_t step = 1; step < 60; step += 11) {
        char name[40], store[600];
        snprintf(name, sizeof name, "stopped%d", (int)step);
        struct indexer_config c = base_config(input, path_of(store, name));
        struct indexer_report r;
        int runs = 0;
        int64_t documents = 0;
        for (;; runs++) {
            struct stopper stopper = {.at = step + runs};
            const struct progress progress = {.stop_requested = stop_at, .context = &stopper};
            c.progress = runs < 30 ? &progress : NULL;
            enum status s = indexer_run(&r, &c);
            if (s == STATUS_OK) break;
            if (s != STATUS_INTERRUPTED) fprintf(stderr, "%s\n", status_message());
            CHECK_EQ(s, STATUS_INTERRUPTED);
            CHECK(strstr(status_message(), "run the same command again"));
            CHECK(r.resumed_documents >= documents);
            documents = r.resumed_documents;
        }
        CHECK(runs > 0);
        struct snapshot again = read_store(store);
        check_same(whole, &again);
        free_snapshot(&again);
    }
}

static void test_resume_refused(const char *const *input) {
    char store[600], other[600];
    struct stopper stopper = {.at = 60};
    const struct progress progress = {.stop_requested = stop_at, .context = &stopper};
    struct indexer_config c = base_config(input, path_of(store, "refused"));
    struct indexer_report r;
    c.progress = &progress;
    CHECK_EQ(indexer_run(&r, &c), STATUS_INTERRUPTED);
    c.progress = NULL;
    c.append = true;
    CHECK_FAILS(indexer_run(&r, &c), STATUS_NOT_FOUND, "no built store to add to");
    c.append = false;
    c.shard_chunks = SHARD + 1;
    CHECK_FAILS(indexer_run(&r, &c), STATUS_MISMATCH, "other options");
    c.shard_chunks = SHARD;
    write_file(path_of(other, "other.jsonl"), "{\"text\": \"another corpus\"}\n", 27);
    const char *const inputs[] = {other};
    c.reader.inputs = inputs;
    CHECK_FAILS(indexer_run(&r, &c), STATUS_MISMATCH, "--restart");
    c.restart = true;
    CHECK_OK(indexer_run(&r, &c));
    CHECK_EQ(r.chunks, 1);
}

static void test_add(const char *const *input) {
    char store[600], more[600];
    struct indexer_config c = base_config(input, path_of(store, "added"));
    struct indexer_report r;
    CHECK_OK(indexer_run(&r, &c));
    int64_t chunks = r.chunks;
    static const char lines[] = "{\"text\": \"something that was not there before\"}\n{\"text\": \"x\"}\n";
    write_file(path_of(more, "more.jsonl"), lines, sizeof lines - 1);
    const char *const inputs[] = {more};
    c.reader.inputs = inputs;
    c.append = true;
    CHECK_OK(indexer_run(&r, &c));
    CHECK_EQ(r.generation, 2);
    struct snapshot s = read_store(store);
    CHECK_EQ(s.info.chunks, chunks + 2);
    free_snapshot(&s);
    CHECK_OK(indexer_run(&r, &c)); /* again: nothing new, no new generation */
    CHECK_EQ(r.duplicates, 2);
    CHECK_EQ(r.chunks, 0);
    CHECK_EQ(r.generation, 2);
}

/* Documents that were skipped after the last shard are counted in the store, also after an addition. */
static void test_trailing_duplicates(void) {
    char store[600], first[600], more[600];
    static const char lines[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    static const char others[] = "{\"text\": \"three\"}\n{\"text\": \"one\"}\n";
    const char *const inputs[] = {path_of(first, "repeated.jsonl")}, *const added[] = {path_of(more, "others.jsonl")};
    write_file(first, lines, sizeof lines - 1);
    write_file(more, others, sizeof others - 1);
    struct indexer_config c = base_config(inputs, path_of(store, "repeated"));
    struct indexer_report r;
    c.shard_chunks = 1;
    CHECK_OK(indexer_run(&r, &c));
    CHECK_EQ(r.duplicates, 2);
    struct snapshot s = read_store(store);
    CHECK_EQ(s.info.duplicates, 2);
    free_snapshot(&s);
    c.reader.inputs = added;
    c.append = true;
    CHECK_OK(indexer_run(&r, &c));
    s = read_store(store);
    CHECK_EQ(s.info.duplicates, 3);
    CHECK_EQ(s.info.documents, 3);
    free_snapshot(&s);
}

static void test_token_files(void) {
    char store[600], path[600];
    uint16_t ids[200];
    for (int i = 0; i < 200; i++)
        ids[i] = (uint16_t)(i % 250);
    ids[99] = 268;
    const char *const inputs[] = {path_of(path, "tokens.u16")};
    write_file(path, ids, sizeof ids);
    struct indexer_config c = base_config(inputs, path_of(store, "tokens"));
    struct indexer_report r;
    c.reader.format = READER_U16;
    c.reader.eod_id = 268;
    CHECK_OK(indexer_run(&r, &c));
    CHECK_EQ(r.documents, 2);
    CHECK_EQ(r.tokens, 199);
    CHECK_EQ(r.chunks, 2 + 2);
    struct snapshot s = read_store(store);
    for (int i = 0; i < 63; i++)
        CHECK_EQ(s.ids[i], ids[i]);
    for (int i = 0; i < 63; i++)
        CHECK_EQ(s.ids[2 * 63 + i], ids[100 + i]);
    CHECK_EQ(s.ids[63 + 36], -1);
    free_snapshot(&s);
    ids[150] = 300; /* the vocabulary has 271 */
    write_file(path, ids, sizeof ids);
    c.store = path_of(store, "tokens-bad");
    CHECK_FAILS(indexer_run(&r, &c), STATUS_INVALID, "tokens.u16: document at byte 200: its token 50 is id 300");
    const int32_t reserved[] = {config.landmark_id, config.pad_id};
    const char *const names[] = {"landmark (chunk_id)", "pad_id"};
    for (int i = 0; i < 2; i++) {
        char message[200];
        ids[150] = (uint16_t)reserved[i];
        write_file(path, ids, sizeof ids);
        snprintf(message, sizeof message, "tokens.u16: document at byte 200: its token 50 is id %d, the model's %s",
                 (int)reserved[i], names[i]);
        CHECK_FAILS(indexer_run(&r, &c), STATUS_INVALID, message);
    }
}

static void test_refusals(const char *const *input) {
    char store[600], path[600];
    struct indexer_report r;
    struct indexer_config c = base_config(input, path_of(store, "refusals"));
    c.max_ram = 1 << 20;
    CHECK_FAILS(indexer_run(&r, &c), STATUS_INVALID, "at least");
    c.max_ram = 0;
    const char *const inputs[] = {path_of(path, "empty.jsonl")};
    write_file(path, "{\"text\": \"\"}\n\n{\"text\": \"\"}\n", 27);
    c.reader.inputs = inputs;
    CHECK_FAILS(indexer_run(&r, &c), STATUS_INVALID, "empty corpus");
    struct model_config hidden = config;
    struct store_fingerprint f;
    hidden.encoder_input = ENCODER_INPUT_HIDDEN;
    CHECK_FAILS(indexer_fingerprint(&f, &hidden, params, tokenizer), STATUS_UNSUPPORTED, "encoder_input");
    hidden.base_lm = true; /* no encoder that could read hidden states */
    CHECK_OK(indexer_fingerprint(&f, &hidden, params, tokenizer));
    uint8_t landmarks[16];
    params_landmark_fingerprint(params, landmarks);
    CHECK(memcmp(f.encoder, landmarks, sizeof landmarks) == 0);
}

/* Several workers, a lookahead of a few documents: the order is kept, nothing is lost, an early close does not hang. */
static void test_feed_order(const char *const *input) {
    for (int stop = 5; stop <= DOCUMENTS + 5; stop += DOCUMENTS) {
        const struct reader_config reader_config = {.inputs = input, .n_inputs = 1, .format = READER_JSONL};
        struct reader *reader;
        struct feed *feed;
        CHECK_OK(reader_open(&reader, &reader_config));
        const struct feed_config feed_config = {.reader = reader,
                                                .tokenizer = tokenizer,
                                                .ids = {.vocab_size = config.vocab_size, .reserved = {-1, -1, -1}},
                                                .workers = 5,
                                                .lookahead_bytes = 4096};
        CHECK_OK(feed_open(&feed, &feed_config));
        int n = 0;
        for (bool more = true; n < stop; n++) {
            struct feed_item item;
            CHECK_OK(feed_next(feed, &item, &more));
            if (!more) break;
            CHECK_EQ(item.document.bytes, strlen(texts[n]));
            CHECK_EQ(item.after.documents, n + 1);
            feed_release(feed, &item);
        }
        CHECK_EQ(n, stop < DOCUMENTS ? stop : DOCUMENTS);
        feed_close(feed);
        reader_close(reader);
    }
}

/* Documents of ids: workers beyond id_workers leave, the others read all documents in order. */
static void test_feed_ids(void) {
    enum { N = 3000, EACH = 7 };
    static uint16_t ids[N * EACH];
    char path[600];
    const char *const inputs[] = {path_of(path, "feed-ids.u16")};
    for (int i = 0; i < N * EACH; i++)
        ids[i] = (uint16_t)(i % EACH == EACH - 1 ? 0 : 1 + i / EACH % 200);
    write_file(path, ids, sizeof ids);
    for (int id_workers = 0; id_workers <= 4; id_workers++) {
        const struct reader_config reader_config = {.inputs = inputs, .n_inputs = 1, .eod_id = 0};
        struct reader *reader;
        struct feed *feed;
        CHECK_OK(reader_open(&reader, &reader_config));
        const struct feed_config feed_config = {.reader = reader,
                                                .ids = {.vocab_size = config.vocab_size, .reserved = {-1, -1, -1}},
                                                .workers = 6,
                                                .id_workers = id_workers,
                                                .lookahead_bytes = 1 << 16};
        CHECK_OK(feed_open(&feed, &feed_config));
        int n = 0;
        for (bool more = true;; n++) {
            struct feed_item item;
            CHECK_OK(feed_next(feed, &item, &more));
            if (!more) break;
            CHECK_EQ(item.document.ids[0], 1 + n % 200);
            feed_release(feed, &item);
        }
        CHECK_EQ(n, N);
        feed_close(feed);
        reader_close(reader);
    }
}

static void test_cursor(const char *const *input) {
    const struct reader_config reader = {.inputs = input, .n_inputs = 1};
    struct cursor a, b;
    uint8_t packed[CURSOR_BYTES_MAX];
    size_t n;
    cursor_describe(&a, &reader, 100);
    a.position = (struct reader_position){5, 1, UINT64_C(1) << 40, 9, 3, UINT64_C(0xFEDCBA9876543210), UINT64_MAX - 1};
    a.since_boundary = 77;
    a.documents = 5;
    a.empty = 2;
    a.replaced = 3;
    n = cursor_pack(packed, &a);
    CHECK_OK(cursor_unpack(&b, packed, n, &a, "store"));
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    for (uint64_t file = 1; file < 5000; file += 1 + file % 3) { /* the list becomes shorter, and stays in order */
        const struct reader_position at = {.documents = 5, .file = file, .files_hash = file * 7};
        cursor_advance(&a, &at);
        CHECK(a.n_marks > 0 && a.n_marks <= CURSOR_MARKS);
        for (uint64_t i = 0; i < a.n_marks; i++)
            CHECK(a.marks[i].files_hash == a.marks[i].file * 7 && (i == 0 || a.marks[i].file > a.marks[i - 1].file));
    }
    CHECK(a.n_marks >= CURSOR_MARKS / 2 && a.marks[0].file < 200);
    n = cursor_pack(packed, &a);
    CHECK_OK(cursor_unpack(&b, packed, n, &a, "store"));
    CHECK_EQ(b.n_marks, a.n_marks);
    CHECK_EQ(b.marks[b.n_marks - 1].file, a.marks[a.n_marks - 1].file);
    packed[0] = 'x';
    CHECK_FAILS(cursor_unpack(&b, packed, n, &a, "store"), STATUS_VERSION, "--restart");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 11);
    load_model();
    make_corpus();
    const char *const input[] = {corpus};
    test_cursor(input);
    test_feed_ids();
    test_feed_order(input);
    struct snapshot whole = test_build(input);
    test_contents(&whole);
    test_interrupted(input, &whole);
    test_resume_refused(input);
    test_add(input);
    test_trailing_duplicates();
    test_token_files();
    test_refusals(input);
    free_snapshot(&whole);
    encoder_free(encoder);
    device_close(device);
    tokenizer_free(tokenizer);
    params_free(params);
    return test_done();
}
