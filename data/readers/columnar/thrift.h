/* thrift.h -- reads Thrift's compact protocol, the format of parquet's footer and page headers, from a byte range.
 *
 * The first violation (missing bytes, a length beyond the end, a number of more than 64 bits, nesting beyond
 * THRIFT_DEPTH) sets `bad` and moves `at` to `end`. Every later call then returns 0 or false, so the caller's loops end
 * and it checks `bad` once. No memory is allocated. Results point into the range. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { THRIFT_DEPTH = 32 };
enum thrift_type {
    THRIFT_STOP, THRIFT_TRUE, THRIFT_FALSE, THRIFT_BYTE, THRIFT_I16, THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE,
    THRIFT_BINARY, THRIFT_LIST, THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT
};

struct thrift { const uint8_t *at, *end; bool bad; };
struct thrift_field { int id; enum thrift_type type; };          /* zeroed before the first field of each struct */
struct thrift_bytes { const uint8_t *data; size_t size; };

uint64_t thrift_varint(struct thrift *t);
/* Reads the next field of a struct; false at its end. The field's value must then be read or skipped. */
bool thrift_next(struct thrift *t, struct thrift_field *f);
void thrift_skip(struct thrift *t, enum thrift_type type);       /* a field's value */
/* Read the value of field f. Another type sets `bad`. */
int64_t thrift_int(struct thrift *t, struct thrift_field f);
bool thrift_bool(struct thrift *t, struct thrift_field f);
struct thrift_bytes thrift_binary(struct thrift *t, struct thrift_field f);
bool thrift_struct(struct thrift *t, struct thrift_field f);     /* the struct's fields follow */
/* Returns the number of elements that follow, which must be of the given type. It never exceeds the
 * number of bytes left. */
size_t thrift_list(struct thrift *t, struct thrift_field f, enum thrift_type of);
