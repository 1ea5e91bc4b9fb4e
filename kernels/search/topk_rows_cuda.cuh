/* topk_rows_cuda.cuh -- the best landmarks of up to 4 queries, all in float32: the running text's own past in decoding.
 *
 *   block (x: landmarks, y: query)   query [d] in shared memory
 *     warp 0..7                      a landmark a warp, two in flight; a list a warp
 *     at the end                     warp 0 merges the lists; topk_join_blocks merges those of the blocks
 *
 * Bound by memory, 4 E d bytes a query; below a few thousand landmarks by its launches: two, or one up to 64 landmarks
 * (the path by products takes four). */
#pragma once
#include "kernels/search/topk_list_cuda.cuh"

enum {
    ROWS_QUERIES = 4, /* more queries take the path by products, which reads the landmarks once for all of them */
    ROWS_WARPS = 8,
    ROWS_THREADS = 32 * ROWS_WARPS,
    ROWS_EACH = 64, /* landmarks of a block at least */
    ROWS_DIM_MAX = 4096
};

struct topk_rows_task {
    topk_out out;
    const int64_t *visible;
    float *score; /* [blocks, queries, k], in the scratch */
    int32_t *index;
    int64_t landmarks;
    int d;
    float scale;
};

static __device__ __forceinline__ float topk_rows_dot(const float4 &a, const float4 &b) {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

static __global__ void __launch_bounds__(ROWS_THREADS)
    topk_rows_kernel(topk_rows_task t, rows<const float> queries, rows<const float> landmarks) {
    extern __shared__ float4 query[];
    __shared__ float score[ROWS_WARPS][TOPK_LIST_MAX];
    __shared__ int32_t index[ROWS_WARPS][TOPK_LIST_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = t.out.k, pieces = t.d / 4, q = blockIdx.y;
    for (int i = threadIdx.x; i < pieces; i += ROWS_THREADS)
        query[i] = ((const float4 *)queries[q])[i];
    topk_list l = {score[warp], index[warp]};
    topk_list_clear(l, k);
    topk_below below = t.out.bound(q);
    int64_t sees = t.visible[q] < t.landmarks ? t.visible[q] : t.landmarks, step = (int64_t)gridDim.x * ROWS_WARPS;
    __syncthreads();
    for (int64_t first = (int64_t)blockIdx.x * ROWS_WARPS + warp; first < sees; first += 2 * step) {
        int64_t second = first + step < sees ? first + step : first;
        const float4 *a = (const float4 *)landmarks[first], *b = (const float4 *)landmarks[second];
        float sum[2] = {};
#pragma unroll 6
        for (int i = lane; i < pieces; i += 32) {
            sum[0] += topk_rows_dot(a[i], query[i]);
            sum[1] += topk_rows_dot(b[i], query[i]);
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float s = warp_sum(sum[j]) * t.scale;
            int32_t which = (int32_t)(j ? second : first);
            if ((j == 0 || second != first) && topk_better(s, which, l.score[k - 1], l.index[k - 1]) &&
                below.allows(s, which))
                topk_list_offer(l, k, s, which);
        }
    }
    __syncthreads();
    if (warp) return;
    for (int base = k; base < ROWS_WARPS * k; base += 32) {
        int i = base + lane, from = i / k;
        bool mine = i < ROWS_WARPS * k && index[from][i % k] >= 0;
        topk_list_offer_lanes(l, k, mine && score[from][i % k] >= l.score[k - 1], mine ? score[from][i % k] : 0.0f,
                         mine ? index[from][i % k] : -1);
    }
    if (lane >= k) return;
    if (gridDim.x == 1) {
        t.out.score[q * t.out.all + t.out.first + lane] = l.score[lane];
        t.out.index[q * t.out.all + t.out.first + lane] = l.index[lane];
    } else {
        int64_t at = ((int64_t)blockIdx.x * gridDim.y + q) * k + lane;
        t.score[at] = l.score[lane];
        t.index[at] = l.index[lane];
    }
}

static bool topk_rows_fit(struct mat queries, struct mat landmarks) {
    auto fits = [](struct mat m) { return m.type == DTYPE_F32 && (uintptr_t)m.data % 16 == 0 && m.stride % 4 == 0; };
    return queries.rows <= ROWS_QUERIES && fits(queries) && fits(landmarks) && queries.cols % 4 == 0 &&
           queries.cols <= ROWS_DIM_MAX;
}

/* Returns the number of blocks whose lists are to be merged; 1: the results are complete. */
static int topk_rows_search(struct device *dev, topk_rows_task *t, struct mat queries, struct mat landmarks) {
    int64_t blocks = blocks_for(landmarks.rows, ROWS_EACH), most = device_cuda_processors(dev);
    if (blocks > most) blocks = most;
    size_t slots = (size_t)(blocks * queries.rows * t->out.k);
    t->score = (float *)device_cuda_scratch(dev, 2 * slots * sizeof(float));
    t->index = (int32_t *)(void *)(t->score + slots);
    t->landmarks = landmarks.rows;
    t->d = (int)queries.cols;
    t->scale = 1.0f / sqrtf((float)queries.cols);
    launch(dev, "topk.forward", topk_rows_kernel, dim3((unsigned)blocks, (unsigned)queries.rows), ROWS_THREADS,
           (size_t)queries.cols * sizeof(float), *t, rows<const float>{(const float *)queries.data, queries.stride},
           rows<const float>{(const float *)landmarks.data, landmarks.stride});
    return (int)blocks;
}
