/* gca_cuda.cu -- grouped cross-attention on a GPU: the chunks mode of attend_cuda.cu, the combination of stored parts,
 * and the inverse list, which has the entries of each slot (a stable sort of the entries by slot, then a binary search
 * for the begin of each slot). */
#include "kernels/attention/attend_cuda.cuh"
#include "kernels/cuda/scatter_sort_cuda.h"

static struct attend_task gca_task(const struct gca_pool *pool, const struct gca_blocks *blocks, struct mat q,
                                   int heads) {
    assert(heads > 0 && q.cols % heads == 0 && pool->keys.cols == q.cols && pool->values.cols == q.cols);
    assert(pool->live_rows >= 1 && pool->live_rows <= pool->slot_rows && pool->keys.rows == pool->values.rows);
    assert(blocks->blocks >= 0 && blocks->k >= 0);
    struct attend_task t = {};
    t.n = q.rows;
    t.heads = heads;
    t.dim = (int)(q.cols / heads);
    t.scale = 1.0f / sqrtf((float)t.dim);
    t.row_begin = blocks->row_begin;
    t.slot = blocks->slot;
    t.weight = blocks->weight;
    t.blocks = blocks->blocks;
    t.k = blocks->k;
    t.slot_rows = pool->slot_rows;
    t.live_rows = pool->live_rows;
    t.null_key = pool->off_by_one;
    return t;
}

static void gca_partial(struct device *dev, struct mat part, struct mat lse, struct mat q, struct gca_pool pool,
                        struct gca_blocks blocks, int heads) {
    struct attend_task t = gca_task(&pool, &blocks, q, heads);
    assert(part.rows == blocks.k * q.rows && lse.rows == part.rows && part.cols == q.cols && lse.cols == heads);
    assert(lse.type == DTYPE_F32);
    attend_cuda_forward(dev, "gca.partial", &t, {part, attend_lse_rows(lse, q.rows), q, pool.keys, pool.values}, true);
}

/* lse [h*K, n]. */
static attend_lse gca_lse_planes(struct mat lse, int k) {
    return {(float *)lse.data, 1, k * lse.stride, lse.stride};
}

static void gca_forward_keep(struct device *dev, struct mat o, struct mat lse, struct mat q, struct gca_pool pool,
                             struct gca_blocks blocks, int heads) {
    struct attend_task t = gca_task(&pool, &blocks, q, heads);
    assert(o.rows == q.rows && o.cols == q.cols && blocks.weight && lse.type == DTYPE_F32);
    assert(lse.rows == (int64_t)blocks.k * heads && lse.cols == q.rows);
    attend_cuda_forward(dev, "gca.forward_keep", &t, {o, gca_lse_planes(lse, blocks.k), q, pool.keys, pool.values},
                        false);
}

static void gca_forward(struct device *dev, struct mat o, struct mat q, struct gca_pool pool, struct gca_blocks blocks,
                        int heads) {
    struct attend_task t = gca_task(&pool, &blocks, q, heads);
    assert(o.rows == q.rows && o.cols == q.cols && blocks.weight);
    attend_cuda_forward(dev, "gca.forward", &t, {o, {}, q, pool.keys, pool.values}, false);
}

static void gca_backward(struct device *dev, const struct gca_gradients *to, struct mat dout, struct mat q,
                         struct gca_pool pool, struct gca_blocks blocks, struct gca_inverse inverse, struct mat lse) {
    struct mat dq = to->dq, dkeys = to->dkeys, dvalues = to->dvalues;
    assert(blocks.k >= 1);
    struct attend_task t = gca_task(&pool, &blocks, q, (int)lse.rows / blocks.k);
    assert(dq.rows == q.rows && dq.cols == q.cols && dout.rows == q.rows && dout.cols == q.cols && blocks.weight);
    assert(dkeys.rows == pool.keys.rows && dvalues.rows == pool.keys.rows && dkeys.type == dvalues.type);
    assert(lse.cols == q.rows && inverse.begin && to->dweight);
    assert(inverse.slots * pool.slot_rows <= pool.keys.rows);
    struct attend_gradients g = {dq, dkeys, dvalues, to->dweight, true, inverse};
    attend_cuda_backward(dev, "gca.backward", &t, &g, dout,
                         {{}, gca_lse_planes(lse, blocks.k), q, pool.keys, pool.values});
}

enum { GCA_INVERT_THREADS = 256, GCA_COMBINE_THREADS = 128 };

/* One thread for each entry. An empty entry sorts after all slots. */
static __global__ void __launch_bounds__(GCA_INVERT_THREADS)
    gca_invert_keys(uint32_t *key, int32_t *entry, const int32_t *slot, int64_t entries, uint32_t slots) {
    int64_t i = (int64_t)blockIdx.x * GCA_INVERT_THREADS + threadIdx.x;
    if (i >= entries) return;
    key[i] = slot[i] < 0 ? slots : (uint32_t)slot[i];
    entry[i] = (int32_t)i;
}

/* begin[s]: how many sorted keys are smaller than s. entry: the sorted entries without the empty ones. */
static __global__ void __launch_bounds__(GCA_INVERT_THREADS)
    gca_invert_lists(int32_t *begin, int32_t *entry, const uint32_t *key, const int32_t *sorted, int64_t entries,
                     int64_t slots) {
    int64_t i = (int64_t)blockIdx.x * GCA_INVERT_THREADS + threadIdx.x;
    if (i <= slots) {
        int64_t low = 0, high = entries;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (key[middle] < (uint32_t)i)
                low = middle + 1;
            else
                high = middle;
        }
        begin[i] = (int32_t)low;
    }
    if (i < entries && key[i] < (uint32_t)slots) entry[i] = sorted[i];
}

static void gca_invert(struct device *dev, int32_t *begin, int32_t *entry, const int32_t *slot, int64_t entries,
                       int64_t slots) {
    const char *op = "gca.invert";
    assert(entries <= INT32_MAX && slots < INT32_MAX);
    scatter_plan plan = scatter_allocate(dev, entries, slots, NULL, 0);
    launch(dev, op, gca_invert_keys, (unsigned)blocks_for(entries, GCA_INVERT_THREADS), GCA_INVERT_THREADS, 0, plan.key,
           plan.item, slot, entries, (uint32_t)slots);
    if (entries) scatter_sort(dev, op, plan);
    int64_t most = entries > slots + 1 ? entries : slots + 1;
    launch(dev, op, gca_invert_lists, (unsigned)blocks_for(most, GCA_INVERT_THREADS), GCA_INVERT_THREADS, 0, begin,
           entry, plan.key_sorted, plan.item_sorted, entries, slots);
}

/* A thread block is a query row, a warp one head of it, a lane one column of 32. t.weight NULL: combined by lse.
 * Factors are computed again for each 32 columns, so there is no limit on heads and entries. Bound by memory: every
 * part is read once. */
template <typename T>
static __global__ void __launch_bounds__(GCA_COMBINE_THREADS)
    gca_combine_rows(attend_task t, rows<T> o, rows<T> part, rows<float> lse) {
    int64_t row = blockIdx.x, block = find_block(t, row);
    int k = block < 0 ? 0 : t.k;
    for (int head = threadIdx.x / 32; head < t.heads; head += GCA_COMBINE_THREADS / 32) {
        float top = -INFINITY, sum = t.weight ? 1.0f : 0.0f;
        auto factor = [&](int i) { return t.weight ? t.weight[block * k + i] : expf(lse[i * t.n + row][head] - top); };
        for (int i = 0; i < k && !t.weight; i++)
            if (t.slot[block * k + i] >= 0) top = fmaxf(top, lse[i * t.n + row][head]);
        for (int i = 0; i < k && !t.weight; i++)
            if (t.slot[block * k + i] >= 0) sum += factor(i);
        for (int c = head * t.dim + threadIdx.x % 32; c < (head + 1) * t.dim; c += 32) {
            float x = 0.0f;
            for (int i = 0; i < k; i++)
                if (t.slot[block * k + i] >= 0) x += factor(i) / sum * to_float(part[i * t.n + row][c]);
            o[row][c] = from_float<T>(x);
        }
    }
}

static void gca_combine(struct device *dev, struct mat o, struct mat part, struct mat lse, struct gca_blocks blocks,
                        int heads) {
    assert(heads > 0 && o.cols % heads == 0 && part.cols == o.cols && part.rows == blocks.k * o.rows);
    assert(blocks.weight || (lse.rows == part.rows && lse.cols == heads && lse.type == DTYPE_F32));
    struct attend_task t = {};
    t.n = o.rows, t.heads = heads, t.dim = (int)(o.cols / heads);
    t.row_begin = blocks.row_begin, t.slot = blocks.slot, t.weight = blocks.weight, t.blocks = blocks.blocks,
    t.k = blocks.k;
    rows<float> sums = {(float *)lse.data, lse.stride};
    if (o.type == DTYPE_F32)
        launch(dev, "gca.combine", gca_combine_rows<float>, (unsigned)o.rows, GCA_COMBINE_THREADS, 0, t,
               rows_of<float>(o), rows_of<float>(part), sums);
    else
        launch(dev, "gca.combine", gca_combine_rows<bf16>, (unsigned)o.rows, GCA_COMBINE_THREADS, 0, t,
               rows_of<bf16>(o), rows_of<bf16>(part), sums);
}

extern "C" const struct gca_ops gca_cuda = {gca_partial,  gca_combine, gca_forward_keep,
                                            gca_backward, gca_invert,  gca_forward};
