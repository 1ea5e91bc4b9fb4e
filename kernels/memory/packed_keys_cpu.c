/* packed_keys_cpu.c -- the CPU twin: a task takes some rows; a row as float32 is in the worker's scratch. Loops have no
 * conversion that keeps a compiler from vectors. */
#include "base/half.h"
#include "kernels/device/device_internal.h"
#include "kernels/memory/packed_keys.h"
#include "kernels/memory/token_memory.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { SHARE = 64 /* rows that a thread takes at a time */ };

struct packed_task {
    struct device *dev;
    struct mat keys;
    float *square, *scale_out;
    int8_t *code_out;
    struct packed_keys packed;
    const int32_t *from, *to;
};

static float *packed_row(const struct packed_task *t, int worker) {
    return device_scratch(t->dev, worker);
}

/* The row as float32; returns the greatest absolute number, or NaN if one is not finite. */
static float packed_numbers(float *row, const struct packed_task *t, int64_t r) {
    const struct mat k = t->keys;
    const uint16_t *half = (const uint16_t *)k.data + r * k.stride;
    if (k.type == DTYPE_F32) memcpy(row, mat_row(k, r), (size_t)k.cols * sizeof *row);
    if (k.type == DTYPE_BF16) half_from_bf16_row(row, half, (size_t)k.cols);
    if (k.type == DTYPE_F16) half_from_f16_row(row, half, (size_t)k.cols);
    float largest = 0, lost = 0; /* lost: NaN if a number is not finite */
    for (int64_t j = 0; j < k.cols; j++) {
        const float size = fabsf(row[j]);
        largest = size > largest ? size : largest;
        lost += row[j] - row[j];
    }
    return largest + lost;
}

static void packed_pack_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct packed_task *t = context;
    const int64_t m = t->keys.cols;
    const float shift = 12582912.0F; /* 1.5 * 2^23: a sum with it is rounded to an integer */
    float *row = packed_row(t, worker);
    for (int64_t r = begin; r < end; r++) {
        const float scale = packed_numbers(row, t, r) / 127;
        int8_t *code = t->code_out + r * m;
        t->scale_out[r] = scale;
        if (!(scale > 0)) {
            memset(code, 0, (size_t)m);
            continue;
        }
        for (int64_t j = 0; j < m; j++) {
            float x = row[j] / scale; /* beyond 127 only if scale is below the normal numbers */
            x = x > 127 ? 127 : x < -127 ? -127 : x;
            code[j] = (int8_t)((x + shift) - shift);
        }
    }
}

static void packed_keys_pack(struct device *dev, int8_t *code, float *scale, struct mat keys) {
    assert(keys.cols * (int64_t)sizeof(float) <= DEVICE_SCRATCH_BYTES);
    struct packed_task t = {.dev = dev, .keys = keys, .code_out = code, .scale_out = scale};
    threads_for(dev->threads, keys.rows, SHARE, packed_pack_rows, &t);
}

/* Row `from` of the codes becomes row `to` of the keys. */
static void packed_unpack_row(const struct packed_task *t, int64_t from, int64_t to, int worker) {
    const struct mat k = t->keys;
    assert(to < k.rows);
    float *row = k.type == DTYPE_F32 ? mat_row(k, to) : packed_row(t, worker);
    uint16_t *half = (uint16_t *)k.data + to * k.stride;
    const int8_t *code = t->packed.code + from * k.cols;
    for (int64_t j = 0; j < k.cols; j++)
        row[j] = t->packed.scale[from] * (float)code[j];
    if (k.type == DTYPE_BF16) half_to_bf16_row(half, row, (size_t)k.cols);
    if (k.type == DTYPE_F16) half_to_f16_row(half, row, (size_t)k.cols);
    token_memory_cpu.squares(device_worker(t->dev, worker), t->square + to, mat_rows(k, to, 1));
}

static void packed_unpack_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct packed_task *t = context;
    for (int64_t r = begin; r < end; r++)
        if (t->to[r] >= 0) packed_unpack_row(t, t->from ? t->from[r] : r, t->to[r], worker);
}

static void packed_keys_unpack(struct device *dev, struct mat keys, float *square, struct packed_keys packed,
                               const int32_t *from, const int32_t *to, int64_t n) {
    assert(keys.cols * (int64_t)sizeof(float) <= DEVICE_SCRATCH_BYTES);
    struct packed_task t = {.dev = dev, .keys = keys, .square = square, .packed = packed, .from = from, .to = to};
    threads_for(dev->threads, n, SHARE, packed_unpack_rows, &t);
}

static void packed_keys_passages(struct device *dev, struct packed_passages out, const struct packed_chunks *of,
                                 const int64_t *chunk, int64_t n, int before, int after) {
    (void)dev;
    for (int64_t i = 0; i < n; i++)
        packed_passage_of(&out.slot[i], &out.entries[i], of, chunk[i], before, after);
}

const struct packed_keys_ops packed_keys_cpu = {
    .pack = packed_keys_pack, .unpack = packed_keys_unpack, .passages = packed_keys_passages};
