/* segment_check_internal.h -- checks an index file before FAISS reads it.
 *
 * FAISS does not check a file: a wrong link of a graph, or a wrong length of a list or vector, makes it read outside
 * its memory, or allocate that length. A checksum does not detect an attack: a program that can write a file can also
 * write its checksum. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segment_shape {
    int dim;                             /* dimensions of the rows */
    int64_t count, first_id;             /* count: of the rows, whose ids are first_id .. first_id + count - 1 */
};
/* Checks the following types completely: inverted files with flat, scalar or product codes whose centroids are flat or
 * a graph (HNSW) over flat or scalar codes; these codes without lists; each of these after linear transforms. For other
 * types *known is false, and only the part before the unknown type is checked.
 *
 * The check covers lengths, dimensions, links of graphs, list sizes against the file's size, and values of centroids
 * (finite, below 1e15: an infinite distance in a graph crashes FAISS). It reads the file once, without its lists. With
 * `ids` it reads the lists, too: each id must be in the shape's range and occur once. That needs one bit of memory per
 * id. STATUS_CORRUPT names `path` and the byte. */
enum status segment_check(const char *path, const struct segment_shape *shape, const uint8_t *bytes, size_t size,
                          bool ids, bool *known);
/* The parts of an inverted file that depend on its rows: their number, in the header of the index and in those of the
 * indexes inside its transforms, and the lists, which end the file. */
struct segment_layout {
    size_t counts[2]; int n_counts;      /* offsets, in bytes, of the int64_t that contain the number of rows */
    size_t lists_at;
    uint64_t lists, code_bytes;
};
/* Checks as segment_check does, without `ids`. STATUS_UNSUPPORTED: not an inverted file of a type that is checked. */
enum status segment_layout(struct segment_layout *out, const char *path, const struct segment_shape *shape,
                           const uint8_t *bytes, size_t size);
/* Writes into *head (memory_free) all bytes before the codes and ids of the first list, in FAISS's format: the template
 * up to its lists, with `rows` as the number of rows, then the sizes of the lists. */
enum status segment_head(uint8_t **head, size_t *bytes, const uint8_t *template, const struct segment_layout *layout,
                         const uint64_t *sizes, int64_t rows);
/* Checks a file as segment_check does. `known` may be NULL. */
enum status segment_check_file(const char *path, const struct segment_shape *shape, bool ids, bool *known);
