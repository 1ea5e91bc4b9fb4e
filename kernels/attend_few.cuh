/* attend_few.cuh -- attention of a row or two (decoding), bf16: bound by the time a read of memory takes, so all reads are
 * on their way before the first is used.
 *
 * A thread block is one query row of one head; a warp is a run of 32 keys. A lane holds one key whole (for its score) and
 * two columns of all 32 values, as registers. Runs meet in shared memory: those of a slot in one softmax, or all. */
#pragma once
#include "kernels/attend_plain.cuh"

enum { FEW_ROWS = 16, FEW_WARPS = 18, FEW_RUNS_MAX = 64 };

template <int DIM> struct few_run {
    uint4 key[DIM / 8];
    __nv_bfloat162 values[32][DIM / 64];
    int count; /* keys */
    float bias;

    __device__ void load(const plain_views<bf16> &m, plain_run run, int64_t column, int keys, float lane_bias) {
        int lane = threadIdx.x % 32;
        count = keys;
        bias = lane_bias;
        const uint4 *row = (const uint4 *)(m.k[run.row(min(lane, keys - 1))] + column);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            key[i] = row[i];
#pragma unroll
        for (int j = 0; j < 32; j++)
#pragma unroll
            for (int i = 0; i < DIM / 64; i++)
                values[j][i] = *(const __nv_bfloat162 *)(m.v[run.row(min(j, keys - 1))] + column + 64 * i + 2 * lane);
    }

    /* One softmax over the run: out [DIM] is not yet divided by the sum. */
    __device__ void attend(float *out, float *top, float *sum, const float *query, float scale) {
        int lane = threadIdx.x % 32;
        float score = 0.0f;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            vec8 x = load8((const bf16 *)&key[i]), shared = load8(query + 8 * i);
            const float *q = shared.v;
#pragma unroll
            for (int c = 0; c < 8; c++)
                score += q[c] * x.v[c];
        }
        score = lane < count ? score * scale + bias : -INFINITY;
        float highest = warp_max(score), p = plain_exp(score - highest), all = warp_sum(p);
        if (lane == 0) *top = highest, *sum = all;
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
            float2 total = make_float2(0.0f, 0.0f);
#pragma unroll
            for (int j = 0; j < 32; j++) {
                float factor = __shfl_sync(~0u, p, j);
                float2 x = __bfloat1622float2(values[j][i]);
                total.x += factor * x.x;
                total.y += factor * x.y;
            }
            *(float2 *)(out + 64 * i + 2 * lane) = total;
        }
    }
};

template <bool WINDOW, int DIM>
static __global__ void __launch_bounds__(FEW_WARPS * 32) few_forward(attend_task t, plain_views<bf16> m) {
    __shared__ alignas(16) float query[DIM], outs[FEW_RUNS_MAX][DIM], tops[FEW_RUNS_MAX], sums[FEW_RUNS_MAX], factors[FEW_RUNS_MAX];
    int64_t row = blockIdx.x, column = (int64_t)blockIdx.y * DIM;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    /* With one block its slots can be asked for before it is known whether the row is in it. */
    int64_t block = WINDOW || t.blocks == 1 ? 0 : find_block(t, row);
    bool outside = !WINDOW && t.blocks == 1 && (row < block_begin(t, 0) || row >= block_begin(t, 1));
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
            a.load(m, from, column, min(32, (int)w.count - first), -slope * (float)(w.distance - first - lane));
        } else {
            int32_t slot = block_slot(t, block, run / each);
            if (slot >= 0 && block_weight(t, block, run / each) != 0.0f)
                a.load(m, slot_run((int64_t)slot * t.slot_rows + first), column, min(32, t.live_rows - first), 0.0f);
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
    /* A thread a softmax: what each of its runs counts for. */
    for (int g = threadIdx.x; g < groups; g += blockDim.x) {
        float weight = outside || (!WINDOW && block_slot(t, block, g) < 0) ? 0.0f : WINDOW ? 1.0f : block_weight(t, block, g);
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
        for (int run = 0; run < runs; run++)
            if (factors[run] != 0.0f) result += factors[run] * outs[run][c];
        m.o[row][column + c] = from_float<bf16>(result);
    }
}
