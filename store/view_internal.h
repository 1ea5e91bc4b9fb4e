/* view_internal.h -- the structs of an open store and an open view, for other files of this folder. */
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
    enum store_landmarks landmarks;
    int format;
    char dir[FILE_PATH_MAX];
};

struct segment { struct segment_record record; struct vectors *vectors; };
struct store_view {
    struct store *store;
    struct catalog_txn *txn;             /* paused between calls */
    struct generation_record generation;
    struct index_record index;
    /* the newest list, if a merge or a drop has changed it; it may have more shards than the generation */
    struct shard_record *shards;
    /* as they were when the view was opened; `landmarks` also has the dropped shards of the newest list */
    struct deleted_list deleted;
    struct store_hole *dropped; int64_t n_dropped;
    int64_t n_shards, map_budget;        /* map_budget 0: the default */
    struct shard_maps tokens;
    struct landmarks landmarks;
    struct segment *segments;            /* NULL: index "exact" */
    int64_t n_segments;
    struct lexical *lexical;             /* NULL: there is none, or it could not be opened */
    enum status lexical_status;
    char *lexical_problem;               /* the message of that failure */
    struct lexical_record lexical_record;
    char *text;                          /* source and key of the document that was read last */
    size_t text_capacity;
};

/* Path of a segment or template, as "index/00007.faiss". */
enum status index_path(char out[FILE_PATH_MAX], const char *store, int64_t number);

/* The lexical index (view_lexical.c). view_read_lexical reads its record in the view's snapshot; view_open_lexical maps
 * its files. These functions do not return a failure of the lexical index. The view stores it for
 * store_view_lexical. */
enum status view_read_lexical(struct store_view *v);
void view_open_lexical(struct store_view *v);
void view_close_lexical(struct store_view *v);

/* Checks the size, and the checksum of the part that FAISS does not check; then maps the file. */
enum status segment_open(struct vectors **out, const char *store, const struct segment_record *r, int dim);
/* CRC32C of the first `bytes` bytes of a file. */
enum status file_head_checksum(uint32_t *out, const char *path, uint64_t bytes);

/* Call it after reading a shard failed with *s. Returns true if a writer has merged or dropped shards and the view has
 * read the newest list of shards; then repeat the failed operation. */
bool view_follow_shards(struct store_view *v, enum status *s);
/* Limits how many files of each kind may be mapped together, for tests. */
void view_limit_maps(struct store_view *v, int64_t files);
