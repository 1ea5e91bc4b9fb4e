/* drt_index_queries.c -- drt-index search --queries: many queries in one process.
 *
 * The decoder computes the vectors, one text at a time. They are then searched in batches, because FAISS and the exact
 * scan read rows once for all queries of a batch. Hits are printed in the order of the queries before the next batch is
 * read, so memory depends only on the size of a batch. */
#include "base/clock.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "tools/index/drt_index_search.h"
#include "tools/shared/log.h"
#include "tools/shared/streams.h"
#include <string.h>

enum { BATCH = 256, TITLE_CHARACTERS = 80 };

struct queries {
    struct search s;
    struct query_file *file;
    const struct progress *progress;
    int64_t done, n, live; /* done: queries that were printed; n: queries of the batch; live: those that are searched */
    float *vectors;        /* [BATCH, dim] */
    struct store_hit *hits;      /* [BATCH * k] */
    struct lexical_query *token; /* [BATCH] */
    int32_t *ids;                /* [BATCH * tokens] */
    bool empty[BATCH];           /* an empty text, which finds nothing */
    char *titles;                /* the beginnings of the texts, which are printed: [BATCH * TITLE_BYTES] */
    double encode, search;       /* seconds */
};
enum { TITLE_BYTES = 4 * TITLE_CHARACTERS + 1 };

static enum query_format format_named(const char *name) {
    static const char *const names[] = {"auto", "txt", "jsonl", "npy", "fbin"};
    for (size_t i = 0; name && i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) return (enum query_format)i;
    return QUERY_AUTO;
}

static enum status queries_open(struct queries *q) {
    struct search *s = &q->s;
    const struct search_options *o = s->o;
    struct opened_store store;
    /* Refuses a file that cannot be used before the model is read. */
    TRY(opened_store_open(&store, o->store));
    const int dim = store.info.fingerprint.dim;
    opened_store_close(&store);
    TRY(query_file_open(&q->file, o->queries, format_named(o->queries_format), dim));
    TRY(drt_index_search_open(s, !query_file_has_vectors(q->file), true));
    const int tokens = searcher_tokens(s->searcher);
    if (tokens > 0 && query_file_has_vectors(q->file))
        return fail(STATUS_UNSUPPORTED, "%s: vectors cannot be searched for by their tokens", o->queries);
    TRY(memory_allocate(&q->vectors, (size_t)BATCH * (size_t)dim));
    TRY(memory_allocate(&q->hits, (size_t)BATCH * (size_t)o->k));
    TRY(memory_allocate(&q->titles, (size_t)BATCH * TITLE_BYTES));
    TRY(memory_allocate_zero(&q->token, BATCH));
    return memory_allocate(&q->ids, (size_t)BATCH * (size_t)max_i64(tokens, 1));
}

/* Sets row `live` of the vectors and of the tokens, from the text. */
static void keep_query(struct queries *q) {
    const struct search *s = &q->s;
    const int dim = s->store.info.fingerprint.dim;
    int32_t *ids = q->ids + q->live * searcher_tokens(s->searcher);
    memcpy(q->vectors + q->live * dim, s->query, (size_t)dim * sizeof *s->query);
    if (s->tokens.n > 0) memcpy(ids, s->tokens.ids, (size_t)s->tokens.n * sizeof *ids);
    q->token[q->live] = (struct lexical_query){.ids = ids, .n = s->tokens.n};
    q->live++;
}

static enum status read_texts(struct queries *q) {
    double begin = clock_seconds();
    while (q->n < BATCH && !progress_stop_requested(q->progress)) {
        const char *text;
        size_t bytes;
        TRY(query_file_text(q->file, &text, &bytes));
        if (!text) break;
        char *title = q->titles + q->n * TITLE_BYTES;
        size_t kept = bytes < TITLE_BYTES - 1 ? bytes : TITLE_BYTES - 1;
        memcpy(title, text, kept);
        title[kept] = 0;
        TRY(drt_index_search_text(&q->s, text, bytes, &q->empty[q->n]));
        if (!q->empty[q->n]) keep_query(q);
        q->n++;
        progress_step(q->progress, "search", "queries", q->done + q->n, query_file_total(q->file));
    }
    q->encode += clock_seconds() - begin;
    return STATUS_OK;
}

static enum status read_batch(struct queries *q) {
    q->n = q->live = 0;
    memset(q->empty, 0, sizeof q->empty);
    if (!query_file_has_vectors(q->file)) return read_texts(q);
    TRY(query_file_rows(q->file, q->vectors, BATCH, &q->n));
    q->live = q->n;
    return STATUS_OK;
}

static enum status view_hit(struct search *s, struct hit_view *out, struct store_chunk *c, struct store_document *d,
                            const struct store_hit *hit) {
    TRY(store_view_chunk(s->store.view, c, s->ids, hit->chunk));
    TRY(store_view_document(s->store.view, d, c->document));
    out->score = hit->score;
    out->chunk = c;
    out->document = d;
    return tokenizer_decode(s->model.tokenizer, s->scratch, s->ids, (size_t)c->n_tokens, false, &out->text,
                            &out->bytes);
}

/* hits NULL: the query was empty. */
static enum status print_query(struct queries *q, int64_t i, const struct store_hit *hits) {
    struct search *s = &q->s;
    struct json_writer w;
    struct store_chunk c;
    struct store_document d;
    json_write_open(&w, stdout, 0);
    if (s->o->json) {
        json_write_object(&w);
        json_write_key(&w, "query"), json_write_int(&w, q->done + i);
        json_write_key(&w, "searched_by"), json_write_string(&w, s->searched_by.text);
        json_write_key(&w, "hits"), json_write_array(&w);
    } else {
        printf("query %lld", (long long)(q->done + i));
        if (!query_file_has_vectors(q->file)) {
            const char *title = q->titles + i * TITLE_BYTES;
            fputs(": ", stdout);
            streams_print_line(stdout, title, strlen(title), TITLE_CHARACTERS);
        }
        fputs("\n", stdout);
    }
    for (int rank = 1; hits && rank <= s->o->k && hits[rank - 1].chunk >= 0; rank++) {
        struct hit_view view = {.rank = rank};
        TRY(view_hit(s, &view, &c, &d, &hits[rank - 1]));
        if (s->o->json)
            drt_index_hit_json(&w, &view, NULL);
        else
            drt_index_hit_text(&view);
    }
    if (!s->o->json) {
        if (!hits || hits[0].chunk < 0) fputs("   nothing\n\n", stdout);
        return STATUS_OK;
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    fputc('\n', stdout);
    return STATUS_OK;
}

static enum status run_batch(struct queries *q) {
    struct search *s = &q->s;
    const struct lexical_query *tokens = searcher_tokens(s->searcher) > 0 ? q->token : NULL;
    const struct searcher_query query = {
        .n = q->live, .k = (int)s->o->k, .vectors = q->vectors, .tokens = tokens, .bm25 = s->words};
    double begin = clock_seconds();
    if (q->live > 0) TRY(searcher_search(s->searcher, q->hits, &query));
    q->search += clock_seconds() - begin;
    for (int64_t i = 0, at = 0; i < q->n; i++) {
        const struct store_hit *hits = q->empty[i] ? NULL : q->hits + at++ * s->o->k;
        TRY(print_query(q, i, hits));
        if (ferror(stdout)) return fail_errno("standard output");
    }
    q->done += q->n;
    progress_step(q->progress, "search", "queries", q->done, query_file_total(q->file));
    return STATUS_OK;
}

static enum status queries_run(struct queries *q) {
    double begin = clock_seconds();
    TRY(queries_open(q));
    double opened = clock_seconds();
    for (;;) {
        TRY(read_batch(q));
        if (q->n == 0) break;
        TRY(run_batch(q));
        if (progress_stop_requested(q->progress))
            return fail(STATUS_INTERRUPTED, "stopped after %lld queries", (long long)q->done);
    }
    const struct searcher_counts counts = searcher_counts(q->s.searcher);
    log_line(LOG_INFO, "searched", "drt-index search",
             "%lld queries in %.2f s (opening %.2f s, query vectors %.2f s, search %.2f s)", (long long)q->done,
             clock_seconds() - begin, opened - begin, q->encode, q->search);
    if (counts.missing > 0)
        log_line(LOG_WARNING, "missing", "drt-index search",
                 "the index found too few chunks for %lld queries, and all were scanned", (long long)counts.missing);
    return STATUS_OK;
}

enum status drt_index_queries_run(const struct search_options *o, const struct progress *progress) {
    struct queries q = {.s = {.o = o}, .progress = progress};
    enum status status = queries_run(&q);
    memory_free(q.vectors);
    memory_free(q.hits);
    memory_free(q.titles);
    memory_free(q.token);
    memory_free(q.ids);
    query_file_close(q.file);
    drt_index_search_close(&q.s);
    return status;
}
