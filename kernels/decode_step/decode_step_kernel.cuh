/* decode_step_kernel.cuh -- the decode step's kernel, and what the host has to know of each specialisation. */
#pragma once
#include "kernels/decode_step/decode_step_consumer.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/* A step that was launched early (decode_step_launch) waits here for the kernels before it. Only weights are read
 * sooner. */
static __device__ __forceinline__ void step_wait_kernels() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
#endif

template <int DIM, int STRIPS, int UNITS> struct step_memory {
    using shared = step_shared<DIM, STRIPS, UNITS>;
    enum { RING = (sizeof(shared) + 127) / 128 * 128 };
};

/* KEYS: a separate kernel for steps that compute a key state, because it needs more registers. */
template <int DIM, int STRIPS, int UNITS, bool I8, bool KEYS>
static __global__ void __launch_bounds__(STEP_THREADS, 1) decode_step_kernel(const __grid_constant__ step_task t) {
/* Older GPUs have no clusters; decode_step_fits refuses them. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    using shared_memory = step_shared<DIM, STRIPS, UNITS>;
    extern __shared__ __align__(128) unsigned char memory[];
    shared_memory &shared = *(shared_memory *)memory;
    step_ring ring = {shared_address(memory + step_memory<DIM, STRIPS, UNITS>::RING),
                      shared_address(shared.full),
                      shared_address(shared.empty),
                      t.capacity,
                      0,
                      0,
                      0};
    if (threadIdx.x < RING_STAGES)
        barrier_init(&shared.full[threadIdx.x], 1), barrier_init(&shared.empty[threadIdx.x], STEP_WARPS);
    if (threadIdx.x < 3) barrier_init(&shared.signals[threadIdx.x], 1);
    if (threadIdx.x < STREAM_BUFFERS) barrier_init(&shared.gathered[threadIdx.x], 1);
    if (threadIdx.x < RING_STAGES) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    step_cluster_barrier();
    if (threadIdx.x >= STEP_CONSUMER_THREADS + 32) {
        step_wait_kernels();
        step_exchange_warp<DIM, STRIPS, UNITS, I8>{
            shared, t.exchange_buffer, 0, (int)threadIdx.x / 32 - STEP_WARPS - 1}.run(t);
    } else if (threadIdx.x >= STEP_CONSUMER_THREADS) {
        step_producer<DIM, STRIPS, UNITS, I8>{t, ring, 0, 0, 0, 0, 0, 0, NULL, 0, 0}.produce();
    } else {
        step_wait_kernels();
        for (int i = blockIdx.x * STEP_CONSUMER_THREADS + threadIdx.x;
             i < t.exchanges * step_sizes<DIM, STRIPS, UNITS, I8>::P; i += gridDim.x * STEP_CONSUMER_THREADS)
            t.next_exchange_buffer[i] = 0;
        int warp = threadIdx.x / 32, rank = blockIdx.x % STEP_CLUSTER;
        step_consumer<DIM, STRIPS, UNITS, I8> consumer = {
            {t,
             shared,
             ring,
             (int)threadIdx.x % 32,
             warp,
             rank,
             step_peer_address(shared_address(memory), warp),
             step_units(t.f, blockIdx.x, gridDim.x),
             0,
             t.exchange_buffer,
             0,
             false,
             false,
             {},
             step_units_begin(t.f, blockIdx.x, gridDim.x) % STEP_BLOCK / 8,
             0.0f},
            {shared_address(shared.keys + warp % step_attention<DIM>::WARPS * 16 * step_attention<DIM>::ROW)},
            (int)blockIdx.x / STEP_CLUSTER,
            (int)gridDim.x / STEP_CLUSTER,
            0,
            0,
            0.0f,
            0};
        consumer.template run<KEYS>();
    }
    __syncwarp();
    step_cluster_barrier(); /* no block ends while others may still write to its shared memory */
#endif
}

/* ---- the table of kernels ---- */

struct step_kernel {
    int dim, strips, units; /* units: of a block, or eight less; 0: any number up to UNITS_MAX */
    const void *kernel[2]; /* the second also gives a key state */
    size_t shared;             /* bytes before the ring */
    int (*largest)(int units); /* bytes of a stage */
    int64_t (*layer)(int heads, int f, bool fuses, int blocks);
    int64_t (*mlp)(int first, int block);
};
template <int DIM, int STRIPS, int UNITS, bool I8> static int largest_stage(int units) {
    using sizes = step_sizes<DIM, STRIPS, UNITS, I8>;
    int product = max(sizes::stage_tiles(sizes::QKV_TILES), sizes::GATE_STAGE) * sizes::TILE + sizes::NORM;
    int head = sizes::HEAD_TILES * sizes::TILE + sizes::NORM;
    return max(max(product, head), max((int)sizes::OUTPUT, sizes::DOWN_STAGE * sizes::down(units, UNITS ? 2 : 3)));
}
template <int DIM, int STRIPS, int UNITS, bool I8 = false> static constexpr step_kernel decode_step_entry() {
    return {DIM,
            STRIPS,
            UNITS,
            {(const void *)decode_step_kernel<DIM, STRIPS, UNITS, I8, false>,
             (const void *)decode_step_kernel<DIM, STRIPS, UNITS, I8, true>},
            (size_t)step_memory<DIM, STRIPS, UNITS>::RING,
            largest_stage<DIM, STRIPS, UNITS, I8>,
            step_sizes<DIM, STRIPS, UNITS, I8>::layer,
            step_sizes<DIM, STRIPS, UNITS, I8>::mlp};
}
/* Those for weights of 8 bits (decode_step_i8_cuda.cu). */
enum { DECODE_STEP_KERNELS_I8 = 6 };
extern const step_kernel decode_step_kernels_i8[DECODE_STEP_KERNELS_I8];
