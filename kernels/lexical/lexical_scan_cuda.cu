/* lexical_scan_cuda.cu -- the best chunks by sums over lists of postings.
 *
 *   scan_windows_kernel   block (window, query)          32 warps decode blocks of sparse lists and add to sums in
 *                                                        shared memory; a thread adds the dense codes of 8 chunks
 *   scan_merge_kernel     block (group, query)           the best of up to 128 windows, then of up to 128 groups; the
 *                                                        last step sorts and writes the hits
 *
 * One thread for each sparse list finds the blocks that overlap the window, by two simultaneous binary searches in the
 * list's table, which begin near the block of a list that is spread evenly. Then one thread for each block reads its row
 * of the table and prefetches its bytes, so that the latency of the memory is waited for once and not by each warp for
 * each block. Then the warps take the blocks in turn. A lane decodes 4 postings. A block that overlaps two windows is
 * decoded twice. So windows are as large as possible with one for each multiprocessor at 1M chunks.
 *
 * A key is sum << 32 | ~position (position: window * WINDOW + chunk in it): keys are unique, and greater is better. A
 * window outputs its best k keys and at most SPARE more: a threshold is found digit by digit, 11 bits in each pass,
 * from the top. If there are more windows than run at a time, each raises a sum that k chunks reach, in the device's
 * memory; later windows leave out smaller sums, and most of them then have so few keys that no threshold is needed.
 * Which keys a window outputs may differ from run to run, but never one of the best k, and the final order is total, so
 * the results have the same bits.
 *
 * Bound by the latency of one window up to 1M chunks, by the latency of the memory and by instructions at 20M
 * (docs/kernels/search.md has the figures); the bytes of the lists would take 3 us and 50 us of an H200. */
#include "kernels/cuda/launch_cuda.cuh"

enum {
    WINDOW = LEXICAL_SCAN_WINDOW, BLOCK = LEXICAL_SCAN_BLOCK,
    THREADS_ALONE = 1024,                /* of a window's block, if each has a multiprocessor of its own; else: */
    THREADS_SHARED = 512, RESIDENT = 3,  /* threads of a block, blocks of a multiprocessor */
    EACH = 8,                            /* chunks of a thread in a turn; turns of a block: WINDOW / EACH / threads */
    LISTS = 256,                         /* lists whose blocks are found together */
    BLOCKS = 512,                        /* blocks of them that are described together */
    NEAR = 16,                           /* blocks on each side of the expected one, which are searched first */
    DENSE = 64,                          /* dense lists whose weights are in shared memory together */
    PAIRS = 16,                          /* of codes of two chunks */
    SPARE = 64,
    FAN = 128,                           /* windows or groups that a block merges */
    DIGIT = 11, BINS = 1 << DIGIT,
    KEY_BITS = 62,
};
static_assert(BLOCKS <= 512 && LISTS <= 256 && WINDOW % (EACH * THREADS_ALONE) == 0 && BINS % THREADS_ALONE == 0);
static_assert((int)LEXICAL_SCAN_K_MAX + SPARE <= 2 * THREADS_ALONE);

struct scan_task {
    struct lexical_scan in;
    int first_query, queries; /* of the current pass */
    int k, slots;             /* slots: keys that a window or a group outputs */
    uint64_t *keys;           /* [queries, windows, slots], 0: none */
    unsigned *reach;          /* [queries] a sum that at least k chunks reach; NULL: not used */
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

/* Starts to copy bytes into the L2 cache. Up to 15 bytes on each side are copied, too. */
static __device__ __forceinline__ void scan_prefetch(const uint8_t *at, uint32_t bytes) {
    uint32_t extra = (uint32_t)(uintptr_t)at & 15;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at - extra), "r"((bytes + extra + 15) & ~15u)
                 : "memory");
#elif defined(__CUDA_ARCH__)
    for (uint32_t i = 0; i < bytes + extra; i += 64)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at - extra + i));
#endif
}

static __device__ __forceinline__ const uint8_t *scan_table(const uint8_t *postings, const lexical_scan_list &l) {
    return postings + l.begin + l.bytes;
}
static __device__ __forceinline__ uint32_t scan_table_last(const uint8_t *table, uint32_t block) {
    return scan_load(table + (size_t)block * 8) & 0xffffff;
}

/* ---- sparse lists ---- */

/* A block of a list that overlaps the window. */
struct alignas(16) scan_block {
    uint64_t begin; /* in `postings` */
    uint32_t base;  /* the chunk from which its first step counts, less the window's first chunk */
    uint32_t what;  /* form | number of postings << 8 | list << 16 */
};
/* For LISTS lists: the first block of each that overlaps the window, and the number of such blocks in this list and all
 * before it; their weights; and up to BLOCKS of the blocks. */
struct scan_found {
    scan_block blocks[BLOCKS];
    int4 weights[LISTS];
    uint32_t first[LISTS], until[LISTS];
};

/* Blocks of a list that overlap chunks begin .. end-1: from the first whose last chunk is at least `begin`, to the
 * first whose last chunk is at least end-1. chunks: of the segment. */
static __device__ uint2 scan_find_blocks(const uint8_t *postings, const lexical_scan_list &l, uint32_t begin,
                                         uint32_t end, int chunks) {
    if (l.n <= BLOCK) return {0, l.until == 0 || (l.from < end && l.until > begin)};
    const uint8_t *table = scan_table(postings, l);
    uint32_t blocks = (l.n + BLOCK - 1) / BLOCK, low = 0, high = blocks, high_end = blocks;
    if (blocks > 4 * NEAR) { /* if the list is spread evenly, this leaves some 2 * NEAR blocks */
        float of_chunk = (float)blocks / (float)chunks;
        uint32_t from = min((uint32_t)((float)begin * of_chunk), blocks), to = (uint32_t)((float)end * of_chunk) + NEAR;
        from = from > NEAR ? from - NEAR : 1;
        to = min(to, blocks - 1);
        uint32_t before = scan_table_last(table, from - 1), last = scan_table_last(table, to);
        if (before < begin) low = from;
        if (last >= begin) high = to;
        if (last >= end - 1) high_end = to;
    }
    uint32_t low_end = low;
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
template <int THREADS> static __device__ uint32_t scan_prefix(uint32_t x, uint32_t *of_warp) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        uint32_t before = __shfl_up_sync(~0u, x, offset);
        if (lane >= offset) x += before;
    }
    __syncthreads();
    if (lane == 31) of_warp[warp] = x;
    __syncthreads();
    uint32_t sum = lane < THREADS / 32 ? of_warp[lane] : 0;
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

/* Describes block `pair` of those that found->until counts, and starts to load its bytes. */
static __device__ void scan_describe(scan_found *found, const lexical_scan &in, const lexical_scan_list *lists, int n,
                                     uint32_t pair, uint32_t begin, scan_block *out) {
    int low = 0, high = n - 1; /* the first list whose `until` is above the pair */
    while (low < high) {
        int middle = (low + high) / 2;
        if (found->until[middle] <= pair) low = middle + 1;
        else high = middle;
    }
    const lexical_scan_list &l = lists[low];
    uint32_t block = found->first[low] + pair - (low ? found->until[low - 1] : 0);
    uint32_t form = l.form, base = 0, from = 0, until = l.bytes, count = min(l.n - block * BLOCK, (uint32_t)BLOCK);
    if (l.n > BLOCK) {
        const uint8_t *row = scan_table(in.postings, l) + (size_t)block * 8;
        form = __ldg(row + 3);
        until = scan_load(row + 4);
        if (block > 0) {
            base = (scan_load(row - 8) & 0xffffff) + 1;
            from = scan_load(row - 4);
        }
    }
    scan_prefetch(in.postings + l.begin + from, until - from);
    *out = {l.begin + from, base - begin, form | count << 8 | (uint32_t)low << 16};
}

/* A warp decodes one block and adds its postings of the window's chunks. */
static __device__ void scan_add_block(int32_t *sums, const uint8_t *postings, const scan_block &b, const int4 &weight) {
    const uint8_t *data = postings + b.begin;
    uint32_t form = b.what & 255;
    int n = (int)(b.what >> 8 & 255);
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
    uint32_t from = b.base - 1 + sum - of_lane[3]; /* unsigned numbers wrap */
#pragma unroll
    for (int c = 0; c < 4; c++) {
        uint32_t at = from + of_lane[c];
        if (4 * lane + c >= n || at >= WINDOW) continue;
        atomicAdd(&sums[at], mark.y >> c & 1 ? weight.z : mark.x >> c & 1 ? weight.y : weight.x);
    }
}

/* n: chunks of the window; chunks: of the segment. */
template <int THREADS>
static __device__ void scan_add_sparse(int32_t *sums, scan_found *found, uint32_t *of_warp, const lexical_scan &in,
                                       const lexical_scan_part &part, uint32_t begin, int n, int chunks) {
    for (int first = 0; first < part.sparse; first += LISTS) {
        const lexical_scan_list *lists = in.lists + part.first + first;
        int count = min(part.sparse - first, (int)LISTS), own = (int)threadIdx.x;
        uint2 mine = {0, 0};
        if (own < count) mine = scan_find_blocks(in.postings, lists[own], begin, begin + (uint32_t)n, chunks);
        uint32_t until = scan_prefix<THREADS>(mine.y, of_warp); /* all warps have left the lists before */
        if (own < count) {
            found->first[own] = mine.x;
            found->until[own] = until;
            found->weights[own] = {lists[own].weight[0], lists[own].weight[1], lists[own].weight[2], 0};
        }
        __syncthreads();
        uint32_t all = found->until[count - 1];
        for (uint32_t pair = 0; pair < all; pair += BLOCKS) {
            uint32_t blocks = min(all - pair, (uint32_t)BLOCKS);
            if (pair) __syncthreads();
            if (threadIdx.x < blocks)
                scan_describe(found, in, lists, count, pair + threadIdx.x, begin, &found->blocks[threadIdx.x]);
            __syncthreads();
            for (uint32_t i = threadIdx.x / 32; i < blocks; i += THREADS / 32) {
                const scan_block b = found->blocks[i];
                scan_add_block(sums, in.postings, b, found->weights[b.what >> 16]);
            }
        }
    }
}

/* ---- dense lists ---- */

/* A byte has the codes of two pairs of chunks. The weights of a pair are one load of 8 bytes: PAIRS of them fill the
 * banks of the shared memory once, so threads with any codes have no conflicts. */
struct scan_dense {
    int2 weights[DENSE][PAIRS];
};

/* Starts to load the codes of a window of n chunks. */
static __device__ void scan_prefetch_dense(const lexical_scan &in, const lexical_scan_part &part, uint32_t begin,
                                           int n) {
    int d = (int)blockDim.x - 1 - (int)threadIdx.x; /* the first threads find the blocks of sparse lists */
    if (d >= part.dense || n <= 0) return;
    scan_prefetch(in.postings + in.lists[part.first + part.sparse + d].begin + begin / 4, (uint32_t)(n + 3) / 4);
}

/* Adds the codes of dense lists to the chunks of each thread: EACH * threadIdx.x .., then EACH * (threadIdx.x + THREADS)
 * .., and so on. */
template <int THREADS>
static __device__ void scan_add_dense(int32_t *sums, scan_dense *memory, const lexical_scan &in,
                                      const lexical_scan_part &part, uint32_t begin, int n) {
    for (int first = 0; first < part.dense; first += DENSE) {
        const lexical_scan_list *lists = in.lists + part.first + part.sparse + first;
        int count = min(part.dense - first, (int)DENSE);
        __syncthreads();
        for (int i = threadIdx.x; i < count * PAIRS; i += THREADS) {
            const int32_t *weight = lists[i / PAIRS].weight;
            int low = i % 4, high = i / 4 % 4;
            memory->weights[i / PAIRS][i % PAIRS] = {low ? weight[low - 1] : 0, high ? weight[high - 1] : 0};
        }
        __syncthreads();
        for (int own = EACH * (int)threadIdx.x; own < n; own += EACH * THREADS) {
            int4 a = *(int4 *)&sums[own], b = *(int4 *)&sums[own + 4];
            const uint8_t *codes_at = in.postings + (begin + (uint32_t)own) / 4;
#pragma unroll 4
            for (int d = 0; d < count; d++) {
                const uint8_t *at = codes_at + lists[d].begin;
                /* bits of chunks beyond n may be set, but their sums are not used */
                uint32_t codes = (uint32_t)__ldg(at) | (uint32_t)__ldg(at + 1) << 8;
                const int2 *weights = memory->weights[d];
                int2 w0 = weights[codes & 15], w1 = weights[codes >> 4 & 15];
                int2 w2 = weights[codes >> 8 & 15], w3 = weights[codes >> 12];
                a.x += w0.x, a.y += w0.y, a.z += w1.x, a.w += w1.y;
                b.x += w2.x, b.y += w2.y, b.z += w3.x, b.w += w3.y;
            }
            *(int4 *)&sums[own] = a;
            *(int4 *)&sums[own + 4] = b;
        }
    }
}

/* ---- the best keys ---- */

struct scan_select {
    uint32_t bins[BINS], of_warp[32];
    uint32_t digit, at_least, in_digit, count;
};

/* A key above 0 such that at least `wanted` keys are not below it and, unless there are fewer than `wanted`, at most
 * wanted + SPARE. each(f) calls f(key) for the keys of this thread; keys of 0 do not count, others are unique. All
 * threads call it and get the result. */
template <int THREADS, typename EACH_KEY>
static __device__ uint64_t scan_threshold(scan_select *s, uint32_t wanted, EACH_KEY each) {
    constexpr int OWN = BINS / THREADS; /* bins of a thread */
    uint64_t prefix = 0;
    uint32_t above = 0; /* keys whose first digits are greater than the prefix */
    int shift = KEY_BITS;
    do { /* in the last pass at_least is `wanted`, since keys are unique */
        int next = shift > DIGIT ? shift - DIGIT : 0;
        uint32_t digits = (1u << (shift - next)) - 1;
        __syncthreads();
        for (int i = threadIdx.x; i < BINS; i += THREADS)
            s->bins[i] = 0;
        if (threadIdx.x == 0) s->at_least = 0;
        __syncthreads();
        each([&](uint64_t key) {
            if (key && key >> shift == prefix) atomicAdd(&s->bins[(uint32_t)(key >> next) & digits], 1u);
        });
        __syncthreads();
        /* the first thread has the bins of the greatest digits */
        int high = BINS - 1 - OWN * (int)threadIdx.x;
        uint32_t in_own = 0;
        for (int i = 0; i < OWN; i++)
            in_own += s->bins[high - i];
        uint32_t until = above + scan_prefix<THREADS>(in_own, s->of_warp), before = until - in_own;
        if (before < wanted && until >= wanted) { /* at most one thread */
            int i = 0;
            while (before + s->bins[high - i] < wanted)
                before += s->bins[high - i++];
            s->digit = (uint32_t)(high - i);
            s->in_digit = s->bins[high - i];
            s->at_least = before + s->in_digit;
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
        scan_dense dense;
        scan_select select;
    };
    uint32_t of_warp[32], reach, count;
};
static_assert(sizeof(scan_window_memory) <= 48 << 10);

/* Writes the keys that are at least `least`, as far as there are slots. *count: their number; all threads get it. */
template <typename EACH_KEY>
static __device__ uint32_t scan_output(uint64_t *keys, uint32_t *count, uint32_t slots, uint64_t least, EACH_KEY each) {
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    each([&](uint64_t key) {
        if (key < least) return;
        uint32_t at = atomicAdd(count, 1u);
        if (at < slots) keys[at] = key;
    });
    __syncthreads();
    return *count;
}

/* Clears the sums of chunks that are never found, and those below `least`. */
template <int THREADS>
static __device__ void scan_leave_out(int32_t *sums, const scan_task &t, const lexical_scan_query &query,
                                      int64_t window, int64_t first_chunk, int n, int32_t least) {
    for (int own = EACH * (int)threadIdx.x; own < WINDOW; own += EACH * THREADS) {
        uint32_t absent = t.in.absent && own < n ? t.in.absent[(window * WINDOW + own) / 8] : 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int64_t chunk = first_chunk + own + i;
            bool out = (chunk >= query.hole[0] && chunk < query.hole[1]) || (absent >> i & 1) || own + i >= n;
            if (out || sums[own + i] < least) sums[own + i] = 0;
        }
    }
}

/* RESIDENT: blocks that a multiprocessor has at a time. Several hide the latency of each other, if there are more
 * windows than multiprocessors; one alone is faster with all threads and registers. */
template <int THREADS, int RESIDENT>
static __global__ void __launch_bounds__(THREADS, RESIDENT) scan_windows_kernel(scan_task t) {
    __shared__ scan_window_memory m;
    launch_next();
    int64_t window = blockIdx.x / t.queries;
    int q = t.first_query + (int)(blockIdx.x % t.queries);
    int segment = scan_segment_of(t.in, window);
    lexical_scan_segment in = t.in.segments[segment];
    lexical_scan_part part = t.in.parts[q * t.in.n_segments + segment];
    uint32_t begin = (uint32_t)(window - in.first_window) * WINDOW;
    int n = min(in.chunks - (int)begin, (int)WINDOW);
    scan_prefetch_dense(t.in, part, begin, n);
    for (int i = 4 * (int)threadIdx.x; i < WINDOW; i += 4 * THREADS)
        *(int4 *)&m.sums[i] = {0, 0, 0, 0};
    __syncthreads();
    scan_add_sparse<THREADS>(m.sums, &m.found, m.of_warp, t.in, part, begin, n, in.chunks);
    __syncthreads();
    unsigned *reach_of = t.reach ? &t.reach[q - t.first_query] : NULL;
    uint32_t reach = reach_of && threadIdx.x == 0 ? __ldcg(reach_of) : 0; /* used after the dense lists */
    scan_add_dense<THREADS>(m.sums, &m.dense, t.in, part, begin, n);
    if (threadIdx.x == 0) m.reach = reach;
    __syncthreads();
    reach = m.reach; /* k chunks have it, so smaller sums are not among the best */
    scan_leave_out<THREADS>(m.sums, t, t.in.queries[q], window, in.first_chunk + begin, n, (int32_t)reach);
    auto each = [&](auto f) { /* a thread reads what it wrote */
        for (int own = EACH * (int)threadIdx.x; own < WINDOW; own += EACH * THREADS) {
            uint32_t position = (uint32_t)(window * WINDOW + own);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                uint32_t sum = (uint32_t)m.sums[own + i];
                f(sum ? (uint64_t)sum << 32 | (uint32_t)~(position + i) : 0);
            }
        }
    };
    uint64_t *keys = t.keys + ((int64_t)(q - t.first_query) * t.in.windows + window) * t.slots;
    uint32_t slots = (uint32_t)t.slots, count = slots + 1;
    if (reach) count = scan_output(keys, &m.count, slots, 1, each);
    if (count > slots) {
        uint64_t least = scan_threshold<THREADS>(&m.select, (uint32_t)t.k, each);
        count = scan_output(keys, &m.count, slots, least, each);
        if (reach_of && threadIdx.x == 0 && count >= (uint32_t)t.k) atomicMax(reach_of, (unsigned)(least >> 32));
    }
    for (uint32_t i = count + threadIdx.x; i < slots; i += THREADS)
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
    for (int i = threadIdx.x; i < n; i += THREADS_ALONE) {
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
    for (int i = n + (int)threadIdx.x; i < t.k; i += THREADS_ALONE) {
        out.index[(int64_t)q * t.k + i] = -1;
        out.score[(int64_t)q * t.k + i] = -INFINITY;
    }
}

static __global__ void __launch_bounds__(THREADS_ALONE, 1) scan_merge_kernel(scan_task t, scan_merge m) {
    __shared__ scan_select select;
    __shared__ uint64_t best[(int)LEXICAL_SCAN_K_MAX + SPARE];
    int first = (int)blockIdx.x * FAN, lists = min(m.lists - first, (int)FAN), n = lists * t.slots;
    const uint64_t *from = m.from + ((int64_t)blockIdx.y * m.lists + first) * t.slots;
    launch_next();
    launch_wait();
    auto each = [&](auto f) {
#pragma unroll 4
        for (int i = threadIdx.x; i < n; i += THREADS_ALONE)
            f(from[i]);
    };
    uint64_t least = scan_threshold<THREADS_ALONE>(&select, (uint32_t)t.k, each);
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
    for (int i = threadIdx.x; i < t.slots; i += THREADS_ALONE)
        to[i] = i < (int)select.count ? best[i] : 0;
}

/* ---- the op ---- */

static int scan_groups(int64_t lists) {
    return (int)blocks_for(lists, FAN);
}

static void scan_pass(struct device *dev, scan_task t, uint64_t *spare, int64_t *index, float *score) {
    const char *op = "lexical_scan.forward";
    const int64_t blocks = t.in.windows * t.queries;
    if (blocks > device_cuda_processors(dev)) {
        device_clear(dev, t.reach, (size_t)t.queries * sizeof *t.reach);
        launch(dev, op, scan_windows_kernel<THREADS_SHARED, RESIDENT>, (unsigned)blocks, THREADS_SHARED, 0, t);
    } else {
        t.reach = NULL;
        launch(dev, op, scan_windows_kernel<THREADS_ALONE, 1>, (unsigned)blocks, THREADS_ALONE, 0, t);
    }
    scan_merge m = {t.keys, spare, (int)t.in.windows, scan_groups(t.in.windows), index, score};
    for (uint64_t *other = t.keys; m.to; m.lists = m.groups, m.groups = scan_groups(m.lists)) {
        if (m.groups == 1) m.to = NULL;
        launch_dependent(dev, op, scan_merge_kernel, dim3((unsigned)m.groups, (unsigned)t.queries), THREADS_ALONE, 0, t, m);
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
    scan_task t = {*scan, 0, 0, k, k + SPARE, NULL, NULL};
    /* keys of the windows and of the groups, and one more number: reach */
    int64_t keys = (scan->windows + scan_groups(scan->windows)) * t.slots, of_query = keys + 1;
    int64_t most = (int64_t)(device_cuda_scratch_bytes(dev) / sizeof(uint64_t)) / of_query;
    if (most > 65535) most = 65535; /* of a grid's y */
    for (int64_t q = 0; q < scan->n_queries; q += t.queries) {
        t.first_query = (int)q;
        t.queries = (int)(scan->n_queries - q < most ? scan->n_queries - q : most);
        t.keys = (uint64_t *)device_cuda_scratch(dev, (size_t)(t.queries * of_query) * sizeof(uint64_t));
        t.reach = (unsigned *)(t.keys + t.queries * keys);
        scan_pass(dev, t, t.keys + t.queries * scan->windows * t.slots, index, score);
    }
}

extern "C" const struct lexical_scan_ops lexical_scan_cuda = {.forward = lexical_scan_forward};
