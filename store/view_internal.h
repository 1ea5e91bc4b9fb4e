/* view_internal.h -- what an open store and a view are made of, for the files of this folder that also need it. */
#pragma once
#include "store/exact_internal.h"
#include "store/catalog/deleted_records_internal.h"
#include "store/catalog/record_lexical_internal.h"
#include "store/index/segment_check_internal.h"
#include "store/index/vectors_internal.h"
#include "store/lexical/lexical.h"

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
    /* after a merge or drop: the newest list, which may hold more than the generation */
    struct shard_record *shards;
    struct deleted_list deleted;         /* these two are as at the opening; with those of `shards` in landmarks */
    struct store_hole *dropped; int64_t n_dropped;
    int64_t n_shards, map_budget;        /* map_budget 0: the default */
    struct shard_maps tokens;
    struct landmarks landmarks;
    struct segment *segments;            /* none: "exact" */
    int64_t n_segments;
    struct lexical *lexical;             /* NULL: none, or it could not be opened: */
    enum status lexical_status;
    char *lexical_problem;               /* the message of that */
    struct lexical_record lexical_record;
    char *text;                          /* source and key of the last document */
    size_t text_capacity;
};

/* "index/00007.faiss" of a segment or template. */
enum status index_path(char out[FILE_PATH_MAX], const char *store, int64_t number);

/* The lexical index (view_lexical.c). Reading gives its record in the view's snapshot; opening maps the files. What is
 * wrong with it is kept in the view, for store_view_lexical, and is no failure of either. */
enum status view_read_lexical(struct store_view *v);
void view_open_lexical(struct store_view *v);
void view_close_lexical(struct store_view *v);

/* Size, and the checksum of the part that FAISS does not check itself; then opens it mapped. */
enum status segment_open(struct vectors **out, const char *store, const struct segment_record *r, int dim);
/* CRC32C of the first bytes of a file. */
enum status file_head_checksum(uint32_t *out, const char *path, uint64_t bytes);

/* True: a file of a shard was missing (*s STATUS_CORRUPT) since a writer merged or dropped shards; the view has the
 * newest list of shards now, and the caller repeats what failed. */
bool view_follow_shards(struct store_view *v, enum status *s);
/* Files of each kind that may be mapped together, for tests. */
void view_limit_maps(struct store_view *v, int64_t files);
