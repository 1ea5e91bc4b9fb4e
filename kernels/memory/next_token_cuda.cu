/* next_token_cuda.cu -- the distribution of the next token on a GPU: two launches.
 *
 *   next_read_kernel   the memories, for which the state is enough (next_token_read.cuh): during the last layers and
 *                      the head of the decode step, on the multiprocessors that the step does not use; or alone, on all
 *   next_mix_kernel    the gate and log p of all ids (next_token_mix.cuh), from the logits and their shares
 *
 * Both are programmatic dependent launches: the blocks of the second are launched while the first runs. What an id
 * waits for after the decode step is the second kernel: its loads, the gate and the write of log p.
 *
 * Columns of both sides are one range. Up to OVERLAP_BYTES of keys for each free multiprocessor are read during the
 * decode step. More would take longer there than all multiprocessors need after it. */
#include "kernels/memory/next_token_mix.cuh"
#include "kernels/memory/next_token_read.cuh"

enum { OVERLAP_BLOCKS_MIN = 4, OVERLAP_BYTES = 2 << 20, SHARE_THREADS = 512 };

/* A block's share of the logits, if no decode step left any. */
static __global__ void __launch_bounds__(SHARE_THREADS) next_share_kernel(logit_share *shares, const float *logits,
                                                                          int vocab) {
    __shared__ logit_share of_warp[SHARE_THREADS / 32];
    const int begin = (int)((int64_t)vocab * blockIdx.x / gridDim.x), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int end = (int)((int64_t)vocab * (blockIdx.x + 1) / gridDim.x);
    logit_share s = logit_share_none();
    for (int v = begin + (int)threadIdx.x; v < end; v += SHARE_THREADS)
        s = logit_share_add(s, logits[v], v);
    s = logit_share_warp(s);
    if (lane == 0) of_warp[warp] = s;
    __syncthreads();
    if (warp > 0) return;
    s = logit_share_warp(lane < SHARE_THREADS / 32 ? of_warp[lane] : logit_share_none());
    if (lane == 0) shares[blockIdx.x] = s;
}

template <typename T> static next_side<T> next_side_of(const next_token_side &from, struct mat state) {
    next_side<T> s = {};
    const token_memory &m = from.memory;
    if (!m.tau) return s;
    s.v = memory_view_of(state, &m, NULL), s.in = memory_sources_of<T>(state, &m);
    s.marks = from.marks, s.w = (float *)from.weights.data, s.p = from.p;
    s.columns = (int)memory_columns(s.v), s.read = from.marks.entries > 0;
    assert(memory_columns(s.v) <= NEXT_COLUMNS_MAX && from.weights.cols == s.columns);
    assert(from.weights.type == DTYPE_F32 && m.slots.blocks <= 1 && m.past.length <= 1);
    return s;
}

static size_t next_rounded(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Blocks that read the memories while the decode step runs; 0: it has ended. */
template <typename T> static int next_overlap(const next_call<T> &c, const struct decode_step_result *step) {
    const int64_t bytes = (int64_t)c.columns * c.d * (int64_t)sizeof(T);
    if (!step->ready || step->idle < OVERLAP_BLOCKS_MIN) return 0;
    const int blocks = step->idle < NEXT_BLOCKS_MAX ? step->idle : NEXT_BLOCKS_MAX;
    return bytes <= (int64_t)blocks * OVERLAP_BYTES ? blocks : 0;
}

/* Sets how the reading kernel with so many blocks uses shared memory. Returns its bytes. */
template <typename T> static size_t next_read_shared(struct device *dev, next_call<T> &c, int blocks) {
    const bool vectors = (c.side[0].columns == 0 || c.side[0].in.vectors) &&
                         (c.side[1].columns == 0 || c.side[1].in.vectors) && c.d * sizeof(T) % 16 == 0;
    const size_t head = read_stages_at(c.d), stage = (size_t)READ_WARPS * READ_GROUP * c.d * sizeof(T);
    const size_t free = (size_t)device_cuda_shared_bytes(dev) - sizeof(read_shared) - 1024 - head; /* 1024: the rest */
    const int64_t rounds = blocks_for(c.columns, (int64_t)blocks * READ_WARPS * READ_GROUP);
    const size_t of_end = 8 * (size_t)c.columns;
    c.alone = c.columns <= ALONE_COLUMNS_MAX && of_end <= free;
    c.stages = 0;
    while (vectors && c.stages < READ_STAGES_MAX && c.stages < rounds && (c.stages + 1) * stage <= free)
        c.stages++;
    const size_t of_stages = c.stages * stage;
    return head + (c.alone && of_end > of_stages ? of_end : of_stages);
}

template <typename T>
static void next_token_launch(struct device *dev, float *log_p, double *g, const struct next_token_task *task) {
    const char *op = "next_token.mix";
    const int blocks = device_cuda_processors(dev) < NEXT_BLOCKS_MAX ? device_cuda_processors(dev) : NEXT_BLOCKS_MAX;
    const size_t row = next_rounded((size_t)task->vocab * sizeof(unsigned long long));
    const size_t head = next_rounded(sizeof(next_exchange));
    const size_t of_shares = next_rounded(NEXT_BLOCKS_MAX * sizeof(logit_share));
    next_call<T> c = {};
    for (int i = 0; i < MEMORY_SIDES; i++) {
        c.side[i] = next_side_of<T>(task->side[i], task->state);
        c.columns += c.side[i].columns;
    }
    const size_t tokens = (size_t)c.columns * sizeof(int32_t), bytes = head + of_shares + MEMORY_SIDES * row + tokens;
    unsigned char *scratch = (unsigned char *)device_cuda_scratch(dev, bytes);
    c.gate = task->gate, c.logits = task->logits, c.state = (const T *)task->state.data;
    c.log_p = log_p, c.g = g, c.append = task->append;
    c.exchange = (next_exchange *)(void *)scratch, c.counts = device_cuda_counters(dev);
    for (int i = 0; i < MEMORY_SIDES; i++)
        c.sums[i] = (unsigned long long *)(void *)(scratch + head + of_shares + (size_t)i * row);
    c.token = (int32_t *)(void *)(scratch + head + of_shares + MEMORY_SIDES * row);
    c.vocab = (int)task->vocab, c.d = (int)task->state.cols;
    c.shares = task->step.shares, c.n_shares = task->step.n_shares;
    const int early = next_overlap(c, &task->step);
    if (!c.shares) {
        logit_share *shares = (logit_share *)(void *)(scratch + head);
        assert(!early);
        c.shares = shares, c.n_shares = blocks;
        launch(dev, op, next_share_kernel, (unsigned)blocks, SHARE_THREADS, 0, shares, c.logits, c.vocab);
    }
    const size_t shared = next_read_shared(dev, c, early ? early : blocks);
    const cudaError_t allowed = cudaFuncSetAttribute((const void *)next_read_kernel<T>,
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (allowed != cudaSuccess) device_cuda_fault(dev, op, cudaGetErrorString(allowed));
    if (early) {
        c.ready = task->step.ready, c.at = task->step.at;
        launch_dependent(dev, op, next_read_kernel<T>, (unsigned)early, READ_THREADS, shared, c);
    } else { /* cooperative: blocks wait for each other */
        void *arguments[] = {&c};
        const cudaError_t error =
            cudaLaunchCooperativeKernel((const void *)next_read_kernel<T>, dim3((unsigned)blocks), dim3(READ_THREADS),
                                        arguments, shared, device_cuda_stream(dev));
        if (error != cudaSuccess) device_cuda_fault(dev, op, cudaGetErrorString(error));
        device_cuda_check(dev, op);
    }
    launch_dependent(dev, op, next_mix_kernel<T>, (unsigned)blocks, MIX_THREADS, 0, c);
}

static void next_token_mix(struct device *dev, float *log_p, double *g, const struct next_token_task *task) {
    assert(task->state.rows == 1 && task->vocab > 0 && task->vocab < INT32_MAX);
    if (task->state.type == DTYPE_F32) next_token_launch<float>(dev, log_p, g, task);
    else if (task->state.type == DTYPE_BF16) next_token_launch<bf16>(dev, log_p, g, task);
    else next_token_launch<__half>(dev, log_p, g, task);
}

extern "C" const struct next_token_ops next_token_cuda = {.mix = next_token_mix};
