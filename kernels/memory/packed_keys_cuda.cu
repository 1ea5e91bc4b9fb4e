/* packed_keys_cuda.cu -- keys in 8 bits a number on a GPU: one warp a row, lane l has the columns l, l + 32, ..
 *
 * Bound: memory (3 m bytes a row of bf16), in practice latency: a search unpacks some hundred rows. The order of a
 * row's sum is that of plain_squares. */
#include "kernels/cuda/cuda.cuh"
extern "C" {
#include "kernels/memory/packed_keys.h"
}

enum { PACKED_WARPS = 8, PACKED_THREADS = 32 * PACKED_WARPS };

template <typename T>
static __global__ void __launch_bounds__(PACKED_THREADS)
    pack_kernel(int8_t *code, float *scale, rows<const T> keys, int64_t n, int m) {
    const int64_t row = (int64_t)blockIdx.x * PACKED_WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= n) return;
    const T *key = keys[row];
    float largest = 0.0f, lost = 0.0f; /* lost: NaN if a number is not finite */
    for (int j = lane; j < m; j += 32) {
        const float x = to_float(key[j]);
        largest = fmaxf(largest, fabsf(x)), lost += x - x;
    }
    const float by = __fdiv_rn(warp_max(largest) + warp_sum(lost), 127.0f);
    if (lane == 0) scale[row] = by;
    for (int j = lane; j < m; j += 32) {
        float x = by > 0.0f ? __fdiv_rn(to_float(key[j]), by) : 0.0f;
        x = fminf(fmaxf(x, -127.0f), 127.0f);
        code[row * m + j] = (int8_t)__float2int_rn(x);
    }
}

/* Row `at` of the keys becomes `by` times the codes. */
template <typename T>
static __device__ __forceinline__ void unpack_row(rows<T> keys, float *square, const int8_t *code, float by, int64_t at,
                                                  int m) {
    const int lane = threadIdx.x % 32;
    T *to = keys[at];
    float sum = 0.0f;
    for (int j = lane; j < m; j += 32) {
        const T number = from_float<T>(__fmul_rn(by, (float)code[j]));
        const float x = to_float(number);
        to[j] = number, sum += x * x;
    }
    sum = warp_sum(sum);
    if (lane == 0) square[at] = sum;
}

template <typename T>
static __global__ void __launch_bounds__(PACKED_THREADS)
    unpack_kernel(rows<T> keys, float *square, const int8_t *code, const float *scale, const int32_t *to, int64_t n,
                  int m) {
    const int64_t row = (int64_t)blockIdx.x * PACKED_WARPS + threadIdx.x / 32;
    const int at = row < n ? to[row] : -1;
    if (at >= 0) unpack_row(keys, square, code + row * m, scale[row], at, m);
}

struct gather_call {
    packed_chunks from;
    float *square;
    int32_t *value;
    const int64_t *chunk;
    int64_t first_row, rows; /* of the slots */
    int before, after, slot_rows, m;
};
template <typename T>
static __global__ void __launch_bounds__(PACKED_THREADS) gather_kernel(rows<T> keys, const gather_call c) {
    const int64_t row = (int64_t)blockIdx.x * PACKED_WARPS + threadIdx.x / 32;
    if (row >= c.rows) return;
    const int64_t slot = row / c.slot_rows, at = c.first_row + row, chunk = c.chunk[slot];
    const int r = (int)(row - slot * c.slot_rows);
    packed_passage p = {};
    if (chunk >= 0) p = packed_passage_of(&c.from, chunk, c.before, c.after);
    if (threadIdx.x % 32 == 0) c.value[at] = r + 1 < p.rows ? c.from.value[p.row + r] : -1;
    if (r >= p.rows) return;
    const int64_t of = p.row + r;
    unpack_row(keys, c.square, c.from.keys.code + of * c.m, c.from.keys.scale[of], at, c.m);
}

static void packed_keys_pack(struct device *dev, int8_t *code, float *scale, struct mat keys) {
    auto run = [&](auto kernel, auto view) {
        launch(dev, "packed_keys.pack", kernel, (unsigned)blocks_for(keys.rows, PACKED_WARPS), PACKED_THREADS, 0, code,
               scale, view, keys.rows, (int)keys.cols);
    };
    if (keys.type == DTYPE_F32) run(pack_kernel<float>, rows<const float>{(const float *)keys.data, keys.stride});
    else if (keys.type == DTYPE_BF16) run(pack_kernel<bf16>, rows<const bf16>{(const bf16 *)keys.data, keys.stride});
    else run(pack_kernel<__half>, rows<const __half>{(const __half *)keys.data, keys.stride});
}

static void packed_keys_unpack(struct device *dev, struct mat keys, float *square, const int8_t *code,
                               const float *scale, const int32_t *to, int64_t n) {
    auto run = [&](auto kernel, auto view) {
        launch(dev, "packed_keys.unpack", kernel, (unsigned)blocks_for(n, PACKED_WARPS), PACKED_THREADS, 0, view,
               square, code, scale, to, n, (int)keys.cols);
    };
    if (keys.type == DTYPE_F32) run(unpack_kernel<float>, rows<float>{(float *)keys.data, keys.stride});
    else if (keys.type == DTYPE_BF16) run(unpack_kernel<bf16>, rows<bf16>{(bf16 *)keys.data, keys.stride});
    else run(unpack_kernel<__half>, rows<__half>{(__half *)keys.data, keys.stride});
}

static void packed_keys_gather(struct device *dev, const struct packed_slots *to, const struct packed_chunks *from,
                               const int64_t *chunk, int64_t first, int64_t n) {
    const int slot_rows = (to->before + 1 + to->after) * from->chunk_rows;
    const gather_call c = {*from,         to->square, to->value, chunk,     first * slot_rows,
                           n * slot_rows, to->before, to->after, slot_rows, (int)to->keys.cols};
    auto run = [&](auto kernel, auto view) {
        launch(dev, "packed_keys.gather", kernel, (unsigned)blocks_for(c.rows, PACKED_WARPS), PACKED_THREADS, 0, view,
               c);
    };
    assert((first + n) * slot_rows <= to->keys.rows);
    if (n == 0) return;
    if (to->keys.type == DTYPE_F32) run(gather_kernel<float>, rows<float>{(float *)to->keys.data, to->keys.stride});
    else if (to->keys.type == DTYPE_BF16) run(gather_kernel<bf16>, rows<bf16>{(bf16 *)to->keys.data, to->keys.stride});
    else run(gather_kernel<__half>, rows<__half>{(__half *)to->keys.data, to->keys.stride});
}

extern "C" const struct packed_keys_ops packed_keys_cuda = {
    .pack = packed_keys_pack, .unpack = packed_keys_unpack, .gather = packed_keys_gather};
