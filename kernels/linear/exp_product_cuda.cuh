/* exp_product_cuda.cuh -- exponentials of a product on Hopper, in one kernel:
 *
 *   e[r][v] = 2^(x[r].table[v] log2(e) - shift[r])     bf16, or not stored; 0 for the row's target
 *   own[r] = the same for the row's target
 *   part[r][i] = the sum of e[r][256 i .. 256 i + 255], before e is rounded
 *
 * The target is apart, so that the sum of the others has no part of it: where the target is nearly certain, its
 * probability less 1 is that sum, relative to S. The mapping is that of wide_product_cuda.cuh, which is bound by
 * arithmetic: there is one exponential for d multiplications. Sums have a fixed order. Best measured (H100,
 * 5632 x 768 x 50265): 553 TFLOP/s. */
#pragma once
#include "kernels/linear/wide_product_cuda.cuh"

struct exp_rows {
    const float *shift;    /* [n]; infinite: the row's exponentials are 0 */
    const int32_t *target; /* [n]; not an id: none */
    float *own, *part;     /* [n], [n, parts] */
};
struct exp_parameters {
    CUtensorMap e;
    exp_rows rows;
    int n, vocab, parts;
};

template <bool STORE> struct exp_epilogue {
    using parameters = exp_parameters;
    static __device__ __forceinline__ int w_row(const parameters &, int tile, int rank) {
        return tile * WIDE_COLUMNS + rank * WIDE_HALF;
    }
#if HOPPER
    const parameters &p;
    uint8_t (*buffers)[WIDE_BUFFER];
    int first, tile, row; /* row: this thread's first; the second is 8 rows later */
    float2 shift;
    int target0, target1;

    __device__ __forceinline__ exp_epilogue(const parameters &from, uint8_t (*in)[WIDE_BUFFER])
        : p(from), buffers(in), first(0), tile(0), row(0), shift{0.0f, 0.0f}, target0(-1), target1(-1) {}
    __device__ __forceinline__ void begin(int first_row, int of) {
        first = first_row, tile = of, row = first + (int)threadIdx.x % 32 / 4;
        bool inside0 = row < p.n, inside1 = row + 8 < p.n;
        shift = make_float2(inside0 ? p.rows.shift[row] : INFINITY, inside1 ? p.rows.shift[row + 8] : INFINITY);
        target0 = inside0 ? p.rows.target[row] : -1, target1 = inside1 ? p.rows.target[row + 8] : -1;
    }
    /* Takes the targets' numbers out of this tile. */
    __device__ __forceinline__ void take_targets(float (&d)[128]) {
        int lane = threadIdx.x % 32, at0 = target0 - tile * WIDE_COLUMNS, at1 = target1 - tile * WIDE_COLUMNS;
        bool here0 = target0 >= 0 && at0 >= 0 && at0 < WIDE_COLUMNS,
             here1 = target1 >= 0 && at1 >= 0 && at1 < WIDE_COLUMNS;
        if (!__any_sync(~0u, here0 || here1)) return;
        float own0 = 0.0f, own1 = 0.0f;
#pragma unroll
        for (int i = 0; i < 128; i++) {
            int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (i % 4 < 2 && here0 && column == at0) own0 = d[i], d[i] = -INFINITY;
            if (i % 4 >= 2 && here1 && column == at1) own1 = d[i], d[i] = -INFINITY;
        }
        if (here0 && at0 % 8 / 2 == lane % 4) p.rows.own[row] = power2(fmaf(own0, 1.44269504f, -shift.x));
        if (here1 && at1 % 8 / 2 == lane % 4) p.rows.own[row + 8] = power2(fmaf(own1, 1.44269504f, -shift.y));
    }
    __device__ __forceinline__ void finish(float (&d)[128]) {
        take_targets(d);
        int lane = threadIdx.x % 32, live = p.vocab - tile * WIDE_COLUMNS;
        if (live < WIDE_COLUMNS) { /* the last tile */
            asm volatile("" ::: "memory");
#pragma unroll
            for (int i = 0; i < 128; i++)
                if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= live) d[i] = -INFINITY;
        }
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int chunk = 0; chunk < 4; chunk++) {
            float *x = d + chunk * 32;
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                x[i] = power2(fmaf(x[i], 1.44269504f, -shift.x));
                x[i + 1] = power2(fmaf(x[i + 1], 1.44269504f, -shift.x));
                x[i + 2] = power2(fmaf(x[i + 2], 1.44269504f, -shift.y));
                x[i + 3] = power2(fmaf(x[i + 3], 1.44269504f, -shift.y));
                sum.x += x[i] + x[i + 1];
                sum.y += x[i + 2] + x[i + 3];
            }
            if (STORE) wide_product_store(x, buffers[chunk % 2], &p.e, tile * WIDE_COLUMNS + chunk * 64, first);
        }
        sum = make_float2(row_sum(sum.x), row_sum(sum.y));
        float *part = p.rows.part + (int64_t)row * p.parts + tile;
        if (lane % 4 == 0 && row < p.n) part[0] = sum.x;
        if (lane % 4 == 0 && row + 8 < p.n) part[8 * p.parts] = sum.y;
    }
    __device__ __forceinline__ void end() {
        if (STORE && threadIdx.x % 32 == 0) tensor_store_wait_written();
    }
#endif
};

/* Parts of a row: how many sums it has. */
static int64_t exp_product_parts(int64_t vocab) {
    return blocks_for(vocab, WIDE_COLUMNS);
}

/* x [n, d], table [vocab, d]; e [n, at least vocab] (columns up to its width are written; data NULL: not stored).
 * False: this GPU or these matrices are not taken. */
static bool exp_product(struct device *dev, const char *op, struct mat e, const exp_rows &rows, struct mat x,
                        struct mat table) {
    wide_product_task t;
    int64_t parts = exp_product_parts(table.rows);
    exp_parameters p = {{}, rows, (int)x.rows, (int)table.rows, (int)parts};
    if (!wide_product_plan(dev, &t, x, table, parts) || (e.data && !wide_product_map(&p.e, e))) return false;
    if (e.data)
        wide_product_launch<exp_epilogue<true>>(dev, op, t, p);
    else
        wide_product_launch<exp_epilogue<false>>(dev, op, t, p);
    return true;
}
