/* device_index.c -- see device_index.h. */
#include "tools/shared/device_index.h"
#include <stdio.h>

/* GPU memory kept free for what a program allocates after the landmarks: caches of chunks, states, logits. */
#define RESERVE_BYTES (UINT64_C(1) << 30)
enum { SEED = 1 };

static double gib(uint64_t bytes) {
    return (double)bytes / (1 << 30);
}

static enum status open_flat(struct device_index *out, struct device *device, const struct landmark_source *source) {
    const struct flat_index_config config = {.device = device, .source = *source, .reserve = RESERVE_BYTES};
    TRY(flat_index_create(&out->flat, &config));
    fprintf(stderr, "corpus search gpu-flat: exact, %.2f GiB of landmarks on the GPU\n",
            gib(landmark_source_bytes(source, device)));
    return STATUS_OK;
}

static enum status open_lists(struct device_index *out, struct device *device, const struct landmark_source *source,
                              int nprobe) {
    const struct list_index_config config = {
        .device = device, .source = *source, .nprobe = nprobe, .reserve = RESERVE_BYTES, .seed = SEED};
    TRY(list_index_create(&out->lists, &config));
    struct list_index_info info = list_index_info(out->lists);
    fprintf(stderr, "corpus search gpu-ivf: %d of %lld lists a query, exact scores, %.2f GiB of landmarks on the GPU\n",
            info.nprobe, (long long)info.lists, gib(list_index_bytes(&config)));
    return STATUS_OK;
}

enum status device_index_open(struct device_index *out, struct device *device, struct store_view *view,
                              struct device_index_choice how) {
    *out = (struct device_index){0};
    const struct landmark_source source = landmark_source_of(view);
    if (device->shares_memory || source.rows == 0) return STATUS_OK;
    bool lists = how.lists || how.nprobe > 0 || landmark_source_bytes(&source, device) > DEVICE_INDEX_EXACT_BYTES;
    enum status status =
        lists && !how.exact ? open_lists(out, device, &source, how.nprobe) : open_flat(out, device, &source);
    if (status != STATUS_NO_MEMORY && status != STATUS_UNSUPPORTED) return status;
    fprintf(stderr, "corpus search by the store, on the CPU: landmarks of %.2f GiB cannot be searched on the GPU: %s\n",
            gib(landmark_source_bytes(&source, device)), status_message());
    return STATUS_OK;
}

enum status device_index_search(struct device_index *x, struct store_view *view, struct store_hit *hits,
                                const float *query, const struct store_search *how) {
    if (x->flat) return flat_index_search_host(x->flat, hits, query, 1, how->k, how->exclude);
    if (x->lists) return list_index_search_host(x->lists, hits, query, 1, how->k, how->nprobe, how->exclude);
    return store_view_search(view, hits, query, 1, how);
}

const char *device_index_text(char out[DEVICE_INDEX_TEXT_MAX], const struct device_index *x,
                              const struct store_view *view, const struct store_search *how) {
    struct store_info store;
    struct store_search_way way = store_view_search_way(view, how);
    store_view_info(view, &store);
    if (x->flat) {
        snprintf(out, DEVICE_INDEX_TEXT_MAX, "gpu-flat, exact");
    } else if (x->lists) {
        struct list_index_info lists = list_index_info(x->lists);
        int64_t visited = how->nprobe > 0 ? how->nprobe : lists.nprobe;
        snprintf(out, DEVICE_INDEX_TEXT_MAX, "gpu-ivf, %lld of %lld lists",
                 (long long)(visited < lists.lists ? visited : lists.lists), (long long)lists.lists);
    } else if (way.exact) {
        snprintf(out, DEVICE_INDEX_TEXT_MAX, "exact scan");
    } else if (way.lists > 0) {
        snprintf(out, DEVICE_INDEX_TEXT_MAX, "index %s, %lld of %lld lists", store.index, (long long)way.visited,
                 (long long)way.lists);
    } else {
        snprintf(out, DEVICE_INDEX_TEXT_MAX, "index %s", store.index);
    }
    return out;
}

enum status device_index_search_whole(struct device_index *x, struct store_view *view, struct store_hit *hits,
                                      const float *query, const struct store_search *how,
                                      char text[DEVICE_INDEX_TEXT_MAX]) {
    struct store_search exact = *how;
    TRY(device_index_search(x, view, hits, query, how));
    int missing = store_view_missing(view, hits, how->k, how->exclude);
    if (missing == 0 || x->flat || store_view_search_way(view, how).exact) return STATUS_OK;
    fprintf(stderr, "corpus search by exact scan: the index found %d of %d chunks, though the store has more\n",
            how->k - missing, how->k);
    exact.exact = true;
    device_index_text(text, &(struct device_index){0}, view, &exact);
    return store_view_search(view, hits, query, 1, &exact);
}

void device_index_close(struct device_index *x) {
    flat_index_free(x->flat);
    list_index_free(x->lists);
    *x = (struct device_index){0};
}
