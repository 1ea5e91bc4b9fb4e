/* decode_step_attention.cuh -- attention of one query row: the blocks of a head's cluster divide its window, or its
 * chunks.
 *
 *   head -> cluster;  window: block r has keys [r * n / 8, (r + 1) * n / 8);  GCA: block r has chunks r, r + 8, ...
 *
 *     block      warp 0: keys 0-15   warp 1: keys 16-31  ...  warp 4: keys 64-79   (then the next 80)
 *       S  =     K tile (16 x DIM) x query: the query is two columns of B (rounded bf16, residual)
 *       O  =     P (bf16) x V tile, with a further column of ones for the sum of P
 *     combine_warps: the five warps' results -> one part (values in bf16, not divided; maximum score; sum)
 *
 * The copies of a warp's 16 keys (cp.async) begin before the query is computed; for windows of ordinary length that is
 * all of a block's keys. Window parts are combined by the reader (step_block::output). A chunk's softmax is complete in
 * its block, so chunks are divided and weighted at once. Bound by latency: a block reads 20 KiB of keys and values. */
#pragma once
#include "kernels/decode_step/decode_step_pipeline.cuh"

/* Row of key i: first + i, around the ring. */
struct step_keys {
    const bf16 *keys, *values;
    int stride, first, ring;
    int count, fresh;      /* key `fresh` is computed in this step, not in the ring yet (-1: none) */
    float slope, distance; /* bias of key i: -slope * (distance - i), in units of log 2 */
};

template <int DIM> struct step_attention {
    /* BATCH: keys of a block at a time; ROW: bytes from key to key, so that eight keys lie in different banks */
    static constexpr int WARPS = 5, BATCH = 16 * WARPS, ROW = DIM * 2 + 16, BYTES = 2 * BATCH * ROW, PAIRS = DIM / 64,
                         WIDTH = DIM + 4; /* floats of a warp's result: values, maximum score, sum */
    unsigned buffer; /* shared address of this warp's 16 keys; their values lie BATCH * ROW bytes after them */

    __device__ __forceinline__ void begin(const step_keys &s, int first) const {
        int warp = threadIdx.x / 32;
        unsigned lane = step_opaque(threadIdx.x % 32), column = lane % (DIM / 8) * 8;
        if (warp >= WARPS || first + warp * 16 >= s.count) return;
#pragma unroll 1
        for (unsigned key = lane / (DIM / 8); key < 16; key += 256 / DIM) {
            int i = first + warp * 16 + (int)key, row = s.first + i;
            if (row >= s.ring) row -= s.ring;
            bool present = i < s.count && i != s.fresh; /* others are filled with zeros */
            unsigned bytes = present ? 16 : 0, to = buffer + key * ROW + column * 2;
            int at = present ? row * s.stride + (int)column : 0;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(s.keys + at), "r"(bytes)
                         : "memory");
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + BATCH * ROW), "l"(s.values + at),
                         "r"(bytes)
                         : "memory");
        }
    }
    /* Where key `fresh` is one of this warp's 16: stores it and its value, `fresh` [2 * DIM], into the buffer. */
    __device__ __forceinline__ void store_fresh(const step_keys &s, int first, const unsigned *fresh) const {
        int own = s.fresh - first - (int)(threadIdx.x / 32) * 16;
        if (s.fresh < 0 || own < 0 || own >= 16) return;
        for (int i = threadIdx.x % 32; i < DIM; i += 32) { /* pairs of the key, then of the value */
            uint2 x = *(const uint2 *)(fresh + 2 * i);
            unsigned to = buffer + own * ROW + (i < DIM / 2 ? i * 4 : BATCH * ROW + (i - DIM / 2) * 4);
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(step_pair(x.x, x.y, false)) : "memory");
        }
        __syncwarp();
    }
    /* The index of column `at` of the query in `vectors`: a lane reads its four columns with one load. */
    static __device__ __forceinline__ unsigned query_index(unsigned at) {
        return at / 16 * 16 + at % 8 / 2 * 4 + at / 8 % 2 * 2 + at % 2;
    }
    /* Attention of the query over this warp's keys, of which begin(s, 0) copied the first 16, into row [WIDTH].
     * vectors: query, new key, new value [DIM] each, step_split. */
    __device__ __forceinline__ void attend(float *row, const step_keys &s, const unsigned *vectors) const {
        int warp = threadIdx.x / 32;
        unsigned lane = step_opaque(threadIdx.x % 32);
        int g = lane / 4, k = lane % 4;
        float top = -INFINITY;
        float4 total[DIM / 8] = {}, sum = {}; /* sum: P times a column of ones */
        constexpr unsigned ONES = 0x3f803f80;
        unsigned here = buffer + lane % 16 * ROW + lane / 16 * 16;
        uint2 query[DIM / 16]; /* even columns of B: rounded values, odd ones: residuals */
#pragma unroll
        for (int j = 0; j < DIM / 16; j++) {
            uint4 x = *(const uint4 *)(vectors + j * 16 + 4 * k);
            query[j] = make_uint2(step_pair(x.x, x.y, g % 2), step_pair(x.z, x.w, g % 2));
        }
#pragma unroll 1
        for (int first = 0; first + warp * 16 < s.count; first += BATCH) {
            if (first > 0) begin(s, first);
            asm volatile("cp.async.wait_all;" ::: "memory");
            __syncwarp();
            store_fresh(s, first, vectors + DIM);
            float4 c[2] = {};
#pragma unroll
            for (int j = 0; j < DIM / 16; j++)
                step_mma(c[j % 2], shared_matrices<false>(here + j * 32), query[j].x, query[j].y);
            int i = first + warp * 16 + g;
            constexpr float scale = (DIM == 64 ? 0.125f : 0.08838834764831845f) * STEP_LOG2E;
            float x = i < s.count ? (c[0].x + c[0].y + (c[1].x + c[1].y)) * scale - s.slope * (s.distance - (float)i)
                                  : -INFINITY;
            float y = i + 8 < s.count
                          ? (c[0].z + c[0].w + (c[1].z + c[1].w)) * scale - s.slope * (s.distance - (float)(i + 8))
                          : -INFINITY;
            float higher = fmaxf(top, fmaxf(x, y));
            higher = step_warp_max(higher);
            float base = higher == -INFINITY ? 0.0f : higher, shrink = power2(top - base);
            top = higher;
            /* of keys g and g + 8; the sum is that of the rounded probabilities */
            unsigned both = pack2(power2(x - base), power2(y - base));
            unsigned even = __shfl_sync(~0u, both, 8 * k), odd = __shfl_sync(~0u, both, 8 * k + 4);
            unsigned low_keys = __byte_perm(even, odd, 0x5410), high_keys = __byte_perm(even, odd, 0x7632);
            if (first > 0) sum.x *= shrink, sum.y *= shrink;
            step_mma(sum, low_keys, low_keys, high_keys, high_keys, ONES, ONES);
#pragma unroll
            for (int j = 0; j < DIM / 8; j += 2) {
                uint4 b = shared_matrices<true>(here + BATCH * ROW + j * 16);
                if (first > 0) {
                    total[j].x *= shrink, total[j].y *= shrink;
                    total[j + 1].x *= shrink, total[j + 1].y *= shrink;
                }
                step_mma(total[j], low_keys, low_keys, high_keys, high_keys, b.x, b.y);
                step_mma(total[j + 1], low_keys, low_keys, high_keys, high_keys, b.z, b.w);
            }
            __syncwarp(); /* before the buffer is overwritten */
        }
        if (g == 0)
#pragma unroll
            for (int j = 0; j < DIM / 8; j++)
                *(float2 *)(row + j * 8 + 2 * k) = make_float2(total[j].x, total[j].y);
        if (lane == 0) *(float2 *)(row + DIM) = make_float2(top, sum.x);
    }

    /* Combines the warps' results: this lane's pairs of columns (lane + 32 i), the maximum score, the sum. */
    static __device__ __forceinline__ void combine_warps(float2 (&y)[PAIRS], float &most, float &all,
                                                         const float *rows) {
        int lane = threadIdx.x % 32;
        float2 mine[WARPS];
        most = -INFINITY, all = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            mine[w] = *(const float2 *)(rows + w * WIDTH + DIM), most = fmaxf(most, mine[w].x);
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            y[i] = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float by = mine[w].x == -INFINITY ? 0.0f : power2(mine[w].x - most);
            all += by * mine[w].y;
#pragma unroll
            for (int i = 0; i < PAIRS; i++) {
                float2 x = *(const float2 *)(rows + w * WIDTH + 2 * (lane + 32 * i));
                y[i].x += by * x.x, y[i].y += by * x.y;
            }
        }
    }
};

/* This block's keys of a head's window. */
template <int DIM>
static __device__ __forceinline__ step_keys step_window_keys(const step_task &t, const step_layer &l, int head) {
    int each = (t.keys + STEP_CLUSTER - 1) / STEP_CLUSTER, rank = blockIdx.x % STEP_CLUSTER;
    int first = min(rank * each, t.keys), count = min(each, t.keys - first);
    step_keys s;
    s.keys = l.ring + head * DIM;
    s.values = s.keys + t.d;
    s.stride = 2 * t.d;
    s.first = t.first + first;
    if (s.first >= t.ring) s.first -= t.ring;
    s.ring = t.ring;
    s.count = count;
    s.fresh = count && first + count == t.keys ? count - 1 : -1;
    s.slope = exp2f((float)(head + 1) * t.slope) * STEP_LOG2E;
    s.distance = (float)(t.keys - 1 - first);
    return s;
}

/* The chunk in a slot of the pool; no keys where the slot is empty or its weight is zero. */
template <int DIM>
static __device__ __forceinline__ step_keys step_slot_keys(const step_task &t, const step_fusion &f, int head, int slot,
                                                           float weight) {
    bool empty = slot < 0 || weight == 0.0f;
    step_keys s;
    s.keys = f.keys + (int64_t)(empty ? 0 : slot) * f.slot_rows * t.d + head * DIM;
    s.values = f.values + (s.keys - f.keys);
    s.stride = t.d;
    s.first = 0;
    s.ring = INT32_MAX;
    s.count = empty ? 0 : f.live_rows;
    s.fresh = -1;
    s.slope = s.distance = 0.0f;
    return s;
}
