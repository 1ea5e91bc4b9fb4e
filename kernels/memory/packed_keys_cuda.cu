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

template <typename T>
static __global__ void __launch_bounds__(PACKED_THREADS)
    unpack_kernel(rows<T> keys, float *square, packed_keys packed, const int32_t *from, const int32_t *to, int64_t n,
                  int m) {
    const int64_t row = (int64_t)blockIdx.x * PACKED_WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, at = row < n ? to[row] : -1;
    if (at < 0) return;
    const int64_t of = from ? from[row] : row;
    const float by = packed.scale[of];
    T *key = keys[at];
    float sum = 0.0f;
    for (int j = lane; j < m; j += 32) {
        const T number = from_float<T>(__fmul_rn(by, (float)packed.code[of * m + j]));
        const float x = to_float(number);
        key[j] = number, sum += x * x;
    }
    sum = warp_sum(sum);
    if (lane == 0) square[at] = sum;
}

static __global__ void __launch_bounds__(PACKED_THREADS)
    passages_kernel(packed_passages out, packed_chunks of, const int64_t *chunk, int64_t n, int before, int after) {
    const int64_t i = (int64_t)blockIdx.x * PACKED_THREADS + threadIdx.x;
    if (i < n) packed_passage_of(&out.slot[i], &out.entries[i], &of, chunk[i], before, after);
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

static void packed_keys_unpack(struct device *dev, struct mat keys, float *square, struct packed_keys packed,
                               const int32_t *from, const int32_t *to, int64_t n) {
    auto run = [&](auto kernel, auto view) {
        launch(dev, "packed_keys.unpack", kernel, (unsigned)blocks_for(n, PACKED_WARPS), PACKED_THREADS, 0, view,
               square, packed, from, to, n, (int)keys.cols);
    };
    if (keys.type == DTYPE_F32) run(unpack_kernel<float>, rows<float>{(float *)keys.data, keys.stride});
    else if (keys.type == DTYPE_BF16) run(unpack_kernel<bf16>, rows<bf16>{(bf16 *)keys.data, keys.stride});
    else run(unpack_kernel<__half>, rows<__half>{(__half *)keys.data, keys.stride});
}

static void packed_keys_passages(struct device *dev, struct packed_passages out, const struct packed_chunks *of,
                                 const int64_t *chunk, int64_t n, int before, int after) {
    launch(dev, "packed_keys.passages", passages_kernel, (unsigned)blocks_for(n, PACKED_THREADS), PACKED_THREADS, 0,
           out, *of, chunk, n, before, after);
}

extern "C" const struct packed_keys_ops packed_keys_cuda = {
    .pack = packed_keys_pack, .unpack = packed_keys_unpack, .passages = packed_keys_passages};
