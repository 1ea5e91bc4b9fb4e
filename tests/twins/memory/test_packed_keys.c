/* test_packed_keys.c -- keys in 8 bits against plain loops: codes, scales and keys have exactly the bits of the
 * definition; errors within half a unit; squares as token_memory's; rows that are skipped, constant, not finite, or
 * below the normal numbers. */
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

static void check_unpack(int device, enum dtype type, int64_t m) {
    struct device *dev = twin_device[device];
    float *scale = random_array(ROWS, 0.1F), *start = random_array(SLOTS * m, 1);
    int8_t *code = malloc((size_t)(ROWS * m));
    const struct mat keys = typed(start, type, SLOTS, m), before = typed(start, type, SLOTS, m);
    float square[SLOTS + 1], want[SLOTS + 1];
    int32_t to[ROWS], from[SLOTS];
    for (int64_t i = 0; i < ROWS * m; i++)
        code[i] = (int8_t)((int)rng_below(&twin_rng, 255) - 127);
    for (int i = 0; i < SLOTS; i++)
        square[i] = guard_value, from[i] = -1;
    for (int i = 0; i < ROWS; i++) {
        to[i] = i % 7 == 3 ? -1 : SLOTS - 2 - i;
        if (to[i] >= 0) from[to[i]] = i;
    }
    dev->ops->packed_keys->unpack(dev, keys, square, code, scale, to, ROWS);
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
                check_unpack(device, types[t], sizes[i]);
            }
        check_tiny(device);
    }
    return twins_close();
}
