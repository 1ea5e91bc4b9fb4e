/* attend_few.cuh -- attention of a row or two (decoding), bf16: bound by the time a read of memory takes, so all reads
 * are on their way before the first is used.
 *
 * A thread block is one query row of one head; a warp is a run of 32 keys. DIM / 8 lanes share a row of K or V, 16
 * bytes each, so that a load covers whole lines. Runs meet in shared memory: those of a slot in one softmax, or all.
 *
 * Measured on an H100 (2026-11-21, tests/device/bench_attention.cu, graph replayed), one row, 12 heads of 64: 8 slots
 * of 63 keys 6.6 us, a window of 512 7.3 us. Tried and lost: a key whole in a lane (each load touched 32 lines: 9.0
 * us). */
#pragma once
#include "kernels/attend_plain.cuh"

enum { FEW_ROWS = 16, FEW_WARPS = 17, FEW_RUNS_MAX = 64 };

template <int DIM> struct few_run {
    static constexpr int SHARE = DIM / 8, ROWS = 32 / SHARE,
                         LOADS = 32 / ROWS; /* key of load j: j * ROWS + lane / SHARE */
    uint4 keys[LOADS], values[LOADS];
    float bias[LOADS]; /* -inf: no key */
    int count;

    static __device__ int key_of(int j) { return j * ROWS + (int)(threadIdx.x % 32) / SHARE; }
    static __device__ void fetch(uint4 *to, rows<bf16> from, plain_run run, int64_t column, int last) {
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            to[j] = *(const uint4 *)(from[run.row(min(key_of(j), last))] + column + threadIdx.x % SHARE * 8);
    }
    /* `slope`: the bias is -slope * distance, `distance` that of the run's first key. */
    __device__ void load(const plain_views<bf16> &m, plain_run run, int64_t column, int keys_here, float slope,
                         float distance) {
        count = keys_here;
        fetch(keys, m.k, run, column, count - 1);
        fetch(values, m.v, run, column, count - 1);
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            bias[j] = key_of(j) < count ? -slope * (distance - (float)key_of(j)) : -INFINITY;
    }

    /* One softmax over the run: out [DIM] is not yet divided by the sum. */
    __device__ void attend(float *out, float *top, float *sum, const float *query, float scale) {
        int lane = threadIdx.x % 32;
        float score[LOADS], highest = -INFINITY, all = 0.0f;
        vec8 q = load8(query + lane % SHARE * 8), total = {};
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            vec8 x = load8((const bf16 *)&keys[j]);
            float dot = 0.0f;
#pragma unroll
            for (int c = 0; c < 8; c++)
                dot += q.v[c] * x.v[c];
#pragma unroll
            for (int offset = 1; offset < SHARE; offset *= 2)
                dot += __shfl_xor_sync(~0u, dot, offset);
            score[j] = dot * scale + bias[j];
            highest = fmaxf(highest, score[j]);
        }
        highest = warp_max(highest);
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            float p = plain_exp(score[j] - highest);
            vec8 x = load8((const bf16 *)&values[j]);
            all += p;
#pragma unroll
            for (int c = 0; c < 8; c++)
                total.v[c] += p * x.v[c];
        }
#pragma unroll
        for (int offset = SHARE; offset < 32; offset *= 2) {
            all += __shfl_xor_sync(~0u, all, offset);
#pragma unroll
            for (int c = 0; c < 8; c++)
                total.v[c] += __shfl_xor_sync(~0u, total.v[c], offset);
        }
        if (lane == 0) *top = highest, *sum = all;
        if (lane < SHARE) store8(out + lane * 8, total);
    }
};

template <bool WINDOW, int DIM>
static __global__ void __launch_bounds__(FEW_WARPS * 32) few_forward(attend_task t, plain_views<bf16> m) {
    __shared__ alignas(16) float query[DIM], outs[FEW_RUNS_MAX][DIM];
    __shared__ float tops[FEW_RUNS_MAX], sums[FEW_RUNS_MAX], factors[FEW_RUNS_MAX];
    int64_t row = blockIdx.x, column = (int64_t)blockIdx.y * DIM;
    int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    /* With one block its slots can be asked for before it is known whether the row is in it. */
    int64_t block = WINDOW || t.blocks == 1 ? 0 : find_block(t, row);
    bool one = !WINDOW && t.blocks == 1;
    int64_t begin = one ? block_begin(t, 0) : row, end = one ? block_begin(t, 1) : row + 1; /* used at the end */
    plain_window w = {};
    if (WINDOW) w = window_of(t, row);
    float slope = WINDOW ? window_slope(t, blockIdx.y) * ATTEND_LN2 : 0.0f;
    int each = WINDOW ? (int)((w.count + 31) / 32) : (t.live_rows + 31) / 32; /* runs of one softmax */
    int groups = WINDOW ? 1 : block < 0 ? 0 : t.k, runs = each * groups;
    few_run<DIM> a;
    a.count = 0;
    auto load = [&](int run) {
        int first = run % each * 32;
        a.count = 0;
        if (WINDOW) {
            plain_run from = w.run;
            from.first += first;
            if (from.first >= from.ring) from.first -= from.ring;
            a.load(m, from, column, min(32, (int)w.count - first), slope, (float)(w.distance - first));
        } else {
            int32_t slot = block_slot(t, block, run / each);
            float weight = block_weight(t, block, run / each); /* asked for beside the slot, not behind it */
            if (slot >= 0 && weight != 0.0f)
                a.load(m, slot_run((int64_t)slot * t.slot_rows + first), column, min(32, t.live_rows - first), 0.0f,
                       0.0f);
        }
    };
    if (warp < runs) load(warp);
    for (int i = threadIdx.x; i < DIM; i += blockDim.x)
        query[i] = to_float(m.q[row][column + i]);
    __syncthreads();
    for (int run = warp; run < runs;) {
        if (a.count) a.attend(outs[run], &tops[run], &sums[run], query, t.scale);
        run += warps;
        if (run < runs) load(run);
    }
    __syncthreads();
    bool outside = row < begin || row >= end;
    /* A thread a softmax: what each of its runs counts for. */
    for (int g = threadIdx.x; g < groups; g += blockDim.x) {
        float weight = outside || (!WINDOW && block_slot(t, block, g) < 0) ? 0.0f
                       : WINDOW                                            ? 1.0f
                                                                           : block_weight(t, block, g);
        float top = t.null_key ? 0.0f : -INFINITY, sum = 0.0f;
        for (int run = g * each; run < (g + 1) * each && weight != 0.0f; run++)
            top = fmaxf(top, tops[run]);
        if (t.null_key) sum = plain_exp(-top);
        for (int run = g * each; run < (g + 1) * each; run++) {
            factors[run] = weight == 0.0f ? 0.0f : plain_exp(tops[run] - top);
            if (weight != 0.0f) sum += factors[run] * sums[run];
        }
        for (int run = g * each; run < (g + 1) * each && weight != 0.0f; run++)
            factors[run] *= weight / sum;
    }
    __syncthreads();
    for (int c = threadIdx.x; c < DIM; c += blockDim.x) {
        float result = 0.0f;
#pragma unroll 8
        for (int run = 0; run < runs; run++)
            if (factors[run] != 0.0f) result += factors[run] * outs[run][c];
        m.o[row][column + c] = from_float<bf16>(result);
    }
}
