/* sort_internal.h -- makes the lists of a bucket from its records. */
#pragma once
#include "store/lexical/build/lists_internal.h"
#include "store/lexical/build/bucket_records_internal.h"

struct sorter;                           /* of one thread */
struct sorter_config {
    struct records *records;             /* finished; borrowed, and so are the buckets */
    const struct buckets *buckets;
    const char *folder;                  /* of the temporary files */
    int64_t chunks;                      /* of the segment */
    uint64_t max_ram;                    /* bytes for sorting; a larger bucket is sorted in parts, each read from it */
    size_t buffer;                       /* bytes of each of five buffers, at least 1 << 16 */
    int number;                          /* of the thread */
};
enum status sorter_create(struct sorter **out, const struct sorter_config *config);
void sorter_free(struct sorter *s);                       /* NULL is fine */
/* Makes a piece of each part (lists_internal.h): the lists of tokens and of pairs of the bucket. */
enum status sorter_bucket(struct sorter *s, int bucket, struct lists_piece pieces[LISTS_PARTS]);
/* Releases the memory for sorting. Afterwards any number of threads may read the spools of `lists`. */
enum status sorter_finish(struct sorter *s);
struct lists_writer *sorter_lists(struct sorter *s);
