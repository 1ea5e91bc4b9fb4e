/* lexical_scan_score_cuda.cuh -- the scores of given chunks: a block of threads has one chunk of one query.
 *
 * A chunk is a window of one chunk: of each sparse list at most one block overlaps it, which a group of 16 lanes
 * decodes. Of each dense list one thread reads the code. Bound by latency: a search in tables and one read of a block.
 * 64 chunks of a query with 191 sparse lists take 19 us (H200, docs/kernels/search.md). */
#pragma once
#include "kernels/lexical/lexical_scan_lists_cuda.cuh"

enum { SCORE_THREADS = 512 };

struct scan_score_task {
    struct lexical_scan in;
    float *score; /* [queries, n] */
    const int64_t *chunk;
    int n;
};

/* The last segment that begins at the chunk or before it. */
static __device__ int scan_segment_of_chunk(const lexical_scan &in, int64_t chunk) {
    int low = 0, high = (int)in.n_segments - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (in.segments[middle].first_chunk <= chunk) low = middle;
        else high = middle - 1;
    }
    return low;
}

static __global__ void __launch_bounds__(SCORE_THREADS) scan_score_kernel(scan_score_task t) {
    __shared__ scan_found found;
    __shared__ int32_t sums[1 + 32];
    __shared__ uint32_t of_warp[32];
    int q = (int)(blockIdx.x / (unsigned)t.n);
    launch_next();
    if (threadIdx.x <= 32) sums[threadIdx.x] = 0;
    launch_wait(); /* for the chunks */
    int64_t chunk = t.chunk[blockIdx.x];
    int segment = scan_segment_of_chunk(t.in, chunk);
    lexical_scan_segment in = t.in.segments[segment];
    lexical_scan_part part = t.in.parts[q * t.in.n_segments + segment];
    int64_t at = chunk - in.first_chunk;
    __syncthreads();
    if (at >= 0 && at < in.chunks) {
        scan_add_sparse<SCORE_THREADS, 1>(sums, &found, of_warp, t.in, part, (uint32_t)at, 1, in.chunks);
        for (int i = threadIdx.x; i < part.dense; i += SCORE_THREADS) {
            const lexical_scan_list &l = t.in.lists[part.first + part.sparse + i];
            int code = __ldg(t.in.postings + l.begin + at / 4) >> (int)(at % 4) * 2 & 3;
            if (code) atomicAdd(&sums[0], l.weight[code - 1]);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) t.score[blockIdx.x] = (float)sums[0] * t.in.queries[q].unit;
}

static void lexical_scan_score(struct device *dev, float *score, const struct lexical_scan *scan, const int64_t *chunk,
                               int n) {
    assert(n >= 1 && scan->n_segments >= 1 && scan->n_queries * n < INT32_MAX);
    launch_dependent(dev, "lexical_scan.score", scan_score_kernel, (unsigned)(scan->n_queries * n), SCORE_THREADS, 0,
                     scan_score_task{*scan, score, chunk, n});
}
