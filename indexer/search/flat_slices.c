/* flat_slices.c -- see flat_slices.h. */
#include "indexer/search/flat_slices.h"
#include "base/memory.h"
#include <math.h>
#include <stdio.h>

struct flat_slices {
    const struct device_group *group;
    struct flat_index **slices; /* [n] */
    int n, dim;
    struct store_hit *found; /* [n, queries, k]: the hits of all slices for a batch */
    size_t capacity;
    int *at; /* [n]: for each slice, the number of its hits of the current query that are merged already */
};

static enum status flat_slices_fill(struct flat_slices *s, const struct landmark_source *source, uint64_t reserve) {
    struct flat_index_config *configs;
    TRY(memory_allocate_zero(&s->slices, (size_t)s->n));
    TRY(memory_allocate(&s->at, (size_t)s->n));
    TRY(memory_allocate_zero(&configs, (size_t)s->n));
    for (int i = 0; i < s->n; i++)
        configs[i] = (struct flat_index_config){.device = s->group->devices[i],
                                                .source = landmark_source_slice(source, i, s->n),
                                                .reserve = i == 0 ? reserve : 0};
    const enum status status = flat_index_create_all(s->slices, configs, s->n);
    memory_free(configs);
    return status;
}

enum status flat_slices_create(struct flat_slices **out, const struct device_group *group,
                               const struct landmark_source *source, uint64_t reserve) {
    struct flat_slices *s;
    TRY(memory_allocate_zero(&s, 1));
    s->group = group;
    s->n = group->n;
    s->dim = source->dim;
    const enum status status = flat_slices_fill(s, source, reserve);
    device_enter(group->devices[0]);
    if (status == STATUS_OK)
        *out = s;
    else
        flat_slices_free(s);
    return status;
}

void flat_slices_free(struct flat_slices *s) {
    if (!s) return;
    for (int i = 0; s->slices && i < s->n; i++) {
        device_enter(s->group->devices[i]);
        flat_index_free(s->slices[i]);
    }
    device_enter(s->group->devices[0]);
    memory_free(s->slices);
    memory_free(s->found);
    memory_free(s->at);
    memory_free(s);
}

int flat_slices_count(const struct flat_slices *s) {
    return s->n;
}

/* Slices are in the order of ids. If scores are equal, the earlier slice's hit comes first. */
static void flat_slices_merge(struct flat_slices *s, struct store_hit *hits, int64_t query, int64_t n, int k) {
    for (int i = 0; i < s->n; i++)
        s->at[i] = 0;
    for (int j = 0; j < k; j++) {
        int best = -1;
        hits[j] = (struct store_hit){.chunk = -1, .score = -INFINITY};
        for (int i = 0; i < s->n; i++) {
            if (s->at[i] >= k) continue;
            const struct store_hit hit = s->found[(i * n + query) * k + s->at[i]];
            if (hit.chunk < 0 || (best >= 0 && !(hit.score > hits[j].score))) continue;
            best = i;
            hits[j] = hit;
        }
        if (best >= 0) s->at[best]++;
    }
}

/* Every search that was begun is also ended, even after a failure, so that the devices are idle for the next search. */
static enum status flat_slices_batch(struct flat_slices *s, struct store_hit *hits, const float *queries, int64_t n,
                                     int k, const struct store_range *exclude) {
    enum status first = STATUS_OK;
    char why[1024] = "";
    int begun = 0;
    TRY(memory_grow(&s->found, &s->capacity, (size_t)(s->n * n * k)));
    for (; begun < s->n && first == STATUS_OK; begun++) {
        device_enter(s->group->devices[begun]);
        first = flat_index_begin_host(s->slices[begun], queries, n, k, exclude);
    }
    if (first != STATUS_OK) {
        snprintf(why, sizeof why, "%s", status_message());
        begun--;
    }
    for (int i = 0; i < begun; i++) {
        device_enter(s->group->devices[i]);
        const enum status status = flat_index_end(s->slices[i], s->found + i * n * k);
        if (status == STATUS_OK || first != STATUS_OK) continue;
        first = status;
        snprintf(why, sizeof why, "%s", status_message());
    }
    device_enter(s->group->devices[0]);
    if (first != STATUS_OK) return fail(first, "%s", why);
    for (int64_t q = 0; q < n; q++)
        flat_slices_merge(s, hits + q * k, q, n, k);
    return STATUS_OK;
}

enum status flat_slices_search(struct flat_slices *s, struct store_hit *hits, const float *queries, int64_t n, int k,
                               const struct store_range *exclude) {
    for (int64_t i = 0, batch; i < n; i += batch) {
        batch = n - i < FLAT_INDEX_BATCH ? n - i : FLAT_INDEX_BATCH;
        TRY(flat_slices_batch(s, hits + i * k, queries + i * s->dim, batch, k, exclude ? exclude + i : NULL));
    }
    return STATUS_OK;
}
