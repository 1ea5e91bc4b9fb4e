/* attend_cuda.cu -- picks the kernels for a piece of attention, and launches them. */
#include "kernels/attend_backward_sm90.cuh"
#include "kernels/attend_plain.cuh"
#include <cudaTypedefs.h>

/* A row or two (decoding) leave a tile of 64 empty, and one thread block a row spreads them over the chip. */
enum { FEW_ROWS = 16 };

/* Asked of the driver, not linked: a program built with CUDA also runs where there is no driver. */
static PFN_cuTensorMapEncodeTiled_v12000 tile_encoder(void) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) != cudaSuccess)
        return nullptr;
    return found == cudaDriverEntryPointSuccess ? (PFN_cuTensorMapEncodeTiled_v12000)function : nullptr;
}

bool sm90_tile_map(CUtensorMap *map, struct mat m, int box_rows) {
    static const PFN_cuTensorMapEncodeTiled_v12000 encode = tile_encoder();
    if (!encode || m.rows >= INT32_MAX) return false;
    cuuint64_t size[2] = {(cuuint64_t)m.cols, (cuuint64_t)m.rows}, stride[1] = {(cuuint64_t)m.stride * sizeof(bf16)};
    cuuint32_t box[2] = {TILE, (cuuint32_t)box_rows}, step[2] = {1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, m.data, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static bool tiles_fit(struct mat m) {
    return m.type == DTYPE_BF16 && vectors_fit(m);
}
/* Whether the tiles of these rows and keys suit the matrix units' kernels. */
static bool sm90_fits(struct device *dev, const struct attend_task *t) {
    if (device_cuda_architecture(dev) != 90 || t->n <= FEW_ROWS || (t->dim != 64 && t->dim != 128)) return false;
    /* A tile of keys must not cross the ring's end. */
    if (t->window_mode)
        return t->first + t->length <= t->ring || (t->first % TILE == 0 && t->ring % TILE == 0);
    return t->blocks > 0 && t->live_rows <= TILE && t->k >= 1 && t->k <= ATTEND_LIST_MAX;
}

template <typename... Parameters, typename... Arguments>
static void launch_sm90(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, int bytes,
                        Arguments... arguments) {
    cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    launch(dev, op, kernel, grid, WARPGROUP, (size_t)bytes, arguments...);
}

static unsigned tiles_of(const struct attend_task *t) {
    return t->window_mode ? (unsigned)(t->n / t->length * blocks_for(t->length, TILE)) : (unsigned)t->blocks;
}
static int key_box(const struct attend_task *t) {
    return t->window_mode ? TILE : t->live_rows;
}

static bool forward_tiles(struct device *dev, const char *op, const struct attend_task *t, struct mat o, struct mat lse,
                          struct mat q, struct mat k, struct mat v, bool partial) {
    CUtensorMap q_map, k_map, v_map;
    if (!sm90_fits(dev, t) || !tiles_fit(o) || !tiles_fit(q) || !tiles_fit(k) || !tiles_fit(v)) return false;
    if (!sm90_tile_map(&q_map, q, TILE) || !sm90_tile_map(&k_map, k, key_box(t)) || !sm90_tile_map(&v_map, v, key_box(t)))
        return false;
    dim3 grid(tiles_of(t), (unsigned)t->heads);
    rows<float> sums = {(float *)lse.data, lse.stride};
    if (t->window_mode && t->dim == 64)
        launch_sm90(dev, op, forward_sm90<true, 64, 3, 3>, grid, forward_memory<64, 3>::BYTES, q_map, k_map, v_map, *t,
                    rows_of<bf16>(o), sums, partial);
    else if (t->window_mode)
        launch_sm90(dev, op, forward_sm90<true, 128, 2, 2>, grid, forward_memory<128, 2>::BYTES, q_map, k_map, v_map, *t,
                    rows_of<bf16>(o), sums, partial);
    else if (t->dim == 64)
        launch_sm90(dev, op, forward_sm90<false, 64, 3, 3>, grid, forward_memory<64, 3>::BYTES, q_map, k_map, v_map, *t,
                    rows_of<bf16>(o), sums, partial);
    else
        launch_sm90(dev, op, forward_sm90<false, 128, 2, 2>, grid, forward_memory<128, 2>::BYTES, q_map, k_map, v_map, *t,
                    rows_of<bf16>(o), sums, partial);
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

static bool head_vectors(struct mat m, int dim) {
    return vectors_fit(m) && dim % 8 == 0;
}

template <typename T>
static void forward_typed(struct device *dev, const char *op, const struct attend_task *t, struct mat o, struct mat lse,
                          struct mat q, struct mat k, struct mat v, bool partial) {
    bool vectors = head_vectors(k, t->dim) && head_vectors(v, t->dim);
    plain_views<T> m = {rows_of<T>(o), rows_of<T>(q),  rows_of<T>(k), rows_of<T>(v), (float *)lse.data,
                        lse.stride,    partial, vectors};
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
    if (t->n == 0 || forward_tiles(dev, op, t, o, lse, q, k, v, partial)) return;
    if (q.type == DTYPE_F32)
        forward_typed<float>(dev, op, t, o, lse, q, k, v, partial);
    else
        forward_typed<bf16>(dev, op, t, o, lse, q, k, v, partial);
}

/* dweight[place]: the sum over rows and heads of delta. */
static __global__ void __launch_bounds__(128) sum_dweight(attend_task t, const float2 *stat, float *dweight) {
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
    if (threadIdx.x == 0) dweight[blockIdx.x] = sum;
}

struct backward_inputs {
    struct mat dout, o, lse, q, k, v;
};

template <bool WINDOW, int DIM, int DQ_STAGES, int DQ_RESIDENT, int STAGES, int RESIDENT>
static void backward_launch(struct device *dev, const char *op, const struct attend_task *t, const struct attend_gradients *g,
                            const backward_inputs &in, float2 *stat, place_entry *entries, const CUtensorMap (&maps)[4]) {
    rows<float> lse = rows_of<float>(in.lse);
    rows<bf16> o = in.o.data ? rows_of<bf16>(in.o) : rows<bf16>{nullptr, 0};
    launch_sm90(dev, op, dq_sm90<WINDOW, DIM, DQ_STAGES, DQ_RESIDENT>, dim3(tiles_of(t), (unsigned)t->heads),
                dq_memory<DIM, DQ_STAGES>::BYTES, maps[0], maps[1], maps[2], maps[3], *t, rows_of<bf16>(g->dq), lse, o,
                rows_of<bf16>(in.dout), stat);
    int64_t slots = g->inverse.begin ? g->inverse.slots : t->blocks;
    dim3 grid(WINDOW ? tiles_of(t) : (unsigned)slots, (unsigned)t->heads);
    const int32_t *begin = WINDOW ? nullptr : g->inverse.begin;
    if (begin)
        launch(dev, op, list_entries, (unsigned)blocks_for((int64_t)t->blocks * t->k, 256), 256, 0, *t, g->inverse, entries);
    if (g->dk.type == DTYPE_F32)
        launch_sm90(dev, op, dkv_sm90<WINDOW, float, DIM, STAGES, RESIDENT>, grid, dkv_memory<DIM, STAGES>::BYTES, maps[0],
                    maps[1], maps[2], maps[3], *t, rows_of<float>(g->dk), rows_of<float>(g->dv), begin, entries, stat,
                    g->accumulate);
    else
        launch_sm90(dev, op, dkv_sm90<WINDOW, bf16, DIM, STAGES, RESIDENT>, grid, dkv_memory<DIM, STAGES>::BYTES, maps[0],
                    maps[1], maps[2], maps[3], *t, rows_of<bf16>(g->dk), rows_of<bf16>(g->dv), begin, entries, stat,
                    g->accumulate);
}

/* Gradients are written two numbers at a time. */
static bool pairs_fit(struct mat m) {
    return (uintptr_t)m.data % 8 == 0 && m.stride % 2 == 0;
}

static bool backward_tiles(struct device *dev, const char *op, const struct attend_task *t, const struct attend_gradients *g,
                           const backward_inputs &in, float2 *stat, place_entry *entries) {
    CUtensorMap maps[4];
    if (!sm90_fits(dev, t) || !tiles_fit(g->dq) || !tiles_fit(in.dout) || !tiles_fit(in.q) || !tiles_fit(in.k) ||
        !tiles_fit(in.v) || (in.o.data && !tiles_fit(in.o)) || !pairs_fit(g->dk) || !pairs_fit(g->dv))
        return false;
    if (!sm90_tile_map(&maps[0], in.q, TILE) || !sm90_tile_map(&maps[1], in.dout, TILE) ||
        !sm90_tile_map(&maps[2], in.k, key_box(t)) || !sm90_tile_map(&maps[3], in.v, key_box(t)))
        return false;
    if (t->window_mode && t->dim == 64)
        backward_launch<true, 64, 3, 3, 3, 2>(dev, op, t, g, in, stat, entries, maps);
    else if (t->window_mode)
        backward_launch<true, 128, 2, 2, 2, 2>(dev, op, t, g, in, stat, entries, maps);
    else if (t->dim == 64)
        backward_launch<false, 64, 3, 3, 3, 2>(dev, op, t, g, in, stat, entries, maps);
    else
        backward_launch<false, 128, 2, 2, 2, 2>(dev, op, t, g, in, stat, entries, maps);
    return true;
}

template <bool WINDOW, typename T, int ACC>
static void backward_plain(struct device *dev, const char *op, const struct attend_task *t, const struct attend_gradients *g,
                           const plain_backward_views<T> &m) {
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
static void backward_typed(struct device *dev, const char *op, const struct attend_task *t, const struct attend_gradients *g,
                           const backward_inputs &in, float2 *stat) {
    bool vectors = head_vectors(in.k, t->dim) && head_vectors(in.v, t->dim);
    rows<T> o = in.o.data ? rows_of<T>(in.o) : rows<T>{nullptr, 0};
    plain_backward_views<T> m = {rows_of<T>(g->dq), rows_of<T>(in.dout), o, rows_of<T>(in.q), rows_of<T>(in.k), rows_of<T>(in.v),
                                 (const float *)in.lse.data, in.lse.stride, stat, vectors};
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

void attend_cuda_backward(struct device *dev, const char *op, const struct attend_task *t, const struct attend_gradients *g,
                          struct mat dout, struct mat o, struct mat lse, struct mat q, struct mat k, struct mat v) {
    if (t->n == 0) return;
    backward_inputs in = {dout, o, lse, q, k, v};
    size_t stats = (size_t)t->heads * (size_t)t->k * (size_t)t->n * sizeof(float2);
    size_t entries = g->inverse.begin ? (size_t)t->blocks * (size_t)t->k * sizeof(place_entry) : 0;
    stats = (stats + 255) / 256 * 256;
    unsigned char *scratch = (unsigned char *)device_cuda_scratch(dev, stats + entries);
    float2 *stat = (float2 *)scratch;
    if (!backward_tiles(dev, op, t, g, in, stat, (place_entry *)(scratch + stats))) {
        if (q.type == DTYPE_F32)
            backward_typed<float>(dev, op, t, g, in, stat);
        else
            backward_typed<bf16>(dev, op, t, g, in, stat);
    }
    if (g->dweight) launch(dev, op, sum_dweight, (unsigned)((int64_t)t->blocks * t->k), 128, 0, *t, stat, g->dweight);
}
