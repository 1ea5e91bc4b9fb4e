/* dropped.c -- the chunk ids that do not exist in a view. A dropped shard keeps its record, without files. A deleted
 * document keeps its records and rows. So all other ids stay. */
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

/* Appends a range that begins at or after the beginning of the last one. */
static int64_t holes_add(struct store_hole *list, int64_t n, struct store_range r) {
    struct store_hole *last = n > 0 ? &list[n - 1] : NULL;
    if (last && r.begin <= last->end) {
        if (r.end > last->end) last->end = r.end;
        return n;
    }
    list[n] = (struct store_hole){r.begin, r.end, last ? last->before + (last->end - last->begin) : 0};
    return n + 1;
}

enum status record_list_holes(struct store_hole **out, int64_t *n, struct store_ranges a, struct store_ranges b) {
    *n = 0;
    TRY(memory_allocate(out, (size_t)(a.n + b.n)));
    for (int64_t i = 0, j = 0; i < a.n || j < b.n;) {
        bool from_a = j == b.n || (i < a.n && a.list[i].begin <= b.list[j].begin);
        *n = holes_add(*out, *n, from_a ? a.list[i++] : b.list[j++]);
    }
    return STATUS_OK;
}

/* Returns the number of ranges that begin at or before the chunk. */
static int64_t holes_until(struct store_dropped d, int64_t chunk) {
    int64_t low = 0, high = d.n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (d.ranges[middle].begin <= chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t store_dropped_nth(struct store_dropped d, int64_t rank) {
    int64_t low = 0, high = d.n; /* counts ranges with at most `rank` existing ids before them */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (d.ranges[middle].begin - d.ranges[middle].before <= rank)
            low = middle + 1;
        else
            high = middle;
    }
    const struct store_hole *last = low > 0 ? &d.ranges[low - 1] : NULL;
    return last ? rank + last->before + (last->end - last->begin) : rank;
}

int64_t store_dropped_rank(struct store_dropped d, int64_t chunk) {
    int64_t n = holes_until(d, chunk);
    if (n == 0) return chunk;
    const struct store_hole *last = &d.ranges[n - 1];
    return chunk - last->before - ((chunk < last->end ? chunk : last->end) - last->begin);
}

struct store_range store_dropped_span(struct store_dropped d, int64_t begin, int64_t end) {
    int64_t next = holes_until(d, begin);
    if (next > 0 && d.ranges[next - 1].end > begin) begin = d.ranges[next - 1].end;
    if (next < d.n && d.ranges[next].begin < end) end = d.ranges[next].begin;
    return begin < end ? (struct store_range){begin, end} : (struct store_range){end, end};
}

bool store_dropped_live(struct store_dropped d, int64_t chunk) {
    int64_t n = holes_until(d, chunk);
    return n == 0 || d.ranges[n - 1].end <= chunk;
}

static bool segments_cover_ids(const struct segment_record *list, int64_t n, struct store_dropped d, int64_t chunks) {
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        struct store_range span = store_dropped_span(d, at, chunks);
        if (list[i].first_chunk != span.begin || list[i].chunks > span.end - span.begin) return false;
        at = list[i].first_chunk + list[i].chunks;
    }
    struct store_range left = store_dropped_span(d, at, chunks);
    return left.begin == left.end;
}

enum status record_dropped_holes(struct store_hole **out, int64_t *n, const struct shard_record *shards,
                                 int64_t n_shards) {
    struct store_range *ranges;
    int64_t n_ranges;
    TRY(record_list_dropped(&ranges, &n_ranges, shards, n_shards));
    enum status s = record_list_holes(out, n, (struct store_ranges){ranges, n_ranges}, (struct store_ranges){0});
    memory_free(ranges);
    return s;
}

enum status segments_cover(bool *out, const struct segment_record *list, int64_t n, const struct shard_record *shards,
                           const struct generation_record *g) {
    struct store_hole *holes;
    struct store_dropped d = {0};
    TRY(record_dropped_holes(&holes, &d.n, shards, g->shards));
    d.ranges = holes;
    *out = segments_cover_ids(list, n, d, g->chunks);
    memory_free(holes);
    return STATUS_OK;
}
