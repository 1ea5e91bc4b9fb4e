/* ivf_scan_rows_cuda.cuh -- shared by the kernels of ivf_scan: the task, and a warp's products of four rows with a
 * query.
 *
 *   row (fp16)   | 512 bytes | 512 bytes | ...      lane l reads 16 bytes at 16 l of each, for four rows
 *
 * Rows are converted to float32 and sums run in float32. The products of one query take a sixth of the time to read the
 * rows, so up to six queries that scan the same list take no more time. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/search/topk_list_cuda.cuh"
extern "C" {
#include "kernels/search/ivf_scan.h"
}

enum {
    IVF_SCAN_QUERIES = 32, /* of a pass: bits of a mask */
    IVF_SCAN_GROUP = 4,    /* rows that a warp takes at a time */
    IVF_SCAN_WARPS = 16,
    IVF_SCAN_THREADS = 32 * IVF_SCAN_WARPS,
    SELECT_THREADS = 1024,
    JOIN_WARPS = 16
};

/* In the scratch. Up to IVF_SCAN_QUERIES queries (visitor NULL): pieces of IVF_SCAN_GROUP rows. More: of up to
 * MANY_ROWS. */
struct ivf_scan_plan {
    float *score;           /* [queries, lists]: of the centroids, -inf if a list is empty */
    uint32_t *mask;         /* [lists]: which queries scan it; or how many */
    uint16_t *visitor;      /* [lists, queries]: which */
    int32_t *list, *piece;  /* [selected], [selected + 1]: lists that any query scans, their first pieces; or */
                            /* [pieces]: each one's list, and its number there */
    uint32_t *who;          /* [selected]: their masks */
    int32_t *counts;        /* selected lists, pieces, queries done; or pieces, and those drawn so far */
};

struct ivf_scan_task {
    topk_out out;
    ivf_scan_plan plan;
    const int32_t *begin, *id;
    const int64_t (*hole)[2];
    float *block_score; /* [blocks, queries, k] */
    int32_t *block_id;
    int64_t first_query;
    int queries, lists, d, nprobe;
    float scale;
};

/* Ids that a query must not get, in 32 bits. */
static __device__ __forceinline__ void ivf_load_hole(int32_t (&to)[2], const int64_t (*hole)[2], int64_t query) {
    for (int i = 0; i < 2; i++) {
        int64_t at = hole ? hole[query][i] : 0;
        to[i] = (int32_t)(at < 0 ? 0 : at < INT32_MAX ? at : INT32_MAX);
    }
}

/* n queries in shared memory, those of rows which[0], which[1], ... (NULL: the first): two float4 for each 16 bytes
 * that a lane reads of a row, lane after lane. */
template <int UNITS>
static __device__ void ivf_load_queries(float4 *to, rows<const float> queries, const int *which, int n, int d) {
    float *out = (float *)to;
    for (int i = threadIdx.x; i < n * UNITS * 256; i += blockDim.x) {
        int within = i % (UNITS * 256), unit = within / 256, half = within / 128 % 2, lane = within / 4 % 32;
        int at = (unit * 32 + lane) * 8 + half * 4 + within % 4;
        int query = i / (UNITS * 256);
        out[i] = at < d ? queries[which ? which[query] : query][at] : 0.0f;
    }
}

/* Rows first .. first+3 of a matrix in a warp's registers; rows past `last` are that one again. */
template <int UNITS>
static __device__ __forceinline__ void ivf_load_rows(uint4 (&raw)[IVF_SCAN_GROUP][UNITS], rows<const __half> from,
                                                     int64_t first, int64_t last, int d) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int g = 0; g < IVF_SCAN_GROUP; g++) {
        const __half *row = from[first + g < last ? first + g : last];
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            int at = (u * 32 + lane) * 8;
            raw[g][u] = at < d ? load_once(row + at) : make_uint4(0, 0, 0, 0);
        }
    }
}

/* Sixteen bytes of a row as floats. */
struct eight_floats {
    float2 x, y, z, w;
    __device__ __forceinline__ explicit eight_floats(const uint4 &raw) {
        const __half2 *pair = (const __half2 *)&raw;
        x = __half22float2(pair[0]), y = __half22float2(pair[1]), z = __half22float2(pair[2]),
        w = __half22float2(pair[3]);
    }
    __device__ __forceinline__ float dot(const float4 &a, const float4 &b) const {
        return a.x * x.x + a.y * x.y + a.z * y.x + a.w * y.y + b.x * z.x + b.y * z.y + b.z * w.x + b.w * w.y;
    }
};

/* Sums of four rows, a part of each in every lane, to parts of one: a lane holds a part of row lane / 8. */
static __device__ __forceinline__ float ivf_reduce_rows(const float (&sum)[IVF_SCAN_GROUP]) {
    bool upper = threadIdx.x & 16, odd = threadIdx.x & 8;
    float keep0 = upper ? sum[2] : sum[0], keep1 = upper ? sum[3] : sum[1];
    keep0 += __shfl_xor_sync(~0u, upper ? sum[0] : sum[2], 16);
    keep1 += __shfl_xor_sync(~0u, upper ? sum[1] : sum[3], 16);
    return (odd ? keep1 : keep0) + __shfl_xor_sync(~0u, odd ? keep0 : keep1, 8);
}

/* The four rows' products with one query: lane i gets that of row i / 8. */
template <int UNITS>
static __device__ __forceinline__ float ivf_row_dots(const uint4 (&raw)[IVF_SCAN_GROUP][UNITS], const float4 *query) {
    int lane = threadIdx.x % 32;
    float sum[IVF_SCAN_GROUP] = {};
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        float4 a = query[u * 64 + lane], b = query[u * 64 + 32 + lane];
#pragma unroll
        for (int g = 0; g < IVF_SCAN_GROUP; g++)
            sum[g] += eight_floats(raw[g][u]).dot(a, b);
    }
    float keep = ivf_reduce_rows(sum);
#pragma unroll
    for (int offset = 4; offset; offset /= 2)
        keep += __shfl_xor_sync(~0u, keep, offset);
    return keep;
}
