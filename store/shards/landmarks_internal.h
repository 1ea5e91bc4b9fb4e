/* landmarks_internal.h -- the fp16 rows of a store's landmarks by chunk id, whatever shard holds them. */
#pragma once
#include "store/shards/shard_maps_internal.h"

struct landmarks {
    struct shard_maps maps;
    int64_t chunks;                      /* that the view has: the last file may hold more */
    struct store_hole *missing; int64_t n_missing;        /* ids that `shards` dropped: no file has them */
    struct store_hole *dropped; int64_t n_dropped;        /* and those that were deleted */
    int dim;
};
/* Maps nothing yet. `store` and `shards` must stay valid until landmarks_close. Deleted ids can be mapped;
 * landmarks_dropped has them. */
enum status landmarks_open(struct landmarks *out, const char *store, const struct store_fingerprint *f,
                           const struct shard_record *shards, int64_t n_shards, int64_t chunks,
                           struct store_ranges deleted);
void landmarks_close(struct landmarks *l);                /* a zeroed one is fine */
static inline struct store_dropped landmarks_dropped(const struct landmarks *l) {
    return (struct store_dropped){l->dropped, l->n_dropped};
}
static inline struct store_dropped landmarks_missing(const struct landmarks *l) {
    return (struct store_dropped){l->missing, l->n_missing};
}

/* Maps the files of chunks first .. first + *n - 1 (*n: at least one, at most `wanted`), of which those that were not
 * dropped may be read. They stay mapped until the next call that maps something. */
enum status landmarks_map(struct landmarks *l, int64_t *n, int64_t first, int64_t wanted);
/* The same for chunks in any order (ids outside the store and dropped ones are passed over): the first *n of
 * chunks[wanted]. */
enum status landmarks_map_some(struct landmarks *l, int64_t *n, const int64_t *chunks, int64_t wanted);

/* Of chunks that are mapped, which dropped ones never are. */
const uint16_t *landmarks_row(const struct landmarks *l, int64_t chunk);
/* *n: to the end of its file, dropped ones too */
const uint16_t *landmarks_rows(const struct landmarks *l, int64_t *n, int64_t first);

/* Maps what is needed. None of the chunks was dropped. out[n, dim]. */
enum status landmarks_to_float(float *out, struct landmarks *l, int64_t first, int64_t n);
/* Releases the pages of mapped files that hold rows first .. first+n-1, so that they do not count as this process's
 * memory: for a pass over a store larger than what may be resident. */
void landmarks_release_pages(const struct landmarks *l, int64_t first, int64_t n);
