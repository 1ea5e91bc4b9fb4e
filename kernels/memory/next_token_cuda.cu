/* next_token_cuda.cu -- the distribution of the next token on a GPU: two launches.
 *
 *   next_read_kernel   the memories, for which the state is enough (next_token_read.cuh): during the last layers and
 *                      the head of the decode step, on the multiprocessors that the step does not use; or alone, on all
 *   next_mix_kernel    the gate and log p of all ids (next_token_mix.cuh), from the logits and their shares
 *
 * Both are programmatic dependent launches: the blocks of the second are launched while the first runs. What an id
 * waits for after the decode step is the second kernel: its loads, the gate and the write of log p. Its blocks take the
 * multiprocessors that the step releases, and wait for counts of step and first kernel, not for their ends.
 *
 * Columns of each side are divided into tiles of eight entries, or of sixteen that have codes. Up to OVERLAP_BYTES of
 * keys, and OVERLAP_ENTRIES, for each free multiprocessor are read during the decode step. More would take longer there
 * than all multiprocessors need after it. */
#include "kernels/memory/next_token_mix.cuh"
#include "kernels/memory/next_token_read.cuh"

enum { OVERLAP_BLOCKS_MIN = 4, OVERLAP_BYTES = 2 << 20, OVERLAP_ENTRIES = 1 << 13 };
enum { SHARE_THREADS = 512, MARKS_THREADS = 256 };

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

/* key: of the state; its data is not read. */
template <typename T> static next_side<T> next_side_of(const next_token_side &from, struct mat key) {
    next_side<T> s = {};
    const token_memory &m = from.memory;
    if (!m.tau) return s;
    s.v = memory_view_of(key, &m, NULL), s.in = memory_sources_of<T>(key, &m);
    s.marks = from.marks, s.found = from.found, s.w = (float *)from.weights.data, s.p = from.p;
    s.columns = (int)memory_columns(s.v);
    s.packed = m.slots.packed;
    s.tiles = (int)blocks_for(s.columns, s.packed.code ? READ_CODES : READ_TILE);
    assert(memory_columns(s.v) <= NEXT_TOKEN_COLUMNS_MAX && from.weights.cols == s.columns);
    assert(from.weights.type == DTYPE_F32 && m.slots.blocks <= 1 && m.past.length <= 1);
    assert(m.slots.keys.rows < INT32_MAX && m.past.ring < INT32_MAX);
    return s;
}

static size_t next_rounded(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Blocks that read the memories while the decode step runs; 0: it has ended. */
template <typename T> static int next_overlap(const next_call<T> &c, const struct decode_step_result *step) {
    int64_t bytes = 0;
    for (int i = 0; i < MEMORY_SIDES; i++)
        bytes += (int64_t)c.side[i].columns * c.d * (c.side[i].packed.code ? 1 : (int64_t)sizeof(T));
    if (!step->ready || step->idle < OVERLAP_BLOCKS_MIN) return 0;
    const int blocks = step->idle < READ_BLOCKS_MAX ? step->idle : READ_BLOCKS_MAX;
    return bytes <= (int64_t)blocks * OVERLAP_BYTES && c.columns <= blocks * OVERLAP_ENTRIES ? blocks : 0;
}

/* Sets how the reading kernel with so many blocks divides its work and shared memory. Returns the latter's bytes. */
template <typename T> static size_t next_read_shared(struct device *dev, next_call<T> &c, int blocks) {
    const size_t free = (size_t)device_cuda_shared_bytes(dev) - sizeof(read_shared) - 1024; /* 1024: static, the rest */
    const int64_t tiles = c.side[0].tiles + c.side[1].tiles, rounds = blocks_for(tiles, (int64_t)blocks * READ_WARPS);
    c.entries = (int)rounds * READ_WARPS * c.tile, c.readers = blocks;
    const size_t head = read_layout_of(c.state_d, c.d, c.tile, c.entries, sizeof(T)).stages;
    assert(head <= free);
    const int each = (int)read_stage_bytes(c.d, sizeof(T)), warp = (int)((free - head) / READ_WARPS / 512 * 512);
    const int most = warp / each < READ_STAGES_MAX ? warp / each : READ_STAGES_MAX;
    c.stages = c.first_stages = !c.tiles ? 0 : rounds < most ? (int)rounds : most;
    c.project_strips = 0, c.stage_bytes = c.stages * each;
    const int strips = c.tiles && c.projection ? c.state_d / READ_STRIP - READ_BATCH : 0;
    const int left = (warp - strips * 512) / each; /* stages beside the projection */
    if (strips > 0 && strips * 512 <= warp && (left >= c.stages || left >= READ_STAGES_MIN)) {
        c.project_strips = strips;
        if (left < c.stages) c.first_stages = left;
        const int used = c.first_stages * each + strips * 512;
        if (used > c.stage_bytes) c.stage_bytes = used;
    }
    return head + (size_t)READ_WARPS * c.stage_bytes;
}

/* Whether the keys of a side are multiplied on the tensor cores. */
template <typename T> static bool next_vectors(const next_side<T> &s, int d) {
    if (s.packed.code) return d % READ_CODE_STRIP == 0 && (uintptr_t)s.packed.code % 16 == 0;
    return !s.columns || s.in.vectors;
}
/* Arguments that the task has. */
template <typename T> static void next_call_fill(next_call<T> &c, const struct next_token_task *task) {
    const struct mat state = task->state, p = task->projection;
    const struct mat key = mat_dense(state.data, state.type, 1, p.data ? p.rows : state.cols);
    assert(!p.data || (p.type == state.type && p.cols == state.cols && p.stride == p.cols));
    for (int i = 0; i < MEMORY_SIDES; i++) {
        c.side[i] = next_side_of<T>(task->side[i], key);
        c.columns += c.side[i].columns;
    }
    c.tile = c.side[0].packed.code || c.side[1].packed.code ? READ_CODES : READ_TILE;
    c.gate = task->gate, c.logits = task->logits, c.state = (const T *)state.data;
    c.projection = (const T *)p.data, c.append = task->append;
    c.vocab = (int)task->vocab, c.state_d = (int)state.cols, c.d = (int)key.cols;
    c.shares = task->step.shares, c.n_shares = task->step.n_shares;
    const bool vectors = sizeof(T) == 2 && (uintptr_t)state.data % 16 == 0;
    c.tiles = vectors && c.d % READ_STRIP == 0 && next_vectors(c.side[0], c.d) && next_vectors(c.side[1], c.d) &&
              (!p.data || (c.state_d % READ_STRIP == 0 && vectors_fit(p)));
}

/* Launches the reading kernel: `early` while the decode step runs. */
template <int M, typename T>
static void next_read_launch(struct device *dev, const next_call<T> &call, size_t shared, bool early) {
    const char *op = "next_token.mix";
    read_call<T, M> c;
    static_cast<next_call<T> &>(c) = call;
    const cudaError_t allowed = cudaFuncSetAttribute((const void *)next_read_kernel<T, M>,
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (allowed != cudaSuccess) device_cuda_fault(dev, op, cudaGetErrorString(allowed));
    if (early) {
        launch_dependent(dev, op, next_read_kernel<T, M>, (unsigned)c.readers, READ_THREADS, shared, c);
        return;
    }
    void *arguments[] = {&c}; /* cooperative: blocks wait for each other */
    const cudaError_t error =
        cudaLaunchCooperativeKernel((const void *)next_read_kernel<T, M>, dim3((unsigned)c.readers),
                                    dim3(READ_THREADS), arguments, shared, device_cuda_stream(dev));
    if (error != cudaSuccess) device_cuda_fault(dev, op, cudaGetErrorString(error));
    device_cuda_check(dev, op);
}

template <typename T>
static void next_token_launch(struct device *dev, float *log_p, double *g, const struct next_token_task *task) {
    const char *op = "next_token.mix";
    const int blocks = device_cuda_processors(dev) < NEXT_BLOCKS_MAX ? device_cuda_processors(dev) : NEXT_BLOCKS_MAX;
    const size_t row = next_rounded((size_t)task->vocab * sizeof(unsigned long long));
    const size_t of_shares = next_rounded(NEXT_BLOCKS_MAX * sizeof(logit_share));
    const size_t of_gate = next_rounded(sizeof(mix_gate)), bytes = of_shares + of_gate + MEMORY_SIDES * row;
    unsigned char *scratch = (unsigned char *)device_cuda_scratch(dev, bytes);
    next_call<T> c = {};
    next_call_fill(c, task);
    c.log_p = log_p, c.g = g;
    c.exchange = (next_exchange *)(void *)device_cuda_counters(dev);
    c.mix = (mix_gate *)(void *)(scratch + of_shares);
    for (int i = 0; i < MEMORY_SIDES; i++)
        c.sums[i] = (unsigned long long *)(void *)(scratch + of_shares + of_gate + (size_t)i * row);
    const int early = next_overlap(c, &task->step);
    if (!c.shares) {
        logit_share *shares = (logit_share *)(void *)scratch;
        assert(!early);
        c.shares = shares, c.n_shares = blocks;
        launch(dev, op, next_share_kernel, (unsigned)blocks, SHARE_THREADS, 0, shares, c.logits, c.vocab);
    }
    const int readers = early ? early : blocks < READ_BLOCKS_MAX ? blocks : READ_BLOCKS_MAX;
    /* blocks of the reading kernel end last */
    const int mixers = early && early < blocks ? blocks - early : blocks;
    c.ids = (int)blocks_for(task->vocab, mixers);
    const size_t shared = next_read_shared(dev, c, readers);
    /* as the step's, so that no multiprocessor changes the division of its memory between them */
    (void)cudaFuncSetAttribute((const void *)next_mix_kernel<T>, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
    if (early) {
        c.ready = task->step.ready, c.at = task->step.at;
        c.done = task->step.done, c.done_at = task->step.done_at;
    }
    if constexpr (sizeof(T) == 4) next_read_launch<READ_PLAIN>(dev, c, shared, early > 0);
    else if (!c.tiles) next_read_launch<READ_PLAIN>(dev, c, shared, early > 0);
    else if (c.tile == READ_CODES) next_read_launch<READ_PACKED>(dev, c, shared, early > 0);
    else next_read_launch<READ_NUMBERS>(dev, c, shared, early > 0);
    if (device_fault(dev) != STATUS_OK) return; /* the mixing kernel would wait for a reader that never ran */
    launch_dependent(dev, op, next_mix_kernel<T>, (unsigned)mixers, MIX_THREADS, 0, c);
}

static void next_token_mix(struct device *dev, float *log_p, double *g, const struct next_token_task *task) {
    assert(task->state.rows == 1 && task->vocab > 0 && task->vocab < INT32_MAX);
    if (task->state.type == DTYPE_F32) next_token_launch<float>(dev, log_p, g, task);
    else if (task->state.type == DTYPE_BF16) next_token_launch<bf16>(dev, log_p, g, task);
    else next_token_launch<__half>(dev, log_p, g, task);
}

static __global__ void __launch_bounds__(MARKS_THREADS)
    next_marks_kernel(memory_marks *out, const int64_t *chunk, const float *score, int k, float tokens) {
    __shared__ int64_t chunks[NEXT_TOKEN_HITS_MAX];
    __shared__ float scores[NEXT_TOKEN_HITS_MAX];
    for (int i = (int)threadIdx.x; i < k; i += MARKS_THREADS)
        chunks[i] = chunk[i], scores[i] = score[i];
    __syncthreads();
    if (threadIdx.x == 0) *out = memory_marks_of(chunks, scores, k, tokens);
}

static void next_token_marks(struct device *dev, struct memory_marks *out, const int64_t *chunk, const float *score,
                             int k, float tokens) {
    assert(k >= 1 && k <= NEXT_TOKEN_HITS_MAX);
    launch(dev, "next_token.marks", next_marks_kernel, 1, MARKS_THREADS, 0, out, chunk, score, k, tokens);
}

extern "C" const struct next_token_ops next_token_cuda = {.mix = next_token_mix, .marks = next_token_marks};
