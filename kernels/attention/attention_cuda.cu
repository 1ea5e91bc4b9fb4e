/* attention_cuda.cu -- sliding-window attention with ALiBi on a GPU: the window mode of attend_cuda.cu. */
#include "kernels/attention/attend_cuda.cuh"

static struct attend_task attention_task(struct mat q, int heads, int window) {
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

static void attention_forward(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values,
                              int64_t first, int heads, int window) {
    struct attend_task t = attention_task(q, heads, window);
    assert(o.rows == q.rows && o.cols == q.cols && keys.cols == q.cols && values.cols == q.cols);
    assert(values.rows == keys.rows && first >= 0 && (keys.rows >= window + q.rows || keys.rows >= first + q.rows));
    t.first = first;
    t.length = q.rows;
    t.ring = keys.rows;
    attend_cuda_forward(dev, "attention.forward", &t, {o, {}, q, keys, values}, false);
}

static struct attend_task attention_sequences_task(const struct attention_sequences *in) {
    struct mat q = in->q, k = in->k, v = in->v;
    int64_t length = in->length;
    int heads = in->heads, window = in->window;
    struct attend_task t = attention_task(q, heads, window);
    assert(length > 0 && q.rows % length == 0 && k.rows == q.rows && v.rows == q.rows && k.cols == q.cols &&
           v.cols == q.cols);
    t.length = t.ring = length;
    return t;
}

static void attention_forward_sequences(struct device *dev, struct mat o, struct mat lse,
                                        const struct attention_sequences *in) {
    struct attend_task t = attention_sequences_task(in);
    struct mat q = in->q;
    assert(o.rows == q.rows && o.cols == q.cols && lse.type == DTYPE_F32 && lse.rows == q.rows &&
           lse.cols == in->heads);
    attend_cuda_forward(dev, "attention.forward_sequences", &t, {o, attend_lse_rows(lse, q.rows), q, in->k, in->v},
                        false);
}

static void attention_backward_sequences(struct device *dev, struct mat dq, struct mat dk, struct mat dv,
                                         struct mat dout, struct mat o, struct mat lse,
                                         const struct attention_sequences *in) {
    struct attend_task t = attention_sequences_task(in);
    struct mat q = in->q;
    assert(dq.rows == q.rows && dk.rows == q.rows && dv.rows == q.rows && dout.rows == q.rows && o.rows == q.rows);
    assert(lse.type == DTYPE_F32 && lse.rows == q.rows && lse.cols == in->heads && dk.type == dv.type);
    struct attend_gradients g = {dq, dk, dv, nullptr, false, {}};
    attend_cuda_backward(dev, "attention.backward_sequences", &t, &g, dout,
                         {o, attend_lse_rows(lse, q.rows), q, in->k, in->v});
}

extern "C" const struct attention_ops attention_cuda = {attention_forward, attention_forward_sequences,
                                                        attention_backward_sequences};
