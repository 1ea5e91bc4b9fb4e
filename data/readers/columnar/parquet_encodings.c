/* parquet_encodings.c -- see parquet_encodings.h. */
#include "data/readers/columnar/parquet_encodings.h"
#include "base/little_endian.h"
#include "data/readers/columnar/thrift.h"

enum { PER_MINIBLOCK_MAX = 1 << 20 };

/* Returns bits [bit, bit + width) of a little-endian stream, width 0 to 64. All of their bytes must exist. */
static uint64_t parquet_encodings_unpack(const uint8_t *bytes, uint64_t bit, int width) {
    uint64_t value = 0;
    const uint8_t *at = bytes + bit / 8;
    int skip = (int)(bit % 8), have = 0;
    while (have < width) {
        value |= (uint64_t)(*at++ >> skip) << have;
        have += 8 - skip;
        skip = 0;
    }
    return width < 64 ? value & ((1ull << width) - 1) : value;
}

/* Thrift's varint has the same encoding. */
static bool parquet_encodings_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    struct thrift t = {*at, end, false};
    *value = thrift_varint(&t);
    *at = t.at;
    return !t.bad;
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

struct parquet_runs parquet_runs_begin(const uint8_t *at, const uint8_t *end, int width) {
    return (struct parquet_runs){.at = at, .end = end, .width = width};
}

static bool runs_open(struct parquet_runs *r) {
    uint64_t head;
    size_t value_bytes = (size_t)(r->width + 7) / 8;
    if (!parquet_encodings_varint(&r->at, r->end, &head)) return false;
    size_t bytes = (size_t)(r->end - r->at);
    r->left = head >> 1;
    r->packed = NULL;
    if (head & 1) { /* groups of 8 */
        if (r->left > UINT32_MAX || (r->width > 0 && r->left > bytes / (unsigned)r->width)) return false;
        r->packed = r->at;
        r->bit = 0;
        r->at += r->left * (unsigned)r->width;
        r->left *= 8;
        return r->left > 0;
    }
    if (value_bytes > bytes) return false;
    r->value = (uint32_t)little_endian_get(r->at, (int)value_bytes);
    r->at += value_bytes;
    return r->left > 0 && (r->width == 32 || r->value >> r->width == 0);
}

bool parquet_runs_next(struct parquet_runs *r, uint32_t *value) {
    if (r->left == 0 && !runs_open(r)) {
        r->left = 0;
        return false;
    }
    r->left--;
    if (r->packed) {
        *value = (uint32_t)parquet_encodings_unpack(r->packed, r->bit, r->width);
        r->bit += (unsigned)r->width;
    } else {
        *value = r->value;
    }
    return true;
}

/* ---- differences ------------------------------------------------------------------------------------------------ */

static uint64_t parquet_encodings_zigzag(uint64_t value) {
    return value >> 1 ^ (0 - (value & 1));
}

bool parquet_deltas_begin(struct parquet_deltas *d, const uint8_t *at, const uint8_t *end, uint64_t most) {
    uint64_t block, first;
    *d = (struct parquet_deltas){.at = at, .end = end, .first = true};
    if (!parquet_encodings_varint(&d->at, end, &block) || !parquet_encodings_varint(&d->at, end, &d->miniblocks) ||
        !parquet_encodings_varint(&d->at, end, &d->left) || !parquet_encodings_varint(&d->at, end, &first))
        return false;
    if (d->miniblocks == 0 || block % d->miniblocks != 0 || d->left > most) return false;
    d->per_miniblock = block / d->miniblocks;
    d->miniblock = d->miniblocks; /* the next value is the first of a block */
    d->value = parquet_encodings_zigzag(first);
    return d->per_miniblock % 8 == 0 && d->per_miniblock > 0 && d->per_miniblock <= PER_MINIBLOCK_MAX;
}

static bool deltas_open(struct parquet_deltas *d) {
    if (d->miniblock == d->miniblocks) {
        if (!parquet_encodings_varint(&d->at, d->end, &d->min_delta)) return false;
        d->min_delta = parquet_encodings_zigzag(d->min_delta);
        if (d->miniblocks > (uint64_t)(d->end - d->at)) return false;
        d->widths = d->at;
        d->at += d->miniblocks;
        d->miniblock = 0;
    }
    uint64_t width = d->widths[d->miniblock++], bytes = width * d->per_miniblock / 8;
    if (width > 64 || bytes > (uint64_t)(d->end - d->at)) return false;
    d->packed = d->at;
    d->at += bytes;
    d->in_miniblock = 0;
    return true;
}

bool parquet_deltas_next(struct parquet_deltas *d, int64_t *value) {
    if (d->left == 0) return false;
    if (!d->first) {
        if ((!d->packed || d->in_miniblock == d->per_miniblock) && !deltas_open(d)) {
            d->left = 0;
            return false;
        }
        int width = d->widths[d->miniblock - 1];
        d->value += d->min_delta + parquet_encodings_unpack(d->packed, d->in_miniblock++ * (unsigned)width, width);
    }
    d->first = false;
    d->left--;
    *value = (int64_t)d->value;
    return true;
}

const uint8_t *parquet_deltas_end(const struct parquet_deltas *d) {
    struct parquet_deltas walk = *d;
    for (uint64_t left = d->left > 0 ? d->left - 1 : 0; left > 0;) {
        if (!deltas_open(&walk)) return NULL;
        left -= left < walk.per_miniblock ? left : walk.per_miniblock;
    }
    return walk.at;
}
