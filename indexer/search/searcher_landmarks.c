/* searcher_landmarks.c -- the kinds that search by vector: one of the store, and two in device memory. */
#include "base/memory.h"
#include "indexer/search/searcher_internal.h"
#include <stdio.h>
#include <string.h>

/* ---- the store's FAISS index, or an exact scan, on the CPU ---- */

static struct store_search searcher_store_how(const struct searcher *s, int k, int nprobe) {
    const struct searcher_config *c = &s->config;
    return (struct store_search){.k = k,
                                 .exact = c->exact,
                                 .nprobe = nprobe > 0 ? nprobe : c->nprobe,
                                 .candidates = c->candidates,
                                 .threads = c->device->threads};
}

static enum status searcher_store_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q) {
    struct store_search how = searcher_store_how(s, q->k, q->nprobe);
    const float *vectors;
    TRY(searcher_vectors(s, &vectors, q));
    how.exclude = q->exclude;
    return searcher_in_store(s, hits, vectors, q->n, &how);
}

static void searcher_store_describe(const struct searcher *s, struct searcher_description *out, int k, int nprobe) {
    const struct store_search how = searcher_store_how(s, k, nprobe);
    const struct store_search_method does = store_view_search_method(s->config.view, &how);
    struct store_info info;
    store_view_info(s->config.view, &info);
    out->kind = does.exact ? "exact" : "index";
    out->exact = does.exact;
    out->visited = does.visited;
    out->lists = does.lists;
    if (does.exact)
        snprintf(out->text, sizeof out->text, "exact scan");
    else if (does.lists > 0)
        snprintf(out->text, sizeof out->text, "index %s, %lld of %lld lists", info.index, (long long)does.visited,
                 (long long)does.lists);
    else
        snprintf(out->text, sizeof out->text, "index %s", info.index);
    size_t used = strlen(out->text);
    if (s->config.slices)
        snprintf(out->text + used, sizeof out->text - used, ", %d workers", slices_count(s->config.slices));
}

static void searcher_store_close(struct searcher *s) {
    memory_free(s);
}

enum status searcher_store_open(struct searcher **out, const struct searcher_config *config) {
    static const struct searcher_ops ops = {.search = searcher_store_search,
                                            .describe = searcher_store_describe,
                                            .close = searcher_store_close,
                                            .index = true};
    (void)config;
    TRY(memory_allocate_zero(out, 1));
    (*out)->ops = &ops;
    return STATUS_OK;
}

/* ---- all landmarks in memory of the device ---- */

struct searcher_flat {
    struct searcher base;
    struct flat_index *own; /* NULL: the search uses config.flat or `slices` */
    struct flat_slices *slices;
    uint64_t bytes;
};

static enum status searcher_flat_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q) {
    struct searcher_flat *f = (struct searcher_flat *)s;
    struct flat_index *index = f->own ? f->own : s->config.flat;
    const float *vectors;
    if (f->slices) {
        TRY(searcher_vectors(s, &vectors, q));
        return flat_slices_search(f->slices, hits, vectors, q->n, q->k, q->exclude);
    }
    if (!q->device_vectors.data) return flat_index_search_host(index, hits, q->vectors, q->n, q->k, q->exclude);
    return flat_index_search(index, hits, mat_rows(q->device_vectors, 0, q->n), q->k, q->exclude);
}

static void searcher_flat_describe(const struct searcher *s, struct searcher_description *out, int k, int nprobe) {
    const struct searcher_flat *f = (const struct searcher_flat *)s;
    (void)k, (void)nprobe;
    out->kind = "gpu-flat";
    out->exact = true;
    out->device_bytes = f->bytes;
    if (f->slices)
        snprintf(out->text, sizeof out->text, "gpu-flat, exact, slices on %d GPUs", flat_slices_count(f->slices));
    else
        snprintf(out->text, sizeof out->text, "gpu-flat, exact");
}

static enum status searcher_flat_lists(struct searcher *s, struct landmark_lists *out) {
    struct searcher_flat *f = (struct searcher_flat *)s;
    if (f->slices) return fail(STATUS_UNSUPPORTED, "landmarks are on several GPUs");
    return flat_index_lists(f->own ? f->own : s->config.flat, out);
}

static void searcher_flat_close(struct searcher *s) {
    flat_index_free(((struct searcher_flat *)s)->own);
    flat_slices_free(((struct searcher_flat *)s)->slices);
    memory_free(s);
}

enum status searcher_flat_open(struct searcher **out, const struct searcher_config *config) {
    static const struct searcher_ops ops = {.search = searcher_flat_search,
                                            .describe = searcher_flat_describe,
                                            .lists = searcher_flat_lists,
                                            .close = searcher_flat_close};
    const struct flat_index_config how = {
        .device = config->device, .source = landmark_source_of(config->view), .reserve = config->reserve};
    struct searcher_flat *f;
    TRY(memory_allocate_zero(&f, 1));
    f->base.ops = &ops;
    f->bytes = landmark_source_bytes(&how.source, config->device);
    enum status status = STATUS_OK;
    if (!config->flat && config->group && config->group->n > 1)
        status = flat_slices_create(&f->slices, config->group, &how.source, how.reserve);
    else if (!config->flat)
        status = flat_index_create(&f->own, &how);
    if (status == STATUS_OK)
        *out = &f->base;
    else
        memory_free(f);
    return status;
}

/* ---- the same by lists ---- */

enum { SEARCHER_LISTS_SEED = 1 };

struct searcher_lists {
    struct searcher base;
    struct list_index *own; /* NULL: config.lists */
    uint64_t bytes;
};

static struct list_index *searcher_lists_index(const struct searcher *s) {
    const struct searcher_lists *l = (const struct searcher_lists *)s;
    return l->own ? l->own : s->config.lists;
}

static enum status searcher_lists_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q) {
    struct list_index *index = searcher_lists_index(s);
    int nprobe = q->nprobe > 0 ? q->nprobe : s->config.nprobe;
    if (!q->device_vectors.data) return list_index_search_host(index, hits, q->vectors, q->n, q->k, nprobe, q->exclude);
    return list_index_search(index, hits, mat_rows(q->device_vectors, 0, q->n), q->k, nprobe, q->exclude);
}

static void searcher_lists_describe(const struct searcher *s, struct searcher_description *out, int k, int nprobe) {
    struct list_index_info info = list_index_info(searcher_lists_index(s));
    int64_t visited = nprobe > 0 ? nprobe : info.nprobe;
    (void)k;
    out->kind = "gpu-ivf";
    out->lists = info.lists;
    out->visited = visited < info.lists ? visited : info.lists;
    out->exact = out->visited == out->lists;
    out->device_bytes = ((const struct searcher_lists *)s)->bytes;
    snprintf(out->text, sizeof out->text, "gpu-ivf, %lld of %lld lists", (long long)out->visited,
             (long long)out->lists);
}

static enum status searcher_lists_lists(struct searcher *s, struct landmark_lists *out) {
    return list_index_lists(searcher_lists_index(s), out);
}

static void searcher_lists_close(struct searcher *s) {
    list_index_free(((struct searcher_lists *)s)->own);
    memory_free(s);
}

enum status searcher_lists_open(struct searcher **out, const struct searcher_config *config) {
    static const struct searcher_ops ops = {.search = searcher_lists_search,
                                            .describe = searcher_lists_describe,
                                            .lists = searcher_lists_lists,
                                            .close = searcher_lists_close,
                                            .index = true};
    const struct list_index_config how = {.device = config->device,
                                          .source = landmark_source_of(config->view),
                                          .nprobe = config->nprobe,
                                          .reserve = config->reserve,
                                          .seed = SEARCHER_LISTS_SEED};
    struct searcher_lists *l;
    TRY(memory_allocate_zero(&l, 1));
    l->base.ops = &ops;
    l->bytes = list_index_bytes(&how);
    enum status status = config->lists ? STATUS_OK : list_index_create(&l->own, &how);
    if (status == STATUS_OK)
        *out = &l->base;
    else
        memory_free(l);
    return status;
}
