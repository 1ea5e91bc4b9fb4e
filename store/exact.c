/* exact.c -- see exact_internal.h.
 *
 * Rows, fp16 or 8-bit codes, are converted to float32 in blocks that stay in the second-level cache (for few queries in
 * the first-level cache). Then 4 queries x 2 rows are multiplied at a time: 8 accumulators of 8 lanes, which is as many
 * as 16 registers allow. With one query each number is used once, so 8 rows at a time are converted in registers. A
 * library's matrix product would be somewhat faster for hundreds of queries, but its order of summation, and so the
 * last bits of scores, depends on the shape. */
#include "base/half_lanes.h"
#include "base/memory.h"
#include "base/top_list.h"
#include "store/exact_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

typedef float v8 __attribute__((vector_size(32)));
typedef float v8u __attribute__((vector_size(32), aligned(4)));

enum { LINE = 64, AHEAD = 8192 }; /* bytes */
enum { LANES = 8, BLOCK_ROWS = 128, FEW_QUERIES = 4, BLOCK_FEW = 16, QUERY_BATCH = 64, GRAIN = 1024 };

static inline v8 exact_load(const float *p) {
    return *(const v8u *)p;
}

static inline float sum_lanes(v8 a) {
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* a * b + c, rounded once if the processor supports it. Without this function the compiler decides by the surrounding
 * loop whether it contracts: GCC tuned for AMD's Zen contracts some chains and not others, and a row's score would
 * depend on its position in a tile. */
static inline v8 multiply_add(v8 a, v8 b, v8 c) {
#ifdef __FMA__
    return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__aarch64__)
    float32x4_t x[2], y[2], z[2];
    memcpy(x, &a, sizeof a), memcpy(y, &b, sizeof b), memcpy(z, &c, sizeof c);
    for (int i = 0; i < 2; i++)
        z[i] = vfmaq_f32(z[i], x[i], y[i]);
    memcpy(&c, z, sizeof c);
    return c;
#else
    return a * b + c;
#endif
}

/* Multiplies a tile. `padded` is a multiple of LANES: rows and queries are zero-filled up to it. The sequence of
 * multiply-adds is the same at every position in the tile. */
static inline void exact_tile(float *scores, size_t score_stride, const float *queries, const float *rows, int padded,
                              int nq, int nr) {
    v8 acc[4][2] = {0};
    for (int i = 0; i < padded; i += LANES)
        for (int q = 0; q < nq; q++) {
            v8 a = exact_load(queries + (size_t)q * (size_t)padded + i);
            for (int r = 0; r < nr; r++)
                acc[q][r] = multiply_add(a, exact_load(rows + (size_t)r * (size_t)padded + i), acc[q][r]);
        }
    for (int q = 0; q < nq; q++)
        for (int r = 0; r < nr; r++)
            scores[(size_t)q * score_stride + (size_t)r] = sum_lanes(acc[q][r]);
}

/* Computes scores[q * n_rows + r] for a block of converted rows. */
static void block_scores(float *scores, const float *queries, int n_queries, const float *rows, int n_rows,
                         int padded) {
    for (int r = 0; r < n_rows; r += 2) {
        int nr = n_rows - r < 2 ? 1 : 2;
        const float *row = rows + (size_t)r * (size_t)padded;
        int q = 0;
        for (; q + 4 <= n_queries && nr == 2; q += 4)
            exact_tile(scores + (size_t)q * (size_t)n_rows + r, (size_t)n_rows, queries + (size_t)q * (size_t)padded,
                       row, padded, 4, 2);
        for (; q < n_queries; q++) {
            if (nr == 2)
                exact_tile(scores + (size_t)q * (size_t)n_rows + r, (size_t)n_rows,
                           queries + (size_t)q * (size_t)padded, row, padded, 1, 2);
            else
                exact_tile(scores + (size_t)q * (size_t)n_rows + r, (size_t)n_rows,
                           queries + (size_t)q * (size_t)padded, row, padded, 1, 1);
        }
    }
}

void exact_dots(float *out, const float *rows, int64_t n, const float *query, int dim) {
    assert(dim % LANES == 0);
    for (int64_t r = 0; r + 2 <= n; r += 2)
        exact_tile(out + r, 1, query, rows + (size_t)r * (size_t)dim, dim, 1, 2);
    if (n % 2) exact_tile(out + n - 1, 1, query, rows + (size_t)(n - 1) * (size_t)dim, dim, 1, 1);
}

/* Writes the hits of a list, best first, after all rows were offered. A list never takes a NaN score, so a damaged row
 * is never found. */
static void list_hits(struct store_hit *hits, struct top_list list) {
    top_list_sort(list);
    for (int i = 0; i < list.k; i++)
        hits[i] = (struct store_hit){list.id[i], list.score[i]};
}

static bool exact_excluded(const struct store_range *r, int64_t chunk) {
    return r && chunk >= r->begin && chunk < r->end;
}

static int padded_dim(const struct landmarks *l) {
    return (l->dim + LANES - 1) / LANES * LANES;
}

/* Converts one row without its scale; the score is multiplied by the scale. */
static void convert_row(float *out, const struct store_rows *rows, int64_t r, int padded) {
    int dim = rows->dim, i = 0;
    if (rows->half) {
        half_from_f16_row(out, rows->half + (size_t)r * (size_t)dim, (size_t)dim);
        i = dim;
    } else {
        const int8_t *codes = rows->codes + (size_t)r * (size_t)dim;
        for (; i + LANES <= dim; i += LANES)
            *(v8u *)(out + i) = half_lanes_from_i8(codes + i);
        for (; i < dim; i++)
            out[i] = codes[i];
    }
    for (; i < padded; i++)
        out[i] = 0;
}

static enum status pad_queries(float **out, const float *queries, int64_t n, int dim, int padded) {
    TRY(memory_allocate_aligned(out, (size_t)n * (size_t)padded));
    memset(*out, 0, (size_t)n * (size_t)padded * sizeof(float));
    for (int64_t q = 0; q < n; q++)
        memcpy(*out + (size_t)q * (size_t)padded, queries + (size_t)q * (size_t)dim, (size_t)dim * sizeof(float));
    return STATUS_OK;
}

/* ---- scanning ---- */

struct scan {
    const struct landmarks *l;
    const float *queries; /* padded */
    const struct store_range *exclude;
    int64_t first; /* first chunk of the rows that are being scanned */
    int n_queries, k, padded;
    float scale;
    int64_t *list_ids; /* [worker][query][k] */
    float *list_scores;
    float *rows, *scores; /* [worker] blocks */
};

static struct top_list worker_list(const struct scan *s, int worker, int query) {
    size_t at = ((size_t)worker * QUERY_BATCH + (size_t)query) * (size_t)s->k;
    return (struct top_list){s->list_ids + at, s->list_scores + at, s->k};
}

/* Computes what the tile computes, from stored fp16 rows. They are read once from main memory, so those that follow are
 * prefetched (`ahead`) into the second-level cache, which supports more outstanding lines than the first. */
static inline void stored_rows(float *out, const uint16_t *rows, const float *query, int dim, int n, bool ahead) {
    v8 acc[8] = {0};
    for (int i = 0; i < dim; i += LANES) {
        v8 a = exact_load(query + i);
        for (int b = 0; b < n * LANES * 2 && ahead; b += LINE)
            __builtin_prefetch((const char *)(rows + (size_t)i * (size_t)n) + AHEAD + b, 0, 2);
        for (int r = 0; r < n; r++)
            acc[r] = multiply_add(a, half_lanes_from_f16(rows + (size_t)r * (size_t)dim + i), acc[r]);
    }
    for (int r = 0; r < n; r++)
        out[r] = sum_lanes(acc[r]);
}

/* The same for 8-bit codes. */
static inline void stored_codes(float *out, const struct store_rows *rows, int64_t at, const float *query, int n,
                                bool ahead) {
    const int dim = rows->dim;
    const int8_t *codes = rows->codes + (size_t)at * (size_t)dim;
    v8 acc[8] = {0};
    for (int i = 0; i < dim; i += LANES) {
        v8 a = exact_load(query + i);
        for (int b = 0; b < n * LANES && ahead; b += LINE)
            __builtin_prefetch((const char *)codes + (size_t)i * (size_t)n + AHEAD + b, 0, 2);
        for (int r = 0; r < n; r++)
            acc[r] = multiply_add(a, half_lanes_from_i8(codes + (size_t)r * (size_t)dim + i), acc[r]);
    }
    for (int r = 0; r < n; r++)
        out[r] = sum_lanes(acc[r]) * rows->scales[at + r];
}

static void scores_of_one(float *scores, const struct scan *s, int64_t first, int n) {
    const size_t dim = (size_t)s->l->dim;
    for (int r = 0; r < n;) {
        const struct store_rows rows = landmarks_rows(s->l, first + r);
        const int64_t here = rows.n < n - r ? rows.n : n - r;
        int64_t at = 0;
        for (; rows.half && at + 8 <= here; at += 8)
            stored_rows(scores + r + at, rows.half + (size_t)at * dim, s->queries, s->l->dim, 8, true);
        for (; rows.half && at < here; at++)
            stored_rows(scores + r + at, rows.half + (size_t)at * dim, s->queries, s->l->dim, 1, true);
        for (; at + 8 <= here; at += 8)
            stored_codes(scores + r + at, &rows, at, s->queries, 8, true);
        for (; at < here; at++)
            stored_codes(scores + r + at, &rows, at, s->queries, 1, true);
        r += (int)here;
    }
}

static void scores_of_block(float *scores, float *rows, const struct scan *s, int64_t first, int n) {
    float scales[BLOCK_ROWS];
    bool scaled = false;
    for (int r = 0; r < n;) {
        const struct store_rows from = landmarks_rows(s->l, first + r);
        scaled = from.scales != NULL;
        for (int64_t i = 0; i < from.n && r < n; i++, r++) {
            convert_row(rows + (size_t)r * (size_t)s->padded, &from, i, s->padded);
            if (scaled) scales[r] = from.scales[i];
        }
    }
    block_scores(scores, s->queries, s->n_queries, rows, n, s->padded);
    for (int q = 0; scaled && q < s->n_queries; q++)
        for (int r = 0; r < n; r++)
            scores[(size_t)q * (size_t)n + (size_t)r] *= scales[r];
}

static void scan_body(void *context, int64_t begin, int64_t end, int worker) {
    struct scan *s = context;
    float *rows = s->rows + (size_t)worker * BLOCK_ROWS * (size_t)s->padded;
    float *scores = s->scores + (size_t)worker * BLOCK_ROWS * QUERY_BATCH;
    int block = s->n_queries <= FEW_QUERIES ? BLOCK_FEW : BLOCK_ROWS;
    end += s->first;
    for (int64_t at = s->first + begin; at < end;) {
        struct store_range there = store_dropped_span(landmarks_missing(s->l), at, end);
        at = there.begin;
        int n = (int)(there.end - at < block ? there.end - at : block);
        if (s->n_queries == 1 && s->l->dim == s->padded)
            scores_of_one(scores, s, at, n);
        else
            scores_of_block(scores, rows, s, at, n);
        for (int q = 0; q < s->n_queries; q++) {
            struct top_list list = worker_list(s, worker, q);
            const struct store_range *range = s->exclude ? &s->exclude[q] : NULL;
            for (int r = 0; r < n; r++) {
                float score = scores[(size_t)q * (size_t)n + (size_t)r] * s->scale;
                if (top_list_admits(list, score, at + r) && !exact_excluded(range, at + r) &&
                    store_dropped_live(landmarks_dropped(s->l), at + r))
                    top_list_offer(list, score, at + r);
            }
        }
        at += n;
    }
}

static void merge_workers(struct store_hit *hits, const struct scan *s, int workers) {
    for (int q = 0; q < s->n_queries; q++) {
        struct top_list best = worker_list(s, 0, q);
        for (int w = 1; w < workers; w++) {
            struct top_list found = worker_list(s, w, q);
            for (int i = 0; i < s->k; i++)
                if (found.id[i] >= 0) top_list_offer(best, found.score[i], found.id[i]);
        }
        list_hits(hits + (size_t)q * (size_t)s->k, best);
    }
}

/* Scans all rows, in blocks that can be mapped together. */
static enum status scan_all(struct scan *s, struct landmarks *l, struct store_range rows, struct threads *threads) {
    s->first = rows.begin;
    for (int64_t n; s->first < rows.end; s->first += n) {
        TRY(landmarks_map(l, &n, s->first, rows.end - s->first));
        threads_for(threads, n, GRAIN, scan_body, s);
    }
    return STATUS_OK;
}

enum status exact_scan(struct landmarks *l, struct store_hit *hits, const float *queries, int64_t n, int k,
                       const struct store_range *exclude, struct store_range rows, struct threads *threads) {
    int workers = threads_count(threads), padded = padded_dim(l);
    struct scan s = {.l = l, .k = k, .padded = padded, .scale = 1.0f / sqrtf((float)l->dim)};
    float *all = NULL;
    enum status status = pad_queries(&all, queries, n, l->dim, padded);
    size_t slots = (size_t)workers * QUERY_BATCH;
    if (status == STATUS_OK) status = memory_allocate(&s.list_ids, slots * (size_t)k);
    if (status == STATUS_OK) status = memory_allocate(&s.list_scores, slots * (size_t)k);
    if (status == STATUS_OK) status = memory_allocate_aligned(&s.rows, (size_t)workers * BLOCK_ROWS * (size_t)padded);
    if (status == STATUS_OK) status = memory_allocate_aligned(&s.scores, slots * BLOCK_ROWS);
    for (int64_t q = 0; q < n && status == STATUS_OK; q += QUERY_BATCH) {
        s.n_queries = (int)(n - q < QUERY_BATCH ? n - q : QUERY_BATCH);
        s.queries = all + (size_t)q * (size_t)padded;
        s.exclude = exclude ? exclude + q : NULL;
        for (int w = 0; w < workers; w++)
            for (int i = 0; i < s.n_queries; i++)
                top_list_clear(worker_list(&s, w, i));
        status = scan_all(&s, l, rows, threads);
        if (status == STATUS_OK) merge_workers(hits + (size_t)q * (size_t)k, &s, workers);
    }
    memory_free(all);
    memory_free(s.list_ids);
    memory_free(s.list_scores);
    memory_free(s.rows);
    memory_free(s.scores);
    return status;
}

/* ---- scoring candidates ---- */

/* The threads divide the candidates of all queries. Their rows are anywhere in main memory. */
enum { RESCORE_GRAIN = 32, ROWS_AHEAD = 4 };

struct rescore {
    const struct landmarks *l;
    struct store_hit *hits;
    const float *queries; /* padded */
    struct exact_candidates candidates;
    int64_t begin, end; /* the candidates whose rows are mapped, as a range of each query's candidates */
    const struct store_range *exclude;
    int k, padded;
    float scale;
    float *scores;     /* of all candidates; NaN: it is not in the view, or excluded */
    float *rows;       /* [worker][padded] */
    int64_t *list_ids; /* [query][k] */
    float *list_scores;
};

static bool candidate_counts(const struct rescore *s, int64_t i) {
    const int64_t chunk = s->candidates.ids[i];
    const struct store_range *range = s->exclude ? &s->exclude[i / s->candidates.n] : NULL;
    return chunk >= 0 && chunk < s->l->chunks && !exact_excluded(range, chunk) &&
           store_dropped_live(landmarks_dropped(s->l), chunk);
}

static void candidate_prefetch(const struct rescore *s, int64_t i) {
    if (!candidate_counts(s, i)) return;
    const struct store_rows row = landmarks_rows(s->l, s->candidates.ids[i]);
    const char *at = row.half ? (const char *)row.half : (const char *)row.codes;
    for (int byte = 0; byte < row.dim * (row.half ? 2 : 1); byte += LINE)
        __builtin_prefetch(at + byte);
}

static float candidate_score(const struct rescore *s, int64_t i, float *wide) {
    const struct store_rows row = landmarks_rows(s->l, s->candidates.ids[i]);
    const float *query = s->queries + (size_t)(i / s->candidates.n) * (size_t)s->padded;
    float dot;
    if (s->padded > row.dim) {
        convert_row(wide, &row, 0, s->padded);
        exact_tile(&dot, 1, query, wide, s->padded, 1, 1);
        if (row.scales) dot *= row.scales[0];
    } else if (row.half) {
        stored_rows(&dot, row.half, query, row.dim, 1, false);
    } else {
        stored_codes(&dot, &row, 0, query, 1, false);
    }
    return dot * s->scale;
}

static void rescore_body(void *context, int64_t begin, int64_t end, int worker) {
    struct rescore *s = context;
    float *wide = s->rows + (size_t)worker * (size_t)s->padded;
    begin += s->begin, end += s->begin;
    for (int64_t i = begin; i < begin + ROWS_AHEAD && i < end; i++)
        candidate_prefetch(s, i);
    for (int64_t i = begin; i < end; i++) {
        if (i + ROWS_AHEAD < end) candidate_prefetch(s, i + ROWS_AHEAD);
        s->scores[i] = candidate_counts(s, i) ? candidate_score(s, i, wide) : NAN;
    }
}

static void rescore_lists(void *context, int64_t begin, int64_t end, int worker) {
    struct rescore *s = context;
    (void)worker;
    for (int64_t q = begin; q < end; q++) {
        const size_t list_at = (size_t)q * (size_t)s->k;
        struct top_list list = {s->list_ids + list_at, s->list_scores + list_at, s->k};
        top_list_clear(list);
        for (int64_t i = q * s->candidates.n; i < (q + 1) * s->candidates.n; i++)
            top_list_offer(list, s->scores[i], s->candidates.ids[i]);
        list_hits(s->hits + list_at, list);
    }
}

/* Scores all candidates, in blocks whose rows can be mapped together. */
static enum status rescore_all(struct rescore *s, struct landmarks *l, int64_t n, struct threads *threads) {
    for (int64_t all = n * s->candidates.n, some; s->begin < all; s->begin = s->end) {
        TRY(landmarks_map_some(l, &some, s->candidates.ids + s->begin, all - s->begin));
        s->end = s->begin + some;
        threads_for(threads, some, RESCORE_GRAIN, rescore_body, s);
    }
    threads_for(threads, n, 1, rescore_lists, s);
    return STATUS_OK;
}

enum status exact_rescore(struct landmarks *l, struct store_hit *hits, const float *queries, int64_t n, int k,
                          struct exact_candidates candidates, const struct store_range *exclude,
                          struct threads *threads) {
    struct rescore s = {.l = l,
                        .hits = hits,
                        .candidates = candidates,
                        .exclude = exclude,
                        .k = k,
                        .padded = padded_dim(l),
                        .scale = 1.0f / sqrtf((float)l->dim)};
    float *all = NULL;
    assert(candidates.n > 0);
    enum status status = pad_queries(&all, queries, n, l->dim, s.padded);
    s.queries = all;
    if (status == STATUS_OK) status = memory_allocate(&s.list_ids, (size_t)n * (size_t)k);
    if (status == STATUS_OK) status = memory_allocate(&s.list_scores, (size_t)n * (size_t)k);
    if (status == STATUS_OK) status = memory_allocate(&s.scores, (size_t)(n * candidates.n));
    if (status == STATUS_OK)
        status = memory_allocate_aligned(&s.rows, (size_t)threads_count(threads) * (size_t)s.padded);
    if (status == STATUS_OK) status = rescore_all(&s, l, n, threads);
    memory_free(all);
    memory_free(s.list_ids);
    memory_free(s.list_scores);
    memory_free(s.scores);
    memory_free(s.rows);
    return status;
}
