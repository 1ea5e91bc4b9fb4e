/* state_gate_cuda.cu -- the gate of a recurrent state, forward and backward.
 *
 *   forward    thread -> a number
 *   backward   thread block (x, y) -> columns 32 x .. 32 x + 31 of rows 256 y .. 256 y + 255;
 *              warp -> every eighth of the rows; lane -> a column
 *
 * db is summed in three stages of fixed order: a warp over its rows, a block over its warps, then state_gate_join over
 * the blocks. Bound by memory: every matrix is read or written once. No rate is claimed: a layer calls it once for each
 * block of tokens. */
#include "kernels/cuda/cuda.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, ROWS = 256 };

static __device__ float state_gate_value(float b) {
    return 1.0f / (1.0f + expf(-b));
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    state_gate_forward_numbers(rows<float> y, rows<float> c, rows<T> z, const T *b, int64_t n, int64_t d) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / d, column = i % d;
    if (row >= n) return;
    float g = state_gate_value(to_float(b[column]));
    y[row][column] = g * c[row][column] + (1.0f - g) * to_float(z[row][column]);
}

template <typename T> struct state_gate_views {
    rows<float> dc, dy, c;
    rows<T> dz, z;
    const T *b;
    int64_t n, d;
};

/* partial [gridDim.y, d]: this block's part of the sum of dy (c - z). dc may be dy: a thread reads a number of dy
 * before it writes it. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) state_gate_backward_columns(state_gate_views<T> m, float *partial) {
    __shared__ float part[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t column = (int64_t)blockIdx.x * 32 + lane, first = (int64_t)blockIdx.y * ROWS;
    int64_t end = first + ROWS < m.n ? first + ROWS : m.n;
    float g = column < m.d ? state_gate_value(to_float(m.b[column])) : 0.0f, sum = 0.0f;
    for (int64_t row = first + warp; row < end && column < m.d; row += WARPS) {
        float out = m.dy[row][column];
        sum += out * (m.c[row][column] - to_float(m.z[row][column]));
        m.dc[row][column] = g * out;
        m.dz[row][column] = from_float<T>((1.0f - g) * out);
    }
    part[warp][lane] = sum;
    __syncthreads();
    if (warp || column >= m.d) return;
    sum = 0.0f;
    for (int i = 0; i < WARPS; i++)
        sum += part[i][lane];
    partial[blockIdx.y * m.d + column] = sum;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    state_gate_join(float *db, const float *partial, int parts, const T *b, int64_t d) {
    int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (column >= d) return;
    float g = state_gate_value(to_float(b[column])), sum = 0.0f;
    for (int i = 0; i < parts; i++)
        sum += partial[i * d + column];
    db[column] += sum * g * (1.0f - g);
}

template <typename T>
static void state_gate_forward_typed(struct device *dev, struct mat y, struct mat c, struct mat z, struct mat b) {
    launch(dev, "state_gate.forward", state_gate_forward_numbers<T>, (unsigned)blocks_for(y.rows * y.cols, THREADS),
           THREADS, 0, rows_of<float>(y), rows_of<float>(c), rows_of<T>(z), (const T *)b.data, y.rows, y.cols);
}

static void state_gate_forward(struct device *dev, struct mat y, struct mat c, struct mat z, struct mat b) {
    assert(y.rows == c.rows && y.rows == z.rows && y.cols == c.cols && y.cols == z.cols && b.cols == y.cols);
    assert(b.type == z.type && y.rows * y.cols < (int64_t)THREADS * INT32_MAX);
    z.type == DTYPE_F32 ? state_gate_forward_typed<float>(dev, y, c, z, b)
                        : state_gate_forward_typed<bf16>(dev, y, c, z, b);
}

template <typename T>
static void state_gate_backward_typed(struct device *dev, const struct state_gate_gradients *to, struct mat dy,
                                      struct mat c, struct mat z, struct mat b) {
    const char *op = "state_gate.backward";
    state_gate_views<T> m = {rows_of<float>(to->dc), rows_of<float>(dy), rows_of<float>(c), rows_of<T>(to->dz),
                             rows_of<T>(z),          (const T *)b.data,  dy.rows,           dy.cols};
    int parts = (int)blocks_for(dy.rows, ROWS);
    float *partial = (float *)device_cuda_scratch(dev, (size_t)parts * (size_t)dy.cols * sizeof(float));
    dim3 grid((unsigned)blocks_for(dy.cols, 32), (unsigned)parts);
    launch(dev, op, state_gate_backward_columns<T>, grid, THREADS, 0, m, partial);
    launch(dev, op, state_gate_join<T>, (unsigned)blocks_for(dy.cols, THREADS), THREADS, 0, (float *)to->db.data,
           partial, parts, m.b, dy.cols);
}

static void state_gate_backward(struct device *dev, const struct state_gate_gradients *to, struct mat dy, struct mat c,
                                struct mat z, struct mat b) {
    assert(to->dc.rows == dy.rows && to->dz.rows == dy.rows && c.rows == dy.rows && z.rows == dy.rows);
    assert(to->dc.cols == dy.cols && to->dz.cols == dy.cols && to->db.cols == dy.cols && b.cols == dy.cols);
    assert(b.type == z.type && to->dz.type == z.type && to->db.type == DTYPE_F32);
    z.type == DTYPE_F32 ? state_gate_backward_typed<float>(dev, to, dy, c, z, b)
                        : state_gate_backward_typed<bf16>(dev, to, dy, c, z, b);
}

extern "C" const struct state_gate_ops state_gate_cuda = {.forward = state_gate_forward,
                                                          .backward = state_gate_backward};
