/* view_internal.h -- what an open store and a view are made of, for the files of this folder that also need it. */
#pragma once
#include "store/exact_internal.h"
#include "store/records_internal.h"
#include "store/segment_check_internal.h"
#include "store/vectors_internal.h"

struct store {
    struct catalog *catalog;
    struct store_fingerprint fingerprint;
    int format;
    char dir[FILE_PATH_MAX];
};

struct segment { struct segment_record record; struct vectors *vectors; };
struct store_view {
    struct store *store;
    struct catalog_txn *txn;             /* paused between calls */
    struct generation_record generation;
    struct index_record index;
    struct shard_record *shards;
    struct shard_map *tokens;
    struct landmarks landmarks;
    struct segment *segments;            /* none: "exact" */
    int64_t n_segments;
    char *text;                          /* source and key of the last document */
    size_t text_capacity;
};

/* "index/00007.faiss" of a segment or template. */
enum status index_path(char out[FILE_PATH_MAX], const char *store, int64_t number);

/* Size, and the checksum of the part that FAISS follows blindly; then opens it mapped. */
enum status segment_open(struct vectors **out, const char *store, const struct segment_record *r, int dim);
/* CRC32C of the first bytes of a file. */
enum status file_head_checksum(uint32_t *out, const char *path, uint64_t bytes);

/* Maps the landmark shards of `list`. */
enum status landmarks_open(struct landmarks *out, const char *store, const struct shard_record *list, int64_t count,
                           const struct store_fingerprint *f);
void landmarks_close(struct landmarks *l);                /* a zeroed one is fine */
