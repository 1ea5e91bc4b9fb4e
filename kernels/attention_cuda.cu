/* attention_cuda.cu -- sliding-window attention with ALiBi on a GPU: attend_cuda.cu's window. */
#include "kernels/attend_cuda.cuh"

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

/* Rows that a tile of keys has in the kernels that use matrix units; none of theirs may cross the ring's end. Tiles begin where
 * those of the queries do, so a call that begins at a multiple of this is safe in a ring of whole tiles. */
enum { KEY_TILE = 64 };

/* Where nothing that the rows read lies across the ring's end, a position may as well be called by its row: keys before
 * position 0 are out of the window's reach either way. */
static int64_t position_in(int64_t ring, int64_t first, int64_t n, int window) {
    int64_t row = first % ring, reach = blocks_for(window, KEY_TILE) * KEY_TILE;
    return row >= reach && row + n <= ring ? row : first;
}

static struct mat some_rows(struct mat m, int64_t first, int64_t n) {
    m.data = (unsigned char *)m.data + first * m.stride * dtype_bytes(m.type);
    m.rows = n;
    return m;
}

static void forward_rows(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values, int64_t first,
                         int heads, int window) {
    struct attend_task t = task_of(q, heads, window);
    t.first = first % KEY_TILE ? position_in(keys.rows, first, q.rows, window) : first;
    t.length = q.rows;
    t.ring = keys.rows;
    attend_cuda_forward(dev, "attention.forward", &t, o, {}, q, keys, values, false);
}

/* A text that goes on anywhere: rows up to the next multiple of a tile come first, by themselves. */
static void forward(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values, int64_t first,
                    int heads, int window) {
    assert(o.rows == q.rows && o.cols == q.cols && keys.cols == q.cols && values.cols == q.cols);
    assert(values.rows == keys.rows && first >= 0 && (keys.rows >= window + q.rows || keys.rows >= first + q.rows));
    int64_t n = q.rows, head = (KEY_TILE - first % KEY_TILE) % KEY_TILE;
    bool apart = first + n > keys.rows && position_in(keys.rows, first, n, window) == first && keys.rows % KEY_TILE == 0;
    if (!apart || head >= n) head = 0;
    if (head > 0)
        forward_rows(dev, some_rows(o, 0, head), some_rows(q, 0, head), keys, values, first, heads, window);
    forward_rows(dev, some_rows(o, head, n - head), some_rows(q, head, n - head), keys, values, first + head, heads,
                 window);
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
