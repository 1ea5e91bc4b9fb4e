/* lexical_scan_cuda.cu -- the best chunks by sums over lists of postings.
 *
 *   scan_windows_kernel   block (window, query)          32 warps decode blocks of sparse lists and add to sums in
 *                                                        shared memory; a thread adds the dense codes of 8 chunks
 *   scan_merge_kernel     block (group, query)           the best of up to 128 windows, then of up to 128 groups; the
 *                                                        last step sorts and writes the hits
 *
 * One thread for each sparse list finds the blocks that overlap the window, by two simultaneous binary searches in the
 * list's table; then the warps take the (list, block) pairs in turn. A lane decodes 4 postings. A block that overlaps
 * two windows is decoded twice. So windows are as large as possible with one for each multiprocessor at 1M chunks.
 *
 * A key is sum << 32 | ~position (position: window * WINDOW + chunk in it): keys are unique, and greater is better. A
 * window outputs its best k keys and at most SPARE more: a threshold is found digit by digit, 11 bits in each pass,
 * from the top. The order of a window's keys may differ from run to run, but the final order is total, so the results
 * have the same bits.
 *
 * Bound by the latency of one window up to 1M chunks (46 us of an H200 for a query of 128 ids and the best 64), by
 * additions in shared memory at 20M (1.8 ms); the bytes of the lists would take 3 us and 50 us. */
#include "kernels/cuda/launch_cuda.cuh"

enum {
    WINDOW = LEXICAL_SCAN_WINDOW, BLOCK = LEXICAL_SCAN_BLOCK,
    THREADS = 1024, WARPS = THREADS / 32,
    EACH = WINDOW / THREADS,             /* chunks of a thread: 8 */
    LISTS = 512,                         /* lists whose blocks are found together */
    DENSE = 128,                         /* dense lists whose weights are in shared memory together */
    SPARE = 64,
    FAN = 128,                           /* windows or groups that a block merges */
    DIGIT = 11, BINS = 1 << DIGIT,
    KEY_BITS = 62,
};
static_assert(EACH == 8 && 32 * WARPS == THREADS && WARPS == 32 && BINS == 2 * THREADS);
static_assert((int)LEXICAL_SCAN_K_MAX + SPARE <= 2 * THREADS);

struct scan_task {
    struct lexical_scan in;
    int first_query, queries; /* of the current pass */
    int k, slots;             /* slots: keys that a window or a group outputs */
    uint64_t *keys;           /* [queries, windows, slots], 0: none */
};

/* ---- bytes at any address ---- */

/* 4 bytes; reads the aligned words that contain them. */
static __device__ __forceinline__ uint32_t scan_load(const uint8_t *at) {
    const uint32_t *words = (const uint32_t *)((uintptr_t)at & ~(uintptr_t)3);
    unsigned shift = ((unsigned)(uintptr_t)at & 3) * 8;
    uint32_t low = __ldg(words), high = shift ? __ldg(words + 1) : 0;
    return __funnelshift_r(low, high, shift);
}

/* 16 bytes. */
static __device__ __forceinline__ uint4 scan_load4(const uint8_t *at) {
    const uint32_t *words = (const uint32_t *)((uintptr_t)at & ~(uintptr_t)3);
    unsigned shift = ((unsigned)(uintptr_t)at & 3) * 8;
    uint32_t a = __ldg(words), b = __ldg(words + 1), c = __ldg(words + 2), d = __ldg(words + 3);
    uint32_t e = shift ? __ldg(words + 4) : 0;
    return {__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift), __funnelshift_r(c, d, shift),
            __funnelshift_r(d, e, shift)};
}

static __device__ __forceinline__ const uint8_t *scan_table(const uint8_t *postings, const lexical_scan_list &l) {
    return postings + l.begin + l.bytes;
}
static __device__ __forceinline__ uint32_t scan_table_last(const uint8_t *table, uint32_t block) {
    return scan_load(table + (size_t)block * 8) & 0xffffff;
}

/* ---- sparse lists ---- */

/* For LISTS lists: the first block of each that overlaps the window, and the number of such blocks in this list and all
 * before it. */
struct scan_found {
    uint32_t first[LISTS], until[LISTS];
};

/* Blocks of a list that overlap chunks begin .. end-1: from the first whose last chunk is at least `begin`, to the
 * first whose last chunk is at least end-1. */
static __device__ uint2 scan_find_blocks(const uint8_t *postings, const lexical_scan_list &l, uint32_t begin,
                                         uint32_t end) {
    if (l.n <= BLOCK) return {0, l.until == 0 || (l.from < end && l.until > begin)};
    const uint8_t *table = scan_table(postings, l);
    uint32_t blocks = (l.n + BLOCK - 1) / BLOCK, low = 0, high = blocks, low_end = 0, high_end = blocks;
    while (low < high || low_end < high_end) {
        uint32_t middle = (low + high) / 2, middle_end = (low_end + high_end) / 2; /* blocks: not read */
        uint32_t last = low < high ? scan_table_last(table, middle) : 0;
        uint32_t last_end = low_end < high_end ? scan_table_last(table, middle_end) : 0;
        if (low < high) {
            if (last < begin) low = middle + 1;
            else high = middle;
        }
        if (low_end < high_end) {
            if (last_end < end - 1) low_end = middle_end + 1;
            else high_end = middle_end;
        }
    }
    uint32_t stop = low_end < blocks ? low_end + 1 : blocks;
    return {low, stop > low ? stop - low : 0};
}

/* Inclusive sums over the threads of a block; every thread calls. */
static __device__ uint32_t scan_prefix(uint32_t x, uint32_t *of_warp) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        uint32_t before = __shfl_up_sync(~0u, x, offset);
        if (lane >= offset) x += before;
    }
    __syncthreads();
    if (lane == 31) of_warp[warp] = x;
    __syncthreads();
    uint32_t sum = of_warp[lane];
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        uint32_t before = __shfl_up_sync(~0u, sum, offset);
        if (lane >= offset) sum += before;
    }
    uint32_t all_before = __shfl_sync(~0u, sum, warp ? warp - 1 : 0);
    return x + (warp ? all_before : 0);
}

/* The steps 4 * lane .. of a block, 0 beyond its n postings. */
static __device__ __forceinline__ uint4 scan_steps(const uint8_t *block, int n, int width) {
    int lane = threadIdx.x % 32;
    uint32_t mask = (1u << width) - 1;
    if (n == BLOCK) {
        int bit = lane * width, shift = bit % 32;
        const uint8_t *at = block + bit / 32 * 16;
        uint4 low = scan_load4(at), high = {0, 0, 0, 0};
        if (shift + width > 32) high = scan_load4(at + 16);
        return {__funnelshift_r(low.x, high.x, shift) & mask, __funnelshift_r(low.y, high.y, shift) & mask,
                __funnelshift_r(low.z, high.z, shift) & mask, __funnelshift_r(low.w, high.w, shift) & mask};
    }
    uint32_t steps[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        int i = 4 * lane + c, bit = i * width;
        steps[c] = i < n ? scan_load(block + bit / 8) >> (bit % 8) & mask : 0; /* a width of 24 and a shift of 7 fit */
    }
    return {steps[0], steps[1], steps[2], steps[3]};
}

/* Bit c of the results: posting 4 * lane + c has at least code 1, has code 2. */
static __device__ __forceinline__ uint2 scan_marks(const uint8_t *marks, int n, int greatest) {
    int lane = threadIdx.x % 32;
    if (greatest == 0) return {0, 0};
    uint32_t twice = 4 * lane < n ? (uint32_t)__ldg(marks + lane / 2) >> (lane % 2 * 4) & 15 : 0, thrice = 0;
    if (greatest == 1) return {twice, 0};
    const uint8_t *more = marks + (n + 7) / 8;
    int rank = 0; /* marked postings of the lanes before */
#pragma unroll
    for (int c = 0; c < 4; c++)
        rank += __popc(__ballot_sync(~0u, twice >> c & 1) & ((1u << lane) - 1));
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (twice >> c & 1) {
            thrice |= ((uint32_t)__ldg(more + rank / 8) >> (rank % 8) & 1) << c;
            rank++;
        }
    return {twice, thrice};
}

/* A warp decodes one block and adds its postings of chunks begin .. begin + WINDOW - 1. */
static __device__ void scan_add_block(int32_t *sums, const uint8_t *postings, const lexical_scan_list &l,
                                      uint32_t block, uint32_t begin) {
    const uint8_t *data = postings + l.begin;
    uint32_t form = l.form, base = 0;
    int n = (int)min(l.n - block * BLOCK, (uint32_t)BLOCK);
    if (l.n > BLOCK) {
        const uint8_t *row = scan_table(postings, l) + (size_t)block * 8;
        form = __ldg(row + 3);
        if (block > 0) {
            base = (scan_load(row - 8) & 0xffffff) + 1;
            data += scan_load(row - 4);
        }
    }
    int width = (int)(form & 31), lane = threadIdx.x % 32;
    uint4 step = scan_steps(data, n, width);
    uint2 mark = scan_marks(data + (n * width + 7) / 8, n, (int)(form >> 5));
    /* Postings beyond n are last and are never added, so their values in the sums below do not matter. */
    uint32_t of_lane[4] = {step.x + 1, 0, 0, 0};
    of_lane[1] = of_lane[0] + step.y + 1;
    of_lane[2] = of_lane[1] + step.z + 1;
    of_lane[3] = of_lane[2] + step.w + 1;
    uint32_t sum = of_lane[3];
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        uint32_t before = __shfl_up_sync(~0u, sum, offset);
        if (lane >= offset) sum += before;
    }
    uint32_t from = base - 1 + sum - of_lane[3] - begin; /* unsigned numbers wrap */
#pragma unroll
    for (int c = 0; c < 4; c++) {
        uint32_t at = from + of_lane[c];
        if (4 * lane + c >= n || at >= WINDOW) continue;
        int32_t weight = mark.y >> c & 1 ? l.weight[2] : mark.x >> c & 1 ? l.weight[1] : l.weight[0];
        atomicAdd(&sums[at], weight);
    }
}

static __device__ void scan_add_sparse(int32_t *sums, scan_found *found, uint32_t *of_warp, const lexical_scan &in,
                                       const lexical_scan_part &part, uint32_t begin, uint32_t end) {
    int warp = threadIdx.x / 32;
    for (int first = 0; first < part.sparse; first += LISTS) {
        const lexical_scan_list *lists = in.lists + part.first + first;
        int n = min(part.sparse - first, (int)LISTS);
        uint2 mine = {0, 0};
        if ((int)threadIdx.x < n) mine = scan_find_blocks(in.postings, lists[threadIdx.x], begin, end);
        uint32_t until = scan_prefix(mine.y, of_warp); /* all warps have left the lists before */
        if ((int)threadIdx.x < n) {
            found->first[threadIdx.x] = mine.x;
            found->until[threadIdx.x] = until;
        }
        __syncthreads();
        uint32_t all = found->until[n - 1];
        for (uint32_t pair = (uint32_t)warp; pair < all; pair += WARPS) {
            int low = 0, high = n - 1; /* the first list whose `until` is above the pair */
            while (low < high) {
                int middle = (low + high) / 2;
                if (found->until[middle] <= pair) low = middle + 1;
                else high = middle;
            }
            uint32_t before = low ? found->until[low - 1] : 0;
            scan_add_block(sums, in.postings, lists[low], found->first[low] + pair - before, begin);
        }
    }
}

/* ---- dense lists ---- */

/* Adds the codes of the thread's 8 chunks, EACH * threadIdx.x .. of the window. */
static __device__ void scan_add_dense(int32_t sums[EACH], int32_t (*weights)[4], const lexical_scan &in,
                                      const lexical_scan_part &part, uint32_t begin, int n) {
    size_t offset = begin / 4 + 2 * threadIdx.x;
    bool inside = (int)threadIdx.x * EACH < n; /* bits beyond n in the last two bytes are not used */
    for (int first = 0; first < part.dense; first += DENSE) {
        const lexical_scan_list *lists = in.lists + part.first + part.sparse + first;
        int count = min(part.dense - first, (int)DENSE);
        __syncthreads();
        for (int i = threadIdx.x; i < count * 4; i += THREADS)
            weights[i / 4][i % 4] = i % 4 ? lists[i / 4].weight[i % 4 - 1] : 0;
        __syncthreads();
        if (!inside) continue;
#pragma unroll 4
        for (int d = 0; d < count; d++) {
            const uint8_t *at = in.postings + lists[d].begin + offset;
            uint32_t codes = (uint32_t)__ldg(at) | (uint32_t)__ldg(at + 1) << 8;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                sums[i] += weights[d][codes >> 2 * i & 3];
        }
    }
}

/* ---- the best keys ---- */

struct scan_select {
    uint32_t bins[BINS], of_warp[WARPS];
    uint32_t digit, at_least, in_digit, count;
};

/* A key above 0 such that at least `wanted` keys are not below it and, unless there are fewer than `wanted`, at most
 * wanted + SPARE. each(f) calls f(key) for the keys of this thread; keys of 0 do not count, others are unique. All
 * threads call it and get the result. */
template <typename EACH_KEY>
static __device__ uint64_t scan_threshold(scan_select *s, uint32_t wanted, EACH_KEY each) {
    uint64_t prefix = 0;
    uint32_t above = 0; /* keys whose first digits are greater than the prefix */
    int shift = KEY_BITS;
    do { /* in the last pass at_least is `wanted`, since keys are unique */
        int next = shift > DIGIT ? shift - DIGIT : 0;
        uint32_t digits = (1u << (shift - next)) - 1;
        __syncthreads();
        s->bins[threadIdx.x] = s->bins[threadIdx.x + THREADS] = 0;
        if (threadIdx.x == 0) s->at_least = 0;
        __syncthreads();
        each([&](uint64_t key) {
            if (key && key >> shift == prefix) atomicAdd(&s->bins[(uint32_t)(key >> next) & digits], 1u);
        });
        __syncthreads();
        int high = BINS - 1 - 2 * threadIdx.x; /* a thread has two bins; the first thread has the greatest digits */
        uint32_t first = s->bins[high], second = s->bins[high - 1];
        uint32_t until = above + scan_prefix(first + second, s->of_warp), before = until - first - second;
        if (before < wanted && until >= wanted) { /* at most one thread */
            bool in_first = before + first >= wanted;
            s->digit = (uint32_t)(in_first ? high : high - 1);
            s->at_least = in_first ? before + first : until;
            s->in_digit = in_first ? first : second;
        }
        __syncthreads();
        if (s->at_least == 0) return 1; /* fewer than wanted: all */
        prefix = prefix << (shift - next) | s->digit;
        above = s->at_least - s->in_digit;
        shift = next;
    } while (s->at_least > wanted + SPARE);
    uint64_t least = prefix << shift;
    return least ? least : 1;
}

/* ---- windows ---- */

/* The last segment that begins at the window or before it. If segments begin at the same window, only the last has
 * chunks. */
static __device__ int scan_segment_of(const lexical_scan &in, int64_t window) {
    int low = 0, high = (int)in.n_segments - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (in.segments[middle].first_window <= window) low = middle;
        else high = middle - 1;
    }
    return low;
}

struct scan_window_memory {
    int32_t sums[WINDOW];
    union {
        scan_found found;
        int32_t weights[DENSE][4];
        scan_select select;
    };
    uint32_t of_warp[WARPS];
};
static_assert(sizeof(scan_window_memory) <= 48 << 10);

/* RESIDENT: blocks that a multiprocessor has at a time. Two hide the latency of each other, if there are more windows
 * than multiprocessors; one alone is faster with all registers. */
template <int RESIDENT>
static __global__ void __launch_bounds__(THREADS, RESIDENT) scan_windows_kernel(scan_task t) {
    __shared__ scan_window_memory m;
    launch_next();
    int64_t window = blockIdx.x / t.queries;
    int q = t.first_query + (int)(blockIdx.x % t.queries), own = (int)threadIdx.x * EACH;
    int segment = scan_segment_of(t.in, window);
    lexical_scan_segment in = t.in.segments[segment];
    lexical_scan_part part = t.in.parts[q * t.in.n_segments + segment];
    lexical_scan_query query = t.in.queries[q];
    uint32_t begin = (uint32_t)(window - in.first_window) * WINDOW;
    int n = min(in.chunks - (int)begin, (int)WINDOW);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        m.sums[i * THREADS + threadIdx.x] = 0;
    __syncthreads();
    scan_add_sparse(m.sums, &m.found, m.of_warp, t.in, part, begin, begin + (uint32_t)n);
    __syncthreads();
    int32_t sums[EACH];
    *(int4 *)sums = *(int4 *)&m.sums[own];
    *(int4 *)(sums + 4) = *(int4 *)&m.sums[own + 4];
    scan_add_dense(sums, m.weights, t.in, part, begin, n);
    uint32_t absent = t.in.absent && own < n ? t.in.absent[(window * WINDOW + own) / 8] : 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int64_t chunk = in.first_chunk + begin + own + i;
        bool out = (chunk >= query.hole[0] && chunk < query.hole[1]) || (absent >> i & 1) || own + i >= n;
        if (out) sums[i] = 0;
    }
    uint32_t position = (uint32_t)(window * WINDOW + own);
    auto each = [&](auto f) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            f(sums[i] > 0 ? (uint64_t)(uint32_t)sums[i] << 32 | (uint32_t)~(position + i) : 0);
    };
    uint64_t least = scan_threshold(&m.select, (uint32_t)t.k, each);
    uint64_t *keys = t.keys + ((int64_t)(q - t.first_query) * t.in.windows + window) * t.slots;
    if (threadIdx.x == 0) m.select.count = 0;
    __syncthreads();
    each([&](uint64_t key) {
        if (key >= least) keys[atomicAdd(&m.select.count, 1u)] = key;
    });
    __syncthreads();
    for (int i = (int)m.select.count + (int)threadIdx.x; i < t.slots; i += THREADS)
        keys[i] = 0;
}

/* ---- merging ---- */

struct scan_merge {
    const uint64_t *from;  /* [queries, lists, slots] */
    uint64_t *to;          /* [queries, groups, slots]; NULL: these are the results */
    int lists, groups;
    int64_t *index;
    float *score;
};

/* The results of a query, from its best keys. Each key's rank is the number of greater ones. */
static __device__ void scan_write_hits(const scan_task &t, const scan_merge &out, const uint64_t *best, int n) {
    int q = t.first_query + (int)blockIdx.y;
    float unit = t.in.queries[q].unit;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        uint64_t key = best[i];
        int rank = 0;
#pragma unroll 8
        for (int j = 0; j < n; j++)
            rank += best[j] > key;
        if (rank >= t.k) continue;
        uint32_t position = ~(uint32_t)key;
        const lexical_scan_segment &in = t.in.segments[scan_segment_of(t.in, position / WINDOW)];
        out.index[(int64_t)q * t.k + rank] = in.first_chunk + position - (int64_t)in.first_window * WINDOW;
        out.score[(int64_t)q * t.k + rank] = (float)(int32_t)(key >> 32) * unit;
    }
    for (int i = n + (int)threadIdx.x; i < t.k; i += THREADS) {
        out.index[(int64_t)q * t.k + i] = -1;
        out.score[(int64_t)q * t.k + i] = -INFINITY;
    }
}

static __global__ void __launch_bounds__(THREADS, 1) scan_merge_kernel(scan_task t, scan_merge m) {
    __shared__ scan_select select;
    __shared__ uint64_t best[(int)LEXICAL_SCAN_K_MAX + SPARE];
    int first = (int)blockIdx.x * FAN, lists = min(m.lists - first, (int)FAN), n = lists * t.slots;
    const uint64_t *from = m.from + ((int64_t)blockIdx.y * m.lists + first) * t.slots;
    launch_next();
    launch_wait();
    auto each = [&](auto f) {
#pragma unroll 4
        for (int i = threadIdx.x; i < n; i += THREADS)
            f(from[i]);
    };
    uint64_t least = scan_threshold(&select, (uint32_t)t.k, each);
    if (threadIdx.x == 0) select.count = 0;
    __syncthreads();
    each([&](uint64_t key) {
        if (key >= least) best[atomicAdd(&select.count, 1u)] = key;
    });
    __syncthreads();
    if (!m.to) {
        scan_write_hits(t, m, best, (int)select.count);
        return;
    }
    uint64_t *to = m.to + ((int64_t)blockIdx.y * m.groups + blockIdx.x) * t.slots;
    for (int i = threadIdx.x; i < t.slots; i += THREADS)
        to[i] = i < (int)select.count ? best[i] : 0;
}

/* ---- the op ---- */

static int scan_groups(int64_t lists) {
    return (int)blocks_for(lists, FAN);
}

static void scan_pass(struct device *dev, scan_task t, uint64_t *spare, int64_t *index, float *score) {
    const char *op = "lexical_scan.forward";
    const int64_t blocks = t.in.windows * t.queries;
    auto windows = blocks > device_cuda_processors(dev) ? scan_windows_kernel<2> : scan_windows_kernel<1>;
    launch(dev, op, windows, (unsigned)blocks, THREADS, 0, t);
    scan_merge m = {t.keys, spare, (int)t.in.windows, scan_groups(t.in.windows), index, score};
    for (uint64_t *other = t.keys; m.to; m.lists = m.groups, m.groups = scan_groups(m.lists)) {
        if (m.groups == 1) m.to = NULL;
        launch_dependent(dev, op, scan_merge_kernel, dim3((unsigned)m.groups, (unsigned)t.queries), THREADS, 0, t, m);
        if (!m.to) break;
        m.from = m.to;
        m.to = other;
        other = (uint64_t *)m.from;
    }
}

static void lexical_scan_forward(struct device *dev, int64_t *index, float *score, const struct lexical_scan *scan,
                                 int k) {
    assert(k >= 1 && k <= LEXICAL_SCAN_K_MAX && scan->n_segments >= 1 && scan->windows >= 1 &&
           scan->windows <= LEXICAL_SCAN_WINDOWS_MAX);
    scan_task t = {*scan, 0, 0, k, k + SPARE, NULL};
    int64_t of_query = (scan->windows + scan_groups(scan->windows)) * t.slots; /* keys of the windows, of the groups */
    int64_t most = (int64_t)(device_cuda_scratch_bytes(dev) / sizeof(uint64_t)) / of_query;
    if (most > 65535) most = 65535; /* of a grid's y */
    for (int64_t q = 0; q < scan->n_queries; q += t.queries) {
        t.first_query = (int)q;
        t.queries = (int)(scan->n_queries - q < most ? scan->n_queries - q : most);
        t.keys = (uint64_t *)device_cuda_scratch(dev, (size_t)(t.queries * of_query) * sizeof(uint64_t));
        scan_pass(dev, t, t.keys + t.queries * scan->windows * t.slots, index, score);
    }
}

extern "C" const struct lexical_scan_ops lexical_scan_cuda = {.forward = lexical_scan_forward};
