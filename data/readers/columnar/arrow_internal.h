/* arrow_internal.h -- the columns of an arrow file, and the buffers of a record batch.
 *
 * Format: arrow.apache.org/docs/format/Columnar.html, "Serialization and Interprocess Communication". A file of the
 * file format holds the same messages as a stream, between a magic and a footer; both are read front to back. */
#pragma once
#include "data/readers/columnar/codec.h"
#include "data/readers/columnar/columnar.h"
#include "data/readers/columnar/flatbuffer.h"

/* Where a column's nodes and buffers stand in each record batch. Structs around it have validity buffers, too. */
struct arrow_leaf {
    bool present, view;                      /* view: texts stand in any of several buffers of data */
    int width;                               /* bytes of an offset, of a view, or of a number */
    size_t node, buffer;                     /* the validity buffer, then offsets and data, or numbers */
    size_t parents[COLUMNAR_DEPTH_MAX]; int n_parents;       /* validity buffers of the structs */
    size_t views;                            /* columns before it with a number of buffers that differs by batch */
};
struct arrow_schema {
    struct arrow_leaf leaves[COLUMNAR_COLUMNS];
    enum columnar_kind kinds[COLUMNAR_COLUMNS];
    size_t n_nodes, n_buffers, n_views;
};
/* `message`: a table Schema. `version`: the message's. */
enum status arrow_schema_read(struct arrow_schema *out, struct flat *f, struct flat_table schema, int version,
                              const char *path, const char *text_field);

/* A buffer in the file: read through a window, or decompressed as a whole. */
struct arrow_buffer { uint64_t at, size; bool loaded; struct reader_buffer bytes; uint64_t window; };
struct arrow_column {
    struct arrow_buffer valid[COLUMNAR_DEPTH_MAX + 1]; int n_valid;
    struct arrow_buffer offsets, data;       /* offsets: or views */
    const uint8_t *entries; uint64_t n_entries, entry;       /* of a view's data, in the metadata; the open one */
};
/* The body of a record batch and how its buffers are compressed. */
struct arrow_body { const struct columnar_file *file; uint64_t at, bytes, batch, block_max; enum codec codec; };
enum status arrow_buffer_open(struct arrow_buffer *b, const struct arrow_body *body, const uint8_t *entry);
/* `bytes` bytes at `at`, valid until the next call for the buffer. */
enum status arrow_buffer_get(struct arrow_buffer *b, const uint8_t **out, const struct arrow_body *body, uint64_t at,
                             uint64_t bytes);
enum status arrow_batch_fail(const struct arrow_body *body, const char *what);
