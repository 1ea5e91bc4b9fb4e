/* chunk_attention_cuda.cu -- full attention inside each chunk on a GPU: the chunks mode of attend_cuda.cu, where a
 * block of rows reads one slot, its own. Bound by memory: q, k, v and o are read or written once. */
#include "kernels/attention/attend_cuda.cuh"

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

static void chunk_attention_forward(struct device *dev, struct mat o, struct mat q, struct mat k, struct mat v,
                                    int heads, int positions) {
    struct attend_task t = chunk_attention_task(q, k, v, heads, positions);
    assert(o.rows == q.rows && o.cols == q.cols);
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
