/* topk_list_cuda.cuh -- a warp's sorted list of the best places so far, one place a lane.
 *
 * The order (score, then smaller index) is total, so the best are one set whoever finds them and in whatever order they
 * come: lists of warps and blocks may be joined freely, and the result is the same bits each time. */
#pragma once
#include "kernels/search/topk_sort_cuda.cuh"

enum { LIST_MAX = 32 }; /* places a list has at most: the lanes of a warp */

struct topk_list { /* `k` places, best first; empty ones -1, -inf; in shared memory */
    float *score;
    int32_t *index;
};

static __device__ __forceinline__ bool better(float score, int32_t index, float than, int32_t than_index) {
    return score > than || (score == than && (than_index < 0 || index < than_index));
}

/* All lanes call with the same candidate. Every place worse than it moves on by one. */
static __device__ void list_offer(topk_list l, int k, float score, int32_t index) {
    int lane = threadIdx.x % 32;
    float own = lane < k ? l.score[lane] : -INFINITY;
    int32_t own_index = lane < k ? l.index[lane] : -1;
    unsigned ahead = __ballot_sync(~0u, lane < k && own_index >= 0 && better(own, own_index, score, index));
    int place = __popc(ahead);
    float before = __shfl_up_sync(~0u, own, 1);
    int32_t before_index = __shfl_up_sync(~0u, own_index, 1);
    if (lane < k && lane >= place) {
        l.score[lane] = lane == place ? score : before;
        l.index[lane] = lane == place ? index : before_index;
    }
    __syncwarp();
}

static __device__ void list_clear(topk_list l, int k) {
    if (threadIdx.x % 32 < k) {
        l.score[threadIdx.x % 32] = -INFINITY;
        l.index[threadIdx.x % 32] = -1;
    }
    __syncwarp();
}

/* Each lane may bring a candidate. */
static __device__ __forceinline__ void list_offer_lanes(topk_list l, int k, bool mine, float score, int32_t index) {
    for (unsigned left = __ballot_sync(~0u, mine); left; left &= left - 1) {
        int lane = __ffs(left) - 1;
        list_offer(l, k, __shfl_sync(~0u, score, lane), __shfl_sync(~0u, index, lane));
    }
}

/* As above; `which` of the lists that lie behind one another a lane's is for. */
static __device__ __forceinline__ void list_offer_lanes(topk_list lists, int k, bool mine, int which, float score,
                                                        int32_t index) {
    for (unsigned left = __ballot_sync(~0u, mine); left; left &= left - 1) {
        int lane = __ffs(left) - 1, at = __shfl_sync(~0u, which, lane) * k;
        list_offer({lists.score + at, lists.index + at}, k, __shfl_sync(~0u, score, lane), __shfl_sync(~0u, index, lane));
    }
}

/* A block's lists scores, indexes [warps][queries][k], each query's joined, to `out`, behind those of the blocks before. */
static __device__ void list_join(float *score_out, int32_t *index_out, const float *scores, const int32_t *indexes, int queries,
                                 int k, int warps) {
    int lane = threadIdx.x % 32;
    for (int q = threadIdx.x / 32; q < queries; q += warps) {
        sorted_place best = sorted_best(0, 32, warps * k, [&](int i) {
            int at = (i / k * queries + q) * k + i % k;
            return sorted_place{scores[at], indexes[at]};
        });
        int64_t to = ((int64_t)blockIdx.x * queries + q) * k;
        if (lane < k) {
            score_out[to + lane] = best.score;
            index_out[to + lane] = best.index;
        }
    }
}

/* Which landmarks a round of more than LIST_MAX places may take: those below the last of the round before. */
struct topk_below {
    float score;
    int32_t index;
    __device__ __forceinline__ bool allows(float s, int32_t i) const { return s < score || (s == score && i > index); }
};

/* Where a round's results go, and how its bound is read: place `first` .. first+k-1 of each query's `all` places. */
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
