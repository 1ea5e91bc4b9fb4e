/* chunk_attention_cuda.cu -- full attention inside each chunk on a GPU: a chunk is a block of rows that read one slot,
 * their own (attend_cuda.cu's chunks). Bound by memory: q, k, v and o pass once. */
#include "kernels/attention/attend_cuda.cuh"

static struct attend_task task_of(struct mat q, struct mat k, struct mat v, int heads, int positions) {
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

static void forward(struct device *dev, struct mat o, struct mat q, struct mat k, struct mat v, int heads,
                    int positions) {
    struct attend_task t = task_of(q, k, v, heads, positions);
    assert(o.rows == q.rows && o.cols == q.cols);
    attend_cuda_forward(dev, "chunk_attention.forward", &t, o, {}, q, k, v, false);
}

static void forward_keep(struct device *dev, struct mat o, struct mat lse, struct mat q, struct mat k, struct mat v,
                         int heads, int positions) {
    struct attend_task t = task_of(q, k, v, heads, positions);
    assert(o.rows == q.rows && o.cols == q.cols && lse.type == DTYPE_F32 && lse.rows == q.rows && lse.cols == heads);
    attend_cuda_forward(dev, "chunk_attention.forward_keep", &t, o, lse, q, k, v, false);
}

static void backward(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout, struct mat o,
                     struct mat lse, struct mat q, struct mat k, struct mat v, int heads, int positions) {
    struct attend_task t = task_of(q, k, v, heads, positions);
    assert(dq.rows == q.rows && dk.rows == q.rows && dv.rows == q.rows && dout.rows == q.rows && dk.type == dv.type);
    assert(lse.type == DTYPE_F32 && lse.rows == q.rows && lse.cols == heads);
    (void)o; /* the sum of o * dout is found from p * dp, in the same pass */
    struct attend_gradients g = {dq, dk, dv, nullptr, false, {}};
    attend_cuda_backward(dev, "chunk_attention.backward", &t, &g, dout, {}, lse, q, k, v);
}

extern "C" const struct chunk_attention_ops chunk_attention_cuda = {forward, forward_keep, backward};
