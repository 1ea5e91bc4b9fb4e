/* drt_index_search_run.c -- drt-index search: the query, its searcher and the hits. */
#include "base/memory.h"
#include "indexer/build/indexer.h"
#include "session/corpus_search.h"
#include "session/text_query.h"
#include "tools/index/drt_index_landmarks.h"
#include "tools/index/drt_index_search.h"
#include "tools/shared/exclude.h"
#include "tools/shared/log.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <string.h>

static enum status print_hit(struct search *s, int rank, const struct store_hit *hit) {
    struct store_chunk c;
    struct store_document d;
    const char *text;
    size_t bytes;
    TRY(store_view_chunk(s->store.view, &c, s->ids, hit->chunk));
    TRY(store_view_document(s->store.view, &d, c.document));
    TRY(tokenizer_decode(s->model.tokenizer, s->scratch, s->ids, (size_t)c.n_tokens, false, &text, &bytes));
    const struct hit_view view = {.rank = rank, .score = hit->score, .chunk = &c, .document = &d, text, bytes};
    if (!s->o->json) {
        drt_index_hit_text(&view);
        return STATUS_OK;
    }
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    drt_index_hit_json(&w, &view, s->searched_by.text);
    fputc('\n', stdout);
    return STATUS_OK;
}

/* For one query, landmarks are copied to a GPU only if all of them, or selected lists, are searched. */
static enum status open_searcher(struct search *s, bool many) {
    const struct search_options *o = s->o;
    bool copy = many || o->where.devices != 0 || o->exact || s->store.info.segments == 0 || o->nprobe > 0;
    const char *name = o->searcher ? o->searcher : s->words ? "lexical" : "landmark";
    const enum searcher_kind kind = corpus_search_kind(name);
    struct searcher_config config = {.kind = kind == SEARCHER_AUTO && !copy ? SEARCHER_STORE : kind,
                                     .device = s->device,
                                     .view = s->store.view,
                                     .exact = o->exact || s->store.info.segments == 0,
                                     .exact_fallback = true,
                                     .nprobe = (int)o->nprobe};
    TRY(workers_open(&s->workers, &o->workers, o->store, s->store.view, o->threads));
    config.slices = s->workers.slices;
    TRY(device_choose_group(&s->group, s->device, &o->where));
    config.group = s->group.n > 1 ? &s->group : NULL;
    TRY(corpus_search_open(&s->searcher, &config, report_stderr));
    s->searched_by = searcher_describe(s->searcher, (int)o->k, 0);
    return STATUS_OK;
}

/* Vectors that the user made are compared with any landmarks of their width. Then only the tokenizer must match, as for
 * an external encoder, whose own fingerprint is checked. */
static enum status check_model(const struct search *s, bool texts) {
    const struct store_fingerprint *of = &s->store.info.fingerprint;
    struct store_fingerprint f;
    if (s->words) {
        f = indexer_no_landmarks(&s->model.config, s->model.tokenizer).encoder.fingerprint;
        return store_check_fingerprint(s->o->store, of, s->model.path, &f);
    }
    TRY(indexer_fingerprint(&f, &s->model.config, s->model.params, s->model.tokenizer));
    if (!texts || s->o->encoder) {
        memcpy(f.encoder, of->encoder, sizeof f.encoder);
        f.dim = of->dim;
    }
    enum status status = store_check_fingerprint(s->o->store, of, s->model.path, &f);
    if (status != STATUS_MISMATCH || memcmp(f.tokenizer, of->tokenizer, sizeof f.tokenizer) != 0) return status;
    char why[600];
    snprintf(why, sizeof why, "%s", status_message());
    return fail(status, "%s, or name the external encoder that made it (--encoder)", why);
}

static enum status open_query_maker(struct search *s, enum dtype type) {
    const struct search_options *o = s->o;
    if (!o->encoder) {
        TRY(weights_open(&s->weights, s->device, s->model.params, type));
        TRY(decoder_create(&s->decoder, s->device, &s->model.config, &s->weights, 0));
        if (!s->model.config.base_lm) return STATUS_OK;
        return state_landmarks_create(&s->states, s->device, s->decoder, &s->model.config, s->model.params);
    }
    const struct external_encoder_config config = {.folder = o->encoder,
                                                   .kind = landmark_kind(o->kind),
                                                   .device = s->device,
                                                   .type = type,
                                                   .tokenizer = s->model.tokenizer,
                                                   .model = &s->model.config};
    TRY(external_encoder_open(&s->external, &config));
    return external_encoder_check(s->external, o->store, &s->store.info.fingerprint);
}

enum status drt_index_search_open(struct search *s, bool texts, bool many) {
    const struct search_options *o = s->o;
    TRY(opened_store_open(&s->store, o->store));
    s->words = s->store.info.landmarks == STORE_LANDMARKS_NONE;
    TRY(model_folder_open(&s->model, o->model));
    TRY(check_model(s, texts));
    enum dtype type;
    TRY(device_choose(&s->device, &type, &o->where, (int)o->threads));
    if (texts && !s->words) TRY(open_query_maker(s, type));
    TRY(open_searcher(s, many));
    log_line(LOG_INFO, "start", "drt-index search",
             "store %s (generation %llu, index %s), model %s, k %lld, searched by %s, threads %d", o->store,
             (unsigned long long)s->store.info.generation, s->store.info.index, s->model.path, (long long)o->k,
             s->searched_by.text, threads_count(s->device->threads));
    TRY(tokenizer_scratch_create(&s->scratch, s->model.tokenizer));
    TRY(memory_allocate(&s->query, (size_t)s->store.info.fingerprint.dim));
    TRY(memory_allocate(&s->hits, (size_t)o->k));
    size_t ids = TEXT_QUERY_CHUNKS * (size_t)s->model.config.chunk;
    return memory_allocate(&s->ids, ids);
}

static enum status query_of_ids(struct search *s, const int32_t *ids, int64_t n) {
    int64_t tokens = n < searcher_tokens(s->searcher) ? n : searcher_tokens(s->searcher);
    s->tokens = (struct lexical_query){.ids = ids + n - tokens, .n = (int)tokens};
    if (s->external || s->words) return STATUS_OK; /* an external encoder reads text */
    const struct text_query_model model = {s->device, s->decoder, &s->model.config, s->states};
    return text_query(s->query, &model, ids, n);
}

enum status drt_index_search_text(struct search *s, const char *text, size_t bytes, bool *empty) {
    const int32_t *ids;
    size_t n;
    TRY(tokenizer_encode(s->model.tokenizer, s->scratch, text, bytes, TOKENIZER_LITERAL, &ids, &n));
    *empty = n == 0;
    if (n == 0) return STATUS_OK;
    if (s->external) TRY(external_encoder_text(s->external, s->query, text, bytes));
    return query_of_ids(s, ids, (int64_t)n);
}

static enum status query_of_text(struct search *s) {
    bool empty;
    TRY(drt_index_search_text(s, s->o->text, strlen(s->o->text), &empty));
    return empty ? fail(STATUS_INVALID, "the query text is empty") : STATUS_OK;
}

/* Makes the query of the text of a document up to the end of the chunk. */
static enum status query_of_chunk(struct search *s, int64_t chunk) {
    struct store_chunk c;
    int64_t first = chunk - TEXT_QUERY_CHUNKS + 1, n = 0;
    TRY(store_view_chunk(s->store.view, &c, s->ids, chunk));
    if (first < chunk - c.in_document) first = chunk - c.in_document;
    if (s->external) TRY(external_encoder_queries(s->external, s->query, s->ids, 1));
    for (int64_t i = first; i <= chunk; i++) {
        TRY(store_view_chunk(s->store.view, &c, s->ids + n, i));
        n += c.n_tokens;
    }
    return query_of_ids(s, s->ids, n);
}

static enum status find_hits(struct search *s, const struct store_range *exclude) {
    const struct searcher_query query = {
        .n = 1, .k = (int)s->o->k, .vectors = s->query, .tokens = &s->tokens, .exclude = exclude, .bm25 = s->words};
    TRY(searcher_search(s->searcher, s->hits, &query));
    const struct searcher_counts counts = searcher_counts(s->searcher);
    if (counts.missing == 0) return STATUS_OK;
    snprintf(s->searched_by.text, sizeof s->searched_by.text, "exact scan");
    log_line(LOG_WARNING, "missing", NULL,
             "corpus search by exact scan: the index found %lld of %lld chunks, though the store has more",
             (long long)(s->o->k - counts.missing_hits), (long long)s->o->k);
    return STATUS_OK;
}

static enum status search_all(struct search *s) {
    const struct search_options *o = s->o;
    struct store_range exclude;
    TRY(drt_index_search_open(s, true, false));
    TRY(drt_index_search_excluded(s, &exclude));
    TRY(o->text ? query_of_text(s) : query_of_chunk(s, o->from_chunk));
    TRY(find_hits(s, &exclude));
    for (int i = 0; i < (int)o->k && s->hits[i].chunk >= 0; i++)
        TRY(print_hit(s, i + 1, &s->hits[i]));
    return STATUS_OK;
}

void drt_index_search_close(struct search *s) {
    memory_free(s->ids);
    memory_free(s->hits);
    memory_free(s->query);
    tokenizer_scratch_free(s->scratch);
    searcher_close(s->searcher);
    workers_close(&s->workers);
    device_group_close(&s->group);
    external_encoder_close(s->external);
    state_landmarks_free(s->states);
    decoder_free(s->decoder);
    if (s->device) weights_release(&s->weights, s->device);
    device_close(s->device);
    model_folder_close(&s->model);
    opened_store_close(&s->store);
}

enum status drt_index_search_run(const struct search_options *o) {
    struct search s = {.o = o};
    enum status status = search_all(&s);
    drt_index_search_close(&s);
    return status;
}
