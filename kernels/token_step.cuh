/* token_step.cuh -- the parts of the token step's kernel: words that say when they are there, products of a vector,
 * attention of one row.
 *
 * All blocks (one on each multiprocessor) work on one phase after the other, and each needs what all others made. A
 * barrier between phases cost five microseconds with the reads behind it (H200), 60 times a token. So there is none:
 * every number travels with the number of its phase in one word of 8 bytes, and who needs it reads the word until the
 * phase is right. Meanwhile weights and old keys, which do not depend on the phase before, are on their way into
 * registers.
 *
 * A word is written once a layer. Before anyone can write it again, every block has made something of the next layer,
 * hence read all of this one: no reader is overtaken (that is why 3d and f must not be smaller than the blocks).
 *
 * H200, 12 layers of d 768, 50265 words: 230 us, of which the head 20; 3.5 us a phase, most of it waiting for the words of
 * the slowest block. Tried and lost: four or eight copies of the words, so that fewer blocks look at one (1 %, -1 %); a
 * nap between two looks (nothing).
 *
 * The code of a phase runs once a layer, so its size counts: unrolled to 270 KB it waited for instructions. Hence one
 * product and one attention, told by a switch what to do around them. */
#pragma once
#include "kernels/attend_cuda.cuh"

enum { STEP_WARPS = 16, STEP_THREADS = 32 * STEP_WARPS, STEP_PIECES = 4 };

/* A number and the phase that made it. */
typedef uint2 step_word;

static __device__ __forceinline__ void step_put(step_word *to, float x, unsigned phase) {
    uint64_t both = (uint64_t)phase << 32 | __float_as_uint(x); /* one access, so that the two cannot be seen apart */
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(both) : "memory");
}
/* Two words side by side, the first at an even place. */
static __device__ __forceinline__ uint4 step_look(const step_word *from) {
    uint64_t a, b;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
    return make_uint4((unsigned)a, (unsigned)(a >> 32), (unsigned)b, (unsigned)(b >> 32));
}
static __device__ __forceinline__ float2 step_take(const step_word *from, unsigned phase) {
    uint4 x = step_look(from);
    while (x.y != phase || x.w != phase)
        x = step_look(from);
    return make_float2(__uint_as_float(x.x), __uint_as_float(x.z));
}
template <int N> static __device__ __forceinline__ void step_take_all(float2 (&out)[N], const step_word *from, int apart, unsigned phase) {
    uint4 x[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = step_look(from + i * apart);
#pragma unroll
    for (int i = 0; i < N; i++) {
        while (x[i].y != phase || x[i].w != phase)
            x[i] = step_look(from + i * apart);
        out[i] = make_float2(__uint_as_float(x[i].x), __uint_as_float(x[i].z));
    }
}

/* Not moved behind the reading of words by the compiler. */
static __device__ __forceinline__ uint4 step_fetch(const bf16 *p) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(p));
    return x;
}
static __device__ __forceinline__ uint4 step_fetch_fresh(const bf16 *p) {
    uint4 x;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(p)
                 : "memory");
    return x;
}

static __device__ __forceinline__ float step_low(unsigned pair) {
    return __uint_as_float(pair << 16);
}
static __device__ __forceinline__ float step_high(unsigned pair) {
    return __uint_as_float(pair & 0xffff0000u);
}
static __device__ __forceinline__ float step_dot(const uint4 &w, const float4 &a, const float4 &b) {
    float even = step_low(w.x) * a.x + step_low(w.y) * a.z + step_low(w.z) * b.x + step_low(w.w) * b.z;
    float odd = step_high(w.x) * a.y + step_high(w.y) * a.w + step_high(w.z) * b.y + step_high(w.w) * b.w;
    return even + odd;
}

/* The vector of a product, in shared memory: eighths of it split in two planes, so that lanes side by side meet
 * different banks. */
struct step_vector {
    float4 *plane[2];
    __device__ void set(int i, float2 x) const { /* i even; not plane[i / 4 % 2], which would put the planes in memory */
        ((float2 *)(i / 4 % 2 ? plane[1] : plane[0]))[(i / 8 * 4 + i % 4) / 2] = x;
    }
};

/* Rows of w [*, in] times the vector. Row r of the whole is a unit, with `pair` the rows u and second + u are; unit u
 * belongs to block u % blocks, there to warp u / blocks % warps. A row is read in segments of STEP_PIECES pieces of 16
 * bytes a lane; two segments are always on their way. */
struct step_product {
    const bf16 *w;
    int in, segments, units, second;
    bool pair;
    uint4 ahead[2][STEP_PIECES];
    struct place {
        int unit, half, segment;
    } load, use;

    __device__ __forceinline__ void next(place &at) const {
        if (++at.segment < segments) return;
        at.segment = 0;
        if (pair && at.half == 0) {
            at.half = 1;
            return;
        }
        at.half = 0;
        at.unit += gridDim.x * STEP_WARPS;
    }
    __device__ __forceinline__ void fetch(uint4 (&to)[STEP_PIECES]) {
        int column = (load.segment * STEP_PIECES * 32 + (int)(threadIdx.x % 32)) * 8;
        const bf16 *from = w + (int64_t)(load.unit + load.half * second) * in + column;
#pragma unroll
        for (int i = 0; i < STEP_PIECES; i++) {
            to[i] = make_uint4(0, 0, 0, 0);
            if (load.unit < units && column + i * 256 < in) to[i] = step_fetch(from + i * 256);
        }
        next(load);
    }
    __device__ __forceinline__ void begin(const bf16 *weights, int columns, int rows, int second_row) {
        w = weights, in = columns, units = rows, second = second_row, pair = second_row != 0;
        segments = (columns + 256 * STEP_PIECES - 1) / (256 * STEP_PIECES);
        load = {(int)(blockIdx.x + gridDim.x * (threadIdx.x / 32)), 0, 0};
        use = load;
        fetch(ahead[0]);
        fetch(ahead[1]);
    }
    /* finish(unit, half, sum) in every lane, when a row is complete. */
    template <typename F>
    __device__ __forceinline__ void consume(const uint4 (&from)[STEP_PIECES], const step_vector &v, float &sum, F &finish) {
        int eighth = use.segment * STEP_PIECES * 32 + threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < STEP_PIECES; i++)
            if ((eighth + i * 32) * 8 < in) sum += step_dot(from[i], v.plane[0][eighth + i * 32], v.plane[1][eighth + i * 32]);
        if (use.segment == segments - 1) {
            finish(use.unit, use.half, warp_sum(sum));
            sum = 0.0f;
        }
        next(use);
    }
    template <typename F> __device__ __forceinline__ void run(const step_vector &v, F finish) {
        float sum = 0.0f;
#pragma unroll 1
        while (use.unit < units) {
            consume(ahead[0], v, sum, finish);
            fetch(ahead[0]);
            if (use.unit >= units) break;
            consume(ahead[1], v, sum, finish);
            fetch(ahead[1]);
        }
    }
};

/* Keys that one block attends to with one row of one head: DIM / 8 lanes a key. Row of key i: first + i, around the
 * ring. */
struct step_keys {
    const bf16 *keys, *values;
    int stride, first, ring;
    int count, fresh; /* key `fresh` is made in this step (-1: none): its words */
    const step_word *fresh_key, *fresh_value;
    unsigned fresh_phase;
    float slope, distance; /* bias of key i: -slope * (distance - i) */
    __device__ int64_t at(int i) const {
        int row = first + i;
        return (int64_t)(row >= ring ? row - ring : row) * stride;
    }
};

template <int DIM> struct step_attention {
    static constexpr int SHARE = DIM / 8, EACH = 32 / SHARE, PASS = STEP_WARPS * EACH, WIDTH = DIM + 2;
    static constexpr int WORDS = DIM / 2 + 2; /* of a part: pairs of bf16, the highest score, the sum */
    uint4 key, value;

    static __device__ int mine(int pass) { return pass * PASS + threadIdx.x / 32 * EACH + threadIdx.x % 32 / SHARE; }

    __device__ void begin(const step_keys &s) {
        int i = mine(0), column = threadIdx.x % SHARE * 8;
        key = value = make_uint4(0, 0, 0, 0);
        if (i < s.count && i != s.fresh) {
            key = step_fetch_fresh(s.keys + s.at(i) + column);
            value = step_fetch_fresh(s.values + s.at(i) + column);
        }
    }
    static __device__ uint4 made(const step_word *from, unsigned phase) {
        float2 x[4];
        step_take_all(x, from, 2, phase);
        uint4 y;
        __nv_bfloat162 *pair = (__nv_bfloat162 *)&y;
#pragma unroll
        for (int i = 0; i < 4; i++)
            pair[i] = __float22bfloat162_rn(x[i]);
        return y;
    }
    /* out [WIDTH]: the weighted values not yet divided, the highest score, the sum. `shared` [STEP_WARPS * WIDTH]. */
    __device__ void run(float *out, const step_keys &s, const step_word *query, unsigned phase, float *shared) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = lane % SHARE * 8;
        float2 q[4];
        step_take_all(q, query + column, 2, phase);
        float4 a = make_float4(q[0].x, q[0].y, q[1].x, q[1].y), b = make_float4(q[2].x, q[2].y, q[3].x, q[3].y);
        float top = -INFINITY, sum = 0.0f, total[8] = {};
        const float scale = rsqrtf((float)DIM);
#pragma unroll 1
        for (int pass = 0; pass * PASS < s.count; pass++) {
            int i = mine(pass);
            if (i == s.fresh) {
                key = made(s.fresh_key + column, s.fresh_phase);
                value = made(s.fresh_value + column, s.fresh_phase);
            } else if (i < s.count && pass > 0) {
                key = step_fetch_fresh(s.keys + s.at(i) + column);
                value = step_fetch_fresh(s.values + s.at(i) + column);
            }
            float score = step_dot(key, a, b);
#pragma unroll
            for (int offset = 1; offset < SHARE; offset *= 2)
                score += __shfl_xor_sync(~0u, score, offset);
            score = i < s.count ? score * scale - s.slope * (s.distance - (float)i) : -INFINITY;
            float higher = fmaxf(top, score);
            float shrink = top == -INFINITY ? 0.0f : __expf(top - higher), p = i < s.count ? __expf(score - higher) : 0.0f;
            sum = sum * shrink + p;
            top = higher;
            const unsigned pair[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
            for (int c = 0; c < 4; c++) {
                total[2 * c] = total[2 * c] * shrink + p * step_low(pair[c]);
                total[2 * c + 1] = total[2 * c + 1] * shrink + p * step_high(pair[c]);
            }
        }
        float highest = top;
#pragma unroll
        for (int offset = SHARE; offset < 32; offset *= 2)
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, offset));
        float factor = top == -INFINITY ? 0.0f : __expf(top - highest);
        sum *= factor;
#pragma unroll
        for (int c = 0; c < 8; c++)
            total[c] *= factor;
#pragma unroll
        for (int offset = SHARE; offset < 32; offset *= 2) {
            sum += __shfl_xor_sync(~0u, sum, offset);
#pragma unroll
            for (int c = 0; c < 8; c++)
                total[c] += __shfl_xor_sync(~0u, total[c], offset);
        }
        float *row = shared + warp * WIDTH;
        if (lane < SHARE)
#pragma unroll
            for (int c = 0; c < 8; c++)
                row[column + c] = total[c];
        if (lane == 0) row[DIM] = highest, row[DIM + 1] = sum;
        __syncthreads();
        if (threadIdx.x < DIM) {
            float most = -INFINITY, all = 0.0f, result = 0.0f;
#pragma unroll
            for (int w = 0; w < STEP_WARPS; w++)
                most = fmaxf(most, shared[w * WIDTH + DIM]);
#pragma unroll
            for (int w = 0; w < STEP_WARPS; w++) {
                float m = shared[w * WIDTH + DIM], f = m == -INFINITY ? 0.0f : __expf(m - most);
                all += f * shared[w * WIDTH + DIM + 1];
                result += f * shared[w * WIDTH + threadIdx.x];
            }
            out[threadIdx.x] = result;
            if (threadIdx.x == 0) out[DIM] = most, out[DIM + 1] = all;
        }
    }
};
