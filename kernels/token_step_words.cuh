/* token_step_words.cuh -- how the blocks of the token step's kernel hand numbers to each other: words that say when
 * they are there.
 *
 * All blocks (one on each multiprocessor) work on one phase after the other, and each needs what all others made. A
 * barrier between phases costs more than most phases. So there is none: every number travels with the number of its
 * phase in one word of 8 bytes, and who needs it reads the word until the phase is right.
 *
 * A word is written once a layer. Before anyone can write it again, every block has made something of a later phase,
 * hence read all of this one: no reader is overtaken (that is why 3d and f must not be smaller than the blocks). */
#pragma once
#include "kernels/cuda.cuh"

/* Workers compute; one more warp brings the weights. */
enum { STEP_WARPS = 8, STEP_WORKERS = 32 * STEP_WARPS, STEP_THREADS = STEP_WORKERS + 32 };

/* A number (or a pair of bf16) and the phase that made it. */
typedef uint2 step_word;

static __device__ __forceinline__ void step_put(step_word *to, unsigned bits, unsigned phase) {
    uint64_t both = (uint64_t)phase << 32 | bits; /* one access, so that the two cannot be seen apart */
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(both) : "memory");
}
static __device__ __forceinline__ void step_put(step_word *to, float x, unsigned phase) {
    step_put(to, __float_as_uint(x), phase);
}
/* Two words side by side, the first at an even place. */
static __device__ __forceinline__ uint4 step_look(const step_word *from) {
    uint64_t a, b;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
    return make_uint4((unsigned)a, (unsigned)(a >> 32), (unsigned)b, (unsigned)(b >> 32));
}
/* out[i]: the two words from[i], for those wanted. All are looked at together until none is missing: one after the
 * other, each would cost a way to the L2 cache of its own. */
template <int N>
static __device__ __forceinline__ void step_take(uint4 (&out)[N], const step_word *const (&from)[N],
                                                 const bool (&wanted)[N], unsigned phase) {
    bool missing;
#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] = make_uint4(0, 0, 0, 0);
    do {
        missing = false;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (wanted[i]) out[i] = step_look(from[i]);
#pragma unroll
        for (int i = 0; i < N; i++)
            missing |= wanted[i] && (out[i].y != phase || out[i].w != phase);
    } while (missing);
    __syncwarp();
}

static __device__ __forceinline__ unsigned step_pack(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const unsigned *)&pair;
}
static __device__ __forceinline__ float step_low(unsigned pair) {
    return __uint_as_float(pair << 16);
}
static __device__ __forceinline__ float step_high(unsigned pair) {
    return __uint_as_float(pair & 0xffff0000u);
}
/* Hides from the compiler that x does not change: what is made of it is made where it is used, not once for the whole
 * kernel and kept in memory. */
static __device__ __forceinline__ unsigned step_anew(unsigned x) {
    asm volatile("" : "+r"(x));
    return x;
}
static __device__ __forceinline__ uint4 step_read(unsigned address) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}
static __device__ __forceinline__ void step_multiply(float4 &c, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                     unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void step_multiply(float4 &c, const uint4 &a, unsigned b0, unsigned b1) {
    step_multiply(c, a.x, a.y, a.z, a.w, b0, b1);
}
/* All workers; the warp that brings the weights goes its own way. */
static __device__ __forceinline__ void step_barrier() {
    asm volatile("bar.sync 1, %0;" ::"r"((int)STEP_WORKERS) : "memory");
}
