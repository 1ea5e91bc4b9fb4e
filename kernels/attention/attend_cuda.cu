/* attend_cuda.cu -- picks the kernels for a piece of attention, and launches them. */
#include "kernels/attention/attend_decode.cuh"
#include "kernels/attention/attend_reference.cuh"
#include "kernels/attention/attend_wgmma_dkv.cuh"
#include "kernels/attention/attend_wgmma_dq.cuh"
#include "kernels/attention/attend_wgmma_forward.cuh"
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/cuda/tile_maps.cuh"

bool tile_matrix_of(tile_matrix *out, struct mat m, int box, bool hopper) {
    if (m.type != DTYPE_BF16 || !vectors_fit(m) || m.rows >= INT32_MAX) return false;
    *out = {{}, (const bf16 *)m.data, m.stride, (int)m.rows, box};
    return !hopper || tile_map_of(&out->map, m, box, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

static bool tiles_fit(struct mat m) {
    return m.type == DTYPE_BF16 && vectors_fit(m);
}
/* Whether the tiles of these rows and keys suit the matrix units' kernels. */
static bool tiles_suit(struct device *dev, const struct attend_task *t) {
    if (device_cuda_architecture(dev) < 80 || t->n <= FEW_TILE || (t->dim != 64 && t->dim != 128)) return false;
    /* A tile of keys must not cross the ring's end. */
    if (t->window_mode) return t->first + t->length <= t->ring || t->ring % TILE == 0;
    return t->blocks > 0 && t->live_rows <= TILE && t->k >= 1 && t->k <= ATTEND_LIST_MAX;
}

template <typename... Parameters, typename... Arguments>
static void launch_tiles(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, int bytes,
                         Arguments... arguments) {
    cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    launch(dev, op, kernel, grid, WARPGROUP, (size_t)bytes, arguments...);
}

static int64_t tiles_of(const struct attend_task *t) {
    return t->window_mode ? t->n / t->length * blocks_for(window_lead(*t) + t->length, TILE) : t->blocks;
}
static int key_box(const struct attend_task *t) {
    return t->window_mode ? TILE : t->live_rows;
}

template <bool WINDOW, int DIM, int STAGES, int RESIDENT>
static void forward_launch(struct device *dev, const char *op, const struct attend_task *t, struct mat o,
                           struct mat lse, const tile_matrix (&maps)[3], bool partial) {
    rows<float> sums = {(float *)lse.data, lse.stride};
    launch_tiles(dev, op, forward_tiles<WINDOW, DIM, STAGES, RESIDENT>, dim3((unsigned)tiles_of(t), (unsigned)t->heads),
                 key_reader<WINDOW, DIM, STAGES, 1>::BYTES, maps[0], maps[1], maps[2], *t, rows_of<bf16>(o), sums,
                 partial);
}

static bool forward_by_tiles(struct device *dev, const char *op, const struct attend_task *t, struct mat o,
                             struct mat lse, struct mat q, struct mat k, struct mat v, bool partial) {
    tile_matrix maps[3];
    bool hopper = device_cuda_hopper(dev);
    if (!tiles_suit(dev, t) || !tiles_fit(o) || !tile_matrix_of(&maps[0], q, TILE, hopper) ||
        !tile_matrix_of(&maps[1], k, key_box(t), hopper) || !tile_matrix_of(&maps[2], v, key_box(t), hopper))
        return false;
    if (t->window_mode && t->dim == 64)
        forward_launch<true, 64, 2, 4>(dev, op, t, o, lse, maps, partial);
    else if (t->window_mode)
        forward_launch<true, 128, 2, 2>(dev, op, t, o, lse, maps, partial);
    else if (t->dim == 64)
        forward_launch<false, 64, 2, 4>(dev, op, t, o, lse, maps, partial);
    else
        forward_launch<false, 128, 2, 2>(dev, op, t, o, lse, maps, partial);
    return true;
}

static bool head_vectors(struct mat m, int dim) {
    return vectors_fit(m) && dim % 8 == 0;
}

/* A tile of rows must read the same slots, so with several blocks it is one row. */
static few_shape few_shape_of(const struct attend_task *t, bool hopper) {
    few_shape f;
    int most = few_warps(hopper, t->dim);
    int64_t keys = t->live_rows, rows = t->n < FEW_TILE ? t->n : (int64_t)FEW_TILE;
    f.rows = t->window_mode || t->blocks == 1 ? (int)rows : 1;
    if (t->window_mode) keys = t->first + t->n < t->window + rows ? t->first + t->n : t->window + rows;
    int64_t warps = blocks_for(keys, FEW_KEYS * (hopper && t->window_mode ? FEW_RANKS : 1));
    f.warps = warps < most ? (int)warps : most;
    f.units = t->window_mode ? (int)blocks_for(keys, f.warps * FEW_KEYS) : t->k;
    f.teams = hopper ? 1 : most / f.warps;
    f.ranks = !hopper || f.units < 1 ? 1 : f.units < FEW_RANKS ? f.units : (int)FEW_RANKS;
    return f;
}
template <bool WINDOW, int DIM>
static void few_launch(struct device *dev, const char *op, const struct attend_task *t, const plain_views<bf16> &m,
                       few_shape f) {
    dim3 grid((unsigned)f.ranks, (unsigned)t->heads, (unsigned)blocks_for(t->n, f.rows));
    if (f.bytes(DIM) > 48 * 1024)
        cudaFuncSetAttribute((const void *)few_forward<WINDOW, DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             FEW_BYTES_MAX);
    launch_clusters(dev, op, few_forward<WINDOW, DIM>, f.ranks, grid, (unsigned)(f.teams * f.warps * 32),
                    (size_t)f.bytes(DIM), *t, m, f);
}
/* Beyond, tiles are faster; rows of several blocks go one by one here. A chunk's own attention goes by tiles whether it
 * comes alone or among others: the same bits. */
static int few_rows_max(const struct attend_task *t, bool hopper) {
    if (!hopper) return FEW_TILE;
    return t->window_mode ? 32 : t->slot && t->blocks == 1 ? 64 : (int)FEW_TILE;
}
static bool forward_few(struct device *dev, const char *op, const struct attend_task *t, struct mat o, struct mat lse,
                        struct mat q, struct mat k, struct mat v, bool partial) {
    bool hopper = device_cuda_hopper(dev);
    if (t->n > few_rows_max(t, hopper) || lse.data || partial || (t->dim != 64 && t->dim != 128) ||
        device_cuda_architecture(dev) < 80 || (t->window_mode && t->length != t->n) ||
        (!t->window_mode && t->live_rows > FEW_KEYS * few_warps(hopper, t->dim)) || !tiles_fit(o) || !tiles_fit(q) ||
        !tiles_fit(k) || !tiles_fit(v))
        return false;
    few_shape f = few_shape_of(t, hopper);
    while (f.rows > 1 && f.bytes(t->dim) > FEW_BYTES_MAX)
        f.rows /= 2;
    if (f.bytes(t->dim) > FEW_BYTES_MAX) return false;
    plain_views<bf16> m = {
        rows_of<bf16>(o), rows_of<bf16>(q), rows_of<bf16>(k), rows_of<bf16>(v), nullptr, 0, false, true};
    if (t->window_mode && t->dim == 64)
        few_launch<true, 64>(dev, op, t, m, f);
    else if (t->window_mode)
        few_launch<true, 128>(dev, op, t, m, f);
    else if (t->dim == 64)
        few_launch<false, 64>(dev, op, t, m, f);
    else
        few_launch<false, 128>(dev, op, t, m, f);
    return true;
}

template <typename T, int ACC>
static void forward_plain(struct device *dev, const char *op, const struct attend_task *t, const plain_views<T> &m) {
    dim3 grid((unsigned)t->n, (unsigned)t->heads);
    if (t->window_mode)
        launch(dev, op, plain_forward<true, T, ACC>, grid, PLAIN_THREADS, 0, *t, m);
    else
        launch(dev, op, plain_forward<false, T, ACC>, grid, PLAIN_THREADS, 0, *t, m);
}

template <typename T>
static void forward_typed(struct device *dev, const char *op, const struct attend_task *t, struct mat o, struct mat lse,
                          struct mat q, struct mat k, struct mat v, bool partial) {
    bool vectors = head_vectors(k, t->dim) && head_vectors(v, t->dim);
    plain_views<T> m = {rows_of<T>(o),     rows_of<T>(q), rows_of<T>(k), rows_of<T>(v),
                        (float *)lse.data, lse.stride,    partial,       vectors};
    assert(t->dim <= PLAIN_DIM_MAX);
    if (t->dim <= 64)
        forward_plain<T, 2>(dev, op, t, m);
    else if (t->dim <= 128)
        forward_plain<T, 4>(dev, op, t, m);
    else
        forward_plain<T, 16>(dev, op, t, m);
}

void attend_cuda_forward(struct device *dev, const char *op, const struct attend_task *t, struct mat o, struct mat lse,
                         struct mat q, struct mat k, struct mat v, bool partial) {
    if (t->n == 0 || forward_few(dev, op, t, o, lse, q, k, v, partial) ||
        forward_by_tiles(dev, op, t, o, lse, q, k, v, partial))
        return;
    if (q.type == DTYPE_F32)
        forward_typed<float>(dev, op, t, o, lse, q, k, v, partial);
    else
        forward_typed<bf16>(dev, op, t, o, lse, q, k, v, partial);
}

/* dweight[place]: the sum over rows and heads of delta; `more`: added. */
static __global__ void __launch_bounds__(128)
    sum_dweight(attend_task t, const float2 *stat, float *dweight, bool more) {
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

struct backward_inputs {
    struct mat dout, o, lse, q, k, v;
};

struct backward_scratch {
    float2 *stat;
    place_entry *entries;
    float *part_dweight; /* [blocks*k, heads] */
    bool more;           /* dweight holds the sum of other heads */
};
/* Bytes a head. */
static size_t stat_bytes(const struct attend_task *t) {
    return (size_t)t->k * (size_t)t->stat_rows * sizeof(float2);
}
static size_t dweight_bytes(const struct attend_task *t, const struct attend_gradients *g) {
    return g->dweight ? (size_t)t->blocks * (size_t)t->k * sizeof(float) : 0;
}
enum { STAT_MORE = TILE * sizeof(float2) }; /* behind the last head's: a tile is read whole */

template <bool WINDOW, int DIM, int DQ_STAGES, int DQ_RESIDENT, int STAGES, int RESIDENT>
static void backward_launch(struct device *dev, const char *op, const struct attend_task *t,
                            const struct attend_gradients *g, const backward_inputs &in,
                            const backward_scratch &scratch, const backward_maps &maps) {
    rows<bf16> o = in.o.data ? rows_of<bf16>(in.o) : rows<bf16>{nullptr, 0};
    launch_tiles(dev, op, dq_tiles<WINDOW, DIM, DQ_STAGES, DQ_RESIDENT>,
                 dim3((unsigned)tiles_of(t), (unsigned)t->heads), key_reader<WINDOW, DIM, DQ_STAGES, 2>::BYTES, maps.q,
                 maps.dout, maps.k, maps.v, *t,
                 query_gradients{rows_of<bf16>(g->dq), scratch.stat, g->dweight ? scratch.part_dweight : nullptr},
                 rows_of<float>(in.lse), o, rows_of<bf16>(in.dout));
    int64_t places = (int64_t)t->blocks * t->k;
    if (g->dweight)
        launch(dev, op, sum_heads, (unsigned)blocks_for(places, 128), 128, 0, *t, scratch.part_dweight, g->dweight,
               scratch.more);
    const int32_t *begin = WINDOW ? nullptr : g->inverse.begin;
    dim3 grid((unsigned)(begin ? g->inverse.slots : tiles_of(t)), (unsigned)t->heads);
    if (begin)
        launch(dev, op, list_entries, (unsigned)blocks_for(places, 128), 128, 0, *t, g->inverse, scratch.entries);
    auto dkv = [&](auto kernel, auto dk, auto dv) {
        launch_tiles(dev, op, kernel, grid, query_reader<WINDOW, DIM, STAGES>::BYTES, maps, *t, dk, dv, begin,
                     scratch.entries, scratch.stat, g->accumulate);
    };
    if (g->dk.type == DTYPE_F32)
        dkv(dkv_tiles<WINDOW, float, DIM, STAGES, RESIDENT>, rows_of<float>(g->dk), rows_of<float>(g->dv));
    else
        dkv(dkv_tiles<WINDOW, bf16, DIM, STAGES, RESIDENT>, rows_of<bf16>(g->dk), rows_of<bf16>(g->dv));
}

/* Gradients are written two numbers at a time. */
static bool pairs_fit(struct mat m) {
    return (uintptr_t)m.data % 8 == 0 && m.stride % 2 == 0;
}

static bool backward_by_tiles(struct device *dev, const char *op, const struct attend_task *t,
                              const struct attend_gradients *g, const backward_inputs &in,
                              const backward_scratch &scratch) {
    backward_maps maps = {};
    bool hopper = device_cuda_hopper(dev), narrow = g->dk.type == DTYPE_BF16;
    if (!tiles_suit(dev, t) || t->k * t->n * in.lse.stride > UINT32_MAX || t->k * t->stat_rows > UINT32_MAX ||
        !tiles_fit(g->dq) || (in.o.data && !tiles_fit(in.o)) || !pairs_fit(g->dk) || !pairs_fit(g->dv) ||
        !tile_matrix_of(&maps.q, in.q, TILE, hopper) || !tile_matrix_of(&maps.dout, in.dout, TILE, hopper) ||
        !tile_matrix_of(&maps.k, in.k, key_box(t), hopper) || !tile_matrix_of(&maps.v, in.v, key_box(t), hopper) ||
        (narrow && (!tile_matrix_of(&maps.dk, g->dk, key_box(t), hopper) ||
                    !tile_matrix_of(&maps.dv, g->dv, key_box(t), hopper))))
        return false;
    if (t->window_mode && t->dim == 64)
        backward_launch<true, 64, 3, 3, 3, 3>(dev, op, t, g, in, scratch, maps);
    else if (t->window_mode)
        backward_launch<true, 128, 2, 2, 2, 2>(dev, op, t, g, in, scratch, maps);
    else if (t->dim == 64)
        backward_launch<false, 64, 3, 3, 3, 3>(dev, op, t, g, in, scratch, maps);
    else
        backward_launch<false, 128, 2, 2, 2, 2>(dev, op, t, g, in, scratch, maps);
    return true;
}

template <bool WINDOW, typename T, int ACC>
static void backward_plain(struct device *dev, const char *op, const struct attend_task *t,
                           const struct attend_gradients *g, const plain_backward_views<T> &m) {
    int64_t slots = g->inverse.begin ? g->inverse.slots : t->blocks, keys = WINDOW ? t->n : slots * t->live_rows;
    launch(dev, op, plain_dq<WINDOW, T, ACC>, dim3((unsigned)t->n, (unsigned)t->heads), PLAIN_THREADS, 0, *t, m);
    dim3 grid((unsigned)blocks_for(keys, PLAIN_WARPS), (unsigned)t->heads);
    if (g->dk.type == DTYPE_F32)
        launch(dev, op, plain_dkv<WINDOW, T, float, ACC>, grid, PLAIN_THREADS, 0, *t, m, rows_of<float>(g->dk),
               rows_of<float>(g->dv), g->inverse, g->accumulate, keys);
    else
        launch(dev, op, plain_dkv<WINDOW, T, bf16, ACC>, grid, PLAIN_THREADS, 0, *t, m, rows_of<bf16>(g->dk),
               rows_of<bf16>(g->dv), g->inverse, g->accumulate, keys);
}

template <typename T>
static void backward_typed(struct device *dev, const char *op, const struct attend_task *t,
                           const struct attend_gradients *g, const backward_inputs &in, float2 *stat) {
    bool vectors = head_vectors(in.k, t->dim) && head_vectors(in.v, t->dim);
    rows<T> o = in.o.data ? rows_of<T>(in.o) : rows<T>{nullptr, 0};
    plain_backward_views<T> m = {
        rows_of<T>(g->dq),          rows_of<T>(in.dout), o,    rows_of<T>(in.q), rows_of<T>(in.k), rows_of<T>(in.v),
        (const float *)in.lse.data, in.lse.stride,       stat, vectors};
    assert(t->dim <= PLAIN_DIM_MAX);
    if (t->window_mode && t->dim <= 128)
        backward_plain<true, T, 4>(dev, op, t, g, m);
    else if (t->window_mode)
        backward_plain<true, T, 16>(dev, op, t, g, m);
    else if (t->dim <= 128)
        backward_plain<false, T, 4>(dev, op, t, g, m);
    else
        backward_plain<false, T, 16>(dev, op, t, g, m);
}

/* Of heads t->heads; `more`: dweight holds that of heads before. */
static void backward_heads(struct device *dev, const char *op, const struct attend_task *t,
                           const struct attend_gradients *g, const backward_inputs &in, bool more) {
    size_t places = (size_t)t->blocks * (size_t)t->k, entries = g->inverse.begin ? places * sizeof(place_entry) : 0;
    size_t stats = (size_t)t->heads * stat_bytes(t) + STAT_MORE;
    stats = (stats + 255) / 256 * 256;
    unsigned char *memory =
        (unsigned char *)device_cuda_scratch(dev, stats + entries + (size_t)t->heads * dweight_bytes(t, g));
    backward_scratch scratch = {(float2 *)memory, (place_entry *)(memory + stats), (float *)(memory + stats + entries),
                                more};
    if (backward_by_tiles(dev, op, t, g, in, scratch)) return;
    if (in.q.type == DTYPE_F32)
        backward_typed<float>(dev, op, t, g, in, scratch.stat);
    else
        backward_typed<bf16>(dev, op, t, g, in, scratch.stat);
    if (g->dweight) launch(dev, op, sum_dweight, (unsigned)places, 128, 0, *t, scratch.stat, g->dweight, more);
}

/* How many heads at a time the scratch has room for; 0: of none. A window's go together, as slopes differ. */
static int heads_at_once(struct device *dev, const struct attend_task *t, const struct attend_gradients *g) {
    int64_t each = (int64_t)(stat_bytes(t) + dweight_bytes(t, g)),
            fixed = STAT_MORE + 256 + (int64_t)t->blocks * t->k * (int64_t)sizeof(place_entry),
            room = (int64_t)device_cuda_scratch_bytes(dev) - fixed;
    return each * t->heads <= room ? t->heads : t->window_mode || each > room ? 0 : (int)(room / each);
}

static struct mat columns_of(struct mat m, int64_t first, int64_t cols) {
    if (m.data) m.data = (unsigned char *)m.data + first * dtype_bytes(m.type);
    m.cols = cols;
    return m;
}

void attend_cuda_backward(struct device *dev, const char *op, const struct attend_task *task,
                          const struct attend_gradients *g, struct mat dout, struct mat o, struct mat lse, struct mat q,
                          struct mat k, struct mat v) {
    struct attend_task t = *task;
    if (t.n == 0) return;
    t.stat_rows = stat_first(t.n, t.window_mode ? t.n / t.length : t.blocks) + 2;
    int most = heads_at_once(dev, &t, g);
    if (most == 0) device_cuda_fault(dev, op, "too many rows at once");
    for (int first = 0; most && first < task->heads; first += most) {
        t.heads = task->heads - first < most ? task->heads - first : most;
        auto part = [&](struct mat m) { return columns_of(m, (int64_t)first * t.dim, (int64_t)t.heads * t.dim); };
        struct attend_gradients to = {part(g->dq), part(g->dk), part(g->dv), g->dweight, g->accumulate, g->inverse};
        backward_inputs in = {part(dout), part(o), columns_of(lse, first, t.heads), part(q), part(k), part(v)};
        backward_heads(dev, op, &t, &to, in, first > 0);
    }
}
