/* attention_cuda.cu -- sliding-window attention with ALiBi on a GPU: attend_cuda.cu's window. */
#include "kernels/attention/attend_cuda.cuh"

static struct attend_task task_of(struct mat q, int heads, int window) {
    assert(heads > 0 && q.cols % heads == 0 && window >= 0);
    struct attend_task t = {};
    t.window_mode = true;
    t.n = q.rows;
    t.heads = heads;
    t.dim = (int)(q.cols / heads);
    t.scale = 1.0f / sqrtf((float)t.dim);
    t.k = 1;
    t.window = window;
    return t;
}

static void forward(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values, int64_t first,
                    int heads, int window) {
    struct attend_task t = task_of(q, heads, window);
    assert(o.rows == q.rows && o.cols == q.cols && keys.cols == q.cols && values.cols == q.cols);
    assert(values.rows == keys.rows && first >= 0 && (keys.rows >= window + q.rows || keys.rows >= first + q.rows));
    t.first = first;
    t.length = q.rows;
    t.ring = keys.rows;
    attend_cuda_forward(dev, "attention.forward", &t, o, {}, q, keys, values, false);
}

static struct attend_task sequences_of(struct mat q, struct mat k, struct mat v, int64_t length, int heads,
                                       int window) {
    struct attend_task t = task_of(q, heads, window);
    assert(length > 0 && q.rows % length == 0 && k.rows == q.rows && v.rows == q.rows && k.cols == q.cols &&
           v.cols == q.cols);
    t.length = t.ring = length;
    return t;
}

static void forward_sequences(struct device *dev, struct mat o, struct mat lse, struct mat q, struct mat k,
                              struct mat v, int64_t length, int heads, int window) {
    struct attend_task t = sequences_of(q, k, v, length, heads, window);
    assert(o.rows == q.rows && o.cols == q.cols && lse.type == DTYPE_F32 && lse.rows == q.rows && lse.cols == heads);
    attend_cuda_forward(dev, "attention.forward_sequences", &t, o, lse, q, k, v, false);
}

static void backward_sequences(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
                               struct mat o, struct mat lse, struct mat q, struct mat k, struct mat v, int64_t length,
                               int heads, int window) {
    struct attend_task t = sequences_of(q, k, v, length, heads, window);
    assert(dq.rows == q.rows && dk.rows == q.rows && dv.rows == q.rows && dout.rows == q.rows && o.rows == q.rows);
    assert(lse.type == DTYPE_F32 && lse.rows == q.rows && lse.cols == heads && dk.type == dv.type);
    struct attend_gradients g = {dq, dk, dv, nullptr, false, {}};
    attend_cuda_backward(dev, "attention.backward_sequences", &t, &g, dout, o, lse, q, k, v);
}

extern "C" const struct attention_ops attention_cuda = {forward, forward_sequences, backward_sequences};
