/* topk_list_cuda.cuh -- a warp's sorted list of the best k so far, one slot in each lane.
 *
 * The order (score, then smaller index) is total: lists of warps and blocks may be merged in any order, and the result
 * has the same bits each time. */
#pragma once
#include "kernels/search/topk_sort_cuda.cuh"

enum { TOPK_LIST_MAX = 32 }; /* slots of a list: the lanes of a warp */

struct topk_list { /* k slots, best first; empty: -1, -inf. In shared memory */
    float *score;
    int32_t *index;
};

static __device__ __forceinline__ bool topk_better(float score, int32_t index, float than, int32_t than_index) {
    return score > than || (score == than && (than_index < 0 || index < than_index));
}

/* All lanes call with the same candidate. Slots that are worse move up by one. */
static __device__ void topk_list_offer(topk_list l, int k, float score, int32_t index) {
    int lane = threadIdx.x % 32;
    float own = lane < k ? l.score[lane] : -INFINITY;
    int32_t own_index = lane < k ? l.index[lane] : -1;
    unsigned ahead = __ballot_sync(~0u, lane < k && own_index >= 0 && topk_better(own, own_index, score, index));
    int slot = __popc(ahead);
    float before = __shfl_up_sync(~0u, own, 1);
    int32_t before_index = __shfl_up_sync(~0u, own_index, 1);
    if (lane < k && lane >= slot) {
        l.score[lane] = lane == slot ? score : before;
        l.index[lane] = lane == slot ? index : before_index;
    }
    __syncwarp();
}

static __device__ void topk_list_clear(topk_list l, int k) {
    if (threadIdx.x % 32 < k) {
        l.score[threadIdx.x % 32] = -INFINITY;
        l.index[threadIdx.x % 32] = -1;
    }
    __syncwarp();
}

/* Each lane may have a candidate (`mine`). */
static __device__ __forceinline__ void topk_list_offer_lanes(topk_list l, int k, bool mine, float score,
                                                             int32_t index) {
    for (unsigned left = __ballot_sync(~0u, mine); left; left &= left - 1) {
        int lane = __ffs(left) - 1;
        topk_list_offer(l, k, __shfl_sync(~0u, score, lane), __shfl_sync(~0u, index, lane));
    }
}

/* As above, for consecutive lists; `which`: the list of a lane's candidate. */
static __device__ __forceinline__ void topk_list_offer_lanes(topk_list lists, int k, bool mine, int which, float score,
                                                        int32_t index) {
    for (unsigned left = __ballot_sync(~0u, mine); left; left &= left - 1) {
        int lane = __ffs(left) - 1, at = __shfl_sync(~0u, which, lane) * k;
        topk_list_offer({lists.score + at, lists.index + at}, k, __shfl_sync(~0u, score, lane),
                        __shfl_sync(~0u, index, lane));
    }
}

/* Merges a block's lists [warps][queries][k] of each query into the outputs [blocks][queries][k]. */
static __device__ void topk_list_join(float *score_out, int32_t *index_out, const float *scores, const int32_t *indexes,
                                      int queries, int k, int warps) {
    int lane = threadIdx.x % 32;
    for (int q = threadIdx.x / 32; q < queries; q += warps) {
        sorted_slot best = sorted_best(0, 32, warps * k, [&](int i) {
            int at = (i / k * queries + q) * k + i % k;
            return sorted_slot{scores[at], indexes[at]};
        });
        int64_t to = ((int64_t)blockIdx.x * queries + q) * k;
        if (lane < k) {
            score_out[to + lane] = best.score;
            index_out[to + lane] = best.index;
        }
    }
}

/* k above TOPK_LIST_MAX takes several rounds: a round finds only results that are worse than the last of the round
 * before. */
struct topk_below {
    float score;
    int32_t index;
    __device__ __forceinline__ bool allows(float s, int32_t i) const { return s < score || (s == score && i > index); }
};

/* A round's results: slots first .. first+k-1 of each query's `all`. bound: the best result that the round may find. */
struct topk_out {
    int64_t *index;
    float *score;
    int all, first, k;
    __device__ topk_below bound(int64_t query) const {
        if (first == 0) return {INFINITY, -1};
        int64_t last = query * all + first - 1;
        return {score[last], index[last] < 0 ? INT32_MAX : (int32_t)index[last]};
    }
};
