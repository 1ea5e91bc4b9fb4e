/* decode_step_exchange.cuh -- how the blocks of the decode step's kernel exchange numbers.
 *
 * Between clusters: the exchange buffer, in global memory (so in the L2 cache). It has an accumulator of 8 bytes for
 * each exchange and column of the residual stream:
 *
 *     bit 63 .................. 16   15 ......... 8   7 .......... 0
 *     | sum, fixed point, 2^-24  |   overflow count | summand count |
 *
 * A block adds its summand and the count 1 with a single atomic add. A reader polls the accumulator until the count is
 * complete. There is no grid barrier and no separate reduction. Integer addition is associative, so the sum has the
 * same bits in any order. Each exchange of a step has accumulators of its own, which the step before cleared, so a fast
 * block cannot overwrite what a slow one still reads. Two warps of each block (step_exchange_warp) poll a share of the
 * columns for the whole cluster and send it on: if every block polled all columns, the polls would delay the adds.
 *
 * Within a cluster: distributed shared memory. Warp w of each block writes into the shared memory of block w with
 * st.async, which also completes bytes of an mbarrier there. */
#pragma once
#include "kernels/cuda/cuda.cuh"

/* Warps of a block: 0 .. 7 consumers, which compute; 8 the producer, which loads weights; 9 and 10 the exchange warps,
 * which poll the sums between clusters. */
enum {
    STEP_CLUSTER = 8,
    STEP_WARPS = STEP_CLUSTER,
    STEP_CONSUMER_THREADS = 32 * STEP_WARPS,
    STEP_EXCHANGE_WARPS = 2,
    STEP_THREADS = STEP_CONSUMER_THREADS + 32 + 32 * STEP_EXCHANGE_WARPS
};

/* An accumulator of the exchange buffer: the sum in units of 2^-24, |sum| below 2^23; 8 bits that count summands which
 * do not fit (not finite, or 2^23 and more); 8 bits that count all summands. */
typedef unsigned long long step_accumulator;
enum { STEP_COUNT = 0xff, STEP_OVERFLOW = 0xff00 };

static __device__ __forceinline__ void step_add(step_accumulator *to, float y) {
    step_accumulator summand =
        (step_accumulator)__float2ll_rn(y * 16777216.0f) << 16 | (fabsf(y) < 8388608.0f ? 0x001 : 0x101);
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(summand) : "memory");
}
static __device__ __forceinline__ float step_sum(step_accumulator x) {
    float high = (float)(int)(x >> 32), low = (float)((unsigned)x >> 16);
    return high * (1.0f / 256.0f) + low * (1.0f / 16777216.0f);
}
static __device__ __forceinline__ ulonglong2 step_load_accumulators(const step_accumulator *from) {
    ulonglong2 x;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(x.x), "=l"(x.y) : "l"(from) : "memory");
    return x;
}
/* Polls until each accumulator has `count` summands, then returns the sums: lane l has columns 2 l and 2 l + 1 of each
 * 64. Columns from `all` on are not read. */
template <int PAIRS>
static __device__ __forceinline__ void step_wait_sums(float2 (&sums)[PAIRS], const step_accumulator *from, int all,
                                                      unsigned count) {
    int own = threadIdx.x % 32 * 2;
    ulonglong2 x[PAIRS];
    bool right;
    do {
        right = true;
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            x[i] = step_load_accumulators(from + (own + 64 * i < all ? own + 64 * i : 0));
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            right = right && ((unsigned)x[i].x & STEP_COUNT) == count && ((unsigned)x[i].y & STEP_COUNT) == count;
    } while (!right);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        sums[i] = make_float2(step_sum(x[i].x), step_sum(x[i].y));
        /* An overflow becomes a NaN. The norm's sum of squares spreads it to all columns, so it reaches the logits. */
        if (((unsigned)x[i].x | (unsigned)x[i].y) & STEP_OVERFLOW) sums[i].x = __int_as_float(0x7fffffff);
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
/* All consumer warps of a block. The producer warp and the exchange warp take no part. */
static __device__ __forceinline__ void step_barrier() {
    asm volatile("bar.sync 1, %0;" ::"r"((int)STEP_CONSUMER_THREADS) : "memory");
}
/* The consumer warps have written a key state; the first exchange warp, which has time, releases it. */
static __device__ __forceinline__ void step_keys_arrive() {
    asm volatile("bar.arrive 2, %0;" ::"r"((int)STEP_CONSUMER_THREADS + 32) : "memory");
}
static __device__ __forceinline__ void step_keys_release(uint32_t *ready) {
    asm volatile("bar.sync 2, %0;" ::"r"((int)STEP_CONSUMER_THREADS + 32) : "memory");
    if (threadIdx.x % 32 == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(ready) : "memory");
    __syncwarp();
}
static __device__ __forceinline__ void step_cluster_barrier() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* ---- to another block of the cluster ---- */

/* The address in the shared memory of `block` that corresponds to `address` in this block's. */
static __device__ __forceinline__ unsigned step_peer_address(unsigned address, unsigned block) {
    unsigned peer;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address), "r"(block));
    return peer;
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
/* A float32 as two bf16: high half x rounded to bf16, low half the residual x - bf16(x), rounded. */
static __device__ __forceinline__ unsigned step_split(float x) {
    float rounded = step_low(pack2(x, 0.0f));
    return pack2(x - rounded, rounded);
}
/* Of two such numbers, the rounded parts (or the residuals) as a pair. */
static __device__ __forceinline__ unsigned step_pair(unsigned low, unsigned high, bool residual) {
    return __byte_perm(low, high, residual ? 0x5410 : 0x7632);
}
/* The residuals of a pair. */
static __device__ __forceinline__ unsigned step_residual(float low, float high, unsigned rounded) {
    return pack2(low - step_low(rounded), high - step_high(rounded));
}
/* Maximum over the warp, by redux.sync on integers in the order of the floats. A NaN may be dropped. */
static __device__ __forceinline__ float step_warp_max(float x) {
    int i = __float_as_int(x), most = __reduce_max_sync(~0u, i ^ (i >> 31 & 0x7fffffff));
    return __int_as_float(most ^ (most >> 31 & 0x7fffffff));
}
/* Hides from the compiler that x does not change. Values that depend on x are then computed where they are used; else
 * the compiler computes them once for the whole kernel and spills them. */
static __device__ __forceinline__ unsigned step_opaque(unsigned x) {
    asm volatile("" : "+r"(x));
    return x;
}
static __device__ __forceinline__ uint4 step_shared_load4(unsigned address) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}
static __device__ __forceinline__ uint2 step_shared_load2(unsigned address) {
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(address) : "memory");
    return x;
}
static __device__ __forceinline__ float step_shared_load(unsigned address) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}
static __device__ __forceinline__ void step_mma(float4 &c, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                unsigned b0, unsigned b1) {
    warp_product(&c.x, a0, a1, a2, a3, b0, b1);
}
static __device__ __forceinline__ void step_mma(float4 &c, const uint4 &a, unsigned b0, unsigned b1) {
    step_mma(c, a.x, a.y, a.z, a.w, b0, b1);
}
/* A of 16 rows x 8 columns. */
static __device__ __forceinline__ void step_mma(float4 &c, const uint2 &a, unsigned b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
        : "r"(a.x), "r"(a.y), "r"(b));
}
