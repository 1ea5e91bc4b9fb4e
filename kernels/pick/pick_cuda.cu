/* pick_cuda.cu -- pick.h on a GPU: a cluster of eight thread blocks a row (four if there are many rows); before Hopper
 * one block.
 *
 *   block      a slice of the vocabulary, in shared memory: orders of the logits as they count (pick_rule.h; 0: not
 *              there), units
 *   warp       consecutive pieces of the slice, so that sums of warps are in the order of ids
 *   lane       of each piece of 128 ids four side by side: one access of 16 bytes
 *   exchange   a block's sums are sent to every block of the cluster (pick_block.cuh, messages)
 *
 * Greedy: the maximum, one exchange. Else the sum of units, and the id that a draw falls on; with top-p the sum before
 * it, two more exchanges. A log-probability joins these exchanges. Top-k first finds the smallest of its logits, four
 * bits of their order with each exchange, until the ids that reach it are k; among equal ones by id. All sums are of
 * integers. Without enough shared memory (a large vocabulary, or a GPU before Hopper) slices are in the device's
 * scratch.
 *
 * Bound by exchanges and by loops over few pieces a warp. */
#include "kernels/pick/pick_block.cuh"

template <int ROWS> struct pick_arguments {
    struct pick_row rows[ROWS];
    int64_t vocab, slice; /* slice: a multiple of PICK_PIECE */
    int cluster;
    uint32_t *spill; /* [rows, cluster, 2, slice]; NULL: shared memory */
};

template <int ROWS>
static __global__ void __launch_bounds__(PICK_THREADS, 2) pick_kernel(const __grid_constant__ pick_arguments<ROWS> a) {
    extern __shared__ __align__(16) uint32_t pick_memory[];
    __shared__ struct pick_shared shared;
    const int rank = (int)blockIdx.x % a.cluster, warp = (int)threadIdx.x / 32;
    uint32_t *slice = a.spill ? a.spill + 2 * (int64_t)blockIdx.x * a.slice : pick_memory;
    const int lane = (int)threadIdx.x % 32, pieces = (int)(a.slice / PICK_PIECE);
    const int begin = (int)(rank * a.slice), from = warp * pieces / PICK_WARPS;
    launch_next(); /* the next step may load weights meanwhile */
    const struct pick_row &row = a.rows[blockIdx.x / (unsigned)a.cluster];
    if (threadIdx.x == 0) {
        shared.listed = 0;
        pick_open(&shared);
        shared.random = pick_random(row.rule.seed, row.rule.number, 0);
    }
    pick_arrive();
    launch_wait();
    uint4 *orders = (uint4 *)slice + 32 * from + lane;
    pick_block block = {row,
                        shared,
                        orders,
                        orders + a.slice / 4,
                        begin + from * PICK_PIECE + 4 * lane,
                        (int)a.vocab,
                        (warp + 1) * pieces / PICK_WARPS - from,
                        lane,
                        warp,
                        rank,
                        a.cluster,
                        0,
                        0};
    block.run(slice, begin, a.slice);
}

template <int ROWS> static void pick_launch(struct device *dev, const struct pick_row *rows, int n, int64_t vocab) {
    static_assert(sizeof(pick_arguments<ROWS>) < 32000, "kernel parameters");
    pick_arguments<ROWS> a = {};
    for (int i = 0; i < n; i++)
        a.rows[i] = rows[i];
    a.cluster = device_cuda_architecture(dev) < 90 ? 1 : n <= PICK_FEW ? PICK_CLUSTER : PICK_CLUSTER / 2;
    a.vocab = vocab;
    a.slice = blocks_for(vocab, (int64_t)a.cluster * PICK_PIECE) * PICK_PIECE;
    size_t bytes = 2 * (size_t)a.slice * sizeof(uint32_t);
    if (bytes + sizeof(struct pick_shared) > (size_t)device_cuda_shared_bytes(dev)) {
        a.spill = (uint32_t *)device_cuda_scratch(dev, bytes * (size_t)(n * a.cluster));
        bytes = 0;
    }
    (void)cudaFuncSetAttribute(pick_kernel<ROWS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = (unsigned)a.cluster;
    attributes[1].val.clusterDim.y = 1, attributes[1].val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)(n * a.cluster)), config.blockDim = dim3(PICK_THREADS);
    config.dynamicSmemBytes = bytes, config.stream = device_cuda_stream(dev);
    config.attrs = attributes, config.numAttrs = device_cuda_architecture(dev) >= 90 ? 2 : 0;
    (void)cudaLaunchKernelEx(&config, pick_kernel<ROWS>, a);
    device_cuda_check(dev, "pick");
}

static void pick_rows(struct device *dev, const struct pick_row *rows, int n, int64_t vocab) {
    /* a warp counts up to 65,535 ids */
    assert(n >= 1 && n <= PICK_ROWS_MAX && vocab > 0 && vocab <= 65535 / 32 * (int64_t)PICK_THREADS);
    for (int i = 0; i < n; i++)
        assert(rows[i].n_best <= PICK_BEST_MAX && (!rows[i].seen || rows[i].seen_rows > rows[i].rule.repeat_last));
    if (n == 1)
        pick_launch<1>(dev, rows, n, vocab);
    else
        pick_launch<PICK_ROWS_MAX>(dev, rows, n, vocab);
}

extern "C" const struct pick_ops pick_cuda = {.rows = pick_rows};
