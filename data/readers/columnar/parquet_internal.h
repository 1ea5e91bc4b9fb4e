/* parquet_internal.h -- a parquet file's footer, and one column of a row group, read page by page.
 *
 * Format: github.com/apache/parquet-format (parquet.thrift). Only columns without repetition are read, so a value is a
 * row. Memory: the footer's row groups, and for each column one page, its compressed bytes and a dictionary. */
#pragma once
#include "data/readers/columnar/codec.h"
#include "data/readers/columnar/columnar.h"
#include "data/readers/columnar/parquet_encodings.h"

enum parquet_type { PARQUET_INT32 = 1, PARQUET_INT64 = 2, PARQUET_BYTE_ARRAY = 6, PARQUET_TYPES = 8 };
enum parquet_encoding {
    PARQUET_PLAIN = 0, PARQUET_PLAIN_DICTIONARY = 2, PARQUET_RLE = 3, PARQUET_DELTA_BINARY_PACKED = 5,
    PARQUET_DELTA_LENGTH = 6, PARQUET_DELTA_BYTES = 7, PARQUET_RLE_DICTIONARY = 8, PARQUET_BYTE_STREAM_SPLIT = 9
};

struct parquet_leaf { int number; enum parquet_type type; int levels; };   /* number < 0: none */
/* codec of a column of a row group, and its range in the file */
struct parquet_chunk { enum codec codec; uint64_t at, end; };
struct parquet_group { uint64_t rows; struct parquet_chunk chunks[COLUMNAR_COLUMNS]; };

struct parquet_footer {
    struct parquet_leaf leaves[COLUMNAR_COLUMNS];
    enum columnar_kind kinds[COLUMNAR_COLUMNS];
    struct parquet_group *groups; size_t n_groups;
    uint64_t rows;
};
/* STATUS_INVALID: damaged, or there is no such column. STATUS_UNSUPPORTED: encrypted, or an unknown codec. */
enum status parquet_footer_read(struct parquet_footer *out, const struct columnar_file *file, const char *text_field,
                                uint64_t block_max);
void parquet_footer_free(struct parquet_footer *f);

struct parquet_page {
    int64_t type, plain_bytes, bytes, crc, values, encoding, level_bytes, repetition_bytes, rows, level_encoding;
    bool has_crc, has_body, compressed;
};

struct parquet_column {
    const struct columnar_file *file;
    const char *name;                        /* for messages */
    uint64_t group, block_max;
    enum parquet_type type;
    int levels;
    enum codec codec;
    uint64_t at, end;                        /* of the next page; of the end of the chunk */
    uint64_t rows_left, in_page;             /* of the row group, including the open page; of the open page */
    uint64_t page_at;
    struct reader_buffer raw, plain, dictionary, whole;
    uint32_t *entries; size_t entries_capacity, n_entries;   /* starts of the dictionary's texts */
    bool has_dictionary;
    int64_t encoding;
    const uint8_t *value, *value_end;        /* values of the page */
    struct parquet_runs defined, indices;
    struct parquet_deltas lengths, prefixes;
    uint64_t split, split_count;             /* BYTE_STREAM_SPLIT: the next value; number of values */
    uint8_t number[8];
};
void parquet_column_begin(struct parquet_column *c, const struct parquet_footer *f, size_t group, int column);
/* Returns the next row's value, valid until the next call. rows_left must be above 0. */
enum status parquet_column_next(struct parquet_column *c, struct columnar_value *value);
void parquet_column_free(struct parquet_column *c);

/* In parquet_values.c: the values of a page, whose bytes are c->value to c->value_end. They return false if the
 * values are damaged. */
bool parquet_values_begin(struct parquet_column *c, uint64_t rows);
bool parquet_values_next(struct parquet_column *c, struct columnar_value *value);
bool parquet_encoding_known(const struct parquet_column *c, int64_t encoding);
/* Finds the beginning of each value in c->dictionary, a page of `count` plain values. */
enum status parquet_dictionary_begin(struct parquet_column *c, uint64_t count, bool *good);
