/* flatbuffer.c -- see flatbuffer.h. A table begins with the distance back to its list of fields. The list has its own
 * size, the table's size, and the position of each field in the table (0: absent). */
#include "data/readers/columnar/flatbuffer.h"
#include "base/little_endian.h"

static bool flatbuffer_inside(struct flat *f, size_t at, uint64_t bytes) {
    if (at <= f->size && bytes <= f->size - at) return true;
    f->bad = true;
    return false;
}

static uint64_t number_at(struct flat *f, size_t at, int bytes) {
    return flatbuffer_inside(f, at, (uint64_t)bytes) ? little_endian_get(f->data + at, bytes) : 0;
}

static struct flat_table table_at(struct flat *f, size_t at) {
    struct flat_table t = {0};
    int64_t fields = (int64_t)at - (int32_t)number_at(f, at, 4);
    if (f->bad || fields < 0 || !flatbuffer_inside(f, (size_t)fields, 4)) {
        f->bad = true;
        return t;
    }
    size_t size = (size_t)number_at(f, (size_t)fields, 2);
    if (size < 4 || !flatbuffer_inside(f, (size_t)fields, size)) {
        f->bad = true;
        return t;
    }
    return (struct flat_table){at, (size_t)fields, size};
}

/* Returns the position of the field's value; 0: absent. */
static size_t field_at(struct flat *f, struct flat_table t, int field) {
    size_t entry = 4 + 2 * (size_t)field;
    if (entry + 2 > t.fields_size) return 0;
    size_t offset = (size_t)number_at(f, t.fields + entry, 2);
    return offset ? t.at + offset : 0;
}

/* Returns the target of the offset at this position. Offsets always point forward. */
static size_t flatbuffer_follow(struct flat *f, size_t at) {
    uint64_t offset = number_at(f, at, 4);
    if (offset == 0 || !flatbuffer_inside(f, at, offset)) f->bad = true;
    return f->bad ? 0 : at + (size_t)offset;
}

struct flat_table flat_root(struct flat *f) {
    size_t at = flatbuffer_follow(f, 0);
    return f->bad ? (struct flat_table){0} : table_at(f, at);
}

uint64_t flat_number(struct flat *f, struct flat_table t, int field, int bytes) {
    size_t at = field_at(f, t, field);
    return at ? number_at(f, at, bytes) : 0;
}

struct flat_table flat_child(struct flat *f, struct flat_table t, int field) {
    size_t at = field_at(f, t, field);
    if (at) at = flatbuffer_follow(f, at);
    return at ? table_at(f, at) : (struct flat_table){0};
}

struct flat_vector flat_vector(struct flat *f, struct flat_table t, int field, size_t element) {
    size_t at = field_at(f, t, field);
    if (at) at = flatbuffer_follow(f, at);
    if (!at) return (struct flat_vector){0};
    uint64_t count = number_at(f, at, 4);
    if (f->bad || !flatbuffer_inside(f, at + 4, count * element)) return (struct flat_vector){0};
    return (struct flat_vector){f->data + at + 4, (size_t)count};
}

struct flat_table flat_element(struct flat *f, struct flat_vector v, size_t i) {
    size_t at = flatbuffer_follow(f, (size_t)(v.data - f->data) + 4 * i);
    return f->bad ? (struct flat_table){0} : table_at(f, at);
}
