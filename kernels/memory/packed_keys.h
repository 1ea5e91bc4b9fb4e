/* packed_keys.h -- keys of a token memory in 8 bits a number, as a store keeps them (docs/token-memory.md).
 *
 *   key_j = scale code_j     scale = max over j of |key_j| / 127, code_j in -127 .. 127
 *
 * An error of a number is at most scale / 2, and the rounding of the keys' type. Codes, scales and keys have the same
 * bits on every device: quotients and products are float32, rounded to nearest even, as are codes. Bound: memory. */
#pragma once
#include "kernels/device/device.h"
#ifdef __CUDACC__
#define PACKED_FUNCTION static __host__ __device__ inline
#else
#define PACKED_FUNCTION static inline
#endif

/* n rows of m numbers, of the host or of a device. */
struct packed_keys {
    const int8_t *code;                  /* [n, m] */
    const float *scale;                  /* [n] */
};

/* The stored keys of all chunks of a store, in memory of the device. Row i of chunk c is row c * chunk_rows + i. */
struct packed_chunks {
    struct packed_keys keys;             /* [chunks * chunk_rows, m] */
    /* the id that follows each row in its document; -1: none. Chunk c + 1 continues the document of chunk c if the
     * last value of c is an id. */
    const int32_t *value;                /* [chunks * chunk_rows] */
    int64_t chunks; int chunk_rows;
};
/* Slots of a token memory (struct memory_slots): each has the rows of before + 1 + after chunks. */
struct packed_slots { struct mat keys; float *square; int32_t *value; int before, after; };

struct packed_keys_ops {
    /* code [n, m] and scale [n] of keys [n, m] of any type. A row of zeros has scale 0 and codes 0. A row with a
     * number that is not finite has scale NaN and codes 0: all its numbers are NaN when it is unpacked. */
    void (*pack)(struct device *dev, int8_t *code, float *scale, struct mat keys);
    /* Row r of code [n, m] becomes row to[r] of keys [.., m], rounded to their type, and its squared norm
     * square[to[r]], with the bits of token_memory_ops.squares. to[r] < 0: skipped. The others differ. */
    void (*unpack)(struct device *dev, struct mat keys, float *square, const int8_t *code, const float *scale,
                   const int32_t *to, int64_t n);
    /* Slot first + i becomes the passage of chunk[i]: of the chunks of its document, in order, it and up to `before`
     * before it and `after` after it. Their rows are unpacked as above. Rows after the passage keep their keys and
     * squares. Values are those of the rows, and -1 for the last row of the passage and all after it. chunk[i] < 0:
     * only the values are written, -1. */
    void (*gather)(struct device *dev, const struct packed_slots *to, const struct packed_chunks *from,
                   const int64_t *chunk, int64_t first, int64_t n);
};
/* The rows of a passage in struct packed_chunks, as gather defines it. */
struct packed_passage { int64_t row; int rows; };
PACKED_FUNCTION struct packed_passage packed_passage_of(const struct packed_chunks *of, int64_t chunk, int before,
                                                     int after) {
    int64_t begin = chunk, end = chunk + 1;
    for (; before > 0 && begin > 0 && of->value[begin * of->chunk_rows - 1] >= 0; before--)
        begin--;
    for (; after > 0 && end < of->chunks && of->value[end * of->chunk_rows - 1] >= 0; after--)
        end++;
    const struct packed_passage p = {begin * of->chunk_rows, (int)(end - begin) * of->chunk_rows};
    return p;
}
extern const struct packed_keys_ops packed_keys_cpu;
