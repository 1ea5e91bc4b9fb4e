/* landmark_rows.c -- the types of stored landmarks, and their rows as numbers (store.h). */
#include "base/half.h"
#include "store/shards/row_codes_internal.h"
#include "store/store.h"
#include <assert.h>
#include <string.h>

enum { BLOCK = 512 };

const char *store_landmarks_name(enum store_landmarks type) {
    return type == STORE_LANDMARKS_NONE ? "none" : type == STORE_LANDMARKS_I8 ? "i8" : "f16";
}

enum status store_landmarks_parse(enum store_landmarks *out, const char *name) {
    *out = STORE_LANDMARKS_KEEP;
    if (!name) return STATUS_OK;
    if (strcmp(name, "f16") == 0)
        *out = STORE_LANDMARKS_F16;
    else if (strcmp(name, "i8") == 0)
        *out = STORE_LANDMARKS_I8;
    else if (strcmp(name, "none") == 0)
        *out = STORE_LANDMARKS_NONE;
    else
        return fail(STATUS_INVALID, "landmarks %.40s: choose f16, i8 or none", name);
    return STATUS_OK;
}

enum status store_encode_nothing(void *context, float *rows, const int32_t *ids, int64_t n) {
    (void)context, (void)rows, (void)ids, (void)n;
    return STATUS_OK;
}

void store_rows_to_float(float *out, const struct store_rows *rows, int64_t first, int64_t n) {
    const size_t dim = (size_t)rows->dim, at = (size_t)first * dim;
    assert(first >= 0 && n >= 0 && first + n <= rows->n);
    if (rows->half) half_from_f16_row(out, rows->half + at, (size_t)n * dim);
    for (int64_t r = 0; r < n && rows->codes; r++)
        row_codes_to_float(out + (size_t)r * dim, rows->codes + at + (size_t)r * dim, rows->scales[first + r],
                           rows->dim);
}

void store_rows_to_half(uint16_t *out, const struct store_rows *rows, int64_t first, int64_t n) {
    const size_t dim = (size_t)rows->dim, at = (size_t)first * dim;
    assert(first >= 0 && n >= 0 && first + n <= rows->n);
    if (rows->half) memcpy(out, rows->half + at, (size_t)n * dim * sizeof *out);
    for (int64_t r = 0; r < n && rows->codes; r++)
        for (size_t done = 0; done < dim; done += BLOCK) {
            const size_t m = dim - done < BLOCK ? dim - done : BLOCK, from = (size_t)r * dim + done;
            float wide[BLOCK];
            row_codes_to_float(wide, rows->codes + at + from, rows->scales[first + r], (int)m);
            half_to_f16_row(out + from, wide, m);
        }
}
