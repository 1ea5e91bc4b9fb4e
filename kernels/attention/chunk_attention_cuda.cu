/* chunk_attention_cuda.cu -- full attention inside each chunk on a GPU: the chunks mode of attend_cuda.cu, where a
 * block of rows reads one slot, its own; or attend_full.cuh where that mode would not use tensor cores. Bound by
 * memory: q, k, v and o are read or written once. */
#include "kernels/attention/attend_cuda.cuh"
#include "kernels/attention/attend_full.cuh"

static struct attend_task chunk_attention_task(struct mat q, struct mat k, struct mat v, int heads, int positions) {
    assert(heads > 0 && positions > 0 && q.cols % heads == 0 && q.rows % positions == 0);
    assert(k.rows == q.rows && v.rows == q.rows && k.cols == q.cols && v.cols == q.cols);
    struct attend_task t = {};
    t.n = q.rows;
    t.heads = heads;
    t.dim = (int)(q.cols / heads);
    t.scale = 1.0f / sqrtf((float)t.dim);
    t.blocks = (int)(q.rows / positions);
    t.k = 1;
    t.positions = t.slot_rows = t.live_rows = positions;
    return t;
}

/* The shape alone decides, not the number of chunks: a chunk's result does not depend on the others. */
static bool chunk_attention_full(struct device *dev, struct mat o, struct mat q, struct mat k, struct mat v, int heads,
                                 int positions) {
    const int dim = (int)(q.cols / heads), tiles = (positions + FULL_TILE - 1) / FULL_TILE;
    const struct mat all[] = {o, q, k, v};
    if (dim != 32 && ((dim != 64 && dim != 128) || positions <= FULL_TILE)) return false;
    if (device_cuda_architecture(dev) < 80 || q.rows / positions * tiles > INT32_MAX) return false;
    for (const struct mat &m : all)
        if (m.type != DTYPE_BF16 || !vectors_fit(m)) return false;
    const full_task t = {rows_of<bf16>(o), rows_of<bf16>(q), rows_of<bf16>(k), rows_of<bf16>(v), positions,
                         ATTEND_LOG2E / sqrtf((float)dim)};
    const auto kernel = dim == 32 ? attend_full<32> : dim == 64 ? attend_full<64> : attend_full<128>;
    const dim3 grid((unsigned)(q.rows / positions * tiles), (unsigned)heads);
    launch(dev, "chunk_attention.forward", kernel, grid, FULL_THREADS, 0, t);
    return true;
}

static void chunk_attention_forward(struct device *dev, struct mat o, struct mat q, struct mat k, struct mat v,
                                    int heads, int positions) {
    struct attend_task t = chunk_attention_task(q, k, v, heads, positions);
    assert(o.rows == q.rows && o.cols == q.cols);
    if (chunk_attention_full(dev, o, q, k, v, heads, positions)) return;
    attend_cuda_forward(dev, "chunk_attention.forward", &t, {o, {}, q, k, v}, false);
}

static void chunk_attention_forward_keep(struct device *dev, struct mat o, struct mat lse, struct mat q, struct mat k,
                                         struct mat v, int heads, int positions) {
    struct attend_task t = chunk_attention_task(q, k, v, heads, positions);
    assert(o.rows == q.rows && o.cols == q.cols && lse.type == DTYPE_F32 && lse.rows == q.rows && lse.cols == heads);
    attend_cuda_forward(dev, "chunk_attention.forward_keep", &t, {o, attend_lse_rows(lse, q.rows), q, k, v}, false);
}

static void chunk_attention_backward(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
                                     const struct chunk_attention_kept *kept) {
    struct mat lse = kept->lse, q = kept->q;
    int heads = kept->heads;
    struct attend_task t = chunk_attention_task(q, kept->k, kept->v, heads, kept->positions);
    assert(dq.rows == q.rows && dk.rows == q.rows && dv.rows == q.rows && dout.rows == q.rows && dk.type == dv.type);
    assert(lse.type == DTYPE_F32 && lse.rows == q.rows && lse.cols == heads);
    /* kept->o is not read: the sum of o * dout is computed from p * dp, in the same pass */
    struct attend_gradients g = {dq, dk, dv, nullptr, false, {}};
    attend_cuda_backward(dev, "chunk_attention.backward", &t, &g, dout,
                         {{}, attend_lse_rows(lse, q.rows), q, kept->k, kept->v});
}

extern "C" const struct chunk_attention_ops chunk_attention_cuda = {
    chunk_attention_forward, chunk_attention_forward_keep, chunk_attention_backward};
