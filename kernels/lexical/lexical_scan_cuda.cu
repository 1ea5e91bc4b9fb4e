/* lexical_scan_cuda.cu -- the best chunks by sums over lists of postings.
 *
 *   scan_windows_kernel   block (windows, query)         adds the lists up in shared memory, and outputs the best keys
 *                                                        of the windows (lexical_scan_lists_cuda.cuh has the lists)
 *   scan_merge_kernel     block (group, query)           the best of up to 128 windows, then of up to 128 groups; the
 *                                                        last step sorts and writes the hits
 *   scan_score_kernel     block (given chunk)            lexical_scan_score_cuda.cuh
 *
 * Up to as many windows as multiprocessors, each has a block of 1024 threads, so windows are as large as possible with
 * one for each multiprocessor at 1M chunks. If there are more, a multiprocessor has two such blocks. If all then have
 * two, a block of 512 has two windows at a time: a posting's block that overlaps two windows is decoded twice, so fewer
 * windows have less work.
 *
 * A key is sum << 32 | ~position (position: window * WINDOW + chunk in it): keys are unique, and greater is better. A
 * window outputs its best k keys and at most SPARE more (kernels/search/best_keys_cuda.cuh). If there are more windows
 * than run at a time, each raises a sum that k chunks reach, in the device's memory; later windows leave out smaller
 * sums, and most of them then have so few keys that no threshold is needed. Which keys a window outputs may differ from
 * run to run, but never one of the best k, and the final order is total, so the results have the same bits.
 *
 * Bound by the latency of one window up to 1M chunks, and by instructions at 20M (docs/kernels/search.md has the
 * figures); the bytes of the lists would take 3 us and 50 us of an H200. */
#include "kernels/lexical/lexical_scan_score_cuda.cuh"

enum {
    THREADS_ONE = 1024,                  /* of a block that has one window */
    THREADS_SPAN = 512, SPAN = 2,        /* of a block that has SPAN windows, if they are in one segment */
    RESIDENT = 2,                        /* blocks of a multiprocessor, if there are so many */
    EACH = 8,                            /* chunks of a thread in a turn */
    SPARE = BEST_SPARE,
    FAN = 128,                           /* windows or groups that a block merges */
    KEY_BITS = 62,
};
static_assert(WINDOW % (EACH * THREADS_ONE) == 0 && (int)LEXICAL_SCAN_K_MAX <= (int)BEST_K_MAX);

struct scan_task {
    struct lexical_scan in;
    int first_query, queries; /* of the current pass */
    int k, slots;             /* slots: keys that a window or a group outputs */
    uint64_t *keys;           /* [queries, windows, slots], 0: none */
    unsigned *reach;          /* [queries] a sum that at least k chunks reach; NULL: not used */
};

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

template <int WINDOWS> struct scan_window_memory {
    int32_t sums[WINDOWS * WINDOW + 32];
    union {
        scan_found found;
        scan_dense dense;
        best_select select;
    };
    uint32_t of_warp[32], reach, count;
};

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

/* Clears the sums of chunks that are never found, and those below `least`. n of the sums are chunks; first: id of the
 * first one. */
template <int THREADS>
static __device__ void scan_leave_out(int32_t *sums, const scan_task &t, const lexical_scan_query &query,
                                      int64_t window, int64_t first, int n, int32_t least) {
    for (int own = EACH * (int)threadIdx.x; own < n; own += EACH * THREADS) {
        uint32_t absent = t.in.absent ? t.in.absent[(window * WINDOW + own) / 8] : 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int64_t chunk = first + own + i;
            bool out = (chunk >= query.hole[0] && chunk < query.hole[1]) || (absent >> i & 1) || own + i >= n;
            if (out || sums[own + i] < least) sums[own + i] = 0;
        }
    }
}

/* Adds up and outputs the windows from `window` on, `count` of one segment. */
template <int THREADS, int WINDOWS>
static __device__ void scan_windows(scan_window_memory<WINDOWS> *m, const scan_task &t, int q, int segment,
                                    int64_t window, int64_t count) {
    lexical_scan_segment in = t.in.segments[segment];
    lexical_scan_part part = t.in.parts[q * t.in.n_segments + segment];
    uint32_t begin = (uint32_t)(window - in.first_window) * WINDOW;
    int n = (int)min((int64_t)in.chunks - begin, count * WINDOW);
    scan_prefetch_dense<THREADS>(t.in, part, begin, n);
    for (int i = 4 * (int)threadIdx.x; i < WINDOWS * WINDOW; i += 4 * THREADS)
        *(int4 *)&m->sums[i] = {0, 0, 0, 0};
    __syncthreads();
    scan_add_sparse<THREADS, WINDOWS * WINDOW>(m->sums, &m->found, m->of_warp, t.in, part, begin, n, in.chunks);
    __syncthreads();
    unsigned *reach_of = t.reach ? &t.reach[q - t.first_query] : NULL;
    uint32_t reach = reach_of && threadIdx.x == 0 ? __ldcg(reach_of) : 0; /* used after the dense lists */
    scan_add_dense<THREADS, WINDOWS * WINDOW / THREADS >= 16 ? 16 : 8>(m->sums, &m->dense, t.in, part, begin, n);
    if (threadIdx.x == 0) m->reach = reach;
    __syncthreads();
    reach = m->reach; /* k chunks have it, so smaller sums are not among the best */
    scan_leave_out<THREADS>(m->sums, t, t.in.queries[q], window, in.first_chunk + begin, n, (int32_t)reach);
    auto each = [&](auto f) { /* a thread reads what it wrote */
        for (int own = EACH * (int)threadIdx.x; own < n; own += EACH * THREADS) {
            uint32_t position = (uint32_t)(window * WINDOW + own);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                uint32_t sum = (uint32_t)m->sums[own + i];
                f(sum ? (uint64_t)sum << 32 | (uint32_t)~(position + i) : 0);
            }
        }
    };
    uint64_t *keys = t.keys + ((int64_t)(q - t.first_query) * t.in.windows + window) * t.slots;
    uint32_t slots = (uint32_t)t.slots, found = slots + 1;
    if (reach) found = scan_output(keys, &m->count, slots, 1, each);
    if (found > slots) {
        uint64_t least = best_threshold<THREADS, KEY_BITS>(&m->select, (uint32_t)t.k, each);
        found = scan_output(keys, &m->count, slots, least, each);
        if (reach_of && threadIdx.x == 0 && found >= (uint32_t)t.k) atomicMax(reach_of, (unsigned)(least >> 32));
    }
    for (uint32_t i = found + threadIdx.x; i < slots * (uint32_t)count; i += THREADS)
        keys[i] = 0; /* of the other windows, too */
}

template <int THREADS, int RESIDENT_BLOCKS, int WINDOWS>
static __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS) scan_windows_kernel(scan_task t) {
    extern __shared__ int4 scan_shared[];
    auto *m = (scan_window_memory<WINDOWS> *)scan_shared;
    launch_next();
    int64_t window = (int64_t)(blockIdx.x / t.queries) * WINDOWS, end = min(window + WINDOWS, t.in.windows);
    int q = t.first_query + (int)(blockIdx.x % t.queries);
    while (window < end) {
        int segment = scan_segment_of(t.in, window);
        lexical_scan_segment in = t.in.segments[segment];
        int64_t count = min(end - window, (int64_t)in.first_window + (in.chunks + WINDOW - 1) / WINDOW - window);
        if (WINDOWS > 1) __syncthreads(); /* of the windows before */
        scan_windows<THREADS, WINDOWS>(m, t, q, segment, window, count);
        window += count;
    }
}

template <int THREADS, int RESIDENT_BLOCKS, int WINDOWS>
static void scan_launch_windows(struct device *dev, const scan_task &t) {
    auto *kernel = scan_windows_kernel<THREADS, RESIDENT_BLOCKS, WINDOWS>;
    const int bytes = (int)sizeof(scan_window_memory<WINDOWS>);
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    launch(dev, "lexical_scan.forward", kernel, (unsigned)(blocks_for(t.in.windows, WINDOWS) * t.queries), THREADS,
           (size_t)bytes, t);
}

/* ---- merging ---- */

struct scan_merge {
    const uint64_t *from;  /* [queries, lists, slots] */
    uint64_t *to;          /* [queries, groups, slots]; NULL: these are the results */
    int lists, groups;
    int64_t *index;
    float *score;
};

/* The results of a query, from its best keys. */
static __device__ void scan_write_hits(const scan_task &t, const scan_merge &out, const uint64_t *best, int n) {
    int q = t.first_query + (int)blockIdx.y;
    float unit = t.in.queries[q].unit;
    best_ranks<THREADS_ONE>(best, n, t.k, [&](int rank, uint64_t key) {
        uint32_t position = ~(uint32_t)key;
        const lexical_scan_segment &in = t.in.segments[scan_segment_of(t.in, position / WINDOW)];
        out.index[(int64_t)q * t.k + rank] = in.first_chunk + position - (int64_t)in.first_window * WINDOW;
        out.score[(int64_t)q * t.k + rank] = (float)(int32_t)(key >> 32) * unit;
    });
    for (int i = n + (int)threadIdx.x; i < t.k; i += THREADS_ONE) {
        out.index[(int64_t)q * t.k + i] = -1;
        out.score[(int64_t)q * t.k + i] = -INFINITY;
    }
}

static __global__ void __launch_bounds__(THREADS_ONE, 1) scan_merge_kernel(scan_task t, scan_merge m) {
    __shared__ best_select select;
    __shared__ uint64_t best[(int)LEXICAL_SCAN_K_MAX + SPARE];
    int first = (int)blockIdx.x * FAN, lists = min(m.lists - first, (int)FAN);
    const uint64_t *from = m.from + ((int64_t)blockIdx.y * m.lists + first) * t.slots;
    launch_next();
    launch_wait();
    int n = best_gather<THREADS_ONE, KEY_BITS>(&select, best, from, lists * t.slots, t.k);
    if (!m.to) {
        scan_write_hits(t, m, best, n);
        return;
    }
    uint64_t *to = m.to + ((int64_t)blockIdx.y * m.groups + blockIdx.x) * t.slots;
    for (int i = threadIdx.x; i < t.slots; i += THREADS_ONE)
        to[i] = i < n ? best[i] : 0;
}

/* ---- the op ---- */

static int scan_groups(int64_t lists) {
    return (int)blocks_for(lists, FAN);
}

static void scan_pass(struct device *dev, scan_task t, uint64_t *spare, int64_t *index, float *score) {
    const char *op = "lexical_scan.forward";
    const int64_t windows = t.in.windows * t.queries, processors = device_cuda_processors(dev);
    if (windows <= processors) t.reach = NULL;
    else device_clear(dev, t.reach, (size_t)t.queries * sizeof *t.reach);
    if (windows <= processors) scan_launch_windows<THREADS_ONE, 1, 1>(dev, t);
    else if (windows < SPAN * RESIDENT * processors) scan_launch_windows<THREADS_ONE, RESIDENT, 1>(dev, t);
    else scan_launch_windows<THREADS_SPAN, RESIDENT, SPAN>(dev, t);
    scan_merge m = {t.keys, spare, (int)t.in.windows, scan_groups(t.in.windows), index, score};
    for (uint64_t *other = t.keys; m.to; m.lists = m.groups, m.groups = scan_groups(m.lists)) {
        if (m.groups == 1) m.to = NULL;
        dim3 grid((unsigned)m.groups, (unsigned)t.queries);
        launch_dependent(dev, op, scan_merge_kernel, grid, THREADS_ONE, 0, t, m);
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

extern "C" const struct lexical_scan_ops lexical_scan_cuda = {.forward = lexical_scan_forward,
                                                              .score = lexical_scan_score};
