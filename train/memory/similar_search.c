/* similar_search.c -- searches the corpus by BM25 for every chunk of the text, and keeps the results in a file:
 * safetensors with the tables "text" and "valid" [chunks, each] I32; its metadata describes the text. */
#include "base/file.h"
#include "base/formats/safetensors.h"
#include "base/memory.h"
#include "store/lexical/lexical_build.h"
#include "train/memory/similar_passages_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* QUERIES of one call; LOOK_BACK chunks of a query; ASKED ids of a query that are looked up. The time of a query grows
 * with the length of its postings. Frequent ids have the longest postings and the least weight, so the rarest ids find
 * nearly the same chunks. */
enum { QUERIES = 4096, LOOK_BACK = 2, ASKED = 32 };
static const char *const table_names[] = {"text", "valid"}, *const coming_names[] = {"text.coming", "valid.coming"};

/* Equal text, chunk size and number of results give equal results: this line identifies them. */
static void similar_describe(char out[160], const struct similar *n) {
    uint64_t pool = n->pool.batches ? batches_fingerprint(n->pool.batches) : 0,
             valid = n->valid.batches ? batches_fingerprint(n->valid.batches) : 0;
    int length = snprintf(out, 160, "2 text %016" PRIx64 " pool %016" PRIx64 " valid %016" PRIx64 " chunk %d each %d",
                          batches_fingerprint(n->text.batches), pool, valid, n->model.chunk, n->each);
    if (n->each_coming > 0) snprintf(out + length, (size_t)(160 - length), " coming %d", n->each_coming);
}

/* ---- the index ----------------------------------------------------------------------------------------------------
 */

static int similar_real(const int32_t *ids, int chunk) {
    int real = 0;
    while (real < chunk && ids[real] >= 0)
        real++;
    return real;
}

static enum status similar_build_index(const struct similar *n, const char *path) {
    struct lexical_builder *builder;
    const struct lexical_build how = {.vocab_size = n->model.vocab_size, .progress = n->config.progress};
    uint64_t bytes;
    uint32_t crc;
    if (n->model.vocab_size > LEXICAL_VOCAB_MAX || n->corpus.chunks > LEXICAL_CHUNKS_MAX)
        return fail(STATUS_UNSUPPORTED,
                    "memory.passages: %lld chunks of %d ids: at most %d of %d: give less data or pool_data",
                    (long long)n->corpus.chunks, n->model.vocab_size, LEXICAL_CHUNKS_MAX, LEXICAL_VOCAB_MAX);
    TRY(lexical_builder_create(&builder, path, &how));
    for (int64_t c = 0; c < n->corpus.chunks; c++) {
        const int32_t *ids = n->corpus.ids + c * n->model.chunk;
        enum status s = lexical_builder_add(builder, ids, similar_real(ids, n->model.chunk));
        if (s != STATUS_OK) {
            lexical_builder_discard(builder);
            return s;
        }
    }
    return lexical_builder_publish(builder, &bytes, &crc);
}

/* ---- the search ---------------------------------------------------------------------------------------------------
 */

struct similar_queries {
    struct lexical_query query[QUERIES];
    struct store_range own[QUERIES];
    int32_t *ids;       /* [QUERIES, LOOK_BACK * chunk]; -1: an id that is too frequent to be looked up */
    int64_t *frequency; /* [vocab_size] in the corpus */
};

static enum status similar_queries_create(struct similar_queries **out, const struct similar *n) {
    struct similar_queries *q;
    TRY(memory_allocate_zero(&q, 1));
    *out = q;
    TRY(memory_allocate_zero(&q->ids, (size_t)(QUERIES * LOOK_BACK * n->model.chunk)));
    TRY(memory_allocate_zero(&q->frequency, (size_t)n->model.vocab_size));
    for (int64_t i = 0; i < n->corpus.chunks * n->model.chunk; i++)
        if (n->corpus.ids[i] >= 0) q->frequency[n->corpus.ids[i]]++;
    return STATUS_OK;
}

static void similar_queries_free(struct similar_queries *q) {
    if (!q) return;
    memory_free(q->ids);
    memory_free(q->frequency);
    memory_free(q);
}

/* Keeps the ASKED rarest of n ids (the earlier ones of equal frequency) and sets the others to -1. The ids keep their
 * positions, because pairs of adjacent ids are scored too. */
static void similar_keep_rare(const struct similar_queries *q, int32_t *ids, int n) {
    bool kept[LOOK_BACK * SIMILAR_CHUNK_MAX] = {0};
    for (int round = 0; round < ASKED; round++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!kept[i] && ids[i] >= 0 && (best < 0 || q->frequency[ids[i]] < q->frequency[ids[best]])) best = i;
        if (best < 0) break;
        kept[best] = true;
    }
    for (int i = 0; i < n; i++)
        if (!kept[i]) ids[i] = -1;
}

/* Makes query i: the chunk and the one before it, or with `coming` the one after it alone. A chunk of another document
 * is left out. */
static void similar_make_query(const struct similar *n, struct similar_queries *q, int64_t i,
                               const struct similar_text *t, int64_t chunk, bool coming) {
    const struct batches_corpus *of = t == &n->valid ? &n->valid_corpus : &n->corpus;
    int64_t size = n->model.chunk, from = chunk, n_chunks = 1;
    int32_t document = of->documents[chunk][0];
    if (coming) {
        from = chunk + 1;
        n_chunks = from < t->chunks && of->documents[from][0] == document;
    }
    while (!coming && n_chunks < LOOK_BACK && from > 0 && of->documents[from - 1][0] == document)
        from--, n_chunks++;
    int32_t *ids = q->ids + i * LOOK_BACK * size;
    memcpy(ids, of->ids + (n_chunks > 0 ? from : 0) * size, (size_t)(n_chunks * size) * sizeof *ids);
    similar_keep_rare(q, ids, (int)(n_chunks * size));
    q->query[i] = (struct lexical_query){.ids = ids, .n = (int)(n_chunks * size)};
    q->own[i] = (struct store_range){0};
    if (t != &n->text) return;
    const int64_t *first = t->document_first + (document - t->first_document);
    q->own[i] = (struct store_range){.begin = first[0], .end = first[1]};
}

/* Makes the table [chunks, each] of the results of every chunk of the text. */
static enum status similar_search_table(const struct similar *n, int32_t **table, const struct similar_text *t,
                                        const struct lexical *x, bool coming) {
    struct similar_queries *q = NULL;
    struct store_hit *hits = NULL;
    enum status s;
    int each = coming ? n->each_coming : n->each;
    TRY_GOTO(s, memory_allocate(table, (size_t)(t->chunks * each)), out);
    TRY_GOTO(s, similar_queries_create(&q, n), out);
    TRY_GOTO(s, memory_allocate(&hits, (size_t)(QUERIES * each)), out);
    const struct lexical_search how = {
        .k = each, .pair_weight = LEXICAL_PAIR_WEIGHT, .exclude = q->own, .threads = n->config.threads};
    for (int64_t first = 0; first < t->chunks; first += QUERIES) {
        int64_t count = t->chunks - first < QUERIES ? t->chunks - first : QUERIES;
        progress_step(n->config.progress, "find neighbours", "chunks", first, t->chunks);
        if (progress_stop_requested(n->config.progress)) {
            s = fail(STATUS_INTERRUPTED, "stopped while neighbours were searched: nothing was trained yet");
            goto out;
        }
        for (int64_t i = 0; i < count; i++)
            similar_make_query(n, q, i, t, first + i, coming);
        TRY_GOTO(s, lexical_search(x, hits, q->query, count, &how), out);
        for (int64_t i = 0; i < count * each; i++)
            (*table)[first * each + i] = (int32_t)hits[i].chunk;
    }
    s = STATUS_OK;
out:
    similar_queries_free(q);
    memory_free(hits);
    return s;
}

static enum status similar_search(const struct similar *n, struct similar_text *t, const struct lexical *x) {
    TRY(similar_search_table(n, &t->found, t, x, false));
    return n->each_coming > 0 ? similar_search_table(n, &t->coming, t, x, true) : STATUS_OK;
}

/* ---- the file -----------------------------------------------------------------------------------------------------
 */

static struct tensor_view similar_view(const char *name, const struct similar_text *t, const int32_t *table, int each) {
    return (struct tensor_view){.name = name,
                                .dtype = SAFETENSORS_I32,
                                .dims = 2,
                                .shape = {t->chunks, each},
                                .data = table,
                                .count = t->chunks * each};
}

static enum status similar_write(const struct similar *n) {
    char of[160], metadata[200];
    similar_describe(of, n);
    snprintf(metadata, sizeof metadata, "{\"of\":\"%s\"}", of);
    struct tensor_view views[4];
    int count = 0;
    const struct similar_text *texts[] = {&n->text, &n->valid};
    for (int i = 0; i < (n->valid.batches ? 2 : 1); i++) {
        views[count++] = similar_view(table_names[i], texts[i], texts[i]->found, n->each);
        if (n->each_coming > 0)
            views[count++] = similar_view(coming_names[i], texts[i], texts[i]->coming, n->each_coming);
    }
    return safetensors_write(n->config.path, views, count, metadata);
}

static enum status similar_read_table(struct similar *n, int32_t **table, int64_t count, const struct safetensors *file,
                                      const char *name) {
    const struct tensor_view *v = safetensors_find(file, name);
    if (!v || v->count != count)
        return fail(STATUS_CORRUPT, "%s: lacks the table \"%s\" of %lld numbers: delete the file, it is made again",
                    n->config.path, name, (long long)count);
    TRY(memory_allocate(table, (size_t)count));
    TRY(safetensors_to_i32(*table, v));
    for (int64_t i = 0; i < count; i++)
        if ((*table)[i] < -1 || (*table)[i] >= n->corpus.chunks)
            return fail(STATUS_CORRUPT, "%s: %s: number %lld is chunk %d of %lld: delete the file, it is made again",
                        n->config.path, name, (long long)i, (*table)[i], (long long)n->corpus.chunks);
    return STATUS_OK;
}

static enum status similar_read(struct similar *n) {
    struct safetensors *file;
    char of[160];
    similar_describe(of, n);
    TRY(safetensors_open(&file, n->config.path));
    const char *found = safetensors_metadata(file, "of");
    enum status s = STATUS_OK;
    if (!found || strcmp(found, of) != 0)
        s = fail(STATUS_MISMATCH,
                 "%s: was made of \"%.120s\", this run needs \"%s\": name another file (memory.neighbours), or delete "
                 "it",
                 n->config.path, found ? found : "(nothing)", of);
    struct similar_text *texts[] = {&n->text, &n->valid};
    for (int i = 0; s == STATUS_OK && i < (n->valid.batches ? 2 : 1); i++) {
        s = similar_read_table(n, &texts[i]->found, texts[i]->chunks * n->each, file, table_names[i]);
        if (s == STATUS_OK && n->each_coming > 0)
            s = similar_read_table(n, &texts[i]->coming, texts[i]->chunks * n->each_coming, file, coming_names[i]);
    }
    safetensors_close(file);
    return s;
}

static enum status similar_make(struct similar *n) {
    char path[FILE_PATH_MAX];
    const char *paths[] = {path};
    struct lexical *x = NULL;
    int length = snprintf(path, sizeof path, "%s.lex", n->config.path);
    if (length < 0 || (size_t)length >= sizeof path)
        return fail(STATUS_INVALID, "%.60s...: the name is too long", n->config.path);
    progress_note(n->config.progress, "%s: searching the neighbours of %lld chunks among %lld", n->config.path,
                  (long long)(n->text.chunks + n->valid.chunks), (long long)n->corpus.chunks);
    enum status s = similar_build_index(n, path);
    if (s == STATUS_OK) s = lexical_open(&x, paths, 1);
    if (s == STATUS_OK) s = similar_search(n, &n->text, x);
    if (s == STATUS_OK && n->valid.batches) s = similar_search(n, &n->valid, x);
    lexical_close(x);
    if (s == STATUS_OK) s = similar_write(n);
    return s == STATUS_OK ? file_remove(path) : s;
}

enum status similar_find(struct similar *n) {
    if (!n->config.make || file_exists(n->config.path)) return similar_read(n);
    return similar_make(n);
}
