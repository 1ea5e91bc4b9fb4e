/* candidates_cuda.cu -- candidates.h on a GPU.
 *
 *   candidates_sums_kernel   block (candidate), thread (word)   features and their weighted sum, as a key
 *   candidates_rank_kernel   a warp for each candidate          counts those that are better
 *
 * Thread r compares its word with all ids of the candidate: bit j of its mask says that id j is word r. Word r+1 before
 * word r is the mask of r and that of r+1, shifted by one, so runs need no table of the vocabulary. Of equal words the
 * last one counts: of all threads with the same lowest bit the first. Terms are added by one thread a range, in the
 * order of words, as on the CPU: a word that the candidate does not have adds 0, which changes no bits.
 *
 * A key is the order of a sum's bits, above the complement of the candidate's number: keys are unique, and a
 * candidate's rank is its slot in the results. 1,024 candidates take 13.4 us alone and 8.7 us in a row of
 * calls, 224 take 12.6 and 8.9 us (H100): bound by latency, and at 1,024 also by instructions. */
#include "kernels/cuda/launch_cuda.cuh"
extern "C" {
#include "kernels/lexical/candidates.h"
#include "kernels/pick/pick_rule.h"
}

enum {
    WORDS = CANDIDATE_WORDS, MASK = 4, /* numbers of 32 bits of a mask */
    IDS = 32 * MASK,
    RUN = 5,
    SORTS = 4, RANGES = 6, /* terms of four sorts, in ranges of words: in the chunk, after it, pairs, triples */
    RANK_WARPS = 8, RANK_THREADS = 32 * RANK_WARPS,
    NO_WORD = -2, /* is no id of a candidate, whose end is -1 */
};
static_assert(IDS >= 2 * CANDIDATES_ROWS_MAX && IDS == WORDS);

struct candidates_task {
    alignas(16) int32_t word[WORDS]; /* the last one first */
    double weights[CANDIDATE_FEATURES];
    struct candidates c;
    struct packed_chunks of;
    uint64_t *keys; /* [n] */
    int64_t *chunk; /* [k] */
    float *score;
    int k;
};

/* ---- sums ---- */

struct mask {
    uint32_t of[MASK];
};
static __device__ __forceinline__ bool mask_any(const mask &m) {
    return m.of[0] | m.of[1] | m.of[2] | m.of[3];
}
static __device__ __forceinline__ mask mask_and(const mask &a, const mask &b) {
    return {{a.of[0] & b.of[0], a.of[1] & b.of[1], a.of[2] & b.of[2], a.of[3] & b.of[3]}};
}
/* Bits move to ids that are later by `by`. */
static __device__ __forceinline__ mask mask_later(const mask &m, int by) {
    mask out = {{m.of[0] << by}};
#pragma unroll
    for (int i = 1; i < MASK; i++)
        out.of[i] = __funnelshift_l(m.of[i - 1], m.of[i], by);
    return out;
}
/* The lowest bit of a mask that has one. */
static __device__ __forceinline__ int mask_lowest(const mask &m) {
    int i = 0;
    while (!m.of[i])
        i++;
    return 32 * i + __ffs((int)m.of[i]) - 1;
}

struct sums_memory {
    int4 words[WORDS / 4], ids[IDS / 4];
    mask where[WORDS + RUN - 1];
    float idf[WORDS + RUN - 1];
    int owner[IDS]; /* the first word of which an id is the first occurrence */
    float4 terms[SORTS][WORDS / 4];
    int fives[WORDS / 32];
    float feature[CANDIDATE_FEATURES];
    double product[CANDIDATE_FEATURES];
};

/* bits |= bit if the two are equal: two instructions; of an expression the compiler makes three. */
static __device__ __forceinline__ void mask_add(uint32_t &bits, int32_t id, int32_t word, uint32_t bit) {
#if defined(__CUDA_ARCH__)
    asm("{\n.reg .pred same;\nsetp.eq.s32 same, %1, %2;\n@same or.b32 %0, %0, %3;\n}"
        : "+r"(bits)
        : "r"(id), "r"(word), "r"(bit));
#endif
}

/* Where word is among the ids. */
static __device__ __forceinline__ mask mask_of(const int4 *ids, int32_t word) {
    mask m = {};
#pragma unroll
    for (int i = 0; i < IDS / 4; i++) {
        const int4 four = ids[i];
        mask_add(m.of[i / 8], four.x, word, 1u << i % 8 * 4);
        mask_add(m.of[i / 8], four.y, word, 2u << i % 8 * 4);
        mask_add(m.of[i / 8], four.z, word, 4u << i % 8 * 4);
        mask_add(m.of[i / 8], four.w, word, 8u << i % 8 * 4);
    }
    return m;
}

static constexpr __host__ __device__ float saturated(float x) {
    return x * 2.2f / (x + 1.2f);
}
/* idf * s(f), as words_sum in candidate_features.c; 0 for f = 0. */
static __device__ __forceinline__ float saturated_term(float idf, int f) {
    constexpr float one = saturated(1), two = saturated(2), more = saturated(4);
    return f == 0 ? 0.0f : __fmul_rn(idf, f == 1 ? one : f == 2 ? two : more);
}

/* The terms of thread r's word. */
static __device__ void sums_terms(sums_memory *m, const mask &here, int r, int rows) {
    int in_chunk = 0, after = 0;
    if (mask_any(here) && m->owner[mask_lowest(here)] == r) {
#pragma unroll
        for (int i = 0; i < MASK; i++) {
            const int end = rows - 32 * i; /* bits of the chunk */
            const uint32_t chunk = end >= 32 ? ~0u : end <= 0 ? 0u : (1u << end) - 1;
            in_chunk += __popc(here.of[i] & chunk);
            after += __popc(here.of[i] & ~chunk);
        }
    }
    const mask pair = mask_and(here, mask_later(m->where[r + 1], 1)),
               triple = mask_and(pair, mask_later(m->where[r + 2], 2)),
               five = mask_and(mask_and(triple, mask_later(m->where[r + 3], 3)), mask_later(m->where[r + 4], 4));
    const float idf = m->idf[r], two = __fadd_rn(idf, m->idf[r + 1]);
    const unsigned fives = __ballot_sync(~0u, mask_any(five));
    auto term = [&](int sort) -> float & { return ((float *)m->terms[sort])[r]; };
    term(0) = saturated_term(idf, in_chunk);
    term(1) = saturated_term(idf, after);
    term(2) = mask_any(pair) ? __fmul_rn(two, 0.5f) : 0.0f;
    term(3) = mask_any(triple) ? __fadd_rn(two, m->idf[r + 2]) : 0.0f;
    if (r % 32 == 0) m->fives[r / 32] = __popc(fives);
    if (r == 0) {
        m->feature[16] = mask_any(here) ? idf : 0.0f;
        m->feature[17] = term(2);
        m->feature[18] = mask_any(triple);
        m->feature[19] = fives & 1;
    }
}

/* Where the ranges of each sort begin; their first features. */
static __constant__ const uint8_t range_begin[SORTS][RANGES + 1] = {
    {0, 4, 8, 16, 32, 64, WORDS}, {0, 16, 64, WORDS}, {0, 8, 32, WORDS}, {0, 16, WORDS}};
static __constant__ const uint8_t range_feature[SORTS] = {0, 6, 9, 12};

/* Adds the terms of each range: a warp has a sort. */
static __device__ void sums_ranges(sums_memory *m, int sort, int range) {
    const int end = range < RANGES ? range_begin[sort][range + 1] : 0;
    float sum = 0.0f;
    if (end == 0) return;
#pragma unroll 4
    for (int i = range_begin[sort][range] / 4; i < end / 4; i++) {
        const float4 four = m->terms[sort][i];
        sum = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(sum, four.x), four.y), four.z), four.w);
    }
    m->feature[range_feature[sort] + range] = sum;
}

/* Greater for a greater sum, of equal sums for the one that was found first. */
static __device__ __forceinline__ uint64_t candidate_key(float sum, int at) {
    return (uint64_t)pick_order(sum) << 32 | (uint32_t)~at;
}

static __global__ void __launch_bounds__(WORDS) candidates_sums_kernel(const __grid_constant__ candidates_task t) {
    __shared__ sums_memory m;
    const int r = (int)threadIdx.x, at = (int)blockIdx.x, rows = t.of.chunk_rows;
    launch_next();
    if (r < WORDS / 4) m.words[r] = ((const int4 *)t.word)[r]; /* parameters are read one address at a time */
    __syncthreads();
    const int32_t word = ((const int32_t *)m.words)[r];
    const float idf = word >= 0 ? t.c.terms.idf[word] : 0.0f;
    const double weight = r < CANDIDATE_FEATURES ? t.weights[r] : 0.0;
    m.owner[r] = WORDS;
    if (r < RUN - 1) m.where[WORDS + r] = {}, m.idf[WORDS + r] = 0.0f;
    launch_wait(); /* for what was found */
    const int64_t chunk = t.c.chunk[at];
    const float score = t.c.score[at], landmark = t.c.landmark ? t.c.landmark[at] : -INFINITY;
    if (chunk < 0) {
        if (r == 0) t.keys[at] = (uint32_t)~at;
        return;
    }
    const int32_t id = r < 2 * rows ? packed_id_of(&t.of, chunk, r) : -1;
    m.idf[r] = idf;
    ((int32_t *)m.ids)[r] = id;
    const int own = __syncthreads_count(r < rows && id >= 0);
    const mask here = mask_of(m.ids, word);
    m.where[r] = here;
    if (mask_any(here)) atomicMin(&m.owner[mask_lowest(here)], r);
    __syncthreads();
    sums_terms(&m, here, r, rows);
    __syncthreads();
    sums_ranges(&m, r / 32, r % 32);
    if (r == 31) {
        m.feature[14] = (float)m.fives[0];
        m.feature[15] = (float)(m.fives[1] + m.fives[2] + m.fives[3]);
        m.feature[CANDIDATE_SCORE] = score;
        m.feature[CANDIDATE_COSINE] = isfinite(landmark) ? __fmul_rn(landmark, t.c.terms.landmark_by) : 0.0f;
        m.feature[CANDIDATE_LENGTH] = (float)own;
    }
    __syncthreads();
    if (r < CANDIDATE_FEATURES) m.product[r] = __dmul_rn(weight, (double)m.feature[r]);
    __syncwarp();
    if (r > 0) return;
    double sum = 0.0;
#pragma unroll
    for (int f = 0; f < CANDIDATE_FEATURES; f++)
        sum = __dadd_rn(sum, m.product[f]);
    t.keys[at] = candidate_key((float)sum, at);
}

/* ---- the best ---- */

static __global__ void __launch_bounds__(RANK_THREADS)
    candidates_rank_kernel(const __grid_constant__ candidates_task t) {
    __shared__ uint64_t keys[CANDIDATES_MAX];
    const int n = t.c.n, own = min((int)(blockIdx.x * RANK_WARPS + threadIdx.x / 32), n - 1); /* the last one again */
    int better = 0;
    launch_wait();
    const int64_t chunk = t.c.chunk[own];
    const float score = t.c.score[own];
#pragma unroll
    for (int i = (int)threadIdx.x; i < CANDIDATES_MAX; i += RANK_THREADS)
        if (i < n) keys[i] = t.keys[i];
    __syncthreads();
    const uint64_t mine = keys[own];
#pragma unroll 8
    for (int i = threadIdx.x % 32; i < n; i += 32)
        better += keys[i] > mine;
    better = __reduce_add_sync(~0u, better);
    if (threadIdx.x % 32 != 0 || better >= t.k) return;
    t.chunk[better] = chunk;
    t.score[better] = score;
}

static void candidates_order(struct device *dev, int64_t *chunk, float *score, const struct candidates *c, int k) {
    assert(c->n >= 1 && c->n <= CANDIDATES_MAX && k >= 1 && k <= c->n && c->of->chunk_rows <= CANDIDATES_ROWS_MAX);
    candidates_task t;
    for (int r = 0; r < WORDS; r++) {
        const int32_t id = r < c->query_ids ? c->query[c->query_ids - 1 - r] : NO_WORD;
        t.word[r] = id >= 0 && id < c->terms.vocab ? id : NO_WORD;
    }
    for (int f = 0; f < CANDIDATE_FEATURES; f++)
        t.weights[f] = c->terms.weights[f];
    t.c = *c, t.of = *c->of, t.chunk = chunk, t.score = score, t.k = k;
    t.keys = (uint64_t *)device_cuda_scratch(dev, (size_t)c->n * sizeof *t.keys);
    const char *op = "candidates.order";
    launch_dependent(dev, op, candidates_sums_kernel, (unsigned)c->n, WORDS, 0, t);
    launch_dependent(dev, op, candidates_rank_kernel, (unsigned)blocks_for(c->n, RANK_WARPS), RANK_THREADS, 0, t);
}

extern "C" const struct candidates_ops candidates_cuda = {.order = candidates_order};
