/* topk_split_cuda.cuh -- queries of a wider type than the landmarks, for tensor cores: one or two parts of the
 * landmarks' type, the rounded number and the rounding error. The scores of the parts are added.
 *
 * fp16 covers few powers of two. So a query is first multiplied by the power of two that moves its greatest number near
 * the end of that range, and its sums are divided by it: the loss is below 2^-22 of a number, or 2^-38 of the query's
 * greatest. A query with a number that is not finite has sums that are NaN: it finds nothing. */
#pragma once
#include "kernels/cuda/cuda.cuh"
#include <type_traits>

enum { SPLIT_WARPS = 8, SPLIT_THREADS = 32 * SPLIT_WARPS };

/* The power of two of a query, the same for all lanes of a warp that call. */
template <typename T, typename Q> static __device__ __forceinline__ float split_power(const Q *query, int64_t d) {
    if constexpr (std::is_same_v<T, __half> && !std::is_same_v<Q, __half>) {
        float greatest = 0.0f;
        for (int64_t i = threadIdx.x % 32; i < d; i += 32)
            greatest = fmaxf(greatest, fabsf(to_float(query[i])));
        greatest = warp_max(greatest);
        if (!(greatest > 0.0f && greatest < INFINITY)) return 1.0f;
        int exponent = 14 - ilogbf(greatest); /* to 2^14 .. 2^15 */
        return ldexpf(1.0f, exponent < -120 ? -120 : exponent < 120 ? exponent : 120);
    }
    return 1.0f;
}

/* Parts of n queries: row r of `parts` has the rounded number and, if PARTS is 2, row n + r the rest; factor[r] is the
 * factor from sums to scores, and reach [n + 1] is cleared. One warp for each query. */
template <typename T, typename Q, int PARTS>
static __global__ void __launch_bounds__(SPLIT_THREADS)
    split_queries(T *parts, float *factor, int32_t *reach, rows<const Q> queries, int64_t n, int64_t d, float scale) {
    int64_t r = (int64_t)blockIdx.x * SPLIT_WARPS + threadIdx.x / 32;
    if (r >= n) return;
    float power = split_power<T>(queries[r], d);
    for (int64_t i = threadIdx.x % 32; i < d; i += 32) {
        float q = to_float(queries[r][i]) * power;
        T rounded = from_float<T>(q);
        parts[r * d + i] = rounded;
        if (PARTS == 2) parts[(n + r) * d + i] = from_float<T>(q - to_float(rounded));
    }
    if (threadIdx.x % 32 == 0) factor[r] = scale / power, reach[r] = 0, reach[n] = 0;
}
