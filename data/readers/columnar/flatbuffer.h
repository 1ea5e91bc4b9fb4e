/* flatbuffer.h -- reads FlatBuffers, the format of arrow's metadata, from a byte range. An offset out of the range sets
 * `bad`, and its target is treated as absent: 0, no elements, no table. No memory is allocated. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flat { const uint8_t *data; size_t size; bool bad; };
struct flat_table { size_t at, fields, fields_size; };                 /* fields_size 0: absent */
struct flat_vector { const uint8_t *data; size_t count; };

struct flat_table flat_root(struct flat *f);
uint64_t flat_number(struct flat *f, struct flat_table t, int field, int bytes);   /* absent: 0, the default */
struct flat_table flat_child(struct flat *f, struct flat_table t, int field);
/* Gets a vector whose elements have this many bytes. */
struct flat_vector flat_vector(struct flat *f, struct flat_table t, int field, size_t element);
/* Gets an element of a vector of tables. */
struct flat_table flat_element(struct flat *f, struct flat_vector v, size_t i);
