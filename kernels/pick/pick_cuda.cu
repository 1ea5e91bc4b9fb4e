/* pick_cuda.cu -- pick.h on a GPU: a cluster of eight thread blocks a row (four if there are many rows); before Hopper
 * one block.
 *
 *   block      a slice of the vocabulary, in shared memory: logits as they count (NaN: not there), units
 *   warp       consecutive ids of the slice, 32 at a time, so that sums of warps are in the order of ids
 *   exchange   a block's sums are written to every block of the cluster; one cluster barrier
 *
 * Greedy: the maximum, one exchange. Else the sum of units, and the id that a draw falls on; with top-p the sum before
 * it, two more barriers. A log-probability joins these exchanges. Top-k first finds the smallest of its logits, four
 * bits of their order with each exchange, until the ids that reach it are k; among equal ones by id. All sums are of
 * integers. Without enough shared memory (a large vocabulary, or a GPU before Hopper) slices are in the device's
 * scratch.
 *
 * Bound by barriers and by loops over few ids a thread, of some 20 operations each. */
#include "kernels/cuda/launch_cuda.cuh"
extern "C" {
#include "kernels/pick/pick.h"
}

/* PICK_FEW: with more rows a cluster has half as many blocks, so that all run at once. PICK_LOADS: in flight. */
enum {
    PICK_WARPS = 16,
    PICK_THREADS = 32 * PICK_WARPS,
    PICK_CLUSTER = 8,
    PICK_FEW = 16,
    PICK_DIGITS = 16,
    PICK_LOADS = 16,
    PICK_VALUES = 4
};

struct pick_shared {
    uint64_t inbox[2][PICK_CLUSTER][PICK_VALUES]; /* the blocks' sums, by parity of the exchange */
    uint32_t counts[2][PICK_CLUSTER][PICK_DIGITS];
    uint64_t found[2];
    uint64_t warp[PICK_VALUES][PICK_WARPS];
    uint32_t warp_counts[PICK_WARPS][PICK_DIGITS];
    uint64_t list[PICK_BEST_MAX];
    uint64_t random; /* of the first draw */
    unsigned listed;
};

template <int ROWS> struct pick_arguments {
    struct pick_row rows[ROWS];
    int64_t vocab, slice; /* slice: a multiple of PICK_THREADS */
    int cluster;
    float *spill; /* [rows, cluster, 2, slice]; NULL: shared memory */
};

template <typename T> static __device__ __forceinline__ T *pick_peer(T *mine, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint64_t theirs;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
    return (T *)theirs;
#else
    return mine;
#endif
}
/* Called by all threads: what was written before an arrival is visible to all blocks after the wait. */
static __device__ __forceinline__ void pick_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void pick_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}
static __device__ __forceinline__ void pick_barrier() {
    pick_arrive();
    pick_wait();
}
static __device__ __forceinline__ uint32_t pick_redux_add(uint32_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(~0u, x);
#else
    return x;
#endif
}
static __device__ __forceinline__ uint32_t pick_redux_max(uint32_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(~0u, x);
#else
    return x;
#endif
}
/* Over the warp, by 32-bit sums of pieces of 21 bits; every lane gets the result. */
static __device__ __forceinline__ uint64_t pick_warp_sum(uint64_t x) {
    const uint32_t piece = 0x1FFFFF;
    const uint64_t low = pick_redux_add((uint32_t)x & piece), middle = pick_redux_add((uint32_t)(x >> 21) & piece);
    return low + (middle << 21) + ((uint64_t)pick_redux_add((uint32_t)(x >> 42)) << 42);
}
static __device__ __forceinline__ uint64_t pick_warp_max(uint64_t x) {
    const uint32_t high = pick_redux_max((uint32_t)(x >> 32));
    return (uint64_t)high << 32 | pick_redux_max((uint32_t)(x >> 32) == high ? (uint32_t)x : 0);
}

/* Every function is called by all threads of the cluster, with the same arguments but for what a thread counts. */
struct pick_block {
    const struct pick_row &row;
    struct pick_shared &shared;
    float *x;        /* the warp's part of the slice */
    uint32_t *units;
    int first, vocab; /* first: id of x[0] */
    int steps, lane, warp, rank, cluster, parity;

    __device__ int id_of(int step) const { return first + 32 * step + lane; }

    /* ---- exchanges ---- */

    /* The cluster's sums of N values, or their maxima. Afterwards shared.warp[0] has the first value of each warp, and
     * the inbox the values of the blocks. */
    template <int N, bool MAX> __device__ void exchange(uint64_t (&value)[N]) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            value[i] = MAX ? pick_warp_max(value[i]) : pick_warp_sum(value[i]);
            if (lane == 0) shared.warp[i][warp] = value[i];
        }
        __syncthreads();
        if (warp < N) {
            const uint64_t of_warp = lane < PICK_WARPS ? shared.warp[warp][lane] : 0;
            const uint64_t all = MAX ? pick_warp_max(of_warp) : pick_warp_sum(of_warp);
            if (lane < cluster) *pick_peer(&shared.inbox[parity][rank][warp], lane) = all;
        }
        pick_barrier();
#pragma unroll
        for (int i = 0; i < N; i++) {
            value[i] = 0;
            for (int r = 0; r < cluster; r++) {
                const uint64_t x = shared.inbox[parity][r][i];
                value[i] = !MAX ? value[i] + x : x > value[i] ? x : value[i];
            }
        }
        parity ^= 1;
    }

    /* The block that `target` falls on, by the units and their sums of the last exchange; *target becomes the rest. */
    __device__ int find_block(uint64_t *target) {
        const int last = parity ^ 1;
        int owner = 0;
        while (owner + 1 < cluster && *target >= shared.inbox[last][owner][0])
            *target -= shared.inbox[last][owner++][0];
        return owner;
    }
    /* Within this block: true for the one thread that has the id, which it gets. */
    __device__ bool find_id(uint64_t left, int *at) {
        const uint64_t own = lane < PICK_WARPS ? shared.warp[0][lane] : 0;
        const uint64_t before = pick_warp_sum(lane < warp ? own : 0);
        if (left < before || left >= before + shared.warp[0][warp]) return false;
        left -= before;
        uint64_t mine = 0;
        for (int i = 0; i < steps; i++)
            mine += units[lane * steps + i];
        uint64_t until = mine;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const uint64_t other = __shfl_up_sync(~0u, until, offset);
            if (lane >= offset) until += other;
        }
        if (until <= left || until - mine > left) return false;
        left -= until - mine;
        int i = lane * steps;
        while (left >= units[i])
            left -= units[i++];
        *at = i;
        return true;
    }
    /* The id that `target` falls on; its order in *order. Every thread gets both. */
    __device__ int find(uint64_t target, uint32_t *order) {
        int at;
        if (find_block(&target) == rank && find_id(target, &at))
            for (int r = 0; r < cluster; r++)
                *pick_peer(&shared.found[parity], r) = (uint64_t)pick_order(x[at]) << 32 | (uint32_t)(first + at);
        pick_barrier();
        const uint64_t found = shared.found[parity];
        parity ^= 1;
        *order = (uint32_t)(found >> 32);
        return (int)(uint32_t)found;
    }

    /* ---- passes over the slice ---- */

    __device__ bool is_banned(int id) const { return row.banned && (row.banned[id / 32] >> (id % 32) & 1); }

    /* Returns the order of the thread's largest logit of all, 0 if none is above -infinity. */
    __device__ uint32_t load(bool raw) {
        const bool bans = row.banned && !raw;
        uint32_t largest = 0;
        for (int at = 0; at < steps; at += PICK_LOADS) {
            float logit[PICK_LOADS];
            uint32_t banned[PICK_LOADS];
#pragma unroll
            for (int i = 0; i < PICK_LOADS; i++) {
                const int id = id_of(at + i);
                const bool is = at + i < steps && id < vocab;
                logit[i] = is ? row.logits[id] : NAN;
                banned[i] = is && bans ? row.banned[id / 32] : 0;
            }
#pragma unroll
            for (int i = 0; i < PICK_LOADS; i++) {
                if (at + i < steps) x[32 * (at + i) + lane] = banned[i] >> lane & 1 ? NAN : logit[i];
                if (logit[i] > -INFINITY) largest = max(largest, pick_order(logit[i]));
            }
        }
        return largest;
    }
    /* An id that is there twice gets the same number twice. */
    __device__ void penalise(float *slice, int64_t begin, int64_t ids) {
        const struct pick_rule &rule = row.rule;
        if (!row.seen || rule.penalty == 1.0f) return;
        const int64_t n = rule.n_seen < rule.repeat_last ? rule.n_seen : rule.repeat_last;
        __syncthreads();
        for (int64_t i = 1 + (int64_t)threadIdx.x; i <= n; i += PICK_THREADS) {
            const int64_t id = row.seen[(rule.n_seen - i) % row.seen_rows];
            if (id < begin || id >= begin + ids || id >= vocab || isnan(slice[id - begin])) continue;
            slice[id - begin] = pick_penalise(row.logits[id], rule.penalty);
        }
        __syncthreads();
    }
    /* The order of the largest logit above -infinity and its smallest id; 0: there is none. *all: the largest of what
     * the threads give. */
    __device__ uint32_t top(int *id, uint32_t *all) {
        uint64_t best[2] = {0, *all};
        for (int i = 0; i < steps; i++) {
            const float logit = x[32 * i + lane];
            const uint64_t key = (uint64_t)pick_order(logit) << 32 | (0xFFFFFFFFu - (uint32_t)id_of(i));
            if (logit > -INFINITY && key > best[0]) best[0] = key;
        }
        exchange<2, true>(best);
        *id = (int)(0xFFFFFFFFu - (uint32_t)best[0]);
        *all = (uint32_t)best[1];
        return (uint32_t)(best[0] >> 32);
    }
    /* The order of the k-th best logit, and which is the last of the ids that have it. False: fewer are numbers. */
    __device__ bool kth(int64_t k, uint32_t *order, int *last) {
        uint32_t low = 0, reach = 0, above = 0; /* ids with orders from `low` on; above the range that is searched */
        *last = vocab;
        for (int shift = 28; shift >= 0; shift -= 4) {
            uint32_t count = count_digits(low, shift);
#pragma unroll
            for (int offset = 1; offset < PICK_DIGITS; offset *= 2) {
                const uint32_t higher = __shfl_down_sync(~0u, count, offset);
                if (lane + offset < PICK_DIGITS) count += higher;
            }
            count += above; /* of digit `lane` and the higher ones */
            const uint32_t all = __shfl_sync(~0u, count, 0);
            if (shift == 28 && all <= k) return false;
            const unsigned enough = __ballot_sync(~0u, lane < PICK_DIGITS && count >= k);
            const int digit = 31 - __clz((int)enough);
            reach = __shfl_sync(~0u, count, digit);
            const uint32_t next = __shfl_sync(~0u, count, digit + 1);
            if (digit + 1 < PICK_DIGITS) above = next;
            low += (uint32_t)digit << shift;
            if (reach == k) break;
        }
        *order = low;
        if (reach == k) return true;
        uint64_t ties[1] = {0};
        uint32_t equal;
        for (int i = 0; i < steps; i++) {
            const float logit = x[32 * i + lane];
            units[32 * i + lane] = logit > -INFINITY && pick_order(logit) == low;
            ties[0] += units[32 * i + lane];
        }
        exchange<1, false>(ties);
        *last = find((uint64_t)k - (reach - ties[0]) - 1, &equal);
        return true;
    }
    /* How many logits have an order from low + (digit << shift) to the next digit's: lane `digit` of each warp gets it.
     * A thread counts in fields of 4 bits, the warp in fields of 16. */
    __device__ uint32_t count_digits(uint32_t low, int shift) {
        uint32_t pairs[PICK_DIGITS / 2] = {}, mine = 0;
        for (int at = 0; at < steps; at += 15) {
            uint64_t fields = 0;
            for (int i = at; i < min(at + 15, steps); i++) {
                const float logit = x[32 * i + lane];
                const uint32_t own = pick_order(logit), digit = (own - low) >> shift;
                if (logit > -INFINITY && own >= low && digit < PICK_DIGITS) fields += 1ull << (4 * digit);
            }
#pragma unroll
            for (int i = 0; i < PICK_DIGITS / 2; i++) {
                const uint32_t two = (uint32_t)(fields >> (8 * i)) & 0xFF;
                pairs[i] += (two & 15) + (two >> 4 << 16);
            }
        }
#pragma unroll
        for (int i = 0; i < PICK_DIGITS / 2; i++) {
            const uint32_t both = pick_redux_add(pairs[i]);
            if (lane / 2 == i) mine = lane % 2 ? both >> 16 : both & 0xFFFF;
        }
        if (lane < PICK_DIGITS) shared.warp_counts[warp][lane] = mine;
        __syncthreads();
        for (int peer = warp; peer < cluster; peer += PICK_WARPS) {
            if (lane >= PICK_DIGITS) continue;
            uint32_t sum = 0;
            for (int w = 0; w < PICK_WARPS; w++)
                sum += shared.warp_counts[w][lane];
            *pick_peer(&shared.counts[parity][rank][lane], peer) = sum;
        }
        pick_barrier();
        uint32_t sum = 0;
        for (int r = 0; r < cluster && lane < PICK_DIGITS; r++)
            sum += shared.counts[parity][r][lane];
        parity ^= 1;
        return sum;
    }

    /* ---- the pick ---- */

    static __device__ float logit_of(uint32_t order) {
        return __uint_as_float(order & 0x80000000u ? order & 0x7FFFFFFFu : ~order);
    }
    /* Units of K into shared memory, those below `least` as 0. *total: the thread's sum of these, *all: of K. */
    template <bool SOME>
    __device__ void make_units(float best, uint32_t order, int last, uint64_t *total, uint64_t *all) {
        const float scale = row.rule.scale;
        const uint32_t least = row.rule.least;
        for (int at = 0; at < steps; at += 4) { /* four units are below 2^32 */
            uint32_t kept = 0, sum = 0;
#pragma unroll
            for (int i = at; i < at + 4; i++) {
                if (i >= steps) break;
                const float logit = x[32 * i + lane];
                uint32_t unit = pick_unit(logit, best, scale);
                if (SOME) {
                    const uint32_t own = pick_order(logit);
                    unit = own > order || (own == order && id_of(i) <= last) ? unit : 0;
                }
                sum += unit;
                unit = unit >= least ? unit : 0;
                kept += unit;
                units[32 * i + lane] = unit;
            }
            *total += kept, *all += sum;
        }
    }
    /* Takes out the units of ids that are not before this one; the thread's sum of the others. */
    __device__ uint64_t keep_before(uint32_t order, int id) {
        uint64_t total = 0;
        for (int at = 0; at < steps; at += 4) {
            uint32_t kept = 0;
#pragma unroll
            for (int i = at; i < at + 4; i++) {
                if (i >= steps) break;
                const uint32_t own = pick_order(x[32 * i + lane]);
                const uint32_t unit = own > order || (own == order && id_of(i) < id) ? units[32 * i + lane] : 0;
                units[32 * i + lane] = unit;
                kept += unit;
            }
            total += kept;
        }
        return total;
    }
    /* The thread's sum of weights of all logits, and how many are numbers above -infinity. */
    __device__ void add_weights(float largest, uint64_t *total, uint64_t *numbers) {
        for (int at = 0; at < steps; at += PICK_LOADS) {
            float logit[PICK_LOADS];
#pragma unroll
            for (int i = 0; i < PICK_LOADS; i++) {
                const int id = id_of(at + i);
                logit[i] = at + i < steps && id < vocab ? row.logits[id] : NAN;
            }
#pragma unroll
            for (int i = 0; i < PICK_LOADS; i++)
                if (logit[i] > -INFINITY) *total += pick_fine_unit(logit[i], largest), ++*numbers;
        }
    }
    /* weight: the sum of weights and the number of numbers, of this thread and then of all. */
    __device__ int draw(float best, uint64_t (&weight)[2]) {
        const struct pick_rule &rule = row.rule;
        const bool some = rule.share < 1ull << 32;
        uint32_t order = PICK_ORDER_INFINITE;
        int last = vocab;
        uint64_t sum[4] = {0, 0, weight[0], weight[1]}, before[1];
        if (rule.top_k > 0 && rule.top_k < vocab && kth(rule.top_k, &order, &last))
            make_units<true>(best, order, last, &sum[0], &sum[1]);
        else
            make_units<false>(best, order, last, &sum[0], &sum[1]);
        exchange<4, false>(sum);
        weight[0] = sum[2], weight[1] = sum[3], before[0] = sum[0];
        const uint64_t goal = some ? pick_goal(sum[1], rule.share) : 0;
        uint64_t random = shared.random;
        for (uint64_t draw = 1;; draw++) {
            const int id = find(pick_part(random, before[0]), &order);
            if (!some) return id;
            before[0] = keep_before(order, id);
            exchange<1, false>(before);
            if (before[0] < goal) return id;
            random = pick_random(rule.seed, rule.number, draw);
        }
    }
    /* The largest logit is infinite, or no number is above -infinity. */
    __device__ int infinite(float best) {
        uint64_t n[1] = {0};
        uint32_t order;
        for (int i = 0; i < steps; i++)
            n[0] += units[32 * i + lane] = x[32 * i + lane] == best;
        exchange<1, false>(n);
        if (n[0] > 0) return find(pick_part(shared.random, pick_equals(n[0], &row.rule)), &order);
        for (int i = 0; i < steps; i++)
            n[0] += units[32 * i + lane] = id_of(i) < vocab && !is_banned(id_of(i));
        exchange<1, false>(n);
        return find(0, &order);
    }

    /* ---- log-probabilities ---- */

    /* Fills the result but for its ticket; rank 0 writes. largest: the order of the largest logit. Whether anything but
     * the id and its log-probability, which are one word, was written. */
    __device__ bool scores(int id, uint32_t largest, const uint64_t (&weight)[2]) {
        const float top_logit = logit_of(largest);
        const bool rare = largest == 0 || isinf(top_logit) || weight[1] < (uint64_t)row.n_best;
        const double log_sum = log((double)weight[0] * 0x1p-40);
        if (rank == 0 && threadIdx.x == 0) {
            const float logprob = (float)((double)(row.logits[id] - top_logit) - log_sum);
            *(volatile uint64_t *)&row.result->id = (uint64_t)__float_as_uint(logprob) << 32 | (uint32_t)id;
            if (rare || row.n_best > 0) row.result->n_best = rare ? -1 : row.n_best;
        }
        if (rare || row.n_best == 0) return rare;
        uint32_t order;
        int last;
        (void)load(true);
        if (!kth(row.n_best, &order, &last)) order = PICK_ORDER_INFINITE, last = vocab;
        for (int i = 0; i < steps; i++) {
            const float logit = x[32 * i + lane];
            const uint32_t own = pick_order(logit);
            if (!(logit > -INFINITY) || own < order || (own == order && id_of(i) > last)) continue;
            const unsigned at = atomicAdd(pick_peer(&shared.listed, 0), 1u);
            *pick_peer(&shared.list[at], 0) = (uint64_t)own << 32 | (0xFFFFFFFFu - (uint32_t)id_of(i));
        }
        pick_barrier();
        if (rank > 0 || (int)threadIdx.x >= row.n_best) return true;
        const uint64_t key = shared.list[threadIdx.x];
        int at = 0;
        for (int i = 0; i < row.n_best; i++)
            at += shared.list[i] > key;
        row.result->best[at].id = (int32_t)(0xFFFFFFFFu - (uint32_t)key);
        row.result->best[at].logprob = (float)((double)(logit_of((uint32_t)(key >> 32)) - top_logit) - log_sum);
        __threadfence_system();
        return true;
    }

    __device__ void run(float *slice, int64_t begin, int64_t ids) {
        int id;
        uint64_t weight[2] = {0, 0};
        uint32_t largest = load(false);
        penalise(slice, begin, ids);
        pick_wait(); /* all blocks of the cluster run: they can be written to */
        const uint32_t order = top(&id, &largest);
        const float best = order > 0 ? logit_of(order) : -INFINITY;
        const bool scored = row.logprob && largest > 0 && !isinf(logit_of(largest));
        const bool draws = !isinf(best) && row.rule.scale > 0.0f;
        if (scored) add_weights(logit_of(largest), &weight[0], &weight[1]);
        if (draws) id = draw(best, weight);
        if (scored && !draws) exchange<2, false>(weight);
        if (isinf(best)) id = infinite(best);
        if (rank == 0 && threadIdx.x == 0) {
            *row.id = id;
            if (row.seen) row.seen[row.rule.n_seen % row.seen_rows] = id;
        }
        const bool more = row.logprob && scores(id, largest, weight);
        if (rank > 0) return;
        if (more) __syncthreads();
        if (threadIdx.x > 0) return;
        if (more) __threadfence_system(); /* it waits for the bus: one word needs none */
        *(volatile uint64_t *)&row.result->ticket = row.ticket | (uint32_t)id;
    }
};

template <int ROWS>
static __global__ void __launch_bounds__(PICK_THREADS, 2) pick_kernel(const __grid_constant__ pick_arguments<ROWS> a) {
    extern __shared__ __align__(16) float pick_memory[];
    __shared__ struct pick_shared shared;
    const int rank = (int)blockIdx.x % a.cluster, warp = (int)threadIdx.x / 32;
    float *slice = a.spill ? a.spill + 2 * (int64_t)blockIdx.x * a.slice : pick_memory;
    const int64_t part = a.slice / PICK_WARPS, begin = rank * a.slice;
    launch_next(); /* the next step may load weights meanwhile */
    const struct pick_row &row = a.rows[blockIdx.x / (unsigned)a.cluster];
    if (threadIdx.x == 0) {
        shared.listed = 0;
        shared.random = pick_random(row.rule.seed, row.rule.number, 0);
    }
    pick_arrive();
    launch_wait();
    pick_block block = {row,
                        shared,
                        slice + warp * part,
                        (uint32_t *)(slice + a.slice) + warp * part,
                        (int)(begin + warp * part),
                        (int)a.vocab,
                        (int)(part / 32),
                        (int)threadIdx.x % 32,
                        warp,
                        rank,
                        a.cluster,
                        0};
    block.run(slice, begin, a.slice);
}

template <int ROWS> static void pick_launch(struct device *dev, const struct pick_row *rows, int n, int64_t vocab) {
    static_assert(sizeof(pick_arguments<ROWS>) < 32000, "kernel parameters");
    pick_arguments<ROWS> a = {};
    for (int i = 0; i < n; i++)
        a.rows[i] = rows[i];
    a.cluster = device_cuda_architecture(dev) < 90 ? 1 : n <= PICK_FEW ? PICK_CLUSTER : PICK_CLUSTER / 2;
    a.vocab = vocab;
    a.slice = blocks_for(blocks_for(vocab, a.cluster), PICK_THREADS) * PICK_THREADS;
    size_t bytes = 2 * (size_t)a.slice * sizeof(float);
    if (bytes + sizeof(struct pick_shared) > (size_t)device_cuda_shared_bytes(dev)) {
        a.spill = (float *)device_cuda_scratch(dev, bytes * (size_t)(n * a.cluster));
        bytes = 0;
    }
    (void)cudaFuncSetAttribute(pick_kernel<ROWS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = (unsigned)a.cluster;
    attributes[1].val.clusterDim.y = 1, attributes[1].val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)(n * a.cluster)), config.blockDim = dim3(PICK_THREADS);
    config.dynamicSmemBytes = bytes, config.stream = device_cuda_stream(dev);
    config.attrs = attributes, config.numAttrs = device_cuda_architecture(dev) >= 90 ? 2 : 0;
    (void)cudaLaunchKernelEx(&config, pick_kernel<ROWS>, a);
    device_cuda_check(dev, "pick");
}

static void pick_rows(struct device *dev, const struct pick_row *rows, int n, int64_t vocab) {
    /* a warp counts up to 65,535 ids */
    assert(n >= 1 && n <= PICK_ROWS_MAX && vocab > 0 && vocab <= 65535 / 32 * (int64_t)PICK_THREADS);
    for (int i = 0; i < n; i++)
        assert(rows[i].n_best <= PICK_BEST_MAX && (!rows[i].seen || rows[i].seen_rows > rows[i].rule.repeat_last));
    if (n == 1)
        pick_launch<1>(dev, rows, n, vocab);
    else
        pick_launch<PICK_ROWS_MAX>(dev, rows, n, vocab);
}

extern "C" const struct pick_ops pick_cuda = {.rows = pick_rows};
