/* landmarks_internal.h -- access to the stored rows of a store's landmarks by chunk id. For one thread at a time. */
#pragma once
#include "store/shards/shard_maps_internal.h"

struct landmarks {
    struct shard_maps maps;
    int64_t chunks;                      /* of the view; the last file may hold more */
    struct store_hole *missing; int64_t n_missing;        /* ids of dropped shards, which are in no file */
    struct store_hole *dropped; int64_t n_dropped;        /* the same ids, and those of deleted documents */
    int dim;
};
/* The landmark files, which contain at least all chunks. */
struct landmarks_list { enum store_landmarks type; const struct shard_record *shards; int64_t n_shards; };
/* Opens without mapping a file. `store` and the shards must stay valid until landmarks_close. Rows of deleted ids can
 * be mapped; landmarks_dropped includes these ids. */
enum status landmarks_open(struct landmarks *out, const char *store, const struct store_fingerprint *f,
                           struct landmarks_list list, int64_t chunks, struct store_ranges deleted);
void landmarks_close(struct landmarks *l);                /* a zeroed one is fine */
static inline struct store_dropped landmarks_dropped(const struct landmarks *l) {
    return (struct store_dropped){l->dropped, l->n_dropped};
}
static inline struct store_dropped landmarks_missing(const struct landmarks *l) {
    return (struct store_dropped){l->missing, l->n_missing};
}

/* Maps the files of chunks first .. first + *n - 1, where *n is from 1 to `wanted`. The rows of chunks that are not in
 * a dropped shard may be read until the next call that maps files. */
enum status landmarks_map(struct landmarks *l, int64_t *n, int64_t first, int64_t wanted);
/* Maps the files of the first *n of chunks[wanted], which may be in any order. Ids that are outside the store or
 * dropped are ignored. */
enum status landmarks_map_some(struct landmarks *l, int64_t *n, const int64_t *chunks, int64_t wanted);

/* Returns the rows from a mapped chunk up to the end of its file, dropped ones included. A dropped chunk is never
 * mapped. */
struct store_rows landmarks_rows(const struct landmarks *l, int64_t first);

/* Reads rows into out [n, dim]. It maps the files that it needs. None of the chunks may be dropped. */
enum status landmarks_to_float(float *out, struct landmarks *l, int64_t first, int64_t n);
/* Releases the pages of mapped files that hold rows first .. first+n-1, so that they do not count as memory of this
 * process: for a pass over a store that is larger than the memory limit. */
void landmarks_release_pages(const struct landmarks *l, int64_t first, int64_t n);
