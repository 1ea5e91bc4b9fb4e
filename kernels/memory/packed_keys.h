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
    const int32_t *first_id;             /* [chunks] of each chunk, -1 if it is deleted; only packed_id_of reads it */
};
/* Slots of a token memory (struct memory_slots), of each of n chunks. */
struct packed_passages { int32_t *slot, *entries; };

struct packed_keys_ops {
    /* code [n, m] and scale [n] of keys [n, m] of any type. A row of zeros has scale 0 and codes 0. A row with a
     * number that is not finite has scale NaN and codes 0: all its numbers are NaN when it is unpacked. */
    void (*pack)(struct device *dev, int8_t *code, float *scale, struct mat keys);
    /* Row from[r] of the codes, [.., m], becomes row to[r] of keys [.., m], rounded to their type, and its squared norm
     * square[to[r]], with the bits of token_memory_ops.squares. r < n; from NULL: row r; to[r] < 0: skipped. The others
     * differ. */
    void (*unpack)(struct device *dev, struct mat keys, float *square, struct packed_keys packed, const int32_t *from,
                   const int32_t *to, int64_t n);
    /* The passage of chunk[i]: of the chunks of its document, in order, it and up to `before` before it and `after`
     * after it. slot[i]: the first of them. entries[i]: their rows but the last, which no id of the passage follows.
     * chunk[i] < 0: -1 and 0. */
    void (*passages)(struct device *dev, struct packed_passages out, const struct packed_chunks *of,
                     const int64_t *chunk, int64_t n, int before, int after);
};
/* The passage of one chunk. */
PACKED_FUNCTION void packed_passage_of(int32_t *slot, int32_t *entries, const struct packed_chunks *of, int64_t chunk,
                                       int before, int after) {
    int64_t begin = chunk, end = chunk + 1;
    *slot = -1, *entries = 0;
    if (chunk < 0) return;
    for (; before > 0 && begin > 0 && of->value[begin * of->chunk_rows - 1] >= 0; before--)
        begin--;
    for (; after > 0 && end < of->chunks && of->value[end * of->chunk_rows - 1] >= 0; after--)
        end++;
    *slot = (int32_t)begin, *entries = (int32_t)(end - begin) * of->chunk_rows - 1;
}
/* Id j of chunk `chunk` and the one after it in its document, 0 <= j < 2 * chunk_rows; -1 after their end. */
PACKED_FUNCTION int32_t packed_id_of(const struct packed_chunks *of, int64_t chunk, int j) {
    const int64_t rows = of->chunk_rows, at = chunk * rows + j - 1;
    const int32_t *from = j > 0 ? of->value + at : of->first_id + chunk;
    const int32_t next = j > rows ? of->value[(chunk + 1) * rows - 1] : 0;
    const int32_t id = at < of->chunks * rows ? *from : -1;     /* both loads at once */
    return next < 0 ? -1 : id;
}
extern const struct packed_keys_ops packed_keys_cpu;
