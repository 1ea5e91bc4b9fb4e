/* landmarks.c -- see landmarks_internal.h. */
#include "base/memory.h"
#include "store/shards/landmarks_internal.h"
#include <assert.h>

enum status landmarks_open(struct landmarks *out, const char *store, const struct store_fingerprint *f,
                           struct landmarks_list list, int64_t chunks, struct store_ranges deleted) {
    struct landmarks l = {.dim = f->dim, .chunks = chunks};
    struct store_range *missing;
    int64_t n_missing;
    TRY(record_list_dropped(&missing, &n_missing, list.shards, list.n_shards));
    const struct store_ranges gone = {missing, n_missing};
    enum status s;
    TRY_GOTO(s, record_list_holes(&l.missing, &l.n_missing, gone, (struct store_ranges){0}), out);
    TRY_GOTO(s, record_list_holes(&l.dropped, &l.n_dropped, gone, deleted), out);
    TRY_GOTO(s, shard_maps_open(&l.maps, store, shard_landmark_kind(list.type), f, list.shards, list.n_shards), out);
    *out = l;
out:
    memory_free(missing);
    if (s != STATUS_OK) memory_free(l.missing);
    if (s != STATUS_OK) memory_free(l.dropped);
    return s;
}

void landmarks_close(struct landmarks *l) {
    shard_maps_close(&l->maps);
    memory_free(l->missing);
    memory_free(l->dropped);
    *l = (struct landmarks){0};
}

/* Returns the shard that contains the chunk: the last one that begins at or before it. (An empty shard begins at the
 * same chunk as the next one.) */
static int64_t shard_of(const struct landmarks *l, int64_t chunk) {
    int64_t low = 0, high = l->maps.n_shards;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (l->maps.shards[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

enum status landmarks_map(struct landmarks *l, int64_t *n, int64_t first, int64_t wanted) {
    assert(first >= 0 && wanted > 0 && first + wanted <= l->chunks);
    *n = wanted;
    if (shard_maps_complete(&l->maps)) return STATUS_OK;
    const struct shard_record *shards = l->maps.shards;
    shard_maps_begin(&l->maps);
    for (int64_t i = shard_of(l, first); i < l->maps.n_shards && shards[i].first_chunk < first + wanted;
         i = shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(shards, i);
        bool full;
        if (shard_is_dropped(&file)) continue;
        TRY(shard_maps_touch(&l->maps, &full, i));
        if (!full) continue;
        *n = shards[i].first_chunk - first;
        break;
    }
    return STATUS_OK;
}

enum status landmarks_map_some(struct landmarks *l, int64_t *n, const int64_t *chunks, int64_t wanted) {
    *n = wanted;
    if (shard_maps_complete(&l->maps)) return STATUS_OK;
    shard_maps_begin(&l->maps);
    for (int64_t i = 0; i < wanted; i++) {
        bool full;
        if (chunks[i] < 0 || chunks[i] >= l->chunks || !store_dropped_live(landmarks_dropped(l), chunks[i])) continue;
        TRY(shard_maps_touch(&l->maps, &full, shard_of(l, chunks[i])));
        if (!full) continue;
        *n = i;
        break;
    }
    return STATUS_OK;
}

struct store_rows landmarks_rows(const struct landmarks *l, int64_t first) {
    assert(first >= 0 && first < l->chunks);
    const struct shard_map *m = shard_maps_get(&l->maps, shard_of(l, first));
    assert(m);
    struct store_rows rows = shard_map_rows(m, first - m->first_row, l->dim);
    if (rows.n > l->chunks - first) rows.n = l->chunks - first;
    return rows;
}

enum status landmarks_to_float(float *out, struct landmarks *l, int64_t first, int64_t n) {
    for (int64_t done = 0, some; done < n; done += some) {
        TRY(landmarks_map(l, &some, first + done, n - done));
        for (int64_t i = 0, here; i < some; i += here) {
            const struct store_rows rows = landmarks_rows(l, first + done + i);
            here = rows.n < some - i ? rows.n : some - i;
            store_rows_to_float(out + (size_t)(done + i) * (size_t)l->dim, &rows, 0, here);
        }
    }
    return STATUS_OK;
}

void landmarks_release_pages(const struct landmarks *l, int64_t first, int64_t n) {
    const struct shard_record *shards = l->maps.shards;
    for (int64_t i = shard_of(l, first); i < l->maps.n_shards && shards[i].first_chunk < first + n;
         i = shards[i].last_file_shard + 1) {
        const struct shard_map *m = shard_maps_get(&l->maps, i);
        if (m) file_release_pages(&m->map);
    }
}
