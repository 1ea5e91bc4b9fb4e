/* ivf_select_lists_cuda.cuh -- selects the lists that each query scans, and plans the work.
 *
 * ivf_centroid_scores: a warp multiplies four centroids with every query. ivf_select_kernel: one block for each query
 * finds the nprobe-th greatest score and marks the lists (a mask of queries for each list, or the queries' numbers);
 * the block that ends last plans the pieces of the marked lists.
 *
 * Selection: each thread's greatest score, and of these the nprobe-th greatest, give a bound that few scores reach (292
 * of 16,384, where 256 are wanted). The scores that reach it are gathered, one in each thread, and the threshold is
 * found among them bit by bit, with one count at a barrier of the block for each bit. If too many scores reach the
 * bound (very many lists, or equal scores), the counts run over all scores. Bound by latency: centroids 10 us,
 * selection and merging some 10 us a query on an H200 (docs/kernels/search.md). */
#pragma once
#include "kernels/search/ivf_scan_rows_cuda.cuh"
#include <cub/block/block_scan.cuh>

template <int UNITS>
static __global__ void __launch_bounds__(IVF_SCAN_THREADS, 1)
    ivf_centroid_scores(ivf_scan_task t, rows<const float> queries, rows<const __half> centroids) {
    extern __shared__ float4 shared[];
    ivf_load_queries<UNITS>(shared, queries, NULL, t.queries, t.d);
    __syncthreads();
    launch_next();
    int lane = threadIdx.x % 32, jump = gridDim.x * IVF_SCAN_WARPS * IVF_SCAN_GROUP;
    if (blockIdx.x == 0 && threadIdx.x == 0) t.plan.counts[2] = 0;
    for (int first = (blockIdx.x * IVF_SCAN_WARPS + threadIdx.x / 32) * IVF_SCAN_GROUP; first < t.lists;
         first += jump) {
        uint4 raw[IVF_SCAN_GROUP][UNITS];
        ivf_load_rows(raw, centroids, first, t.lists - 1, t.d);
        int list = first + lane / 8;
        bool mine = lane % 8 == 0 && list < t.lists;
        bool empty = mine && t.begin[list] == t.begin[list + 1];
        if (mine) t.plan.mask[list] = 0;
        for (int q = 0; q < t.queries; q++) {
            float score = ivf_row_dots(raw, shared + q * UNITS * 64);
            if (mine) t.plan.score[(int64_t)q * t.lists + list] = empty ? -INFINITY : score;
        }
    }
}

/* A number with the order of the scores. */
static __device__ __forceinline__ uint32_t ordered_bits(float score) {
    uint32_t bits = __float_as_uint(score);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* A query's scores: PER of them in each thread's registers, or all in memory (PER 0). */
template <int PER> struct select_keys {
    uint32_t key[PER > 0 ? PER : 1];
    const float *score;
    int lists;
    __device__ void load() {
#pragma unroll
        for (int j = 0; j < PER; j++) {
            int i = j * SELECT_THREADS + threadIdx.x;
            key[j] = i < lists ? ordered_bits(score[i]) : 0;
        }
    }
    template <typename F> __device__ __forceinline__ void each(F f) const {
        if constexpr (PER > 0) {
#pragma unroll
            for (int j = 0; j < PER; j++)
                f(key[j], j * SELECT_THREADS + (int)threadIdx.x);
        } else {
            for (int i = threadIdx.x; i < lists; i += SELECT_THREADS)
                f(ordered_bits(score[i]), i);
        }
    }
};

/* Shared memory of a block. */
struct select_block {
    uint32_t key[SELECT_THREADS]; /* gathered scores and their lists */
    int32_t list[SELECT_THREADS];
    int gathered, part[32];
    bool last;
};

/* The block's sum of one number a thread. */
static __device__ __forceinline__ int select_sum(select_block &own, int mine) {
    int warp = __reduce_add_sync(~0u, mine);
    __syncthreads(); /* the sum before has been read */
    if (threadIdx.x % 32 == 0) own.part[threadIdx.x / 32] = warp;
    __syncthreads();
    return __reduce_add_sync(~0u, own.part[threadIdx.x % 32]);
}

/* The greatest key that at least `wanted` keys reach; *exact: no others do. count(key): how many reach a key. */
template <typename F> static __device__ __forceinline__ uint32_t select_threshold(int wanted, bool *exact, F count) {
    uint32_t least = 0;
    *exact = false;
    for (uint32_t bit = 0x80000000u; bit && !*exact; bit >>= 1) {
        int reached = count(least | bit);
        if (reached >= wanted) least |= bit;
        *exact = reached == wanted;
    }
    return least;
}

static __device__ __forceinline__ void select_mark(const ivf_scan_task &t, int list, int query) {
    const ivf_scan_plan &p = t.plan;
    if (p.visitor)
        p.visitor[(int64_t)list * t.queries + atomicAdd(&p.mask[list], 1u)] = (uint16_t)query;
    else
        atomicOr(&p.mask[list], 1u << query);
}

/* Gathers the scores that reach `bound`, one a thread. False: there are more than threads. */
template <int PER>
static __device__ __forceinline__ bool select_gather(select_block &own, const select_keys<PER> &keys, uint32_t bound) {
    int lane = threadIdx.x % 32, mine = 0;
    if (threadIdx.x == 0) own.gathered = 0;
    keys.each([&](uint32_t key, int) { mine += key >= bound; });
    int before = mine;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        int other = __shfl_up_sync(~0u, before, offset);
        if (lane >= offset) before += other;
    }
    __syncthreads();
    int base = lane == 31 && before > 0 ? atomicAdd(&own.gathered, before) : 0;
    int at = __shfl_sync(~0u, base, 31) + before - mine;
    __syncthreads();
    if (own.gathered > SELECT_THREADS) return false;
    keys.each([&](uint32_t key, int i) {
        if (key < bound) return;
        own.key[at] = key;
        own.list[at++] = i;
    });
    __syncthreads();
    return true;
}

/* Selects among the gathered. Equal scores: the smaller list first. */
static __device__ __forceinline__ void select_among_gathered(const ivf_scan_task &t, const select_block &own,
                                                             int query) {
    int n = own.gathered, list = -1, ahead = 0;
    uint32_t key = 0;
    bool exact;
    if ((int)threadIdx.x < n) key = own.key[threadIdx.x], list = own.list[threadIdx.x];
    uint32_t least =
        select_threshold(t.nprobe, &exact, [&](uint32_t bound) { return __syncthreads_count(key >= bound); });
    if (list < 0 || key < least || key <= ordered_bits(-INFINITY)) return; /* the last: an empty list */
    for (int i = 0; i < n && key == least && !exact; i++)
        ahead += own.key[i] > key || (own.key[i] == key && own.list[i] < list);
    if (ahead < t.nprobe) select_mark(t, list, query);
}

/* Selects among all. */
template <int PER>
static __device__ __forceinline__ void select_among_all(const ivf_scan_task &t, select_block &own,
                                                        const select_keys<PER> &keys, int query) {
    bool exact;
    uint32_t least = select_threshold(t.nprobe, &exact, [&](uint32_t bound) {
        int reached = 0;
        keys.each([&](uint32_t key, int) { reached += key >= bound; });
        return select_sum(own, reached);
    });
    int above = 0;
    keys.each([&](uint32_t key, int i) {
        if (key <= least || i >= t.lists) return;
        above++;
        select_mark(t, i, query);
    });
    int left = t.nprobe - select_sum(own, above);
    if (least <= ordered_bits(-INFINITY)) return; /* the rest is empty */
    for (int last = -1; left > 0; left--) {
        int next = INT32_MAX;
        keys.each([&](uint32_t key, int i) {
            if (key == least && i > last && i < next && i < t.lists) next = i;
        });
        next = __reduce_min_sync(~0u, next);
        __syncthreads();
        if (threadIdx.x % 32 == 0) own.part[threadIdx.x / 32] = next;
        __syncthreads();
        last = __reduce_min_sync(~0u, own.part[threadIdx.x % 32]);
        if (threadIdx.x == 0) select_mark(t, last, query);
    }
}

template <int PER>
static __device__ __forceinline__ void select_for_query(const ivf_scan_task &t, select_block &own, int query) {
    select_keys<PER> keys;
    keys.score = t.plan.score + (int64_t)query * t.lists;
    keys.lists = t.lists;
    keys.load();
    uint32_t greatest = 0;
    bool exact;
    keys.each([&](uint32_t key, int) { greatest = key > greatest ? key : greatest; });
    uint32_t bound =
        select_threshold(t.nprobe, &exact, [&](uint32_t key) { return __syncthreads_count(greatest >= key); });
    if (bound > 0 && select_gather<PER>(own, keys, bound))
        select_among_gathered(t, own, query);
    else
        select_among_all<PER>(t, own, keys, query);
}

/* Marked lists to pieces of `each` rows, by one block, PLAN_EACH lists a thread at a time. */
static __device__ __forceinline__ void ivf_plan_pieces(const ivf_scan_task &t, int each) {
    enum { PLAN_EACH = 16 };
    using scan = cub::BlockScan<unsigned long long, SELECT_THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
    __shared__ typename scan::TempStorage scan_storage;
    const ivf_scan_plan &p = t.plan;
    unsigned long long before = 0; /* lists in the upper half, pieces in the lower */
    for (int first = 0; first < t.lists; first += PLAN_EACH * SELECT_THREADS) {
        uint32_t who[PLAN_EACH];
        int pieces[PLAN_EACH];
        unsigned long long mine = 0, all;
#pragma unroll
        for (int j = 0; j < PLAN_EACH; j++) {
            int l = first + j * SELECT_THREADS + (int)threadIdx.x;
            who[j] = l < t.lists ? __ldcg(p.mask + l) : 0;
        }
#pragma unroll
        for (int j = 0; j < PLAN_EACH; j++) {
            int l = first + j * SELECT_THREADS + (int)threadIdx.x;
            pieces[j] = who[j] ? (t.begin[l + 1] - t.begin[l] + each - 1) / each : 0;
        }
#pragma unroll
        for (int j = 0; j < PLAN_EACH; j++)
            if (who[j]) mine += (1ull << 32) + pieces[j];
        scan(scan_storage).ExclusiveSum(mine, mine, all);
        mine += before;
        before += all;
#pragma unroll
        for (int j = 0; j < PLAN_EACH; j++) {
            int at = (int)(mine >> 32), piece = (int)(uint32_t)mine, l = first + j * SELECT_THREADS + (int)threadIdx.x;
            if (!who[j]) continue;
            for (int i = 0; i < pieces[j] && p.visitor; i++) {
                p.list[piece + i] = l;
                p.piece[piece + i] = i;
            }
            if (!p.visitor) {
                p.list[at] = l;
                p.who[at] = who[j];
                p.piece[at] = piece;
            }
            mine += (1ull << 32) + pieces[j];
        }
        __syncthreads(); /* the storage may be used again */
    }
    if (threadIdx.x > 0) return;
    int visited = (int)(before >> 32), all = (int)(uint32_t)before;
    p.counts[0] = p.visitor ? all : visited;
    p.counts[1] = p.visitor ? 0 : all;
    if (!p.visitor) p.piece[visited] = all;
}

template <int PER>
static __global__ void __launch_bounds__(SELECT_THREADS) ivf_select_kernel(ivf_scan_task t, int each) {
    __shared__ select_block own;
    launch_wait();
    select_for_query<PER>(t, own, blockIdx.x);
    launch_next();
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) own.last = atomicAdd(&t.plan.counts[2], 1) == (int)gridDim.x - 1;
    __syncthreads();
    if (!own.last) return;
    __threadfence();
    ivf_plan_pieces(t, each);
}
