/* segment_check_internal.h -- checks of an index file that FAISS does not make, before FAISS reads it.
 *
 * A checksum detects damage, not an attack: a program that can write a file can write its checksum too. FAISS does not
 * check a file: a wrong link of a graph, or a wrong length of a list or vector, makes it read outside its memory, or
 * allocate that length. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segment_shape {
    int dim;                             /* of the rows */
    int64_t count, first_id;             /* of the rows; ids are first_id .. first_id + count - 1 */
};
/* Types that are checked to the last byte: inverted files with flat, scalar or product codes whose centroids are flat
 * or a graph (HNSW) over flat or scalar codes; the same without lists; each after linear transforms. For others
 * *known is false, and only the part of the file before the unknown type is checked.
 *
 * Lengths, dimensions, links of graphs, list sizes against the file's size, and numbers of centroids (finite, below
 * 1e15: FAISS does not survive an infinite distance in a graph). The time is that of reading the file without its lists
 * once. With `ids` also the lists: each id is in the shape's range, and there once: the time of reading the file, and a
 * bit of memory an id. STATUS_CORRUPT names `path` and the byte. */
enum status segment_check(const char *path, const struct segment_shape *shape, const uint8_t *bytes, size_t size,
                          bool ids, bool *known);
/* The same of a file; known may be NULL. */
enum status segment_check_file(const char *path, const struct segment_shape *shape, bool ids, bool *known);
