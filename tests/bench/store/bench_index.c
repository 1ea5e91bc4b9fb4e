/* bench_index.c -- makes a store of random landmarks in clusters, large and fast, on which
 * tests/device/bench/run_index.sh measures the making of an index.
 *
 *   bench_index FOLDER [chunks (1000000)] [dim (384)] [clusters (chunks / 160)] [--json FILE]
 *   bench_index --tokens FILE.u16 [tokens (100000000)]
 *   bench_index --text FILE.jsonl[.zst] [bytes of text (400000000)] [TOKENIZER.json]
 *   bench_index --edit SOURCE.u16 FILE.u16 tokens [one of N ids (8)]
 *   bench_index --copies FILE.jsonl[.zst] bytes SOURCE.jsonl...
 *
 * A landmark is a centre plus noise of twice the size of a difference of centres. Centres are in 512 groups in the same
 * manner, so that clusters have neighbours. The numbers depend on the chunk only. The store has no index; its tokens
 * are all equal.
 *
 * The second form writes token ids below 8192 for tests/device/bench/run_words.sh, in documents that end with 0. An id
 * is one of eight successors of the id before, half of the time, and otherwise has the frequencies of Zipf's law. So
 * pairs occur again about as often as in text.
 *
 * --edit repeats SOURCE up to so many tokens for tests/device/bench/run_parts.sh. In each copy one of N ids is
 * replaced by another one of SOURCE; 0, which ends documents, stays.
 *
 * --copies repeats the documents of all sources up to so many bytes. In each copy the text of a document begins
 * elsewhere: a part of it, up to a space, is moved from its beginning to its end. So hardly any document occurs twice,
 * and words, tokens and compressed bytes are as in the source. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/system/processors.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/bench/result.h"
#include "tests/store_fixture.h"
#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

enum { PER_DOCUMENT = 1024, BLOCK = 64 * PER_DOCUMENT, SHARD_BLOCKS = 4, GROUPS = 512 };

struct rows {
    int64_t first, n, clusters;
    int dim;
    const float *centres;
    float *out;
    struct threads *threads;
};

/* xorshift64*, whose bytes are uniform; the sum of one byte has a standard deviation of 73.9. */
static uint64_t next(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static void make_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct rows *r = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        uint64_t state = (uint64_t)(r->first + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        const float *centre = r->centres + (int64_t)(next(&state) % (uint64_t)r->clusters) * r->dim;
        float *out = r->out + i * r->dim;
        for (int j = 0; j < r->dim; j += 8) {
            uint64_t bytes = next(&state);
            for (int k = j; k < j + 8 && k < r->dim; k++, bytes >>= 8)
                out[k] = centre[k] + 2.0f * ((float)(bytes & 255) - 127.5f) / 73.9f;
        }
    }
}

static void *make_block(void *context) {
    struct rows *r = context;
    threads_for(r->threads, r->n, 256, make_rows, r);
    return NULL;
}

static float *make_centres(int64_t clusters, int dim) {
    float *centres, *group;
    struct rng rng = rng_make(1, 2);
    CHECK_OK(memory_allocate(&centres, (size_t)(clusters * dim)));
    CHECK_OK(memory_allocate(&group, (size_t)GROUPS * (size_t)dim));
    for (int i = 0; i < GROUPS * dim; i++)
        group[i] = rng_normal(&rng);
    uint64_t state = 12345;
    for (int64_t i = 0; i < clusters * dim; i++)
        centres[i] = group[i / dim % GROUPS * dim + i % dim] + ((float)(next(&state) & 255) - 127.5f) / 73.9f;
    memory_free(group);
    return centres;
}

static void store_block(struct store_writer *w, const struct rows *r) {
    static int32_t ids[PER_DOCUMENT * FIXTURE_CHUNK];
    for (int64_t at = 0; at < r->n; at += PER_DOCUMENT) {
        const int64_t n = r->n - at < PER_DOCUMENT ? r->n - at : PER_DOCUMENT;
        struct store_new_document d = {.ids = ids, .n_ids = (size_t)n * FIXTURE_CHUNK, .source = "bench", .key = "k"};
        bool duplicate;
        fixture_hash(d.hash, r->first + at);
        CHECK_OK(store_shard_document(w, &d, &duplicate));
        CHECK_OK(store_shard_landmarks(w, r->out + at * r->dim, n));
    }
}

static void make_store(const char *dir, struct rows *r, int64_t chunks) {
    const struct store_writer_config config = fixture_config(r->dim, 100);
    struct store_writer *w;
    float *buffers[2];
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    for (int i = 0; i < 2; i++)
        CHECK_OK(memory_allocate(&buffers[i], (size_t)BLOCK * (size_t)r->dim));
    struct rows next_block = *r;
    next_block.out = buffers[0];
    next_block.n = chunks < BLOCK ? chunks : BLOCK;
    make_block(&next_block);
    for (int64_t block = 0; next_block.n > 0; block++) { /* the next block is made while this one is stored */
        const struct rows mine = next_block;
        pthread_t thread;
        next_block.first = mine.first + mine.n;
        next_block.n = chunks - next_block.first < BLOCK ? chunks - next_block.first : BLOCK;
        next_block.out = buffers[(block + 1) % 2];
        CHECK(threads_start(&thread, make_block, &next_block));
        if (block % SHARD_BLOCKS == 0) CHECK_OK(store_shard_begin(w));
        store_block(w, &mine);
        if (block % SHARD_BLOCKS == SHARD_BLOCKS - 1 || next_block.n == 0) CHECK_OK(store_shard_seal(w, NULL, 0));
        pthread_join(thread, NULL);
    }
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact", .seed = 1}));
    store_writer_close(w);
    for (int i = 0; i < 2; i++)
        memory_free(buffers[i]);
}

/* ---- tokens ---- */

struct tokens {
    uint16_t *out;
    const uint16_t *zipf; /* [65536] */
};

static void make_tokens(void *context, int64_t begin, int64_t end, int worker) {
    const struct tokens *t = context;
    uint64_t state = (uint64_t)(begin + 1) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t before = 1;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const uint64_t bits = next(&state);
        const uint16_t id = t->zipf[bits >> 8 & 65535],
                       successor = t->zipf[(before * 8 + (bits >> 32 & 7)) * 40503 & 65535];
        const uint16_t chosen = bits >> 63 ? id : successor;
        t->out[i] = i % 700 == 699 ? 0 : chosen;
        before = chosen;
    }
}

enum { TOKEN_BLOCK = 1 << 20 };
static void token_blocks(void *context, int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; i++) /* blocks are fixed, so the ids do not depend on threads */
        make_tokens(context, i * TOKEN_BLOCK, (i + 1) * TOKEN_BLOCK, worker);
}

static int write_tokens(const char *path, int64_t n) {
    static uint16_t zipf[65536];
    struct threads *threads;
    struct tokens t = {.zipf = zipf};
    for (int i = 0; i < 65536; i++)
        zipf[i] = (uint16_t)exp((double)i / 65536 * log(8191)); /* 1 .. 8190 */
    n = (n + TOKEN_BLOCK - 1) / TOKEN_BLOCK * TOKEN_BLOCK;
    CHECK_OK(threads_create(&threads, 0));
    CHECK_OK(memory_allocate(&t.out, (size_t)n));
    threads_for(threads, n / TOKEN_BLOCK, 1, token_blocks, &t);
    CHECK_OK(file_save(path, t.out, (size_t)n * sizeof *t.out));
    printf("tokens,%lld\n", (long long)n);
    memory_free(t.out);
    threads_free(threads);
    return 0;
}

/* ---- copies with edits ---- */

struct edit {
    const uint16_t *source;
    int64_t n, tokens; /* of the source; of the file */
    uint64_t one_of;
    int file;
};

static void edit_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const struct edit *e = context;
    uint16_t *out;
    (void)worker;
    CHECK_OK(memory_allocate(&out, TOKEN_BLOCK));
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * TOKEN_BLOCK, left = e->tokens - first,
                      n = left < TOKEN_BLOCK ? left : TOKEN_BLOCK;
        uint64_t state = (uint64_t)(block + 1) * UINT64_C(0x9e3779b97f4a7c15);
        for (int64_t i = 0; i < n; i++) {
            const uint16_t id = e->source[(first + i) % e->n];
            const uint64_t bits = next(&state);
            const uint16_t other = e->source[(int64_t)((bits >> 16) % (uint64_t)e->n)];
            out[i] = id != 0 && other != 0 && (bits & 65535) % e->one_of == 0 ? other : id;
        }
        const ssize_t bytes = (ssize_t)((size_t)n * sizeof *out);
        CHECK(pwrite(e->file, out, (size_t)bytes, (off_t)(first * (int64_t)sizeof *out)) == bytes);
    }
    memory_free(out);
}

static int write_edits(const char *source, const char *path, int64_t tokens, int64_t one_of) {
    struct threads *threads;
    struct file_map map;
    CHECK_OK(file_map(&map, source));
    CHECK_OK(threads_create(&threads, 0));
    struct edit e = {.source = (const uint16_t *)(const void *)map.data,
                     .n = (int64_t)map.size / 2,
                     .tokens = tokens,
                     .one_of = (uint64_t)one_of,
                     .file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666)};
    CHECK(e.n > 0 && tokens > 0 && one_of > 0 && e.file >= 0);
    threads_for(threads, (tokens + TOKEN_BLOCK - 1) / TOKEN_BLOCK, 1, edit_blocks, &e);
    CHECK(close(e.file) == 0);
    printf("tokens,%lld,copies,%.1f\n", (long long)tokens, (double)tokens / (double)e.n);
    threads_free(threads);
    file_unmap(&map);
    return 0;
}

/* ---- text ---- */

static void write_compressed(struct file_writer *w, ZSTD_CCtx *zstd, const char *data, size_t bytes, bool last) {
    static char out[1 << 17];
    ZSTD_inBuffer from = {data, bytes, 0};
    for (size_t left = 1; last ? left > 0 : from.pos < from.size;) {
        ZSTD_outBuffer to = {out, sizeof out, 0};
        left = ZSTD_compressStream2(zstd, &to, &from, last ? ZSTD_e_end : ZSTD_e_continue);
        CHECK(!ZSTD_isError(left));
        if (to.pos > 0) CHECK_OK(file_write(w, out, to.pos));
    }
}

enum { TEXT_BYTES = 4096, TEXTS = 16384, WORDS = 30000, WORD_BYTES = 16 };

/* Words of 1 to 4 syllables, the beginning of a JSON object, without its end. Returns its bytes. */
static size_t make_text(char out[TEXT_BYTES + 64], char (*words)[WORD_BYTES], int n_words, uint64_t *state) {
    size_t used = (size_t)snprintf(out, TEXT_BYTES, "{\"text\": \"");
    while (used < TEXT_BYTES) {
        const double u = (double)(next(state) >> 11) * 0x1p-53;
        const char *word = words[(int)(exp(u * log(n_words)) - 1)];
        used += (size_t)snprintf(out + used, 64, "%s%s ", word, next(state) >> 60 ? "" : ",");
    }
    return used;
}

/* Writes lines to a file, compressed if its name ends with .zst. */
struct text_file {
    struct file_writer *file;
    ZSTD_CCtx *zstd; /* NULL: as they are */
};

static struct text_file text_create(const char *path, int level) {
    struct text_file out = {0};
    CHECK_OK(file_create(&out.file, path));
    if (strlen(path) <= 4 || strcmp(path + strlen(path) - 4, ".zst") != 0) return out;
    out.zstd = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(out.zstd, ZSTD_c_compressionLevel, level);
    /* which a library without threads refuses */
    (void)ZSTD_CCtx_setParameter(out.zstd, ZSTD_c_nbWorkers, processors_available());
    return out;
}

static void text_write(struct text_file *out, const char *data, size_t bytes) {
    if (out->zstd)
        write_compressed(out->file, out->zstd, data, bytes, false);
    else
        CHECK_OK(file_write(out->file, data, bytes));
}

static void text_publish(struct text_file *out) {
    if (out->zstd) write_compressed(out->file, out->zstd, "", 0, true);
    ZSTD_freeCCtx(out->zstd);
    CHECK_OK(file_publish(out->file));
}

/* Words that a tokenizer divides into many parts: 2.4 bytes a token. */
static void words_of_syllables(char (*words)[WORD_BYTES], uint64_t *state) {
    static const char *const syllables[] = {"ta", "re", "in", "so", "mer", "al", "ton", "we",
                                            "ci", "ne", "ly", "or", "sta", "de", "us",  "ge"};
    for (int i = 0; i < WORDS; i++) {
        const int n = i < 60 ? 1 : i < 2000 ? 2 : i < 15000 ? 3 : 4;
        for (int k = 0; k < n; k++)
            strcat(words[i], syllables[next(state) >> 40 & 15]);
    }
}

/* Characters that JSON does not escape. */
static bool is_word(const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i] <= ' ' || bytes[i] >= 127 || bytes[i] == '"' || bytes[i] == '\\') return false;
    return n > 0 && n < WORD_BYTES / 2;
}

/* Words of one or two tokens: all tokens that are a space and letters, in the order of their ids, and then pairs of
 * such a token and one of letters alone. So a token has as many bytes as in text that the tokenizer was trained on. */
static void words_of_tokens(char (*words)[WORD_BYTES], const char *path, uint64_t *state) {
    struct tokenizer *t;
    CHECK_OK(tokenizer_open(&t, path));
    int n = 0, n_ends = 0, whole;
    int32_t *ends;
    CHECK_OK(memory_allocate(&ends, (size_t)tokenizer_vocab_size(t)));
    for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
        size_t bytes;
        const char *token = tokenizer_bytes(t, id, &bytes);
        if (!token || tokenizer_is_special(t, id)) continue;
        if (is_word(token, bytes)) ends[n_ends++] = id;
        if (bytes > 1 && token[0] == ' ' && is_word(token + 1, bytes - 1) && n < WORDS)
            memcpy(words[n++], token + 1, bytes - 1);
    }
    CHECK(n > 0 && n_ends > 0);
    for (whole = n; n < WORDS; n++) {
        size_t bytes;
        const char *end = tokenizer_bytes(t, ends[(next(state) >> 40) % (uint64_t)n_ends], &bytes),
                   *first = words[(next(state) >> 40) % (uint64_t)whole];
        snprintf(words[n], WORD_BYTES, "%s%.*s", first, (int)bytes, end);
    }
    memory_free(ends);
    tokenizer_free(t);
}

/* Documents of some 4 KB, a JSON object each. After TEXTS documents the texts occur again, with other numbers. */
static int write_text(const char *path, int64_t bytes, const char *tokenizer) {
    static char words[WORDS][WORD_BYTES];
    char *texts;
    size_t used[TEXTS];
    uint64_t state = 7;
    if (tokenizer)
        words_of_tokens(words, tokenizer, &state);
    else
        words_of_syllables(words, &state);
    CHECK_OK(memory_allocate(&texts, (size_t)TEXTS * (TEXT_BYTES + 64)));
    struct text_file out = text_create(path, 1);
    int64_t written = 0;
    for (int64_t documents = 0; written < bytes; documents++) {
        char end[32], *text = texts + documents % TEXTS * (TEXT_BYTES + 64);
        if (documents < TEXTS) used[documents] = make_text(text, words, WORDS, &state);
        const size_t body = used[documents % TEXTS],
                     tail = (size_t)snprintf(end, sizeof end, "%lld\"}\n", (long long)documents);
        written += (int64_t)(body + tail);
        text_write(&out, text, body);
        text_write(&out, end, tail);
    }
    memory_free(texts);
    text_publish(&out);
    return 0;
}

/* ---- copies of text ---- */

/* Finds the text of a line, without its quotation marks. */
static bool find_text(const char *line, size_t bytes, size_t *begin, size_t *end) {
    static const char key[] = "\"text\": \"";
    const char *at = memmem(line, bytes, key, sizeof key - 1);
    if (!at) return false;
    *begin = (size_t)(at - line) + sizeof key - 1;
    for (*end = *begin; *end < bytes && line[*end] != '"'; *end += line[*end] == '\\' ? 2 : 1)
        ;
    return *end < bytes;
}

/* A space is never part of an escape sequence. Returns the bytes of the text. */
static size_t write_copy(struct text_file *out, const char *line, size_t bytes, int64_t copy) {
    size_t begin, end;
    CHECK(find_text(line, bytes, &begin, &end));
    const double share = (double)copy * 0.6180339887498949;
    const char *from = line + begin + (size_t)((double)(end - begin) * (share - floor(share)));
    const char *cut = copy > 0 ? memchr(from, ' ', (size_t)(line + end - from)) : NULL;
    if (!cut) cut = line + begin; /* only in copy 0, and where the rest has no space */
    text_write(out, line, begin);
    text_write(out, cut, (size_t)(line + end - cut));
    text_write(out, line + begin, (size_t)(cut - line) - begin);
    text_write(out, line + end, bytes - end);
    return end - begin;
}

static int write_copies(const char *path, int64_t bytes, char **sources, int n_sources) {
    struct text_file out = text_create(path, 3);
    int64_t written = 0, text = 0, copies = 0;
    while (written < bytes) {
        for (int i = 0; i < n_sources && written < bytes; i++) {
            struct file_map map;
            CHECK_OK(file_map(&map, sources[i]));
            const char *at = (const char *)map.data, *end = at + map.size;
            while (at < end && written < bytes) {
                const char *newline = memchr(at, '\n', (size_t)(end - at));
                CHECK(newline != NULL);
                text += (int64_t)write_copy(&out, at, (size_t)(newline + 1 - at), copies);
                written += newline + 1 - at;
                at = newline + 1;
            }
            file_unmap(&map);
        }
        copies++;
    }
    text_publish(&out);
    printf("bytes,%lld,of text,%lld,copies,%lld\n", (long long)written, (long long)text, (long long)copies);
    return 0;
}

int main(int argc, char **argv) {
    result_begin("bench_index", &argc, argv);
    if (argc > 2 && strcmp(argv[1], "--tokens") == 0)
        return write_tokens(argv[2], argc > 3 ? atoll(argv[3]) : 100000000);
    if (argc > 2 && strcmp(argv[1], "--text") == 0)
        return write_text(argv[2], argc > 3 ? atoll(argv[3]) : 400000000, argc > 4 ? argv[4] : NULL);
    if (argc > 4 && strcmp(argv[1], "--edit") == 0)
        return write_edits(argv[2], argv[3], atoll(argv[4]), argc > 5 ? atoll(argv[5]) : 8);
    if (argc > 4 && strcmp(argv[1], "--copies") == 0) return write_copies(argv[2], atoll(argv[3]), argv + 4, argc - 4);
    if (argc < 2) {
        fprintf(stderr, "usage: bench_index FOLDER [chunks] [dim] [clusters] [--json FILE]\n");
        return 2;
    }
    const int64_t chunks = argc > 2 ? atoll(argv[2]) : 1000000;
    struct rows r = {.dim = argc > 3 ? atoi(argv[3]) : 384, .clusters = argc > 4 ? atoll(argv[4]) : chunks / 160};
    if (chunks < 1 || r.dim < 1 || r.dim > 65536) return 2;
    if (r.clusters < 1) r.clusters = 1;
    const double begin = clock_seconds();
    CHECK_OK(threads_create(&r.threads, 0));
    float *centres = make_centres(r.clusters, r.dim);
    r.centres = centres;
    make_store(argv[1], &r, chunks);
    const double seconds = clock_seconds() - begin;
    printf("store,%lld chunks of %d in %lld clusters,%.1f s,%.0f chunks/s\n", (long long)chunks, r.dim,
           (long long)r.clusters, seconds, (double)chunks / seconds);
    result_value("chunks/s", (double)chunks / seconds, "random store, d %d", r.dim);
    memory_free(centres);
    threads_free(r.threads);
    result_end();
    return 0;
}
