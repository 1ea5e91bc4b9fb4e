/* landmark_file.c -- see landmark_file.h. */
#include "store/shards/landmark_file.h"
#include "base/memory.h"
#include "store/view_internal.h"

struct landmark_file {
    struct shard_map map;
    struct landmark_rows rows;
};

/* Returns the last shard that begins at or before the chunk, which must exist. (Empty shards have the
 * same first chunk.) */
static int64_t landmark_file_shard(const struct store_view *v, int64_t chunk) {
    int64_t low = 0, high = v->n_shards;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(v->shards[middle].first_chunk <= chunk ? &low : &high) = middle;
    }
    return low;
}

static enum status landmark_file_map(struct landmark_file *f, struct store_view *v, int64_t first) {
    const struct store_fingerprint *fingerprint = &v->store->fingerprint;
    struct store_rows there;
    enum status s;
    do {
        /* if shards were merged or dropped, this call reads their newest list */
        TRY(store_view_landmark_rows(v, &there, first));
        struct shard_record file = record_of_shard_file(v->shards, landmark_file_shard(v, first));
        TRY(catalog_check_folder(v->store->catalog));
        s = shard_open(&f->map, v->store->dir, shard_landmark_kind(v->store->landmarks), &file, fingerprint);
    } while (view_follow_shards(v, &s)); /* a writer has removed the file meanwhile */
    TRY(s);
    f->rows.first = first;
    f->rows.rows = shard_map_rows(&f->map, first - f->map.first_row, fingerprint->dim);
    f->rows.rows.n = there.n;
    return STATUS_OK;
}

enum status landmark_file_open(struct landmark_file **out, struct store_view *v, int64_t first) {
    struct landmark_file *f;
    TRY(memory_allocate_zero(&f, 1));
    enum status s = landmark_file_map(f, v, first);
    if (s != STATUS_OK) {
        landmark_file_close(f);
        return s;
    }
    *out = f;
    return STATUS_OK;
}

void landmark_file_close(struct landmark_file *f) {
    if (f) shard_close(&f->map);
    memory_free(f);
}

struct landmark_rows landmark_file_rows(const struct landmark_file *f) {
    return f->rows;
}
