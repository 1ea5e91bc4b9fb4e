/* parquet_values.c -- the values of a page, for each encoding of texts and whole numbers. */
#include "base/little_endian.h"
#include "base/memory.h"
#include "data/readers/columnar/parquet_internal.h"
#include <string.h>

static size_t number_bytes(const struct parquet_column *c) {
    return c->type == PARQUET_INT32 ? 4 : 8;
}

bool parquet_encoding_known(const struct parquet_column *c, int64_t encoding) {
    switch (encoding) {
    case PARQUET_PLAIN:
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        return true;
    case PARQUET_DELTA_LENGTH:
    case PARQUET_DELTA_BYTES:
        return c->type == PARQUET_BYTE_ARRAY;
    case PARQUET_DELTA_BINARY_PACKED:
    case PARQUET_BYTE_STREAM_SPLIT:
        return c->type != PARQUET_BYTE_ARRAY;
    default:
        return false;
    }
}

/* Reads a text and its length of four bytes at *at. */
static bool plain_text(const uint8_t **at, const uint8_t *end, struct columnar_value *v) {
    if (end - *at < 4) return false;
    v->size = (size_t)little_endian_get(*at, 4);
    v->data = *at + 4;
    if (v->size > (size_t)(end - v->data)) return false;
    *at = v->data + v->size;
    return true;
}

enum status parquet_dictionary_begin(struct parquet_column *c, uint64_t count, bool *good) {
    const uint8_t *begin = (const uint8_t *)c->dictionary.data, *at = begin, *end = begin + c->dictionary.size;
    size_t least = c->type == PARQUET_BYTE_ARRAY ? 4 : number_bytes(c);
    struct columnar_value v;
    *good = count <= c->dictionary.size / least;
    if (!*good) return STATUS_OK;
    c->n_entries = (size_t)count;
    if (c->type != PARQUET_BYTE_ARRAY) return STATUS_OK;
    TRY(memory_grow(&c->entries, &c->entries_capacity, c->n_entries + 1));
    for (size_t i = 0; i < c->n_entries && *good; i++) {
        c->entries[i] = (uint32_t)(at - begin);
        *good = plain_text(&at, end, &v);
    }
    return STATUS_OK;
}

/* ---- a page ----------------------------------------------------------------------------------------------------- */

bool parquet_values_begin(struct parquet_column *c, uint64_t rows) {
    const uint8_t *at = c->value, *end = c->value_end;
    switch (c->encoding) {
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        if (at == end) { /* a page of nulls may lack the number */
            c->indices = parquet_runs_begin(at, end, 0);
            return true;
        }
        if (!c->has_dictionary || *at > 32) return false;
        c->indices = parquet_runs_begin(at + 1, end, *at);
        return true;
    case PARQUET_DELTA_BINARY_PACKED:
        return parquet_deltas_begin(&c->lengths, at, end, rows);
    case PARQUET_DELTA_LENGTH:
        return parquet_deltas_begin(&c->lengths, at, end, rows) && (c->value = parquet_deltas_end(&c->lengths));
    case PARQUET_DELTA_BYTES:
        c->whole.size = 0;
        return parquet_deltas_begin(&c->prefixes, at, end, rows) && (at = parquet_deltas_end(&c->prefixes)) &&
               parquet_deltas_begin(&c->lengths, at, end, rows) && (c->value = parquet_deltas_end(&c->lengths));
    case PARQUET_BYTE_STREAM_SPLIT:
        c->split = 0;
        c->split_count = (uint64_t)(end - at) / number_bytes(c);
        return (uint64_t)(end - at) % number_bytes(c) == 0;
    default:
        return true;
    }
}

static bool next_entry(struct parquet_column *c, struct columnar_value *v) {
    uint32_t index;
    if (!parquet_runs_next(&c->indices, &index) || index >= c->n_entries) return false;
    const uint8_t *begin = (const uint8_t *)c->dictionary.data;
    if (c->type == PARQUET_BYTE_ARRAY) {
        const uint8_t *at = begin + c->entries[index];
        return plain_text(&at, begin + c->dictionary.size, v);
    }
    *v = (struct columnar_value){.data = begin + index * number_bytes(c), .size = number_bytes(c)};
    return true;
}

/* Gets the bytes of the next length. */
static bool next_length(struct parquet_column *c, struct columnar_value *v) {
    int64_t length;
    if (!parquet_deltas_next(&c->lengths, &length) || length < 0 || length > c->value_end - c->value) return false;
    *v = (struct columnar_value){.data = c->value, .size = (size_t)length};
    c->value += length;
    return true;
}

/* A text is a prefix of the previous text, of stated length, and a suffix. */
static bool next_prefixed(struct parquet_column *c, struct columnar_value *v) {
    int64_t prefix;
    if (!parquet_deltas_next(&c->prefixes, &prefix) || prefix < 0 || (uint64_t)prefix > c->whole.size) return false;
    if (!next_length(c, v) || (uint64_t)prefix + v->size > c->block_max) return false;
    size_t size = (size_t)prefix + v->size;
    if (memory_grow(&c->whole.data, &c->whole.capacity, size + 1) != STATUS_OK) return false;
    memcpy(c->whole.data + prefix, v->data, v->size);
    c->whole.size = size;
    *v = (struct columnar_value){.data = (const uint8_t *)c->whole.data, .size = size};
    return true;
}

static bool next_number(struct parquet_column *c, struct columnar_value *v) {
    size_t bytes = number_bytes(c);
    int64_t number;
    *v = (struct columnar_value){.data = c->number, .size = bytes};
    if (c->encoding == PARQUET_DELTA_BINARY_PACKED) {
        if (!parquet_deltas_next(&c->lengths, &number)) return false;
        little_endian_put(c->number, (uint64_t)number, 8);
    } else if (c->encoding == PARQUET_BYTE_STREAM_SPLIT) {
        if (c->split == c->split_count) return false;
        for (size_t i = 0; i < bytes; i++)
            c->number[i] = c->value[i * c->split_count + c->split];
        c->split++;
    } else {
        if ((size_t)(c->value_end - c->value) < bytes) return false;
        v->data = c->value;
        c->value += bytes;
    }
    return true;
}

bool parquet_values_next(struct parquet_column *c, struct columnar_value *v) {
    switch (c->encoding) {
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        return next_entry(c, v);
    case PARQUET_DELTA_LENGTH:
        return next_length(c, v);
    case PARQUET_DELTA_BYTES:
        return next_prefixed(c, v);
    default:
        return c->type == PARQUET_BYTE_ARRAY ? plain_text(&c->value, c->value_end, v) : next_number(c, v);
    }
}
