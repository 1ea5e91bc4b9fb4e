/* lexical_scan_lists_cuda.cuh -- adds the lists of a query to sums in shared memory. A block of threads has one window
 * or several.
 *
 * Sparse lists: one thread for each list finds the blocks that overlap the window, by two simultaneous binary searches
 * in the list's table, which begin near the block of a list that is spread evenly. Then one thread for each block reads
 * its row of the table and prefetches its bytes. So the latency of the memory is waited for once, and not by each warp
 * for each of its blocks. Then a group of 16 lanes decodes a block, 8 postings a lane. With 32 lanes a block takes
 * nearly twice the instructions, most of them for what a lane does once.
 *
 * Dense lists: a thread adds the codes of 8 or 16 chunks, two chunks in one lookup. */
#pragma once
#include "kernels/cuda/launch_cuda.cuh"
#include "kernels/search/best_keys_cuda.cuh"

enum {
    WINDOW = LEXICAL_SCAN_WINDOW, BLOCK = LEXICAL_SCAN_BLOCK,
    LISTS = 256,                         /* lists whose blocks are found together */
    BLOCKS = 512,                        /* blocks of them that are described together */
    GROUP = 16,                          /* lanes that decode a block */
    ROWS = 32 / GROUP,                   /* of 4 postings, of such a lane */
    MARKS = 25,                          /* first bit of the number of marks in a prefix sum; chunks are below it */
    NEAR = 16,                           /* blocks on each side of the expected one, which are searched first */
    DENSE = 64,                          /* dense lists whose weights are in shared memory together */
    PAIRS = 16,                          /* of codes of two chunks */
};
static_assert(BLOCKS <= 512 && LISTS <= 256); /* threads of a block at least */

/* ---- bytes at any address ---- */

/* 4 bytes; reads the aligned words that contain them. */
static __device__ __forceinline__ uint32_t scan_load(const uint8_t *at) {
    const uint32_t *words = (const uint32_t *)((uintptr_t)at & ~(uintptr_t)3);
    unsigned shift = ((unsigned)(uintptr_t)at & 3) * 8;
    uint32_t low = __ldg(words), high = shift ? __ldg(words + 1) : 0;
    return __funnelshift_r(low, high, shift);
}

/* Starts to copy bytes into the L2 cache. Up to 31 bytes on each side are copied, too. */
static __device__ __forceinline__ void scan_prefetch(const uint8_t *at, uint32_t bytes) {
#if defined(__CUDA_ARCH__)
    const uint8_t *end = at + bytes;
    for (at = (const uint8_t *)((uintptr_t)at & ~(uintptr_t)31); at < end; at += 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
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

/* ---- a block ---- */

/* A lane's steps: row i has those of postings 4 * (ROWS * (lane of the group) + i) .. of a block of 128. */
static __device__ __forceinline__ void scan_steps(uint32_t steps[4 * ROWS], const uint8_t *block, int width) {
    const uint32_t mask = (1u << width) - 1;
    int bit = (int)(threadIdx.x % GROUP) * ROWS * width;
    const uint32_t *words = (const uint32_t *)((uintptr_t)block & ~(uintptr_t)3) + bit / 32 * 4;
    unsigned shift = ((unsigned)(uintptr_t)block & 3) * 8;
    uint32_t raw[9], low[4], high[4]; /* words that begin with the block, of two rows of the four lanes */
#pragma unroll
    for (int i = 0; i < 9; i++)
        raw[i] = __ldg(words + i);
#pragma unroll
    for (int c = 0; c < 4; c++) {
        low[c] = __funnelshift_r(raw[c], raw[c + 1], shift);
        high[c] = __funnelshift_r(raw[c + 4], raw[c + 5], shift);
    }
    bit %= 32;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (i > 0 && bit >= 32) {
            uint32_t last = raw[8];
            bit -= 32;
            words += 4;
#pragma unroll
            for (int c = 0; c < 4; c++)
                raw[5 + c] = __ldg(words + 5 + c);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                low[c] = high[c];
                high[c] = __funnelshift_r(c ? raw[4 + c] : last, raw[5 + c], shift);
            }
        }
#pragma unroll
        for (int c = 0; c < 4; c++)
            steps[4 * i + c] = __funnelshift_r(low[c], high[c], bit) & mask;
        bit += width;
    }
}

/* The same of a block of fewer postings, which follow one another bit by bit. Beyond them steps have no meaning. */
static __device__ void scan_steps_short(uint32_t steps[4 * ROWS], const uint8_t *block, int n, int width) {
    const uint32_t mask = (1u << width) - 1;
#pragma unroll
    for (int i = 0; i < 4 * ROWS; i++) {
        int bit = min((int)(threadIdx.x % GROUP) * 4 * ROWS + i, n - 1) * width;
        steps[i] = scan_load(block + bit / 8) >> (bit % 8) & mask; /* a width of 24 and a shift of 7 fit */
    }
}

/* Adds those of the lanes before in the group. Every lane of the warp calls. */
static __device__ __forceinline__ uint32_t scan_group_prefix(uint32_t own) {
    uint32_t sum = own;
#pragma unroll
    for (int offset = 1; offset < GROUP; offset *= 2) {
#if defined(__CUDA_ARCH__) /* the instruction's own predicate: a lane is in the group */
        asm volatile("{\n.reg .u32 before;\n.reg .pred inside;\n"
                     "shfl.sync.up.b32 before|inside, %0, %1, %2, 0xffffffff;\n"
                     "@inside add.u32 %0, %0, before;\n}"
                     : "+r"(sum)
                     : "r"(offset), "n"((32 - GROUP) << 8));
#else
        uint32_t before = __shfl_up_sync(~0u, sum, offset);
        if ((int)(threadIdx.x % GROUP) >= offset) sum += before;
#endif
    }
    return sum - own;
}

/* A group of lanes decodes a block and adds its postings of the window's chunks; !wanted: none. Every lane of the warp
 * calls. sums: `chunks` numbers, and 32 more for postings of other windows: they cost less than a condition.
 *
 * One prefix sum has the chunks, below 2^25, and the number of marked postings, of which at most 127 are before a lane.
 * Postings beyond the block's are last, so they change no others. */
static __device__ __forceinline__ void scan_add_block(int32_t *sums, uint32_t chunks, const uint8_t *postings,
                                                      const scan_block &b, bool wanted, const int4 &weight) {
    enum { OWN = 4 * ROWS };
    int width = (int)(b.what & 31), greatest = (int)(b.what >> 5 & 7), count = (int)(b.what >> 8 & 255);
    int first = (int)(threadIdx.x % GROUP) * OWN;
    const uint8_t *block = postings + b.begin, *marks = block + (count * width + 7) / 8;
    uint32_t until[OWN], twice = 0;
    if (count == BLOCK) scan_steps(until, block, width);
    else scan_steps_short(until, block, count, width);
    if (greatest > 0 && first < count) {
        if (OWN >= 8) twice = __ldg(marks + first / 8);
        if (OWN >= 16) twice |= (uint32_t)__ldg(marks + first / 8 + (first + 8 < count)) << 8;
        if (first + OWN > count) twice &= (1u << (count - first)) - 1;
    }
    until[0]++;
#pragma unroll
    for (int i = 1; i < OWN; i++)
        until[i] += until[i - 1] + 1;
    uint32_t before = scan_group_prefix(until[OWN - 1] + ((uint32_t)__popc(twice) << MARKS)), bits = 0;
    if (greatest > 1 && twice) { /* a bit for each marked posting */
        uint32_t rank = before >> MARKS;
        bits = scan_load(marks + (count + 7) / 8 + rank / 8) >> (rank % 8);
    }
    uint32_t from = b.base - 1 + (before & ((1u << MARKS) - 1)); /* unsigned numbers wrap */
    uint32_t none = chunks + threadIdx.x % 32;
    if (!wanted) count = 0;
    int32_t add[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++) { /* all before the first addition, which the compiler keeps after loads */
        uint32_t marked = twice >> i & 1;
        add[i] = !marked ? weight.x : bits & 1 ? weight.z : weight.y;
        bits >>= marked;
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        uint32_t at = min(from + until[i], none);
        atomicAdd(&sums[first + i < count ? at : none], add[i]);
    }
}

/* ---- the sparse lists of a window ---- */

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

/* In registers: the compiler would load each posting's weight, since an address is cheaper to select. */
static __device__ __forceinline__ int4 scan_weights_of(const scan_found *found, const scan_block &b) {
    const int4 *at = &found->weights[b.what >> 16];
#if defined(__CUDA_ARCH__)
    int4 w;
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "r"(shared_address(at)));
    return w;
#else
    return *at;
#endif
}

/* The groups of lanes take blocks in turn. */
template <int THREADS>
static __device__ __forceinline__ void scan_add_blocks(int32_t *sums, uint32_t chunks, const scan_found *found,
                                                       const uint8_t *postings, uint32_t blocks) {
    for (uint32_t i = threadIdx.x / 32 * (32 / GROUP); i < blocks; i += THREADS / GROUP) {
        uint32_t own = i + threadIdx.x % 32 / GROUP;
        const scan_block b = found->blocks[min(own, blocks - 1)];
        scan_add_block(sums, chunks, postings, b, own < blocks, scan_weights_of(found, b));
    }
}

/* sums: of SUMS chunks from `begin` on, and 32 more (scan_add_block). n: how many of them there are; chunks: of the
 * segment. */
template <int THREADS, int SUMS>
static __device__ void scan_add_sparse(int32_t *sums, scan_found *found, uint32_t *of_warp, const lexical_scan &in,
                                       const lexical_scan_part &part, uint32_t begin, int n, int chunks) {
    for (int first = 0; first < part.sparse; first += LISTS) {
        const lexical_scan_list *lists = in.lists + part.first + first;
        int count = min(part.sparse - first, (int)LISTS), own = (int)threadIdx.x;
        uint2 mine = {0, 0};
        if (own < count) mine = scan_find_blocks(in.postings, lists[own], begin, begin + (uint32_t)n, chunks);
        uint32_t until = best_prefix<THREADS>(mine.y, of_warp); /* all warps have left the lists before */
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
            scan_add_blocks<THREADS>(sums, SUMS, found, in.postings, blocks);
        }
    }
}

/* ---- dense lists ---- */

/* A byte has the codes of two pairs of chunks. The weights of a pair are one load of 8 bytes: PAIRS of them fill the
 * banks of the shared memory once, so threads with any codes have no conflicts. */
struct scan_dense {
    int2 weights[DENSE][PAIRS];
    uint64_t begin[DENSE]; /* of the window's codes */
};

/* Starts to load the codes of n chunks. */
template <int THREADS>
static __device__ void scan_prefetch_dense(const lexical_scan &in, const lexical_scan_part &part, uint32_t begin,
                                           int n) {
    enum { LINE = 32 };
    int lines = (n + 4 * LINE - 1) / (4 * LINE) + 1; /* the codes need not begin where a line does */
    for (int i = threadIdx.x; i < lines * part.dense; i += THREADS) {
        int line = i % lines, end = (n + 3) / 4;
        const uint8_t *at = in.postings + in.lists[part.first + part.sparse + i / lines].begin + begin / 4;
        scan_prefetch(at + min(line * LINE, end - 1), 1);
    }
}

/* Adds the codes of dense lists to the chunks of each thread: CHUNKS * threadIdx.x .., then CHUNKS * (threadIdx.x +
 * THREADS) .., and so on. */
template <int THREADS, int CHUNKS>
static __device__ void scan_add_dense(int32_t *sums, scan_dense *memory, const lexical_scan &in,
                                      const lexical_scan_part &part, uint32_t begin, int n) {
    static_assert(CHUNKS == 8 || CHUNKS == 16);
    for (int first = 0; first < part.dense; first += DENSE) {
        const lexical_scan_list *lists = in.lists + part.first + part.sparse + first;
        int count = min(part.dense - first, (int)DENSE);
        __syncthreads();
        for (int i = threadIdx.x; i < count * PAIRS; i += THREADS) {
            const int32_t *weight = lists[i / PAIRS].weight;
            int low = i % 4, high = i / 4 % 4;
            memory->weights[i / PAIRS][i % PAIRS] = {low ? weight[low - 1] : 0, high ? weight[high - 1] : 0};
        }
        for (int i = threadIdx.x; i < count; i += THREADS)
            memory->begin[i] = lists[i].begin + begin / 4;
        __syncthreads();
        for (int own = CHUNKS * (int)threadIdx.x; own < n; own += CHUNKS * THREADS) {
            int32_t of[CHUNKS];
#pragma unroll
            for (int i = 0; i < CHUNKS; i += 4)
                *(int4 *)&of[i] = *(int4 *)&sums[own + i];
            const uint8_t *codes_at = in.postings + own / 4;
#pragma unroll 4
            for (int d = 0; d < count; d++) {
                const uint8_t *at = codes_at + memory->begin[d];
                /* bits of chunks beyond n may be set, but their sums are not used */
                uint32_t codes = CHUNKS == 16 ? scan_load(at) : (uint32_t)__ldg(at) | (uint32_t)__ldg(at + 1) << 8;
#pragma unroll
                for (int i = 0; i < CHUNKS; i += 2) {
                    int2 weights = memory->weights[d][codes >> 2 * i & (PAIRS - 1)];
                    of[i] += weights.x;
                    of[i + 1] += weights.y;
                }
            }
#pragma unroll
            for (int i = 0; i < CHUNKS; i += 4)
                *(int4 *)&sums[own + i] = *(int4 *)&of[i];
        }
    }
}
