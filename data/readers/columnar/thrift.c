/* thrift.c -- see thrift.h. */
#include "data/readers/columnar/thrift.h"

static uint64_t thrift_bad(struct thrift *t) {
    t->bad = true;
    t->at = t->end;
    return 0;
}

static size_t thrift_left(const struct thrift *t) {
    return (size_t)(t->end - t->at);
}

static uint8_t next_byte(struct thrift *t) {
    if (t->at == t->end) return (uint8_t)thrift_bad(t);
    return *t->at++;
}

uint64_t thrift_varint(struct thrift *t) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = next_byte(t);
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) return value;
    }
    return thrift_bad(t);
}

static int64_t thrift_zigzag(uint64_t value) {
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

bool thrift_next(struct thrift *t, struct thrift_field *f) {
    uint8_t head = next_byte(t);
    f->type = (enum thrift_type)(head & 15);
    if (f->type == THRIFT_STOP) {
        if (head != 0) thrift_bad(t);
        return false;
    }
    if (f->type > THRIFT_STRUCT) return thrift_bad(t);
    int64_t id = head >> 4 ? f->id + (head >> 4) : thrift_zigzag(thrift_varint(t));
    if (id < INT16_MIN || id > INT16_MAX) return thrift_bad(t);
    f->id = (int)id;
    return !t->bad;
}

static void skip_bytes(struct thrift *t, uint64_t bytes) {
    if (bytes > thrift_left(t))
        thrift_bad(t);
    else
        t->at += bytes;
}

static void skip_value(struct thrift *t, enum thrift_type type, int depth);

static void skip_list(struct thrift *t, int depth) {
    uint8_t head = next_byte(t);
    enum thrift_type of = (enum thrift_type)(head & 15);
    uint64_t count = head >> 4 == 15 ? thrift_varint(t) : head >> 4;
    if (of == THRIFT_TRUE || of == THRIFT_FALSE) of = THRIFT_BYTE; /* in a list a truth value takes a byte */
    for (uint64_t i = 0; i < count && !t->bad; i++)
        skip_value(t, of, depth);
}

static void skip_map(struct thrift *t, int depth) {
    uint64_t count = thrift_varint(t);
    uint8_t types = count > 0 ? next_byte(t) : 0;
    for (uint64_t i = 0; i < 2 * count && !t->bad; i++) {
        enum thrift_type of = (enum thrift_type)(i % 2 ? types & 15 : types >> 4);
        skip_value(t, of == THRIFT_TRUE || of == THRIFT_FALSE ? THRIFT_BYTE : of, depth);
    }
}

static void skip_value(struct thrift *t, enum thrift_type type, int depth) {
    struct thrift_field f = {0};
    if (depth > THRIFT_DEPTH) thrift_bad(t);
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        break;
    case THRIFT_BYTE:
        skip_bytes(t, 1);
        break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        thrift_varint(t);
        break;
    case THRIFT_DOUBLE:
        skip_bytes(t, 8);
        break;
    case THRIFT_BINARY:
        skip_bytes(t, thrift_varint(t));
        break;
    case THRIFT_LIST:
    case THRIFT_SET:
        skip_list(t, depth + 1);
        break;
    case THRIFT_MAP:
        skip_map(t, depth + 1);
        break;
    case THRIFT_STRUCT:
        while (thrift_next(t, &f))
            skip_value(t, f.type, depth + 1);
        break;
    case THRIFT_STOP:
    default:
        thrift_bad(t);
    }
}

void thrift_skip(struct thrift *t, enum thrift_type type) {
    skip_value(t, type, 0);
}

int64_t thrift_int(struct thrift *t, struct thrift_field f) {
    if (f.type == THRIFT_BYTE) return (int8_t)next_byte(t);
    if (f.type != THRIFT_I16 && f.type != THRIFT_I32 && f.type != THRIFT_I64) return (int64_t)thrift_bad(t);
    return thrift_zigzag(thrift_varint(t));
}

bool thrift_bool(struct thrift *t, struct thrift_field f) {
    if (f.type != THRIFT_TRUE && f.type != THRIFT_FALSE) thrift_bad(t);
    return f.type == THRIFT_TRUE;
}

struct thrift_bytes thrift_binary(struct thrift *t, struct thrift_field f) {
    uint64_t size = f.type == THRIFT_BINARY ? thrift_varint(t) : thrift_bad(t);
    if (f.type != THRIFT_BINARY || size > thrift_left(t)) thrift_bad(t);
    struct thrift_bytes bytes = {t->at, t->bad ? 0 : (size_t)size};
    t->at += bytes.size;
    return bytes;
}

bool thrift_struct(struct thrift *t, struct thrift_field f) {
    if (f.type != THRIFT_STRUCT) thrift_bad(t);
    return !t->bad;
}

size_t thrift_list(struct thrift *t, struct thrift_field f, enum thrift_type of) {
    if (f.type != THRIFT_LIST) return (size_t)thrift_bad(t);
    uint8_t head = next_byte(t);
    uint64_t count = head >> 4 == 15 ? thrift_varint(t) : head >> 4;
    if ((count > 0 && (enum thrift_type)(head & 15) != of) || count > thrift_left(t)) return (size_t)thrift_bad(t);
    return (size_t)count;
}
