/* test_packed_keys.c -- keys in 8 bits against plain loops: codes, scales and keys have exactly the bits of the
 * definition; errors within half a unit; squares as token_memory's; rows that are skipped, constant, not finite, or
 * below the normal numbers. Passages against the documents that they are of, with short last chunks and deleted
 * documents. */
#include "base/half.h"
#include "tests/twins/twins.h"

enum { ROWS = 70, SLOTS = 100 };

static float as_type(float x, enum dtype type) {
    return type == DTYPE_BF16 ? half_from_bf16(half_to_bf16(x)) : type == DTYPE_F16 ? half_from_f16(half_to_f16(x)) : x;
}
static struct mat typed(const float *from, enum dtype type, int64_t rows, int64_t cols) {
    const struct mat m = mat_dense(calloc((size_t)(rows * cols) + 1, 4), type, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++) {
        if (type == DTYPE_F32)
            ((float *)m.data)[i] = from[i];
        else
            ((uint16_t *)m.data)[i] = type == DTYPE_BF16 ? half_to_bf16(from[i]) : half_to_f16(from[i]);
    }
    return m;
}
static float number(struct mat m, int64_t row, int64_t col) {
    const uint16_t half = m.type == DTYPE_F32 ? 0 : ((const uint16_t *)m.data)[row * m.stride + col];
    return m.type == DTYPE_F32    ? mat_row(m, row)[col]
           : m.type == DTYPE_BF16 ? half_from_bf16(half)
                                  : half_from_f16(half);
}

/* The definition, in double where it is exact. */
static void plain_pack(int8_t *code, float *scale, struct mat keys) {
    for (int64_t r = 0; r < keys.rows; r++) {
        float most = 0;
        bool lost = false;
        for (int64_t j = 0; j < keys.cols; j++) {
            const float x = number(keys, r, j);
            most = fabsf(x) > most ? fabsf(x) : most;
            lost = lost || !isfinite(x);
        }
        scale[r] = lost ? NAN : most / 127.0F;
        for (int64_t j = 0; j < keys.cols; j++) {
            const float x = scale[r] > 0 ? number(keys, r, j) / scale[r] : 0;
            code[r * keys.cols + j] = (int8_t)fmaxf(-127, fminf(127, nearbyintf(x)));
        }
    }
}

static void check_pack(int device, enum dtype type, int64_t m) {
    struct device *dev = twin_device[device];
    float *numbers = random_array(ROWS * m, 3);
    for (int64_t j = 0; j < m; j++) {
        numbers[2 * m + j] = 0;
        numbers[5 * m + j] = j ? 0 : 1;
        numbers[6 * m + j] = 2 + 1e-3F * numbers[6 * m + j];
    }
    numbers[3 * m + m / 2] = NAN, numbers[4 * m + m - 1] = INFINITY;
    const struct mat keys = typed(numbers, type, ROWS, m);
    int8_t *want = calloc((size_t)(ROWS * m), 1), *got = malloc((size_t)(ROWS * m) + 1);
    float want_scale[ROWS], scale[ROWS + 1] = {[ROWS] = guard_value};
    got[ROWS * m] = 99;
    plain_pack(want, want_scale, keys);
    dev->ops->packed_keys->pack(dev, got, scale, keys);
    CHECK_BITS(want, got, ROWS * m);
    CHECK(got[ROWS * m] == 99 && scale[ROWS] == guard_value && scale[2] == 0);
    for (int64_t r = 0; r < ROWS; r++) {
        CHECK(r == 3 || r == 4 ? isnan(scale[r]) : scale[r] == want_scale[r]);
        for (int64_t j = 0; j < m && scale[r] >= 0; j++) {
            const double back = (double)scale[r] * got[r * m + j];
            CHECK(fabs(back - (double)number(keys, r, j)) <= 0.50001 * (double)scale[r] + 1e-6);
        }
    }
    free(numbers), free(keys.data), free(want), free(got);
}

/* mixed: the rows are in another order, and some are twice. */
static void check_unpack(int device, enum dtype type, int64_t m, bool mixed) {
    struct device *dev = twin_device[device];
    float *scale = random_array(ROWS, 0.1F), *start = random_array(SLOTS * m, 1);
    int8_t *code = malloc((size_t)(ROWS * m));
    const struct mat keys = typed(start, type, SLOTS, m), before = typed(start, type, SLOTS, m);
    float square[SLOTS + 1], want[SLOTS + 1];
    int32_t to[ROWS], of[ROWS], from[SLOTS];
    for (int64_t i = 0; i < ROWS * m; i++)
        code[i] = (int8_t)((int)rng_below(&twin_rng, 255) - 127);
    for (int i = 0; i < SLOTS; i++)
        square[i] = guard_value, from[i] = -1;
    for (int i = 0; i < ROWS; i++) {
        to[i] = i % 7 == 3 ? -1 : SLOTS - 2 - i;
        of[i] = mixed ? (int32_t)rng_below(&twin_rng, ROWS) : i;
        if (to[i] >= 0) from[to[i]] = of[i];
    }
    dev->ops->packed_keys->unpack(dev, keys, square, (struct packed_keys){code, scale}, mixed ? of : NULL, to, ROWS);
    dev->ops->token_memory->squares(dev, want, keys);
    for (int64_t s = 0; s < SLOTS; s++) {
        const int64_t r = from[s];
        CHECK(r < 0 ? square[s] == guard_value : square[s] == want[s]);
        for (int64_t j = 0; j < m; j++) {
            const float x = r < 0 ? number(before, s, j) : as_type(scale[r] * (float)code[r * m + j], type);
            CHECK(number(keys, s, j) == x);
        }
    }
    free(scale), free(start), free(code), free(keys.data), free(before.data);
}

/* ---- from the chunks of a store ---- */

enum { CHUNK_ROWS = 5, DOCS = 9, PASSAGES = 24 };
/* Ids of documents; below 0: a deleted document of so many chunks. */
static const int doc_ids[DOCS] = {5, 1, 23, -2, 10, 20, 4, -1, 12};

/* Passages against the documents themselves: chunks before and after are those of the document. */
static void check_passages(int device, int before, int after) {
    struct device *dev = twin_device[device];
    int first_chunk[DOCS + 1] = {0}, of_chunk[64];
    for (int d = 0; d < DOCS; d++) {
        const int n = doc_ids[d] < 0 ? -doc_ids[d] : (doc_ids[d] + CHUNK_ROWS - 1) / CHUNK_ROWS;
        first_chunk[d + 1] = first_chunk[d] + n;
        for (int c = 0; c < n; c++)
            of_chunk[first_chunk[d] + c] = d;
    }
    const int64_t chunks = first_chunk[DOCS], rows = chunks * CHUNK_ROWS;
    int32_t *value = malloc((size_t)rows * sizeof *value), slot[PASSAGES + 1], entries[PASSAGES + 1];
    int64_t chunk[PASSAGES];
    for (int64_t r = 0; r < rows; r++) {
        const int d = of_chunk[r / CHUNK_ROWS], at = (int)r - first_chunk[d] * CHUNK_ROWS;
        value[r] = at + 1 < doc_ids[d] ? (int32_t)rng_below(&twin_rng, 3) : -1; /* 0 is an id, too */
    }
    for (int i = 0; i < PASSAGES; i++)
        chunk[i] = i == 4 ? -1 : i < chunks ? i : (int64_t)rng_below(&twin_rng, (uint64_t)chunks);
    slot[PASSAGES] = entries[PASSAGES] = -7;
    const struct packed_chunks of = {.value = value, .chunks = chunks, .chunk_rows = CHUNK_ROWS};
    dev->ops->packed_keys->passages(dev, (struct packed_passages){slot, entries}, &of, chunk, PASSAGES, before, after);
    for (int i = 0; i < PASSAGES; i++) {
        const int64_t c = chunk[i];
        const int d = c < 0 ? 0 : of_chunk[c], in = c < 0 ? 0 : (int)c - first_chunk[d];
        const int ahead = doc_ids[d] < 0 ? 0 : in < before ? in : before;
        const int left = doc_ids[d] < 0 ? 0 : first_chunk[d + 1] - 1 - (int)c, after_it = left < after ? left : after;
        CHECK_EQ(slot[i], c < 0 ? -1 : (int)c - ahead);
        CHECK_EQ(entries[i], c < 0 ? 0 : (ahead + 1 + after_it) * CHUNK_ROWS - 1);
    }
    CHECK(slot[PASSAGES] == -7 && entries[PASSAGES] == -7);
    free(value);
}

/* Numbers that float32 represents with few bits: codes stay within 127. */
static void check_tiny(int device) {
    struct device *dev = twin_device[device];
    const float x[3] = {1e-43F, -1e-43F, 1e-44F};
    int8_t code[3], want[3];
    float scale, want_scale;
    const struct mat keys = mat_f32(x, 1, 3);
    plain_pack(want, &want_scale, keys);
    dev->ops->packed_keys->pack(dev, code, &scale, keys);
    CHECK_BITS(code, want, 3);
    CHECK(scale == want_scale && code[0] == -code[1]);
}

int main(int argc, char **argv) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const int64_t sizes[] = {1, 5, 16, 64, 128, 131};
    twins_open(argc, argv);
    for (int device = 0; device < DEVICES; device++) {
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                check_pack(device, types[t], sizes[i]);
                check_unpack(device, types[t], sizes[i], false);
                check_unpack(device, types[t], sizes[i], true);
            }
        check_passages(device, 0, 0);
        check_passages(device, 0, 1);
        check_passages(device, 1, 2);
        check_passages(device, 3, 0);
        check_tiny(device);
    }
    return twins_close();
}
