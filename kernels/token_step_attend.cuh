/* token_step_attend.cuh -- attention of one row: a block takes a piece of one head's window, or one head of one chunk.
 *
 * A warp has 16 keys at a time, in shared memory since before the phase that makes the query (all of a block's, where
 * the window is of ordinary length). Matrix units multiply keys by the query (in two parts of bf16, as products do) and
 * probabilities (bf16) by values. A piece's result: weighted values not yet divided, the highest score and the sum;
 * chunks are divided and weighted at once. */
#pragma once
#include "kernels/token_step_product.cuh"

/* Row of key i: first + i, around the ring. */
struct step_keys {
    const bf16 *keys, *values;
    int stride, first, ring;
    int count, fresh; /* key `fresh` is made in this step (-1: none): its words */
    const step_word *fresh_key, *fresh_value;
    float slope, distance; /* bias of key i: -slope * (distance - i) */
};

template <int DIM> struct step_attention {
    /* BATCH: keys of a block at a time; ROW: bytes from key to key, so that eight meet different banks */
    static constexpr int BATCH = 8192 / DIM, WARPS = BATCH / 16, ROW = DIM * 2 + 16, BYTES = 2 * BATCH * ROW,
                         PAIRS = DIM / 64;
    static constexpr int WIDTH = DIM + 2,
                         WORDS = DIM / 2 + 2; /* of a part: pairs of bf16, the highest score, the sum */
    unsigned room;                            /* of this warp's 16 keys; values BATCH * ROW behind */

    __device__ __forceinline__ void begin(const step_keys &s, int first) const {
        int warp = threadIdx.x / 32;
        unsigned lane = step_anew(threadIdx.x % 32), column = lane % (DIM / 8) * 8;
        if (warp >= WARPS) return;
#pragma unroll
        for (int j = 0; j < DIM / 16; j++) {
            int key = lane / (DIM / 8) + j * (256 / DIM), i = first + warp * 16 + key, row = s.first + i;
            if (row >= s.ring) row -= s.ring;
            unsigned bytes = i < s.count && i != s.fresh ? 16 : 0,
                     to = room + key * ROW + column * 2; /* what is not there: zero */
            int at = bytes ? row * s.stride + column : 0;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(s.keys + at), "r"(bytes)
                         : "memory");
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + BATCH * ROW), "l"(s.values + at),
                         "r"(bytes)
                         : "memory");
        }
    }
    /* scratch of a warp: the query's greater parts [DIM], then its lesser. */
    __device__ __forceinline__ void take(const step_keys &s, const step_word *query, unsigned made,
                                         unsigned *scratch) const {
        int warp = threadIdx.x / 32;
        unsigned lane = step_anew(threadIdx.x % 32);
        bool fresh = s.fresh >= 0 && s.fresh % BATCH / 16 == warp;
        uint4 raw[3 * PAIRS];
        const step_word *from[3 * PAIRS];
        bool wanted[3 * PAIRS];
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            int at = (lane + 32 * i) * 2;
            from[i] = query + at, from[PAIRS + i] = s.fresh_key + at, from[2 * PAIRS + i] = s.fresh_value + at;
            wanted[i] = true, wanted[PAIRS + i] = wanted[2 * PAIRS + i] = fresh;
        }
        step_take(raw, from, wanted, made);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            int pair = lane + 32 * i;
            float low = __uint_as_float(raw[i].x), high = __uint_as_float(raw[i].z);
            unsigned great = step_pack(low, high);
            scratch[pair] = great;
            scratch[DIM / 2 + pair] = step_pack(low - step_low(great), high - step_high(great));
            scratch[DIM + pair] = step_pack(__uint_as_float(raw[PAIRS + i].x), __uint_as_float(raw[PAIRS + i].z));
            scratch[DIM + DIM / 2 + pair] =
                step_pack(__uint_as_float(raw[2 * PAIRS + i].x), __uint_as_float(raw[2 * PAIRS + i].z));
        }
        __syncwarp();
    }
    /* This warp's keys, from those of begin(s, 0) on, into row [WIDTH]. */
    __device__ __forceinline__ void run(float *row, const step_keys &s, const unsigned *scratch) const {
        int warp = threadIdx.x / 32;
        unsigned lane = step_anew(threadIdx.x % 32);
        int g = lane / 4, k = lane % 4;
        float top = -INFINITY, sum = 0.0f;
        float4 total[DIM / 8] = {};
        unsigned here = room + lane % 16 * ROW + lane / 16 * 16,
                 query = shared_address(scratch) + lane % 2 * (DIM * 2) + lane / 8 * 16;
#pragma unroll 1
        for (int first = 0; first < s.count; first += BATCH) {
            if (first > 0) begin(s, first);
            asm volatile("cp.async.wait_all;" ::: "memory");
            __syncwarp();
            int own = s.fresh - first - warp * 16; /* the new key is one of these? */
            if (s.fresh >= 0 && own >= 0 && own < 16) {
                for (int i = lane; i < DIM / 2; i += 32)
                    asm volatile("st.shared.u32 [%0], %1;\nst.shared.u32 [%2], %3;" ::"r"(room + own * ROW + i * 4),
                                 "r"(scratch[DIM + i]), "r"(room + BATCH * ROW + own * ROW + i * 4),
                                 "r"(scratch[DIM + DIM / 2 + i])
                                 : "memory");
                __syncwarp();
            }
            float4 c[2] = {};
#pragma unroll
            for (int j = 0; j < DIM / 16; j += 2) {
                uint4 b = shared_matrices<false>(query + j * 32), a = shared_matrices<false>(here + j * 32),
                      z = shared_matrices<false>(here + j * 32 + 32);
                step_multiply(c[0], a.x, a.y, a.z, a.w, b.x, b.y);
                step_multiply(c[1], z.x, z.y, z.z, z.w, b.z, b.w);
            }
            int i = first + warp * 16 + g;
            constexpr float scale = DIM == 64 ? 0.125f : 0.08838834764831845f;
            float x = i < s.count ? (c[0].x + c[0].y + (c[1].x + c[1].y)) * scale - s.slope * (s.distance - (float)i)
                                  : -INFINITY;
            float y = i + 8 < s.count
                          ? (c[0].z + c[0].w + (c[1].z + c[1].w)) * scale - s.slope * (s.distance - (float)(i + 8))
                          : -INFINITY;
            float higher = fmaxf(top, fmaxf(x, y));
#pragma unroll
            for (int offset = 4; offset < 32; offset *= 2)
                higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, offset));
            float base = higher == -INFINITY ? 0.0f : higher, shrink = __expf(top - base);
            top = higher;
            /* the sum is that of the rounded probabilities */
            x = __bfloat162float(__float2bfloat16_rn(__expf(x - base))),
            y = __bfloat162float(__float2bfloat16_rn(__expf(y - base)));
            sum = sum * shrink + x + y;
            unsigned near = step_pack(__shfl_sync(~0u, x, 8 * k), __shfl_sync(~0u, x, 8 * k + 4));
            unsigned far = step_pack(__shfl_sync(~0u, y, 8 * k), __shfl_sync(~0u, y, 8 * k + 4));
#pragma unroll
            for (int j = 0; j < DIM / 8; j += 2) {
                uint4 b = shared_matrices<true>(here + BATCH * ROW + j * 16);
                if (first > 0) {
                    total[j].x *= shrink, total[j].y *= shrink;
                    total[j + 1].x *= shrink, total[j + 1].y *= shrink;
                }
                step_multiply(total[j], near, near, far, far, b.x, b.y);
                step_multiply(total[j + 1], near, near, far, far, b.z, b.w);
            }
            __syncwarp(); /* before the keys are written anew */
        }
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2)
            sum += __shfl_xor_sync(~0u, sum, offset);
        if (g == 0)
#pragma unroll
            for (int j = 0; j < DIM / 8; j++)
                *(float2 *)(row + j * 8 + 2 * k) = make_float2(total[j].x, total[j].y);
        if (lane == 0) *(float2 *)(row + DIM) = make_float2(top, sum);
    }
};

/* The window of one head, cut into `splits` pieces of which this is one. */
template <int DIM>
static __device__ __forceinline__ step_keys window_keys(const step_task &t, const step_layer &l, int head, int split,
                                                        int splits) {
    int each = (t.keys + splits - 1) / splits, first = min(split * each, t.keys), count = min(each, t.keys - first);
    step_keys s;
    s.keys = l.ring + head * DIM;
    s.values = s.keys + t.d;
    s.stride = 2 * t.d;
    s.first = t.first + first;
    if (s.first >= t.ring) s.first -= t.ring;
    s.ring = t.ring;
    s.count = count;
    s.fresh = count && first + count == t.keys ? count - 1 : -1;
    s.fresh_key = t.qkv + t.d + head * DIM;
    s.fresh_value = s.fresh_key + t.d;
    s.slope = exp2f(-8.0f * (float)(head + 1) / (float)t.heads);
    s.distance = (float)(t.keys - 1 - first);
    return s;
}

template <int DIM>
static __device__ __forceinline__ step_keys slot_keys(const step_task &t, const step_fusion &f, int head, int slot) {
    step_keys s;
    bool empty = slot < 0;
    s.keys = f.keys + (int64_t)(empty ? 0 : slot) * f.slot_rows * t.d + head * DIM;
    s.values = f.values + (s.keys - f.keys);
    s.stride = t.d;
    s.first = 0;
    s.ring = INT32_MAX;
    s.count = empty ? 0 : f.live_rows;
    s.fresh = -1;
    s.fresh_key = s.fresh_value = NULL;
    s.slope = s.distance = 0.0f;
    return s;
}

/* This block's pieces of a phase: every grid's size a piece. */
template <int DIM> struct step_pieces {
    enum { WORDS = step_attention<DIM>::WORDS, WIDTH = step_attention<DIM>::WIDTH, WARPS = step_attention<DIM>::WARPS };
    step_attention<DIM> attention;
    float (*rows)[WARPS * WIDTH]; /* two, used in turn */
    unsigned turn;
    int head, count, window_head,
        window_split; /* of the piece in hand; of the window's piece, the same in all layers */
    float weight;

    __device__ __forceinline__ step_keys window(const step_task &t, const step_layer &l) const {
        return window_keys<DIM>(t, l, window_head, window_split, t.splits);
    }
    __device__ __forceinline__ void begin_window(const step_task &t, const step_layer &l) {
        if (window_head < t.heads) attention.begin(window(t, l), 0);
    }
    __device__ __forceinline__ void begin_slot(const step_task &t, const step_layer &l, int piece) {
        const step_fusion &f = t.fusion[l.group];
        if (piece >= t.heads * f.k) return;
        head = piece / f.k;
        int place = piece - head * f.k, slot = f.slot[place];
        weight = f.weight[place];
        step_keys s = slot_keys<DIM>(t, f, head, weight == 0.0f ? -1 : slot);
        count = s.count;
        attention.begin(s, 0);
    }
    /* The warps' rows joined into a part, 64 columns a warp. */
    template <bool WINDOW>
    __device__ __forceinline__ void join(const step_task &t, const step_layer &l, int piece, const float *from,
                                         unsigned phase) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pair = warp * 32 + lane;
        if (warp >= DIM / 64) return;
        float2 mine = lane < WARPS ? *(const float2 *)(from + lane * WIDTH + DIM) : make_float2(-INFINITY, 0.0f);
        float most = warp_max(mine.x), f = mine.x == -INFINITY ? 0.0f : __expf(mine.x - most),
              all = warp_sum(f * mine.y);
        float2 y = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float2 x = *(const float2 *)(from + w * WIDTH + 2 * pair);
            float by = __shfl_sync(~0u, f, w);
            y.x += by * x.x, y.y += by * x.y;
        }
        step_word *part = (WINDOW ? t.part : t.slot_part) + piece * WORDS;
        if (WINDOW) {
            if (pair < 2) step_put(part + DIM / 2 + pair, pair ? all : most, phase);
        } else {
            bool null_key = t.fusion[l.group].null_key;
            float top = null_key ? fmaxf(most, 0.0f) : most;
            all = __expf(most - top) * all + (null_key ? __expf(-top) : 0.0f);
            float factor = count ? weight * __expf(most - top) / all : 0.0f;
            y.x *= factor, y.y *= factor;
        }
        step_put(part + pair, step_pack(y.x, y.y), phase);
    }
    /* made: the phase of the query. */
    template <bool WINDOW>
    __device__ __forceinline__ void run(const step_task &t, const step_layer &l, unsigned made, unsigned phase,
                                        unsigned char *scratch) {
        int pieces = t.heads * (WINDOW ? t.splits : t.fusion[l.group].k);
#pragma unroll 1
        for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
            if (!WINDOW && piece >= (int)gridDim.x) begin_slot(t, l, piece);
            step_keys s = WINDOW ? window(t, l) : slot_keys<DIM>(t, t.fusion[l.group], head, 0);
            if (!WINDOW) s.count = count;
            int warp = threadIdx.x / 32;
            if (warp < WARPS) {
                attention.take(s, WINDOW ? t.qkv + window_head * DIM : t.query + head * DIM, made, (unsigned *)scratch);
                attention.run(rows[turn] + warp * WIDTH, s, (const unsigned *)scratch);
            }
            step_barrier();
            join<WINDOW>(t, l, piece, rows[turn], phase);
            turn ^= 1;
        }
    }
};
