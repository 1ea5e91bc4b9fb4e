/* parquet_encodings.h -- decodes the number streams in parquet's pages value by value, so that memory does not depend
 * on the counts that a file states (github.com/apache/parquet-format, Data encodings).
 *
 * A `next` function returns false if the bytes end or are malformed. No memory is allocated. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs and bit-packed groups (RLE): definition levels and dictionary indices of `width` bits, 0 to 32. */
struct parquet_runs {
    const uint8_t *at, *end;
    int width;
    uint64_t left;                           /* values left in the open run */
    const uint8_t *packed; uint64_t bit;     /* NULL: a repeated value */
    uint32_t value;
};
struct parquet_runs parquet_runs_begin(const uint8_t *at, const uint8_t *end, int width);
bool parquet_runs_next(struct parquet_runs *r, uint32_t *value);

/* DELTA_BINARY_PACKED: blocks of miniblocks of differences. */
struct parquet_deltas {
    const uint8_t *at, *end;                 /* at: after the open miniblock */
    uint64_t left;                           /* values left */
    uint64_t miniblocks, per_miniblock;
    uint64_t value, min_delta;               /* sums wrap around, as the format requires */
    bool first;                              /* whether the next value is that of the header */
    const uint8_t *widths; uint64_t miniblock, in_miniblock;
    const uint8_t *packed;
};
/* Returns false if the header is malformed or announces more than `most` values. */
bool parquet_deltas_begin(struct parquet_deltas *d, const uint8_t *at, const uint8_t *end, uint64_t most);
bool parquet_deltas_next(struct parquet_deltas *d, int64_t *value);
/* Returns the end of the stream that begins at d; NULL: the stream is incomplete. */
const uint8_t *parquet_deltas_end(const struct parquet_deltas *d);
