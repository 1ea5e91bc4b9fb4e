/* elementwise_cuda.cu -- conversion, add, SwiGLU and its backward, rows into slots.
 *
 * Mapping: a thread computes eight neighbours of a row (or one number, if vectors do not fit). All loads of a thread
 * are issued before its first store, so an output may be an input. Bound by memory: every matrix is read or written
 * once. Best measured (H100, bf16, 65536 rows): add 95 % of a copy's rate, SwiGLU and its backward 99 %
 * (docs/kernels/pointwise.md). */
#include "kernels/cuda/cuda.cuh"

enum { THREADS = 256 };

static __device__ __forceinline__ void store8(__half *p, const vec8 &x) {
    uint4 raw;
    __half2 *pair = (__half2 *)&raw;
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __floats2half2_rn(x.v[2 * i], x.v[2 * i + 1]);
    *(uint4 *)p = raw;
}

template <typename TY, typename TX> struct conversion {
    rows<TY> y;
    rows<TX> x;
    __device__ void at8(int64_t r, int64_t c) const { store8(y[r] + c, load8(x[r] + c)); }
    __device__ void at(int64_t r, int64_t c) const { y[r][c] = from_float<TY>(to_float(x[r][c])); }
};

template <typename TY, typename TA, typename TB> struct addition {
    rows<TY> y;
    rows<TA> a;
    rows<TB> b;
    __device__ void at8(int64_t r, int64_t c) const {
        vec8 u = load8(a[r] + c), v = load8(b[r] + c);
#pragma unroll
        for (int i = 0; i < 8; i++)
            u.v[i] += v.v[i];
        store8(y[r] + c, u);
    }
    __device__ void at(int64_t r, int64_t c) const { y[r][c] = from_float<TY>(to_float(a[r][c]) + to_float(b[r][c])); }
};

static __device__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

template <typename T> struct gating {
    rows<T> y, gate, up;
    __device__ void at8(int64_t r, int64_t c) const {
        vec8 g = load8(gate[r] + c), u = load8(up[r] + c);
#pragma unroll
        for (int i = 0; i < 8; i++)
            u.v[i] *= g.v[i] * sigmoid(g.v[i]);
        store8(y[r] + c, u);
    }
    __device__ void at(int64_t r, int64_t c) const {
        float g = to_float(gate[r][c]);
        y[r][c] = from_float<T>(g * sigmoid(g) * to_float(up[r][c]));
    }
};

/* silu'(g) = s (1 + g (1 - s)), s = sigmoid(g) */
template <typename T> struct gating_back {
    rows<T> dgate, dup, dy, gate, up;
    static __device__ void one(float &g, float &u, float d) {
        float s = sigmoid(g), dg = d * u * s * (1.0f + g * (1.0f - s));
        u = d * g * s;
        g = dg;
    }
    __device__ void at8(int64_t r, int64_t c) const {
        vec8 d = load8(dy[r] + c), g = load8(gate[r] + c), u = load8(up[r] + c);
#pragma unroll
        for (int i = 0; i < 8; i++)
            one(g.v[i], u.v[i], d.v[i]);
        store8(dgate[r] + c, g);
        store8(dup[r] + c, u);
    }
    __device__ void at(int64_t r, int64_t c) const {
        float g = to_float(gate[r][c]), u = to_float(up[r][c]);
        one(g, u, to_float(dy[r][c]));
        dgate[r][c] = from_float<T>(g);
        dup[r][c] = from_float<T>(u);
    }
};

template <typename F>
static __global__ void __launch_bounds__(THREADS) elementwise_kernel8(F f, int64_t n, int64_t across) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n * across) f.at8(i / across, i % across * 8);
}
template <typename F>
static __global__ void __launch_bounds__(THREADS) elementwise_kernel1(F f, int64_t n, int64_t across) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n * across) f.at(i / across, i % across);
}

template <typename F>
static void elementwise_launch(struct device *dev, const char *op, F f, struct mat shape, bool vectors) {
    int64_t across = vectors ? shape.cols / 8 : shape.cols;
    launch(dev, op, vectors ? elementwise_kernel8<F> : elementwise_kernel1<F>,
           (unsigned)blocks_for(shape.rows * across, THREADS), THREADS, 0, f, shape.rows, across);
}

static bool same_shape(struct mat a, struct mat b) {
    return a.rows == b.rows && a.cols == b.cols;
}

template <typename TY, typename TX> static void convert_typed(struct device *dev, struct mat y, struct mat x) {
    elementwise_launch(dev, "elementwise.convert", conversion<TY, TX>{rows_of<TY>(y), rows_of<TX>(x)}, y,
                       vectors_fit(y) && vectors_fit(x));
}

static void elementwise_convert(struct device *dev, struct mat y, struct mat x) {
    assert(same_shape(y, x) && (y.data != x.data || y.type == x.type));
    assert(y.type != DTYPE_F16 || x.type == DTYPE_F32);
    if (y.type == DTYPE_F16)
        convert_typed<__half, float>(dev, y, x);
    else if (y.type == DTYPE_F32)
        x.type == DTYPE_F32 ? convert_typed<float, float>(dev, y, x) : convert_typed<float, bf16>(dev, y, x);
    else x.type == DTYPE_F32 ? convert_typed<bf16, float>(dev, y, x) : convert_typed<bf16, bf16>(dev, y, x);
}

template <typename TY, typename TA, typename TB>
static void add_typed(struct device *dev, struct mat y, struct mat a, struct mat b) {
    elementwise_launch(dev, "elementwise.add", addition<TY, TA, TB>{rows_of<TY>(y), rows_of<TA>(a), rows_of<TB>(b)}, y,
        vectors_fit(y) && vectors_fit(a) && vectors_fit(b));
}

/* Of one type, or y and a float32 and b bfloat16. */
static void elementwise_add(struct device *dev, struct mat y, struct mat a, struct mat b) {
    assert(same_shape(y, a) && same_shape(y, b));
    if (y.type == DTYPE_BF16) add_typed<bf16, bf16, bf16>(dev, y, a, b);
    else if (b.type == DTYPE_BF16) add_typed<float, float, bf16>(dev, y, a, b);
    else add_typed<float, float, float>(dev, y, a, b);
}

template <typename T> static void swiglu_typed(struct device *dev, struct mat y, struct mat gate, struct mat up) {
    elementwise_launch(dev, "elementwise.swiglu", gating<T>{rows_of<T>(y), rows_of<T>(gate), rows_of<T>(up)}, y,
        vectors_fit(y) && vectors_fit(gate) && vectors_fit(up));
}

static void elementwise_swiglu(struct device *dev, struct mat y, struct mat gate, struct mat up) {
    assert(same_shape(y, gate) && same_shape(y, up));
    y.type == DTYPE_F32 ? swiglu_typed<float>(dev, y, gate, up) : swiglu_typed<bf16>(dev, y, gate, up);
}

template <typename T>
static void swiglu_backward_typed(struct device *dev, struct mat dgate, struct mat dup, struct mat dy, struct mat gate,
                                  struct mat up) {
    gating_back<T> f = {rows_of<T>(dgate), rows_of<T>(dup), rows_of<T>(dy), rows_of<T>(gate), rows_of<T>(up)};
    elementwise_launch(dev, "elementwise.swiglu_backward", f, dy,
        vectors_fit(dgate) && vectors_fit(dup) && vectors_fit(dy) && vectors_fit(gate) && vectors_fit(up));
}

static void elementwise_swiglu_backward(struct device *dev, struct mat dgate, struct mat dup, struct mat dy,
                                        struct mat gate, struct mat up) {
    assert(same_shape(dy, gate) && same_shape(dy, up) && same_shape(dy, dgate) && same_shape(dy, dup));
    dy.type == DTYPE_F32 ? swiglu_backward_typed<float>(dev, dgate, dup, dy, gate, up)
                         : swiglu_backward_typed<bf16>(dev, dgate, dup, dy, gate, up);
}

/* Row r counts the rows of all slots to be filled. */
template <typename T> struct slot_writing {
    rows<T> pool, x;
    elementwise_slots s;
    __device__ T *to(int64_t r) const {
        int64_t c = r / s.slot_rows;
        return pool[(s.slot ? s.slot[c] : c) * s.slot_rows + r % s.slot_rows];
    }
    __device__ const T *from(int64_t r) const {
        return r % s.slot_rows < s.live ? x[r / s.slot_rows * s.positions + r % s.slot_rows] : NULL;
    }
    __device__ void at8(int64_t r, int64_t c) const {
        const T *x = from(r);
        store8(to(r) + c, x ? load8(x + c) : vec8{});
    }
    __device__ void at(int64_t r, int64_t c) const {
        const T *x = from(r);
        to(r)[c] = x ? x[c] : from_float<T>(0.0f);
    }
};

static void elementwise_write_slots(struct device *dev, struct mat pool, struct mat x, struct elementwise_slots slots) {
    assert(pool.cols == x.cols && pool.type == x.type && slots.chunks * slots.positions <= x.rows);
    assert(slots.live <= slots.positions && slots.live <= slots.slot_rows);
    struct mat shape = {NULL, x.type, slots.chunks * slots.slot_rows, x.cols, x.cols};
    bool vectors = vectors_fit(pool) && vectors_fit(x);
    if (x.type == DTYPE_F32)
        elementwise_launch(dev, "elementwise.write_slots",
                           slot_writing<float>{rows_of<float>(pool), rows_of<float>(x), slots}, shape, vectors);
    else
        elementwise_launch(dev, "elementwise.write_slots",
                           slot_writing<bf16>{rows_of<bf16>(pool), rows_of<bf16>(x), slots}, shape, vectors);
}

extern "C" const struct elementwise_ops elementwise_cuda = {.convert = elementwise_convert,
                                                            .add = elementwise_add,
                                                            .swiglu = elementwise_swiglu,
                                                            .swiglu_backward = elementwise_swiglu_backward,
                                                            .write_slots = elementwise_write_slots};
