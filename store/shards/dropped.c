/* dropped.c -- chunk ids that nothing has any more: a dropped shard keeps its record without files, so that the ids of
 * all others stay. */
#include "base/memory.h"
#include "store/catalog/records_internal.h"

enum status record_list_dropped(struct store_range **out, int64_t *n, const struct shard_record *shards,
                                int64_t n_shards) {
    struct store_range *list = NULL;
    size_t capacity = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < n_shards; i++) {
        const struct shard_record *r = &shards[i];
        if (!shard_is_dropped(r) || r->chunks == 0) continue;
        if (count > 0 && list[count - 1].end == r->first_chunk) {
            list[count - 1].end += r->chunks;
            continue;
        }
        enum status s = memory_grow(&list, &capacity, (size_t)count + 1);
        if (s != STATUS_OK) {
            memory_free(list);
            return s;
        }
        list[count++] = (struct store_range){r->first_chunk, r->first_chunk + r->chunks};
    }
    *out = list;
    *n = count;
    return STATUS_OK;
}

int64_t store_dropped_nth(struct store_dropped d, int64_t rank) {
    for (int64_t i = 0; i < d.n && rank >= d.ranges[i].begin; i++)
        rank += d.ranges[i].end - d.ranges[i].begin;
    return rank;
}

int64_t store_dropped_rank(struct store_dropped d, int64_t chunk) {
    int64_t rank = chunk;
    for (int64_t i = 0; i < d.n && chunk > d.ranges[i].begin; i++)
        rank -= (chunk < d.ranges[i].end ? chunk : d.ranges[i].end) - d.ranges[i].begin;
    return rank;
}

struct store_range store_dropped_span(struct store_dropped d, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < d.n; i++) {
        const struct store_range *r = &d.ranges[i];
        if (r->end <= begin) continue;
        if (r->begin <= begin) {
            begin = r->end;
        } else {
            if (r->begin < end) end = r->begin;
            break;
        }
    }
    return begin < end ? (struct store_range){begin, end} : (struct store_range){end, end};
}

bool store_dropped_there(struct store_dropped d, int64_t chunk) {
    return store_dropped_span(d, chunk, chunk + 1).begin == chunk;
}

bool segments_cover(const struct segment_record *list, int64_t n, struct store_dropped d, int64_t chunks) {
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        struct store_range span = store_dropped_span(d, at, chunks);
        if (list[i].first_chunk != span.begin || list[i].chunks > span.end - span.begin) return false;
        at = list[i].first_chunk + list[i].chunks;
    }
    struct store_range left = store_dropped_span(d, at, chunks);
    return left.begin == left.end;
}
