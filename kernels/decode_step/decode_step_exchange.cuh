/* decode_step_exchange.cuh -- how the blocks of the token step's kernel hand numbers to each other.
 *
 * Between clusters: what is added to the residual stream gathers in the L2 cache, a word of 8 bytes for each column:
 * the sum in fixed point above, the number of summands below. Whoever has a summand adds it, and the count with it, in
 * one access; whoever needs the sum reads the word until the count is right. No barrier, no reduction of its own, and
 * since whole numbers are added, the same bits whatever the order. Each exchange has words of its own, which the step
 * before has cleared: nobody is overtaken. A block looks for a share of the columns and tells its cluster what it
 * finds: were every block to look for all, they would stand in the way of those who add.
 *
 * Within a cluster: a warp of each block writes into the shared memory of the block of the warp's number, and the write
 * itself tells a barrier there. */
#pragma once
#include "kernels/cuda/cuda.cuh"

/* Workers compute; one more warp brings the weights, and one gathers what clusters add. */
enum { STEP_CLUSTER = 8, STEP_WARPS = STEP_CLUSTER, STEP_WORKERS = 32 * STEP_WARPS, STEP_THREADS = STEP_WORKERS + 64 };

/* Sum in units of 2^-24 (a column may grow to eight million), then 8 bits that count summands that are no number of
 * this kind (not finite, or larger), then 8 bits of count. */
typedef unsigned long long step_word;
enum { STEP_COUNT = 0xff, STEP_LOST = 0xff00 };

static __device__ __forceinline__ void step_add(step_word *to, float y) {
    step_word summand = (step_word)__float2ll_rn(y * 16777216.0f) << 16 | (fabsf(y) < 8388608.0f ? 0x001 : 0x101);
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(summand) : "memory");
}
static __device__ __forceinline__ float step_sum(step_word word) {
    float high = (float)(int)(word >> 32), low = (float)((unsigned)word >> 16);
    return high * (1.0f / 256.0f) + low * (1.0f / 16777216.0f);
}
static __device__ __forceinline__ ulonglong2 step_look(const step_word *words) {
    ulonglong2 x;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(x.x), "=l"(x.y) : "l"(words) : "memory");
    return x;
}
/* Pairs of words from the warp's first, 64 words from one to the next, as soon as the count of each is right. */
template <int PAIRS>
static __device__ __forceinline__ void step_take(float2 (&sums)[PAIRS], const step_word *words, int all,
                                                 unsigned count) {
    int own = threadIdx.x % 32 * 2;
    ulonglong2 x[PAIRS];
    bool right;
    do {
        right = true;
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            x[i] = step_look(words + (own + 64 * i < all ? own + 64 * i : 0));
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            right = right && ((unsigned)x[i].x & STEP_COUNT) == count && ((unsigned)x[i].y & STEP_COUNT) == count;
    } while (!right);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        sums[i] = make_float2(step_sum(x[i].x), step_sum(x[i].y));
        /* What is lost in one column is in the norm's sum of squares, and so in all that follows. */
        if (((unsigned)x[i].x | (unsigned)x[i].y) & STEP_LOST) sums[i].x = __int_as_float(0x7fffffff);
    }
}

/* ---- barriers in shared memory ---- */

static __device__ __forceinline__ void step_wait(unsigned barrier, unsigned parity) {
    unsigned done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}
/* All workers of a block; the warp that brings the weights goes its own way. */
static __device__ __forceinline__ void step_barrier() {
    asm volatile("bar.sync 1, %0;" ::"r"((int)STEP_WORKERS) : "memory");
}
static __device__ __forceinline__ void step_cluster_barrier() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* ---- to another block of the cluster ---- */

/* What lies at `address` here, there. */
static __device__ __forceinline__ unsigned step_there(unsigned address, unsigned block) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    return there;
}
static __device__ __forceinline__ void step_send(unsigned to, unsigned x, unsigned barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(x),
                 "r"(barrier)
                 : "memory");
}
static __device__ __forceinline__ void step_send(unsigned to, float x, unsigned barrier) {
    step_send(to, __float_as_uint(x), barrier);
}
static __device__ __forceinline__ void step_send(unsigned to, float2 x, unsigned barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(x.x), "f"(x.y), "r"(barrier)
                 : "memory");
}
static __device__ __forceinline__ void step_send(unsigned to, float4 x, unsigned barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
        "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
        : "memory");
}

/* ---- numbers ---- */

/* Scores are in units of log 2. */
static constexpr float STEP_LOG2E = 1.4426950408889634f;
static __device__ __forceinline__ float step_low(unsigned pair) {
    return __uint_as_float(pair << 16);
}
static __device__ __forceinline__ float step_high(unsigned pair) {
    return __uint_as_float(pair & 0xffff0000u);
}
/* A number in two parts: what bf16 keeps, above what it loses. */
static __device__ __forceinline__ unsigned step_split(float x) {
    float great = step_low(pack2(x, 0.0f));
    return pack2(x - great, great);
}
/* Of two such numbers, the parts kept (or lost) as a pair. */
static __device__ __forceinline__ unsigned step_pair(unsigned low, unsigned high, bool lost) {
    return __byte_perm(low, high, lost ? 0x5410 : 0x7632);
}
/* What bf16 loses of a pair. */
static __device__ __forceinline__ unsigned step_rest(float low, float high, unsigned great) {
    return pack2(low - step_low(great), high - step_high(great));
}
/* Over the warp: as whole numbers, whose order is that of floats but for negative ones. A NaN may be left out. */
static __device__ __forceinline__ float step_highest(float x) {
    int i = __float_as_int(x), most = __reduce_max_sync(~0u, i ^ (i >> 31 & 0x7fffffff));
    return __int_as_float(most ^ (most >> 31 & 0x7fffffff));
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
static __device__ __forceinline__ uint2 step_read_two(unsigned address) {
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(address) : "memory");
    return x;
}
static __device__ __forceinline__ void step_multiply(float4 &c, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                     unsigned b0, unsigned b1) {
    warp_product(&c.x, a0, a1, a2, a3, b0, b1);
}
static __device__ __forceinline__ void step_multiply(float4 &c, const uint4 &a, unsigned b0, unsigned b1) {
    step_multiply(c, a.x, a.y, a.z, a.w, b0, b1);
}
/* Eight columns of a matrix of 16 rows. */
static __device__ __forceinline__ void step_multiply(float4 &c, const uint2 &a, unsigned b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
        : "r"(a.x), "r"(a.y), "r"(b));
}
