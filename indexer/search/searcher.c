/* searcher.c -- opens a searcher by its kind, scans for missing hits, and describes searchers. */
#include "indexer/search/searcher.h"
#include "base/memory.h"
#include "indexer/search/searcher_internal.h"
#include <assert.h>
#include <stdio.h>

static enum searcher_kind searcher_auto_kind(const struct searcher_config *c) {
    const struct landmark_source source = landmark_source_of(c->view);
    if (c->device->shares_memory || source.rows == 0 || c->slices) return SEARCHER_STORE;
    const uint64_t devices = c->group ? (uint64_t)c->group->n : 1;
    bool lists = c->nprobe > 0 || landmark_source_bytes(&source, c->device) > devices * SEARCHER_FLAT_BYTES;
    return lists && !c->exact ? SEARCHER_LISTS : SEARCHER_FLAT;
}

static enum status searcher_open_kind(struct searcher **out, const struct searcher_config *config) {
    static enum status (*const open[SEARCHER_KINDS])(struct searcher **, const struct searcher_config *) = {
        [SEARCHER_STORE] = searcher_store_open,   [SEARCHER_FLAT] = searcher_flat_open,
        [SEARCHER_LISTS] = searcher_lists_open,   [SEARCHER_LEXICAL] = searcher_lexical_open,
        [SEARCHER_HYBRID] = searcher_hybrid_open,
    };
    TRY(open[config->kind](out, config));
    (*out)->config = *config;
    return STATUS_OK;
}

bool searcher_may_fall_back(enum status status) {
    return status == STATUS_NO_MEMORY || status == STATUS_UNSUPPORTED;
}

/* Opens a searcher on the CPU after FLAT or LISTS failed with this thread's message. */
static enum status searcher_open_fallback(struct searcher **out, struct searcher_config config) {
    const struct landmark_source source = landmark_source_of(config.view);
    double gib = (double)landmark_source_bytes(&source, config.device) / (1 << 30);
    char reason[1200], *copy;
    snprintf(reason, sizeof reason, "landmarks of %.2f GiB cannot be searched on the device: %s", gib,
             status_message());
    TRY(memory_copy_string(&copy, reason));
    config.kind = SEARCHER_STORE;
    enum status status = searcher_open_kind(out, &config);
    if (status == STATUS_OK)
        (*out)->fallback = copy;
    else
        memory_free(copy);
    return status;
}

enum status searcher_open(struct searcher **out, const struct searcher_config *config) {
    struct searcher_config used = *config;
    assert(used.device && used.view && used.kind < SEARCHER_KINDS);
    if (used.kind != SEARCHER_LEXICAL) TRY(store_view_needs_landmarks(used.view));
    if (used.kind == SEARCHER_AUTO) used.kind = searcher_auto_kind(&used);
    enum status status = searcher_open_kind(out, &used);
    bool on_device = used.kind == SEARCHER_FLAT || used.kind == SEARCHER_LISTS;
    if (!on_device || !searcher_may_fall_back(status)) return status;
    return searcher_open_fallback(out, used);
}

void searcher_close(struct searcher *s) {
    if (!s) return;
    searcher_close(s->part);
    memory_free(s->fallback);
    memory_free(s->vectors);
    s->ops->close(s);
}

const char *searcher_fallback(const struct searcher *s) {
    return s->fallback || !s->part ? s->fallback : searcher_fallback(s->part);
}

int searcher_tokens(const struct searcher *s) {
    return s->ops->tokens;
}

bool searcher_ranks_vectors(const struct searcher *s) {
    return !s->ops->words_alone;
}

struct searcher_counts searcher_counts(const struct searcher *s) {
    return s->part ? searcher_counts(s->part) : s->counts;
}

enum status searcher_vectors(struct searcher *s, const float **out, const struct searcher_query *q) {
    struct mat from = q->device_vectors;
    *out = q->vectors;
    if (*out) return STATUS_OK;
    assert(from.data && from.type == DTYPE_F32 && from.stride == from.cols && from.rows >= q->n);
    *out = from.data;
    if (s->config.device->shares_memory) return STATUS_OK;
    TRY(memory_grow(&s->vectors, &s->capacity, (size_t)(q->n * from.cols)));
    device_download(s->config.device, s->vectors, from.data, (size_t)(q->n * from.cols) * sizeof *s->vectors);
    *out = s->vectors;
    return STATUS_OK;
}

enum status searcher_in_store(const struct searcher *s, struct store_hit *hits, const float *vectors, int64_t n,
                              const struct store_search *how) {
    const struct searcher_config *c = &s->config;
    if (!c->slices) return store_view_search(c->view, hits, vectors, n, how);
    const struct store_passes passes = slices_passes(c->slices);
    return store_view_search_passes(c->view, hits, vectors, n, how, &passes);
}

/* Scans all landmarks for hits that are still missing. An index that finds too few hits has already visited more
 * lists. */
static enum status searcher_scan_missing(struct searcher *s, struct store_hit *hits, const struct searcher_query *q) {
    struct store_search how = {.k = q->k, .exact = true, .threads = s->config.device->threads};
    struct store_info info;
    store_view_info(s->config.view, &info);
    for (int64_t i = 0; i < q->n; i++) {
        const float *vectors;
        struct store_hit *row = hits + i * q->k;
        how.exclude = q->exclude ? q->exclude + i : NULL;
        int missing = store_view_missing(s->config.view, row, q->k, how.exclude);
        if (missing == 0) continue;
        s->counts.missing++;
        s->counts.missing_hits += missing;
        if (!s->config.exact_fallback) continue;
        TRY(searcher_vectors(s, &vectors, q));
        TRY(searcher_in_store(s, row, vectors + i * info.fingerprint.dim, 1, &how));
    }
    return STATUS_OK;
}

enum status searcher_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q) {
    assert(q->n >= 0 && q->k > 0 && (q->tokens || s->ops->tokens == 0));
    TRY(s->ops->search(s, hits, q));
    s->counts.queries += q->n;
    if (!s->ops->index || searcher_describe(s, q->k, q->nprobe).exact) return STATUS_OK;
    return searcher_scan_missing(s, hits, q);
}

enum status searcher_queue(struct searcher *s, bool *queued, const struct searcher_query *q) {
    assert(q->n == 1 && q->k > 0 && q->tokens);
    *queued = false;
    return s->ops->queue ? s->ops->queue(s, queued, q) : STATUS_OK;
}

bool searcher_finds_on_device(const struct searcher *s, int k, float landmark_weight) {
    return s->ops->finds_on_device && s->ops->finds_on_device(s, k, landmark_weight);
}

enum status searcher_queue_on_device(struct searcher *s, struct searcher_found out, const struct searcher_query *q) {
    assert(q->n == 1 && q->tokens && q->bm25 && searcher_finds_on_device(s, q->k, q->landmark_weight));
    s->counts.queries++;
    return s->ops->queue_on_device(s, out, q);
}

enum status searcher_collect(struct searcher *s, struct store_hit *hits) {
    TRY(s->ops->collect(s, hits));
    s->counts.queries++;
    return STATUS_OK;
}

void searcher_prepare(struct searcher *s, const struct searcher_query *q) {
    assert(q->n == 1 && q->k > 0 && q->tokens);
    if (s->ops->prepare) s->ops->prepare(s, q);
}

struct searcher_description searcher_describe(const struct searcher *s, int k, int nprobe) {
    struct searcher_description d = {0};
    s->ops->describe(s, &d, k, nprobe > 0 ? nprobe : s->config.nprobe);
    return d;
}

void searcher_describe_json(struct json_writer *w, const struct searcher_description *d) {
    json_write_object(w);
    json_write_key(w, "kind"), json_write_string(w, d->kind);
    json_write_key(w, "text"), json_write_string(w, d->text);
    json_write_key(w, "exact"), json_write_bool(w, d->exact);
    json_write_key(w, "visited"), json_write_int(w, d->visited);
    json_write_key(w, "lists"), json_write_int(w, d->lists);
    json_write_key(w, "device_bytes"), json_write_int(w, (int64_t)d->device_bytes);
    json_write_object_end(w);
}
