/* cuda.cuh -- shared by all kernels: launches, conversions between storage types, 16-byte vectors, reductions in a
 * fixed order. Nothing else belongs here. */
#pragma once
#include "kernels/cuda/instructions.cuh"
#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>
extern "C" {
#include "kernels/device/device_cuda_internal.h"
#include "kernels/ops_cuda_internal.h"
}

using bf16 = __nv_bfloat16;

template <typename T> inline enum dtype dtype_of();
template <> inline enum dtype dtype_of<float>() { return DTYPE_F32; }
template <> inline enum dtype dtype_of<bf16>() { return DTYPE_BF16; }
template <> inline enum dtype dtype_of<__half>() { return DTYPE_F16; }

/* A matrix view as a kernel parameter. */
template <typename T> struct rows {
    T *data;
    int64_t stride;
    __device__ T *operator[](int64_t row) const { return data + row * stride; }
};
template <typename T> static rows<T> rows_of(struct mat m) {
    assert(m.type == dtype_of<T>());
    return {(T *)m.data, m.stride};
}

static __device__ __forceinline__ float to_float(float x) {
    return x;
}
static __device__ __forceinline__ float to_float(bf16 x) {
    return __bfloat162float(x);
}
static __device__ __forceinline__ float to_float(__half x) {
    return __half2float(x);
}
template <typename T> static __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}

/* Eight numbers as floats. The address must be a multiple of 16 bytes; one access of 16 bytes (16-bit types) or two. */
struct vec8 {
    float v[8];
};
static __device__ __forceinline__ vec8 load8(const float *p) {
    float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
static __device__ __forceinline__ float2 two_floats(__nv_bfloat162 x) {
    return __bfloat1622float2(x);
}
static __device__ __forceinline__ float2 two_floats(__half2 x) {
    return __half22float2(x);
}
template <typename PAIR> static __device__ __forceinline__ vec8 load8_pairs(const void *p) {
    uint4 raw = *(const uint4 *)p;
    const PAIR *pair = (const PAIR *)&raw;
    vec8 x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 f = two_floats(pair[i]);
        x.v[2 * i] = f.x;
        x.v[2 * i + 1] = f.y;
    }
    return x;
}
static __device__ __forceinline__ vec8 load8(const bf16 *p) {
    return load8_pairs<__nv_bfloat162>(p);
}
static __device__ __forceinline__ vec8 load8(const __half *p) {
    return load8_pairs<__half2>(p);
}
/* 16 bytes that are not read again: not kept in L1. */
static __device__ __forceinline__ uint4 load_once(const void *p) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(p));
    return x;
}
static __device__ __forceinline__ void store8(float *p, const vec8 &x) {
    *(float4 *)p = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    *(float4 *)(p + 4) = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}
static __device__ __forceinline__ void store8(bf16 *p, const vec8 &x) {
    uint4 raw;
    __nv_bfloat162 *pair = (__nv_bfloat162 *)&raw;
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __floats2bfloat162_rn(x.v[2 * i], x.v[2 * i + 1]);
    *(uint4 *)p = raw;
}

/* Whether rows of this view can be loaded eight numbers at a time. */
static inline bool vectors_fit(struct mat m) {
    return (uintptr_t)m.data % 16 == 0 && m.stride % 8 == 0 && m.cols % 8 == 0;
}

/* Sums and maxima over a warp; every lane gets the result. Butterfly shuffles, so the order is fixed. */
static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        x += __shfl_xor_sync(~0u, x, offset);
    return x;
}
static __device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
    return x;
}
/* Over a block of whole warps (at most 32); `shared` has a float per warp. Every thread gets the result. */
static __device__ __forceinline__ float block_sum(float x, float *shared) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? shared[lane] : 0.0f);
}
static __device__ __forceinline__ float block_max(float x, float *shared) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    return warp_max(lane < warps ? shared[lane] : -INFINITY);
}

static inline int64_t blocks_for(int64_t n, int64_t each) {
    return (n + each - 1) / each;
}

/* Launches on the device's stream. A fault is recorded under the op's name. */
template <typename... Parameters, typename... Arguments>
static void launch(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, Arguments... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    kernel<<<grid, block, shared_bytes, device_cuda_stream(dev)>>>((Parameters)arguments...);
    device_cuda_check(dev, op);
}
