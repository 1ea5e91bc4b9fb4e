/* list_rows_internal.h -- rows of a range of chunks with their lists and codes, in memory: an inverted file that this
 * program fills instead of FAISS, with the lists of a store_assignment (store/index/assign_rows.h).
 *
 * Threads take blocks of chunks. A thread reads the rows of its block, has them assigned to lists, and codes them.
 * Codes are kept in the order of chunks, and are put into the order of lists when they are written. So the rows are
 * read once, and the bytes do not depend on threads or devices. Memory for a row: its code and 8 bytes. */
#pragma once
#include "base/file.h"
#include "store/index/index_build_internal.h"

struct list_rows {
    int64_t first, n, lists;             /* n chunks from chunk `first`, below 2^31 */
    size_t code_bytes;
    uint8_t *codes;                      /* [n, code_bytes], in the order of chunks */
    int32_t *list;                       /* [n]: list of each row; once `order` is computed, it is released */
    int64_t *begin;                      /* [lists + 1]: the first slot of each list */
    int32_t *order;                      /* [n]: the row of each slot, ascending within a list */
};
/* Whether b->how->assignment can assign the rows of this index. */
bool list_rows_supported(const struct index_build *b, const struct vectors *v);
/* Assigns and codes chunks begin .. end-1, none of which may be dropped. `v`: an index without rows. */
enum status list_rows_fill(struct list_rows *out, const struct index_build *b, const struct vectors *v,
                           struct store_range range, int64_t total);
void list_rows_free(struct list_rows *r);                 /* a zeroed one is fine */

/* Append to a file the codes, or the ids, of all slots in their order. *crc: of these bytes. */
enum status list_rows_write_codes(const struct list_rows *r, struct file_writer *w, struct threads *pool,
                                  uint32_t *crc);
enum status list_rows_write_ids(const struct list_rows *r, struct file_writer *w, struct threads *pool, uint32_t *crc);
/* Makes the file of a segment, of chunks r->first_chunk and following, as FAISS writes it: the head of the template,
 * then for each list its codes and its ids. `v` is the index of the template. Sets r->file and r->head. total: number
 * of chunks, for the progress. */
enum status list_rows_make_segment(const struct index_build *b, const struct vectors *v, struct segment_record *r,
                                   const char *template, const char *path, int64_t total);
