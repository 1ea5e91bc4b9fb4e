/* attend_cuda.cu -- selects the path (decode, wgmma or reference) for a call of attention, and launches its kernels. */
#include "kernels/attention/attend_decode.cuh"
#include "kernels/attention/attend_reference.cuh"
#include "kernels/attention/attend_wgmma_forward.cuh"
#include "kernels/attention/backward/persistent_dkv.cuh"
#include "kernels/attention/backward/persistent_dq.cuh"
#include "kernels/attention/window/window_cuda.cuh"
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/cuda/tile_maps.cuh"

bool tile_matrix_of(tile_matrix *out, struct mat m, int box, bool hopper) {
    if (m.type != DTYPE_BF16 || !vectors_fit(m) || m.rows >= INT32_MAX) return false;
    *out = {{}, (const bf16 *)m.data, m.stride, (int)m.rows, box};
    return !hopper || tile_map_of(&out->map, m, box, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

static bool attend_wgmma_matrix_fits(struct mat m) {
    return m.type == DTYPE_BF16 && vectors_fit(m);
}
/* Whether the wgmma path takes these rows and keys. */
static bool attend_wgmma_shape_fits(struct device *dev, const struct attend_task *t) {
    if (device_cuda_architecture(dev) < 80 || t->n <= DECODE_ROWS || (t->dim != 64 && t->dim != 128)) return false;
    /* A tile of keys must not cross the ring's end. */
    if (t->window_mode) return t->first + t->length <= t->ring || t->ring % TILE == 0;
    return t->blocks > 0 && t->live_rows <= TILE && t->k >= 1 && t->k <= ATTEND_LIST_MAX;
}

template <typename... Parameters, typename... Arguments>
static void attend_wgmma_launch(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, int bytes,
                                Arguments... arguments) {
    cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    launch(dev, op, kernel, grid, WARPGROUP, (size_t)bytes, arguments...);
}

static int64_t attend_query_tiles(const struct attend_task *t) {
    return t->window_mode ? t->n / t->length * blocks_for(window_lead(*t) + t->length, TILE) : t->blocks;
}
static int attend_key_box(const struct attend_task *t) {
    return t->window_mode ? TILE : t->live_rows;
}

template <int DIM, int STAGES, int RESIDENT>
static void attend_wgmma_forward_launch(struct device *dev, const char *op, const struct attend_task *t,
                                        const attend_operands &m, const tile_matrix (&maps)[3], bool partial) {
    auto kernel = attend_wgmma_forward<FORWARD_CHUNKS, DIM, STAGES, RESIDENT>;
    if (t->window_mode)
        kernel = attend_wgmma_forward<FORWARD_WINDOW, DIM, STAGES, RESIDENT>;
    else if (partial)
        kernel = attend_wgmma_forward<FORWARD_PARTIAL, DIM, STAGES, RESIDENT>;
    else if (t->null_key && t->live_rows == TILE - 1)
        kernel = attend_wgmma_forward<FORWARD_ZERO_ROW, DIM, STAGES, RESIDENT>;
    else if (t->null_key && t->live_rows == TILE)
        kernel = attend_wgmma_forward<FORWARD_NULL_KEY, DIM, STAGES, RESIDENT>;
    attend_wgmma_launch(dev, op, kernel, dim3((unsigned)attend_query_tiles(t), (unsigned)t->heads),
                        key_reader<false, DIM, STAGES, 1>::BYTES, maps[0], maps[1], maps[2], *t, rows_of<bf16>(m.o),
                        m.lse);
}

/* False: this path does not take the call. */
static bool attend_wgmma(struct device *dev, const char *op, const struct attend_task *t, const attend_operands &m,
                         bool partial) {
    tile_matrix maps[3];
    bool hopper = device_cuda_hopper(dev);
    if (!attend_wgmma_shape_fits(dev, t) || !attend_wgmma_matrix_fits(m.o) || m.lse.plane > UINT32_MAX / 4 ||
        !tile_matrix_of(&maps[0], m.q, TILE, hopper) || !tile_matrix_of(&maps[1], m.k, attend_key_box(t), hopper) ||
        !tile_matrix_of(&maps[2], m.v, attend_key_box(t), hopper))
        return false;
    if (t->dim == 64)
        attend_wgmma_forward_launch<64, 2, 4>(dev, op, t, m, maps, partial);
    else
        attend_wgmma_forward_launch<128, 2, 2>(dev, op, t, m, maps, partial);
    return true;
}

static bool attend_head_vectors(struct mat m, int dim) {
    return vectors_fit(m) && dim % 8 == 0;
}

/* How a call of the decode path is divided. A tile of rows must read the same slots, so with several blocks a tile is
 * one row. */
static decode_shape attend_decode_shape(const struct attend_task *t, bool hopper) {
    decode_shape f;
    int most = decode_warps(hopper, t->dim);
    int64_t keys = t->live_rows, rows = t->n < DECODE_ROWS ? t->n : (int64_t)DECODE_ROWS;
    f.rows = t->window_mode || t->blocks == 1 ? (int)rows : 1;
    if (t->window_mode) keys = t->first + t->n < t->window + rows ? t->first + t->n : t->window + rows;
    int64_t warps = blocks_for(keys, DECODE_KEYS * (hopper && t->window_mode ? DECODE_CLUSTER : 1));
    f.warps = warps < most ? (int)warps : most;
    f.units = t->window_mode ? (int)blocks_for(keys, f.warps * DECODE_KEYS) : t->k;
    f.groups = hopper ? 1 : most / f.warps;
    f.ranks = !hopper || f.units < 1 ? 1 : f.units < DECODE_CLUSTER ? f.units : (int)DECODE_CLUSTER;
    return f;
}
template <bool WINDOW, int DIM>
static void attend_decode_launch(struct device *dev, const char *op, const struct attend_task *t,
                                 const attend_views<bf16> &m, decode_shape f) {
    dim3 grid((unsigned)f.ranks, (unsigned)t->heads, (unsigned)blocks_for(t->n, f.rows));
    if (f.bytes(DIM) > 48 * 1024)
        cudaFuncSetAttribute((const void *)attend_decode_forward<WINDOW, DIM>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, DECODE_BYTES_MAX);
    launch_clusters(dev, op, attend_decode_forward<WINDOW, DIM>, f.ranks, grid, (unsigned)(f.groups * f.warps * 32),
                    (size_t)f.bytes(DIM), *t, m, f);
}
/* With more rows the wgmma path is faster (rows of several blocks are tiles of one row here). Chunk attention always
 * takes the wgmma path, so that a chunk has the same bits alone and in a batch. */
static int attend_decode_rows_max(const struct attend_task *t, bool hopper) {
    if (!hopper) return DECODE_ROWS;
    return t->window_mode ? 32 : t->slot && t->blocks == 1 ? 64 : (int)DECODE_ROWS;
}
/* False: this path does not take the call. */
static bool attend_decode(struct device *dev, const char *op, const struct attend_task *t, const attend_operands &in,
                          bool partial) {
    bool hopper = device_cuda_hopper(dev);
    if (t->n > attend_decode_rows_max(t, hopper) || in.lse.data || partial || (t->dim != 64 && t->dim != 128) ||
        device_cuda_architecture(dev) < 80 || (t->window_mode && t->length != t->n) ||
        (!t->window_mode && t->live_rows > DECODE_KEYS * decode_warps(hopper, t->dim)) ||
        !attend_wgmma_matrix_fits(in.o) || !attend_wgmma_matrix_fits(in.q) || !attend_wgmma_matrix_fits(in.k) ||
        !attend_wgmma_matrix_fits(in.v))
        return false;
    decode_shape f = attend_decode_shape(t, hopper);
    while (f.rows > 1 && f.bytes(t->dim) > DECODE_BYTES_MAX)
        f.rows /= 2;
    if (f.bytes(t->dim) > DECODE_BYTES_MAX) return false;
    attend_views<bf16> m = {
        rows_of<bf16>(in.o), rows_of<bf16>(in.q), rows_of<bf16>(in.k), rows_of<bf16>(in.v), {}, false, true};
    if (t->window_mode && t->dim == 64)
        attend_decode_launch<true, 64>(dev, op, t, m, f);
    else if (t->window_mode)
        attend_decode_launch<true, 128>(dev, op, t, m, f);
    else if (t->dim == 64)
        attend_decode_launch<false, 64>(dev, op, t, m, f);
    else
        attend_decode_launch<false, 128>(dev, op, t, m, f);
    return true;
}

template <typename T, int ACC>
static void attend_reference_launch(struct device *dev, const char *op, const struct attend_task *t,
                                    const attend_views<T> &m) {
    dim3 grid((unsigned)t->n, (unsigned)t->heads);
    if (t->window_mode)
        launch(dev, op, attend_reference_forward<true, T, ACC>, grid, REFERENCE_THREADS, 0, *t, m);
    else
        launch(dev, op, attend_reference_forward<false, T, ACC>, grid, REFERENCE_THREADS, 0, *t, m);
}

template <typename T>
static void attend_reference(struct device *dev, const char *op, const struct attend_task *t, const attend_operands &in,
                             bool partial) {
    bool vectors = attend_head_vectors(in.k, t->dim) && attend_head_vectors(in.v, t->dim);
    attend_views<T> m = {rows_of<T>(in.o), rows_of<T>(in.q), rows_of<T>(in.k), rows_of<T>(in.v),
                         in.lse,           partial,          vectors};
    assert(t->dim <= REFERENCE_DIM_MAX);
    if (t->dim <= 64)
        attend_reference_launch<T, 2>(dev, op, t, m);
    else if (t->dim <= 128)
        attend_reference_launch<T, 4>(dev, op, t, m);
    else
        attend_reference_launch<T, 16>(dev, op, t, m);
}

void attend_cuda_forward(struct device *dev, const char *op, const struct attend_task *t, const attend_operands &m,
                         bool partial) {
    if (t->n == 0 || attend_decode(dev, op, t, m, partial) || attend_wgmma(dev, op, t, m, partial)) return;
    if (m.q.type == DTYPE_F32)
        attend_reference<float>(dev, op, t, m, partial);
    else
        attend_reference<bf16>(dev, op, t, m, partial);
}

/* dweight[entry] = the sum over rows and heads of delta; `more`: added to dweight. A thread block is one entry. */
static __global__ void __launch_bounds__(128)
    attend_reference_dweight(attend_task t, const float2 *stat, float *dweight, bool more) {
    __shared__ float shared[128 / 32];
    int64_t block = blockIdx.x / t.k;
    int i = blockIdx.x % t.k;
    float sum = 0.0f;
    int64_t begin = block_begin(t, block), rows = block_begin(t, block + 1) - begin;
    if (block_slot(t, block, i) >= 0)
        for (int head = 0; head < t.heads; head++)
            for (int64_t r = threadIdx.x; r < rows; r += 128)
                sum += stat[stat_index(t, head, i, begin + r)].y;
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) dweight[blockIdx.x] = more ? dweight[blockIdx.x] + sum : sum;
}

struct attend_backward_scratch {
    float2 *stat;
    inverse_entry *entries;
    int *counter;        /* of persistent_dkv's key tiles */
    float *part_dweight; /* [blocks*k, heads] */
    bool more;           /* dweight has the sum of other heads */
};
/* Bytes of scratch for a head. */
static size_t attend_stat_bytes(const struct attend_task *t) {
    return (size_t)t->k * (size_t)t->stat_rows * sizeof(float2);
}
static size_t attend_dweight_bytes(const struct attend_task *t, const struct attend_gradients *g) {
    return g->dweight ? (size_t)t->blocks * (size_t)t->k * sizeof(float) : 0;
}
enum { ATTEND_STAT_PADDING = TILE * sizeof(float2) }; /* after the last head's rows, since tiles are read whole */

/* After dq, before dkv: dweight, and the lists that dkv reads. */
static void attend_between_passes(struct device *dev, const char *op, const struct attend_task *t,
                                  const struct attend_gradients *g, const attend_backward_scratch &scratch) {
    int64_t entries = (int64_t)t->blocks * t->k;
    if (g->dweight)
        launch(dev, op, attend_wgmma_dweight, (unsigned)blocks_for(entries, 128), 128, 0, *t, scratch.part_dweight,
               g->dweight, scratch.more);
    if (g->inverse.begin)
        launch(dev, op, attend_wgmma_entries, (unsigned)blocks_for(entries, 128), 128, 0, *t, g->inverse,
               scratch.entries, scratch.counter);
}
static query_gradients attend_query_gradients(const struct attend_gradients *g,
                                              const attend_backward_scratch &scratch) {
    return {rows_of<bf16>(g->dq), scratch.stat, g->dweight ? scratch.part_dweight : nullptr};
}

/* Chunk attention, whose slots have one reader, is no faster with persistent blocks. */
static bool attend_persistent_fits(struct device *dev, const struct attend_task *t, const struct attend_gradients *g) {
    return device_cuda_hopper(dev) && !t->window_mode && t->dim == TILE && g->inverse.begin;
}
static void attend_persistent_backward(struct device *dev, const char *op, const struct attend_task *t,
                                       const struct attend_gradients *g, const attend_backward_inputs &in,
                                       const attend_backward_scratch &scratch, const backward_maps &maps) {
    auto pass = [&](auto kernel, int bytes, auto tiles, auto... arguments) {
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        launch(dev, op, kernel, (unsigned)device_cuda_processors(dev), dim3(WARPGROUP, PERSISTENT_CONSUMERS + 1),
               (size_t)bytes, tiles, *t, arguments...);
    };
    bool masks = t->live_rows < TILE && !t->null_key;
    pass(masks ? persistent_dq<true> : persistent_dq<false>, DQ_BYTES, dq_maps{maps.q, maps.dout, maps.k, maps.v},
         attend_query_gradients(g, scratch), in.lse);
    attend_between_passes(dev, op, t, g, scratch);
    auto dkv = [&](auto kernel, auto dk, auto dv) {
        pass(kernel, DKV_BYTES, maps, dk, dv, g->inverse.begin, scratch.entries, scratch.stat, g->accumulate,
             (int)g->inverse.slots, scratch.counter);
    };
    if (g->dk.type == DTYPE_F32)
        dkv(persistent_dkv<float>, rows_of<float>(g->dk), rows_of<float>(g->dv));
    else
        dkv(persistent_dkv<bf16>, rows_of<bf16>(g->dk), rows_of<bf16>(g->dv));
}

template <bool WINDOW, int DIM, int DQ_STAGES, int DQ_RESIDENT, int STAGES, int RESIDENT>
static void attend_wgmma_backward_launch(struct device *dev, const char *op, const struct attend_task *t,
                                         const struct attend_gradients *g, const attend_backward_inputs &in,
                                         const attend_backward_scratch &scratch, const backward_maps &maps) {
    rows<bf16> o = in.o.data ? rows_of<bf16>(in.o) : rows<bf16>{nullptr, 0};
    bool masks = !WINDOW && t->live_rows < TILE && !t->null_key;
    attend_wgmma_launch(
        dev, op,
        masks ? attend_wgmma_dq<WINDOW, !WINDOW, DIM, DQ_STAGES, DQ_RESIDENT>
              : attend_wgmma_dq<WINDOW, false, DIM, DQ_STAGES, DQ_RESIDENT>,
        dim3((unsigned)attend_query_tiles(t), (unsigned)t->heads), key_reader<WINDOW, DIM, DQ_STAGES, 2>::BYTES, maps.q,
        maps.dout, maps.k, maps.v, *t,
        attend_query_gradients(g, scratch), in.lse, o, rows_of<bf16>(in.dout));
    attend_between_passes(dev, op, t, g, scratch);
    const int32_t *begin = WINDOW ? nullptr : g->inverse.begin;
    dim3 grid((unsigned)(begin ? g->inverse.slots : attend_query_tiles(t)), (unsigned)t->heads);
    auto dkv = [&](auto kernel, auto dk, auto dv) {
        attend_wgmma_launch(dev, op, kernel, grid, query_reader<WINDOW, DIM, STAGES>::BYTES, maps, *t, dk, dv, begin,
                            scratch.entries, scratch.stat, g->accumulate);
    };
    if (g->dk.type == DTYPE_F32)
        dkv(attend_wgmma_dkv<WINDOW, float, DIM, STAGES, RESIDENT>, rows_of<float>(g->dk), rows_of<float>(g->dv));
    else
        dkv(attend_wgmma_dkv<WINDOW, bf16, DIM, STAGES, RESIDENT>, rows_of<bf16>(g->dk), rows_of<bf16>(g->dv));
}

/* Gradients are written two numbers at a time. */
static bool attend_pairs_fit(struct mat m) {
    return (uintptr_t)m.data % 8 == 0 && m.stride % 2 == 0;
}

static bool attend_wgmma_backward(struct device *dev, const char *op, const struct attend_task *t,
                                  const struct attend_gradients *g, const attend_backward_inputs &in,
                                  const attend_backward_scratch &scratch) {
    backward_maps maps = {};
    bool hopper = device_cuda_hopper(dev), narrow = g->dk.type == DTYPE_BF16;
    if (!attend_wgmma_shape_fits(dev, t) || in.lse.plane > UINT32_MAX / 4 || in.lse.row > UINT32_MAX / 32 ||
        t->k * t->stat_rows > UINT32_MAX || !attend_wgmma_matrix_fits(g->dq) ||
        (in.o.data && !attend_wgmma_matrix_fits(in.o)) || !attend_pairs_fit(g->dk) || !attend_pairs_fit(g->dv) ||
        !tile_matrix_of(&maps.q, in.q, TILE, hopper) || !tile_matrix_of(&maps.dout, in.dout, TILE, hopper) ||
        !tile_matrix_of(&maps.k, in.k, attend_key_box(t), hopper) ||
        !tile_matrix_of(&maps.v, in.v, attend_key_box(t), hopper) ||
        (narrow && (!tile_matrix_of(&maps.dk, g->dk, attend_key_box(t), hopper) ||
                    !tile_matrix_of(&maps.dv, g->dv, attend_key_box(t), hopper))))
        return false;
    if (window_cuda_backward(dev, op, t, g, in, maps)) return true;
    if (t->window_mode && t->dim == 64)
        attend_wgmma_backward_launch<true, 64, 3, 3, 3, 3>(dev, op, t, g, in, scratch, maps);
    else if (t->window_mode)
        attend_wgmma_backward_launch<true, 128, 2, 2, 2, 2>(dev, op, t, g, in, scratch, maps);
    else if (attend_persistent_fits(dev, t, g))
        attend_persistent_backward(dev, op, t, g, in, scratch, maps);
    else if (t->dim == 64)
        attend_wgmma_backward_launch<false, 64, 3, 3, 3, 3>(dev, op, t, g, in, scratch, maps);
    else
        attend_wgmma_backward_launch<false, 128, 2, 2, 2, 2>(dev, op, t, g, in, scratch, maps);
    return true;
}

template <bool WINDOW, typename T, int ACC>
static void attend_reference_backward_launch(struct device *dev, const char *op, const struct attend_task *t,
                                             const struct attend_gradients *g, const attend_backward_views<T> &m) {
    int64_t slots = g->inverse.begin ? g->inverse.slots : t->blocks, keys = WINDOW ? t->n : slots * t->live_rows;
    launch(dev, op, attend_reference_dq<WINDOW, T, ACC>, dim3((unsigned)t->n, (unsigned)t->heads), REFERENCE_THREADS, 0,
           *t, m);
    dim3 grid((unsigned)blocks_for(keys, REFERENCE_WARPS), (unsigned)t->heads);
    if (g->dk.type == DTYPE_F32)
        launch(dev, op, attend_reference_dkv<WINDOW, T, float, ACC>, grid, REFERENCE_THREADS, 0, *t, m,
               rows_of<float>(g->dk), rows_of<float>(g->dv), g->inverse, g->accumulate, keys);
    else
        launch(dev, op, attend_reference_dkv<WINDOW, T, bf16, ACC>, grid, REFERENCE_THREADS, 0, *t, m,
               rows_of<bf16>(g->dk), rows_of<bf16>(g->dv), g->inverse, g->accumulate, keys);
}

template <typename T>
static void attend_reference_backward(struct device *dev, const char *op, const struct attend_task *t,
                                      const struct attend_gradients *g, const attend_backward_inputs &in,
                                      float2 *stat) {
    bool vectors = attend_head_vectors(in.k, t->dim) && attend_head_vectors(in.v, t->dim);
    rows<T> o = in.o.data ? rows_of<T>(in.o) : rows<T>{nullptr, 0};
    attend_backward_views<T> m = {
        rows_of<T>(g->dq),          rows_of<T>(in.dout), o,    rows_of<T>(in.q), rows_of<T>(in.k), rows_of<T>(in.v),
        in.lse, stat, vectors};
    assert(t->dim <= REFERENCE_DIM_MAX);
    if (t->window_mode && t->dim <= 128)
        attend_reference_backward_launch<true, T, 4>(dev, op, t, g, m);
    else if (t->window_mode)
        attend_reference_backward_launch<true, T, 16>(dev, op, t, g, m);
    else if (t->dim <= 128)
        attend_reference_backward_launch<false, T, 4>(dev, op, t, g, m);
    else
        attend_reference_backward_launch<false, T, 16>(dev, op, t, g, m);
}

/* Backward of t->heads heads. `more`: dweight has the sum over earlier heads. */
static void attend_backward_heads(struct device *dev, const char *op, const struct attend_task *t,
                                  const struct attend_gradients *g, const attend_backward_inputs &in, bool more) {
    size_t entries = (size_t)t->blocks * (size_t)t->k,
           entry_bytes = g->inverse.begin ? (entries + 1) * sizeof(inverse_entry) : 0;
    size_t stats = (size_t)t->heads * attend_stat_bytes(t) + ATTEND_STAT_PADDING;
    stats = (stats + 255) / 256 * 256;
    unsigned char *memory =
        (unsigned char *)device_cuda_scratch(dev, stats + entry_bytes + (size_t)t->heads * attend_dweight_bytes(t, g));
    inverse_entry *list = (inverse_entry *)(memory + stats);
    attend_backward_scratch scratch = {(float2 *)memory, list, (int *)(list + entries),
                                       (float *)(memory + stats + entry_bytes), more};
    if (attend_wgmma_backward(dev, op, t, g, in, scratch)) return;
    if (in.q.type == DTYPE_F32)
        attend_reference_backward<float>(dev, op, t, g, in, scratch.stat);
    else
        attend_reference_backward<bf16>(dev, op, t, g, in, scratch.stat);
    if (g->dweight)
        launch(dev, op, attend_reference_dweight, (unsigned)entries, 128, 0, *t, scratch.stat, g->dweight, more);
}

/* How many heads at a time fit the scratch memory; 0: not even one. In window mode all heads or none, since the slope
 * depends on the head's number. */
static int attend_heads_at_once(struct device *dev, const struct attend_task *t, const struct attend_gradients *g) {
    int64_t each = (int64_t)(attend_stat_bytes(t) + attend_dweight_bytes(t, g)),
            fixed = ATTEND_STAT_PADDING + 256 + ((int64_t)t->blocks * t->k + 1) * (int64_t)sizeof(inverse_entry),
            capacity = (int64_t)device_cuda_scratch_bytes(dev) - fixed;
    return each * t->heads <= capacity ? t->heads : t->window_mode || each > capacity ? 0 : (int)(capacity / each);
}

static struct mat attend_columns(struct mat m, int64_t first, int64_t cols) {
    if (m.data) m.data = (unsigned char *)m.data + first * dtype_bytes(m.type);
    m.cols = cols;
    return m;
}

void attend_cuda_backward(struct device *dev, const char *op, const struct attend_task *task,
                          const struct attend_gradients *g, struct mat dout, const attend_operands &m) {
    struct attend_task t = *task;
    if (t.n == 0) return;
    t.stat_rows = stat_first(t.n, t.window_mode ? t.n / t.length : t.blocks) + 2;
    int most = attend_heads_at_once(dev, &t, g);
    if (most == 0) device_cuda_fault(dev, op, "too many rows at once");
    for (int first = 0; most && first < task->heads; first += most) {
        t.heads = task->heads - first < most ? task->heads - first : most;
        auto part = [&](struct mat x) { return attend_columns(x, (int64_t)first * t.dim, (int64_t)t.heads * t.dim); };
        struct attend_gradients to = {part(g->dq), part(g->dk), part(g->dv), g->dweight, g->accumulate, g->inverse};
        attend_lse lse = m.lse;
        lse.data += first * lse.head;
        attend_backward_inputs in = {part(dout), part(m.o), lse, part(m.q), part(m.k), part(m.v)};
        attend_backward_heads(dev, op, &t, &to, in, first > 0);
    }
}
