/* arrow_internal.h -- the columns of an arrow file, and the buffers of a record batch.
 *
 * Format: arrow.apache.org/docs/format/Columnar.html, "Serialization and Interprocess Communication". The file format
 * has the same messages as the stream format, between a magic and a footer, which lists the record batches. Both are
 * read from front to back. At the end, the number of batches is compared with the footer's, and no further bytes may
 * follow the mark of the end, so that rows after a damaged length or in a second, appended file are not left out. */
#pragma once
#include "data/readers/columnar/codec.h"
#include "data/readers/columnar/columnar.h"
#include "data/readers/columnar/flatbuffer.h"

/* Indices of a column's nodes and buffers in each record batch. Structs around it have validity buffers, too. */
struct arrow_leaf {
    bool present, view;                      /* view: the texts are in any of several data buffers */
    int width;                               /* bytes of an offset, of a view, or of a number */
    size_t node, buffer; /* of the validity buffer; the buffers of offsets and data, or of numbers, follow it */
    size_t parents[COLUMNAR_DEPTH_MAX]; int n_parents;       /* validity buffers of the structs */
    size_t views; /* number of columns before it whose number of buffers differs from batch to batch */
};
struct arrow_schema {
    struct arrow_leaf leaves[COLUMNAR_COLUMNS];
    enum columnar_kind kinds[COLUMNAR_COLUMNS];
    size_t n_nodes, n_buffers, n_views;
    bool has_dictionaries;                   /* whether a column is dictionary-encoded */
};
/* `message`: a table Schema. `version`: the message's. */
enum status arrow_schema_read(struct arrow_schema *out, struct flat *f, struct flat_table schema, int version,
                              const char *path, const char *text_field);

/* A buffer in the file: read through a window, or decompressed completely. */
struct arrow_buffer { uint64_t at, size; bool loaded; struct reader_buffer bytes; uint64_t window; };
struct arrow_column {
    struct arrow_buffer valid[COLUMNAR_DEPTH_MAX + 1]; int n_valid;
    struct arrow_buffer offsets, data;       /* offsets: also views */
    /* of a view column: its data buffers, in the metadata; the one that is open */
    const uint8_t *entries; uint64_t n_entries, entry;
};
/* The body of a record batch, and the compression of its buffers. */
struct arrow_body { const struct columnar_file *file; uint64_t at, bytes, batch, block_max; enum codec codec; };
enum status arrow_buffer_open(struct arrow_buffer *b, const struct arrow_body *body, const uint8_t *entry);
/* Returns `bytes` bytes at `at`, valid until the next call for the buffer. */
enum status arrow_buffer_get(struct arrow_buffer *b, const uint8_t **out, const struct arrow_body *body, uint64_t at,
                             uint64_t bytes);
enum status arrow_batch_fail(const struct arrow_body *body, const char *what);
