/* logit_scan.c -- see logit_scan.h.
 *
 * A pass reads the logits from the second-level cache (201 KB for 50,265 ids). The largest logit of each block lets
 * later passes skip most blocks. A draw finds its block in the running sums and its id in that block. */
#include "decoder/logits/logit_scan.h"
#include "base/memory.h"
#include "kernels/pick/pick_rule.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* ---- vectors: as many floats as a register holds; sums have 16 lanes on every target ---- */

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { VECTORS = LOGIT_BLOCK / LANES, PARTS = 16 / LANES };
typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef uint64_t vl __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t vi_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float vf_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float v_four __attribute__((vector_size(16)));
typedef int32_t v_mask __attribute__((vector_size(16)));
#define LOGIT_VECTOR static inline __attribute__((always_inline))

LOGIT_VECTOR vf logit_load(const float *p) {
    return *(const vf_unaligned *)p;
}

/* The greater of each lane; b where a is NaN. */
LOGIT_VECTOR vf logit_greater(vf a, vf b) {
    vi mask = a > b;
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

LOGIT_VECTOR v_four logit_greater_four(v_four a, v_four b) {
    v_mask mask = a > b;
    return (v_four)((mask & (v_mask)a) | (~mask & (v_mask)b));
}

/* The largest logits of a block, lanes of 4. NaN is none of them. */
LOGIT_VECTOR v_four logit_block_top(const float *x) {
    vf top = (vf){0} - INFINITY;
    for (int i = 0; i < VECTORS; i++)
        top = logit_greater(logit_load(x + i * LANES), top);
    v_four four[LANES / 4], most;
    memcpy(four, &top, sizeof four);
    most = four[0];
    for (int i = 1; i < LANES / 4; i++)
        most = logit_greater_four(most, four[i]);
    return most;
}

/* The largest lane of each of four. */
LOGIT_VECTOR v_four logit_largest(v_four a, v_four b, v_four c, v_four d) {
    v_four ab =
        logit_greater_four(__builtin_shufflevector(a, b, 0, 4, 1, 5), __builtin_shufflevector(a, b, 2, 6, 3, 7));
    v_four cd =
        logit_greater_four(__builtin_shufflevector(c, d, 0, 4, 1, 5), __builtin_shufflevector(c, d, 2, 6, 3, 7));
    return logit_greater_four(__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
}

/* Lanes i and i + 8, then i and i + 4, then i and i + 2, then the two: whatever a vector's width is. */
LOGIT_VECTOR float logit_sum(const vf part[PARTS]) {
    v_four four[4];
    memcpy(four, part, sizeof four);
    v_four sum = (four[0] + four[2]) + (four[1] + four[3]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* 2^f for |f| <= 1/2 with 2^0 = 1, relative error at most 9.2e-8. Pairs of terms: shorter chains than Horner's. */
LOGIT_VECTOR vf logit_polynomial(vf f) {
    vf square = f * f;
    vf high = f * 1.326472032815218e-3F + 9.671512991189957e-3F,
       middle = f * 5.550733953714371e-2F + 2.402224242687225e-1F;
    return (high * square + middle) * square + (f * 6.931470036506653e-1F + 1.0F);
}

/* 2^t for -125.5 <= t <= 0, else 0, also for NaN. t = n + f; n is added to the exponent bits of 2^f. */
LOGIT_VECTOR vf logit_exp2(vf t) {
    const float shift = 12582912.0F; /* 1.5 * 2^23 rounds to integer */
    vf shifted = t + shift, p = logit_polynomial(t - (shifted - shift));
    return (vf)((vi)((vu)p + ((vu)shifted << 23)) & (t >= -125.5F)); /* unsigned: where t is less, it overflows */
}

/* ---- set-up ---- */

enum status logit_scan_create(struct logit_scan *out, int64_t n) {
    struct logit_scan s = {.n = n, .blocks = (n + LOGIT_BLOCK - 1) / LOGIT_BLOCK};
    const size_t blocks = (size_t)s.blocks;
    enum status status;
    assert(n > 0);
    TRY_GOTO(status, memory_allocate(&s.is_own, blocks), out);
    TRY_GOTO(status, memory_allocate_aligned(&s.own, blocks * LOGIT_BLOCK), out);
    TRY_GOTO(status, memory_allocate_aligned(&s.tops, blocks + 3), out);
    TRY_GOTO(status, memory_allocate_aligned(&s.units, blocks * LOGIT_BLOCK), out);
    TRY_GOTO(status, memory_allocate_aligned(&s.sums, blocks), out);
    TRY_GOTO(status, memory_allocate_aligned(&s.keys, (size_t)3 * LOGIT_BEST_MAX), out);
    *out = s;
    return STATUS_OK;
out:
    logit_scan_release(&s);
    return status;
}

void logit_scan_release(struct logit_scan *s) {
    memory_free(s->is_own);
    memory_free(s->own);
    memory_free(s->tops);
    memory_free(s->units);
    memory_free(s->sums);
    memory_free(s->keys);
    *s = (struct logit_scan){0};
}

/* ---- blocks ---- */

static inline const float *logit_block(const struct logit_scan *s, int64_t block) {
    return (s->is_own[block] ? s->own : s->logits) + block * LOGIT_BLOCK;
}

void logit_scan_begin(struct logit_scan *s, const float *logits) {
    s->logits = logits;
    memset(s->is_own, 0, (size_t)s->blocks);
    if (s->n % LOGIT_BLOCK) logit_scan_change(s, s->blocks - 1);
}

float *logit_scan_change(struct logit_scan *s, int64_t block) {
    float *own = s->own + block * LOGIT_BLOCK;
    if (s->is_own[block]) return own;
    int64_t first = block * LOGIT_BLOCK, ids = s->n - first < LOGIT_BLOCK ? s->n - first : LOGIT_BLOCK;
    memcpy(own, s->logits + first, (size_t)ids * sizeof *own);
    for (int64_t i = ids; i < LOGIT_BLOCK; i++)
        own[i] = -INFINITY;
    s->is_own[block] = 1;
    return own;
}

void logit_scan_hide(struct logit_scan *s, int64_t id) {
    logit_scan_change(s, id / LOGIT_BLOCK)[id % LOGIT_BLOCK] = -INFINITY;
}

float logit_scan_at(const struct logit_scan *s, int64_t id) {
    return logit_block(s, id / LOGIT_BLOCK)[id % LOGIT_BLOCK];
}

void logit_scan_tops(struct logit_scan *s) {
    v_four all = (v_four){0} - INFINITY;
    for (int64_t b = 0; b < s->blocks; b += 4) {
        v_four top[4];
        for (int i = 0; i < 4; i++)
            top[i] = logit_block_top(logit_block(s, b + i < s->blocks ? b + i : s->blocks - 1));
        const v_four tops = logit_largest(top[0], top[1], top[2], top[3]);
        memcpy(s->tops + b, &tops, sizeof tops);
        all = logit_greater_four(tops, all);
    }
    s->top = logit_largest(all, all, all, all)[0];
}

int64_t logit_scan_first_top(const struct logit_scan *s) {
    int64_t b = 0, i = 0;
    assert(s->top > -INFINITY);
    while (s->tops[b] != s->top)
        b++;
    for (const float *x = logit_block(s, b); x[i] != s->top;)
        i++;
    return b * LOGIT_BLOCK + i;
}

/* ---- weights ---- */

LOGIT_VECTOR float logit_block_weight(const float *x, float top, float scale) {
    vf part[PARTS] = {0};
    for (int i = 0; i < VECTORS; i++)
        part[i % PARTS] += logit_exp2((logit_load(x + i * LANES) - top) * scale);
    return logit_sum(part);
}

double logit_scan_sum_exp(const struct logit_scan *s) {
    const float top = s->top, scale = logit_scale(1);
    double sum = 0;
    assert(isfinite(top));
    for (int64_t b = 0; b < s->blocks; b++)
        sum += (double)logit_block_weight(logit_block(s, b), top, scale);
    return sum;
}

/* ---- units: pick_rule.h ---- */

float logit_scale(float temperature) {
    const double scale = 1.4426950408889634 / (double)temperature; /* log2(e) */
    return scale < (double)FLT_MAX ? (float)scale : FLT_MAX;
}

/* pick_unit of each lane. */
LOGIT_VECTOR vi logit_unit(vf x, float top, float scale) {
    const float shift = 12582912.0F + (float)PICK_UNIT_BITS;
    vf t = (x - top) * scale, shifted = t + shift, f = t - (shifted - shift);
    vf power = (vf)((vi)((vu)logit_polynomial(f) + ((vu)shifted << 23)) & (t >= -30.0F));
    return __builtin_convertvector(power, vi);
}

/* A lane has the sum of four units at most, which is below 2^32. */
LOGIT_VECTOR uint64_t logit_unit_sum(const vu part[PARTS]) {
    vl sum = {0};
    uint64_t all = 0;
    for (int i = 0; i < PARTS; i++)
        sum += ((vl)part[i] & 0xFFFFFFFFU) + ((vl)part[i] >> 32);
    for (int i = 0; i < LANES / 2; i++)
        all += sum[i];
    return all;
}

LOGIT_VECTOR uint64_t logit_block_units(uint32_t *out, const float *x, float top, float scale) {
    vu part[PARTS] = {0};
    for (int i = 0; i < VECTORS; i++) {
        const vu unit = (vu)logit_unit(logit_load(x + i * LANES), top, scale);
        *(vu_unaligned *)(out + i * LANES) = unit;
        part[i % PARTS] += unit;
    }
    return logit_unit_sum(part);
}

uint64_t logit_scan_units(struct logit_scan *s, float scale) {
    uint64_t sum = 0;
    assert(isfinite(s->top));
    s->counted = (struct logit_counted){.logit = -INFINITY, .above = -INFINITY, .least = 1};
    for (int64_t b = 0; b < s->blocks; b++) {
        sum += logit_block_units(s->units + b * LOGIT_BLOCK, logit_block(s, b), s->top, scale);
        s->sums[b] = sum;
    }
    return sum;
}

void logit_units(uint32_t *out, const float *logits, int64_t n, float top, float scale) {
    for (int64_t i = 0; i < n; i += LOGIT_BLOCK)
        (void)logit_block_units(out + i, logits + i, top, scale);
}

uint64_t logit_scan_narrow(struct logit_scan *s, float logit, int64_t id, uint32_t least) {
    const float above = nextafterf(logit, INFINITY);
    const int64_t last = id / LOGIT_BLOCK;
    uint64_t sum = 0;
    s->counted = (struct logit_counted){.logit = logit, .above = above, .last = last, .least = least};
    for (int64_t b = 0; b < s->blocks; b++) {
        const float from = b <= last ? logit : above;
        s->sums[b] = sum;
        if (!(s->tops[b] >= from)) continue;
        const float *x = logit_block(s, b);
        const uint32_t *units = s->units + b * LOGIT_BLOCK;
        vu part[PARTS] = {0};
        for (int i = 0; i < VECTORS; i++) {
            vi unit = *(const vi_unaligned *)(units + i * LANES);
            part[i % PARTS] += (vu)(unit & (logit_load(x + i * LANES) >= from) & (unit >= (int32_t)least));
        }
        sum += logit_unit_sum(part);
        s->sums[b] = sum;
    }
    return sum;
}

int64_t logit_scan_find(const struct logit_scan *s, uint64_t draw) {
    int64_t low = 0, high = s->blocks - 1; /* the first block whose running sum is above the draw */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (s->sums[middle] > draw)
            high = middle;
        else
            low = middle + 1;
    }
    const float *x = logit_block(s, low), from = low <= s->counted.last ? s->counted.logit : s->counted.above;
    const uint32_t *units = s->units + low * LOGIT_BLOCK;
    uint64_t left = draw - (low > 0 ? s->sums[low - 1] : 0);
    for (int64_t i = 0; i < LOGIT_BLOCK; i++) {
        if (!(x[i] >= from && units[i] >= s->counted.least)) continue;
        if (left < units[i]) return low * LOGIT_BLOCK + i;
        left -= units[i];
    }
    assert(!"the draw is below the sum");
    return -1;
}

/* ---- the best ---- */

/* Float bits as a signed number of the same order; 0 for both zeros. */
static int32_t logit_order(float x) {
    float plain = x + 0.0F;
    int32_t bits;
    memcpy(&bits, &plain, sizeof bits);
    return bits ^ ((bits >> 31) & INT32_MAX);
}

static float logit_of_order(int32_t order) {
    int32_t bits = order ^ ((order >> 31) & INT32_MAX);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int64_t logit_key(float logit, int64_t id) {
    return (int64_t)((uint64_t)(uint32_t)~logit_order(logit) << 32 | (uint64_t)id);
}

float logit_key_logit(int64_t key) {
    return logit_of_order(~(int32_t)(key >> 32));
}

int64_t logit_scan_gather(struct logit_scan *s, float least, int64_t most) {
    int64_t n = 0;
    for (int64_t b = 0; b < s->blocks; b++) {
        if (!(s->tops[b] >= least)) continue;
        const float *x = logit_block(s, b);
        uint8_t is_one[LOGIT_BLOCK];
        for (int i = 0; i < LOGIT_BLOCK; i++)
            is_one[i] = x[i] >= least;
        for (int i = 0; i < LOGIT_BLOCK; i += 8) {
            uint64_t eight;
            memcpy(&eight, is_one + i, sizeof eight);
            for (; eight; eight &= eight - 1) {
                int at = i + __builtin_ctzll(eight) / 8;
                if (n == most) return -1;
                s->keys[n++] = logit_key(x[at], b * LOGIT_BLOCK + at);
            }
        }
    }
    return n;
}

enum { SORT_RUN = 32 };

/* The rank of a key is how many are before it: no two are equal. */
static void logit_keys_rank(int64_t *out, const int64_t *keys, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int64_t rank = 0;
        for (int64_t j = 0; j < n; j++)
            rank += keys[j] < keys[i];
        out[rank] = keys[i];
    }
}

static void logit_keys_merge(int64_t *out, const int64_t *a, int64_t n_a, const int64_t *b, int64_t n_b) {
    int64_t i = 0, j = 0, n = 0;
    while (i < n_a && j < n_b) {
        const bool first = a[i] < b[j];
        out[n++] = first ? a[i] : b[j];
        i += first;
        j += !first;
    }
    memcpy(out + n, a + i, (size_t)(n_a - i) * sizeof *out);
    memcpy(out + n + n_a - i, b + j, (size_t)(n_b - j) * sizeof *out);
}

void logit_keys_sort(int64_t *keys, int64_t *scratch, int64_t n) {
    int64_t *from = scratch, *to = keys;
    for (int64_t i = 0; i < n; i += SORT_RUN)
        logit_keys_rank(from + i, keys + i, n - i < SORT_RUN ? n - i : SORT_RUN);
    for (int64_t run = SORT_RUN; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            int64_t n_a = n - i < run ? n - i : run, n_b = n - i - n_a < run ? n - i - n_a : run;
            logit_keys_merge(to + i, from + i, n_a, from + i + n_a, n_b);
        }
        int64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) memcpy(keys, from, (size_t)n * sizeof *keys);
}

static int64_t logit_count_tops(const struct logit_scan *s, float least) {
    int32_t n = 0;
    for (int64_t b = 0; b < s->blocks; b++)
        n += s->tops[b] >= least;
    return n;
}

static int64_t logit_count_all(const struct logit_scan *s, float least) {
    vi n = {0};
    int64_t sum = 0;
    for (int64_t b = 0; b < s->blocks; b++) {
        const float *x = logit_block(s, b);
        for (int i = 0; i < VECTORS; i++)
            n -= logit_load(x + i * LANES) >= least; /* true is -1 */
    }
    for (int i = 0; i < LANES; i++)
        sum += n[i];
    return sum;
}

/* The largest logit that at least k of what is counted reach; or one that k to k + spare reach. */
static float logit_bisect(const struct logit_scan *s, int64_t (*count)(const struct logit_scan *, float), int64_t k,
                          int64_t spare) {
    int64_t low = logit_order(-FLT_MAX), high = (int64_t)logit_order(s->top) + 1;
    if (count(s, -FLT_MAX) < k) return -FLT_MAX;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2, n = count(s, logit_of_order((int32_t)middle));
        if (n < k)
            high = middle;
        else
            low = middle;
        if (n >= k && n <= k + spare) break;
    }
    return logit_of_order((int32_t)low);
}

float logit_scan_kth(struct logit_scan *s, int64_t k) {
    const float kth = logit_bisect(s, logit_count_all, k, 0);
    int64_t excess = logit_count_all(s, kth) - k;
    for (int64_t id = s->n - 1; excess > 0; id--)
        if (logit_scan_at(s, id) == kth) {
            logit_scan_hide(s, id);
            excess--;
        }
    return kth;
}

/* Gathers the k best ids, and maybe more. */
static int64_t logit_gather_best(struct logit_scan *s, int64_t k) {
    assert(k > 0 && k <= LOGIT_BEST_MAX);
    /* If k blocks have a logit that reaches some value, k ids do. */
    int64_t n = k <= s->blocks ? logit_scan_gather(s, logit_bisect(s, logit_count_tops, k, k / 4), LOGIT_BEST_MAX) : -1;
    if (n < 0) n = logit_scan_gather(s, logit_scan_kth(s, k), LOGIT_BEST_MAX);
    assert(n >= 0);
    return n;
}

int64_t logit_scan_best(struct logit_scan *s, int64_t k) {
    const int64_t n = logit_gather_best(s, k);
    logit_keys_sort(s->keys, s->keys + LOGIT_BEST_MAX, n);
    return n < k ? n : k;
}

int64_t logit_scan_few(struct logit_scan *s, int64_t k) {
    int64_t *by_id = s->keys + (ptrdiff_t)2 * LOGIT_BEST_MAX, n = logit_gather_best(s, k), kept = 0;
    if (n <= k) return n;
    memcpy(by_id, s->keys, (size_t)n * sizeof *by_id);
    logit_keys_sort(s->keys, s->keys + LOGIT_BEST_MAX, n);
    const int64_t last = s->keys[k - 1];
    for (int64_t i = 0; i < n; i++)
        if (by_id[i] <= last) s->keys[kept++] = by_id[i];
    return kept;
}
