/* pick_block.cuh -- what a thread block computes of a pick: its slice of a row's vocabulary, and the exchanges with the
 * other blocks of the cluster (pick_cuda.cu). */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
extern "C" {
#include "kernels/pick/pick.h"
}

/* PICK_FEW: with more rows a cluster has half as many blocks, so that all run at once. PICK_LOADS: pieces
 * whose logits are in flight. */
enum {
    PICK_WARPS = 16,
    PICK_THREADS = 32 * PICK_WARPS,
    PICK_CLUSTER = 8,
    PICK_FEW = 16,
    PICK_DIGITS = 16,
    PICK_PIECE = 128,
    PICK_LOADS = 4,
    PICK_VALUES = 4
};

/* [2]: by parity of the exchange. A block sends its part of an exchange when all of its threads have read what the
 * exchange before left, and an exchange ends when all blocks have sent their parts. So at its end all blocks have read
 * the one before: the next one may overwrite that, and meets no earlier phase of its barrier. The id that was found
 * comes from one block, so it has a barrier of its own; between two such ids there is an exchange. */
struct pick_shared {
    uint64_t inbox[2][PICK_CLUSTER][PICK_VALUES]; /* the blocks' sums */
    uint32_t counts[2][PICK_CLUSTER][PICK_DIGITS];
    uint64_t found;
    uint64_t arrived[2], arrived_found; /* barriers of these messages */
    uint64_t warp[2][PICK_VALUES][PICK_WARPS];
    uint32_t warp_counts[2][PICK_WARPS][PICK_DIGITS];
    uint64_t list[PICK_BEST_MAX];
    uint64_t random; /* of the first draw */
    unsigned listed;
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
/* ---- messages: stores into shared memory of the cluster's blocks, each of which completes its bytes of a barrier
 * there. They need no fence; a cluster barrier takes one of all memory. Before Hopper a block sends to itself. ---- */

/* One thread, before pick_arrive. */
static __device__ __forceinline__ void pick_open(struct pick_shared *shared) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    barrier_init(&shared->arrived[0], 1), barrier_init(&shared->arrived[1], 1);
    barrier_init(&shared->arrived_found, 1);
    barrier_init_fence();
#endif
}
/* A number into `to`, and its bytes to `barrier`, of block `rank`; both addresses are those in this block. */
template <typename T> static __device__ __forceinline__ void pick_send(T *to, T x, uint64_t *barrier, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t at, completes;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(to)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(completes) : "r"(shared_address(barrier)), "r"(rank));
    if constexpr (sizeof(T) == 8)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(at), "l"(x),
                     "r"(completes)
                     : "memory");
    else
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at), "r"(x),
                     "r"(completes)
                     : "memory");
#else
    *to = x;
#endif
}
/* Called by all threads: waits for `bytes` of messages to this block. number: of the barrier's phases before. */
static __device__ __forceinline__ void pick_receive(uint64_t *barrier, uint32_t bytes, uint32_t number) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) barrier_expect(barrier, bytes);
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(number & 1)
                 : "memory");
#else
    __syncthreads();
#endif
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
    uint4 *orders, *units; /* this lane's four ids of the warp's pieces: [32 * piece] */
    int first, vocab;      /* first: id of the lane's first logit */
    int steps, lane, warp, rank, cluster; /* steps: the warp's pieces */
    uint32_t exchanges, finds;            /* so far */

    __device__ int id_of(int step) const { return first + PICK_PIECE * step; }

    /* ---- exchanges ---- */

    /* Ends an exchange: all blocks have sent `bytes` to this one. */
    __device__ void receive(int bytes) {
        pick_receive(&shared.arrived[exchanges & 1], (uint32_t)(bytes * cluster), exchanges / 2);
        exchanges++;
    }
    /* The cluster's sums of N values, or their maxima. Afterwards shared.warp has the first value of each warp, and
     * shared.inbox the values of the blocks. */
    template <int N, bool MAX> __device__ void exchange(uint64_t (&value)[N]) {
        const uint32_t parity = exchanges & 1;
#pragma unroll
        for (int i = 0; i < N; i++) {
            value[i] = MAX ? pick_warp_max(value[i]) : pick_warp_sum(value[i]);
            if (lane == 0) shared.warp[parity][i][warp] = value[i];
        }
        __syncthreads();
        if (warp < N) {
            const uint64_t of_warp = lane < PICK_WARPS ? shared.warp[parity][warp][lane] : 0;
            const uint64_t all = MAX ? pick_warp_max(of_warp) : pick_warp_sum(of_warp);
            if (lane < cluster) pick_send(&shared.inbox[parity][rank][warp], all, &shared.arrived[parity], lane);
        }
        receive(N * (int)sizeof(uint64_t));
#pragma unroll
        for (int i = 0; i < N; i++) {
            value[i] = 0;
            for (int r = 0; r < cluster; r++) {
                const uint64_t x = shared.inbox[parity][r][i];
                value[i] = !MAX ? value[i] + x : x > value[i] ? x : value[i];
            }
        }
    }

    /* The block that `target` falls on, by the units and their sums of the last exchange; *target becomes the rest. */
    __device__ int find_block(uint64_t *target) {
        const uint32_t last = (exchanges - 1) & 1;
        int owner = 0;
        while (owner + 1 < cluster && *target >= shared.inbox[last][owner][0])
            *target -= shared.inbox[last][owner++][0];
        return owner;
    }
    /* Within this block: true for the one thread that has the id, which it gets with its order. */
    __device__ bool find_id(uint64_t left, uint64_t *here) {
        const uint64_t *of_warps = shared.warp[(exchanges - 1) & 1][0];
        const uint64_t own = lane < PICK_WARPS ? of_warps[lane] : 0;
        const uint64_t before = pick_warp_sum(lane < warp ? own : 0);
        if (left < before || left >= before + of_warps[warp]) return false;
        left -= before;
        uint32_t mine = 0;
        int step = 0;
#pragma unroll 1
        for (;; step++) { /* it falls on one of the pieces */
            const uint4 unit = units[32 * step];
            mine = unit.x + unit.y + unit.z + unit.w;
            const uint64_t piece = pick_redux_add(mine & 0xFFFF) + ((uint64_t)pick_redux_add(mine >> 16) << 16);
            if (left < piece) break;
            left -= piece;
        }
        uint64_t until = mine;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const uint64_t other = __shfl_up_sync(~0u, until, offset);
            if (lane >= offset) until += other;
        }
        if (until <= left || until - mine > left) return false;
        left -= until - mine;
        const uint32_t *unit = (const uint32_t *)&units[32 * step];
        int i = 0;
#pragma unroll 1
        while (left >= unit[i])
            left -= unit[i++];
        *here = (uint64_t)((const uint32_t *)&orders[32 * step])[i] << 32 | (uint32_t)(id_of(step) + i);
        return true;
    }
    /* The id that `target` falls on; its order in *order. Every thread gets both. */
    __device__ int find(uint64_t target, uint32_t *order) {
        uint64_t here;
        if (find_block(&target) == rank && find_id(target, &here))
            for (int r = 0; r < cluster; r++)
                pick_send(&shared.found, here, &shared.arrived_found, r);
        pick_receive(&shared.arrived_found, sizeof here, finds++);
        const uint64_t found = shared.found;
        *order = (uint32_t)(found >> 32);
        return (int)(uint32_t)found;
    }

    /* ---- passes over the slice ---- */

    __device__ bool is_banned(int id) const { return row.banned && (row.banned[id / 32] >> (id % 32) & 1); }

    /* Four logits from an id on; NaN after the last one. */
    __device__ float4 read(int id) const {
        const float *from = row.logits + id;
        if ((uintptr_t)from % 16 == 0 && vocab - id >= 4) return *(const float4 *)from;
        return make_float4(id < vocab ? from[0] : NAN, id + 1 < vocab ? from[1] : NAN, id + 2 < vocab ? from[2] : NAN,
                           id + 3 < vocab ? from[3] : NAN);
    }
    static __device__ uint32_t order_of(float logit, bool banned, uint32_t *largest) {
        const uint32_t order = isnan(logit) ? 0 : pick_order(logit);
        *largest = max(*largest, order);
        return banned ? 0 : order;
    }
    /* *all: the order of the thread's largest logit of all; returns that of those that are not banned. */
    __device__ uint32_t load(bool raw, uint32_t *all) {
        const bool bans = row.banned && !raw;
        uint32_t largest = 0, best = 0;
#pragma unroll 1
        for (int at = 0; at < steps; at += PICK_LOADS) {
            float4 logit[PICK_LOADS];
            uint32_t banned[PICK_LOADS];
#pragma unroll
            for (int i = 0; i < PICK_LOADS; i++) {
                const int id = id_of(at + i);
                const bool is = at + i < steps && id < vocab;
                logit[i] = is ? read(id) : make_float4(NAN, NAN, NAN, NAN);
                banned[i] = is && bans ? row.banned[id / 32] >> (id % 32) : 0;
            }
#pragma unroll
            for (int i = 0; i < PICK_LOADS; i++) {
                uint4 o;
                o.x = order_of(logit[i].x, banned[i] & 1, &largest);
                o.y = order_of(logit[i].y, banned[i] & 2, &largest);
                o.z = order_of(logit[i].z, banned[i] & 4, &largest);
                o.w = order_of(logit[i].w, banned[i] & 8, &largest);
                best = max(max(max(o.x, o.y), max(o.z, o.w)), best);
                if (at + i < steps) orders[32 * (at + i)] = o;
            }
        }
        *all = largest > PICK_ORDER_INFINITE ? largest : 0;
        return best;
    }
    /* An id that is there twice gets the same number twice. best: as load returned it; returns the new one. */
    __device__ uint32_t penalise(uint32_t *slice, int64_t begin, int64_t ids, uint32_t best) {
        const struct pick_rule &rule = row.rule;
        if (!row.seen || rule.penalty == 1.0f) return best;
        const int64_t n = rule.n_seen < rule.repeat_last ? rule.n_seen : rule.repeat_last;
        __syncthreads();
        for (int64_t i = 1 + (int64_t)threadIdx.x; i <= n; i += PICK_THREADS) {
            const int64_t id = row.seen[(rule.n_seen - i) % row.seen_rows];
            if (id < begin || id >= begin + ids || id >= vocab || slice[id - begin] == 0) continue;
            const float penalised = pick_penalise(row.logits[id], rule.penalty);
            slice[id - begin] = isnan(penalised) ? 0 : pick_order(penalised);
        }
        __syncthreads();
        best = 0;
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            const uint4 o = orders[32 * i];
            best = max(max(max(o.x, o.y), max(o.z, o.w)), best);
        }
        return best;
    }
    /* The smallest of this lane's ids whose order is `best`. */
    __device__ uint32_t first_of(uint32_t best) const {
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            const uint4 o = orders[32 * i];
            if (o.x == best || o.y == best || o.z == best || o.w == best)
                return (uint32_t)id_of(i) + (o.x == best ? 0 : o.y == best ? 1 : o.z == best ? 2 : 3);
        }
        return 0xFFFFFFFFu;
    }
    /* The order of the largest logit above -infinity; 0: there is none. best, *all: those of the threads. *id: its
     * smallest id, if the pick is greedy. */
    __device__ uint32_t top(uint32_t best, int *id, uint32_t *all) {
        const bool greedy = !(row.rule.scale > 0.0f);
        uint64_t key[2] = {best <= PICK_ORDER_INFINITE ? 0 : (uint64_t)best << 32, *all};
        if (greedy && key[0] > 0) key[0] |= 0xFFFFFFFFu - first_of(best);
        if (row.logprob) {
            exchange<2, true>(key);
        } else {
            uint64_t one[1] = {key[0]};
            exchange<1, true>(one);
            key[0] = one[0];
        }
        *id = (int)(0xFFFFFFFFu - (uint32_t)key[0]);
        *all = (uint32_t)key[1];
        return (uint32_t)(key[0] >> 32);
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
        uint64_t ties[1] = {mark(low)};
        uint32_t equal;
        exchange<1, false>(ties);
        *last = find((uint64_t)k - (reach - ties[0]) - 1, &equal);
        return true;
    }
    /* The unit of a logit becomes 1 if it has this order, else 0. The thread's sum. */
    __device__ uint64_t mark(uint32_t order) {
        uint32_t n = 0;
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            const uint4 o = orders[32 * i];
            const uint4 unit = make_uint4(o.x == order, o.y == order, o.z == order, o.w == order);
            n += unit.x + unit.y + unit.z + unit.w;
            units[32 * i] = unit;
        }
        return n;
    }
    /* The same for all ids that are not banned. */
    __device__ uint64_t mark_all() {
        uint32_t n = 0;
#pragma unroll 1
        for (int i = 0; i < steps; i++)
            for (int j = 0; j < 4; j++) {
                const int id = id_of(i) + j;
                n += ((uint32_t *)&units[32 * i])[j] = id < vocab && !is_banned(id);
            }
        return n;
    }
    /* How many logits have an order from low + (digit << shift) to the next digit's: lane `digit` of each warp gets it.
     * A thread counts in fields of 4 bits, the warp in fields of 16. */
    __device__ uint32_t count_digits(uint32_t low, int shift) {
        uint32_t pairs[PICK_DIGITS / 2] = {}, mine = 0;
#pragma unroll 1
        for (int at = 0; at < steps; at += 3) {
            uint64_t fields = 0;
#pragma unroll 1
            for (int i = at; i < min(at + 3, steps); i++) {
                const uint4 o = orders[32 * i];
                const uint32_t *four = &o.x;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const uint32_t own = four[j], digit = (own - low) >> shift;
                    if (own > PICK_ORDER_INFINITE && own >= low && digit < PICK_DIGITS) fields += 1ull << (4 * digit);
                }
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
        const uint32_t parity = exchanges & 1;
        if (lane < PICK_DIGITS) shared.warp_counts[parity][warp][lane] = mine;
        __syncthreads();
        for (int peer = warp; peer < cluster; peer += PICK_WARPS) {
            if (lane >= PICK_DIGITS) continue;
            uint32_t sum = 0;
            for (int w = 0; w < PICK_WARPS; w++)
                sum += shared.warp_counts[parity][w][lane];
            pick_send(&shared.counts[parity][rank][lane], sum, &shared.arrived[parity], peer);
        }
        receive(PICK_DIGITS * (int)sizeof(uint32_t));
        uint32_t sum = 0;
        for (int r = 0; r < cluster && lane < PICK_DIGITS; r++)
            sum += shared.counts[parity][r][lane];
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
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            const uint4 o = orders[32 * i];
            const uint32_t *own = &o.x;
            uint32_t kept = 0, sum = 0; /* four units are below 2^32 */
            uint4 out;
            uint32_t *unit = &out.x;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t one = own[j] > PICK_ORDER_INFINITE ? pick_unit(logit_of(own[j]), best, scale) : 0;
                if (SOME) one = own[j] > order || (own[j] == order && id_of(i) + j <= last) ? one : 0;
                sum += one;
                unit[j] = one >= least ? one : 0;
                kept += unit[j];
            }
            units[32 * i] = out;
            *total += kept, *all += sum;
        }
    }
    /* Takes out the units of ids that are not before this one; the thread's sum of the others. */
    __device__ uint64_t keep_before(uint32_t order, int id) {
        uint64_t total = 0;
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            const uint4 o = orders[32 * i];
            uint4 out = units[32 * i];
            const uint32_t *own = &o.x;
            uint32_t *unit = &out.x, kept = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                unit[j] = own[j] > order || (own[j] == order && id_of(i) + j < id) ? unit[j] : 0;
                kept += unit[j];
            }
            units[32 * i] = out;
            total += kept;
        }
        return total;
    }
    /* The thread's sum of weights of all logits, and how many are numbers above -infinity. */
    __device__ void add_weights(float largest, uint64_t *total, uint64_t *numbers) {
#pragma unroll 1
        for (int at = 0; at < steps; at += PICK_LOADS) {
            float4 logit[PICK_LOADS];
#pragma unroll
            for (int i = 0; i < PICK_LOADS; i++) {
                const int id = id_of(at + i);
                logit[i] = at + i < steps && id < vocab ? read(id) : make_float4(NAN, NAN, NAN, NAN);
            }
#pragma unroll
            for (int i = 0; i < PICK_LOADS; i++)
                for (int j = 0; j < 4; j++)
                    if ((&logit[i].x)[j] > -INFINITY) *total += pick_fine_unit((&logit[i].x)[j], largest), ++*numbers;
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
        if (row.logprob) {
            exchange<4, false>(sum);
        } else {
            uint64_t two[2] = {sum[0], sum[1]};
            exchange<2, false>(two);
            sum[0] = two[0], sum[1] = two[1];
        }
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
        uint64_t n[1] = {mark(pick_order(best))};
        uint32_t order;
        exchange<1, false>(n);
        if (n[0] > 0) return find(pick_part(shared.random, pick_equals(n[0], &row.rule)), &order);
        n[0] = mark_all();
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
        (void)load(true, &largest);
        if (!kth(row.n_best, &order, &last)) order = PICK_ORDER_INFINITE, last = vocab;
#pragma unroll 1
        for (int i = 0; i < steps; i++)
            for (int j = 0; j < 4; j++) {
                const uint32_t own = ((const uint32_t *)&orders[32 * i])[j];
                if (own <= PICK_ORDER_INFINITE || own < order || (own == order && id_of(i) + j > last)) continue;
                const unsigned at = atomicAdd(pick_peer(&shared.listed, 0), 1u);
                *pick_peer(&shared.list[at], 0) = (uint64_t)own << 32 | (0xFFFFFFFFu - (uint32_t)(id_of(i) + j));
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

    __device__ void run(uint32_t *slice, int64_t begin, int64_t ids) {
        int id;
        uint64_t weight[2] = {0, 0};
        uint32_t largest, mine = load(false, &largest);
        mine = penalise(slice, begin, ids, mine);
        pick_wait(); /* all blocks of the cluster run: they can be written to */
        const uint32_t order = top(mine, &id, &largest);
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
