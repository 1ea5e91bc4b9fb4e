/* test_list_scan.c -- the store's scan of inverted lists of 8-bit codes: sums against plain integers, results against
 * loops in double precision over the decoded rows, and against FAISS over a file that it wrote. */
#include "store/index/list_scan_internal.h"
#include "store/index/vectors_internal.h"
#include "tests/store_fixture.h"

enum { DIM_MOST = 200, LISTS = 40, ROWS = 1500, QUERIES = 41, K = 12 };

/* ---- sums ---- */

/* Every loop computes the sums of plain integers, for every width and number of rows, and reads nothing beyond the
 * codes. */
static void sums_are_exact(void) {
    static int64_t widest;
    _Alignas(64) uint8_t memory[4 * (DIM_MOST + CODE_PAD)];
    float query[DIM_MOST], low[DIM_MOST], step[DIM_MOST];
    struct rng r = rng_make(1, 1);
    for (int dim = 1; dim <= DIM_MOST; dim += dim < 70 ? 1 : 13)
        for (int n = 1; n <= 9; n++) {
            uint8_t *codes = malloc((size_t)dim * (size_t)n); /* of exact size: a sanitizer sees a read beyond it */
            CHECK(codes);
            for (int i = 0; i < dim; i++) {
                query[i] = n == 9 ? 1e3f : rng_normal(&r); /* equal weights: the greatest sums */
                low[i] = rng_normal(&r);
                step[i] = n == 9 ? 1 : rng_uniform(&r);
            }
            for (int i = 0; i < dim * n; i++)
                codes[i] = n == 9 ? 255 : (uint8_t)rng_below(&r, 256);
            struct code_query q;
            code_query_make(&q, memory, query, (struct code_range){low, step}, dim);
            for (int level = 0; level < CODE_SUMS_LEVELS; level++) {
                int32_t sums[9];
                if (!code_sums_at(level)) continue;
                code_sums_at(level)(sums, codes, n, &q, dim);
                for (int row = 0; row < n; row++) {
                    int64_t sum = 0;
                    for (int i = 0; i < dim; i++)
                        sum += (int64_t)q.weight[i] * codes[row * dim + i];
                    CHECK_EQ(sums[row], sum);
                    widest = sum > widest ? sum : widest;
                }
            }
            free(codes);
        }
    CHECK(widest > INT64_C(800000000)); /* 200 * 255 * 16256: 31 bits are used */
}

/* base + unit * sum is the product with the decoded row, up to the rounding of weights. */
static void sums_are_products(void) {
    enum { DIM = 64 };
    _Alignas(64) uint8_t memory[4 * DIM];
    float query[DIM], low[DIM], step[DIM];
    uint8_t codes[DIM];
    struct rng r = rng_make(2, 1);
    for (int round = 0; round < 200; round++) {
        double exact = 0, norm = 0;
        for (int i = 0; i < DIM; i++) {
            query[i] = rng_normal(&r), low[i] = rng_normal(&r), step[i] = rng_uniform(&r) / 255;
            codes[i] = (uint8_t)rng_below(&r, 256);
            exact += (double)query[i] * ((double)low[i] + (double)step[i] * codes[i]);
            norm += fabs((double)query[i] * (double)step[i]) * 255;
        }
        struct code_query q;
        int32_t sum;
        code_query_make(&q, memory, query, (struct code_range){low, step}, DIM);
        code_sums_best()(&sum, codes, 1, &q, DIM);
        CHECK(fabs(q.base + q.unit * sum - exact) < 1e-4 * norm);
    }
    query[3] = NAN;
    struct code_query q;
    code_query_make(&q, memory, query, (struct code_range){low, step}, DIM);
    for (int i = 0; i < DIM; i++)
        CHECK_EQ(q.weight[i], 0);
}

/* Sums fit 31 bits at any width. */
static void wide_sums_fit(void) {
    enum { DIM = 8192 };
    static _Alignas(64) uint8_t memory[4 * DIM];
    static float query[DIM], low[DIM], step[DIM];
    static uint8_t codes[DIM];
    for (int i = 0; i < DIM; i++)
        query[i] = -3, step[i] = 0.1f, codes[i] = 255;
    struct code_query q;
    code_query_make(&q, memory, query, (struct code_range){low, step}, DIM);
    for (int level = 0; level < CODE_SUMS_LEVELS; level++) {
        int32_t sum;
        if (!code_sums_at(level)) continue;
        code_sums_at(level)(&sum, codes, 1, &q, DIM);
        CHECK(fabs(q.unit * sum / (-3 * 0.1 * 255 * DIM) - 1) < 1e-3);
    }
}

/* ---- searches ---- */

struct lists {
    int dim;
    float centroids[LISTS * DIM_MOST], low[DIM_MOST], step[DIM_MOST];
    uint8_t codes[ROWS * DIM_MOST];
    uint8_t id_bytes[ROWS * 8 + 1];
    int64_t id[ROWS];
    int list_of[ROWS];
    struct list_scan_list list[LISTS];
    float queries[QUERIES * DIM_MOST];
};

/* Some lists are empty, some rows occur twice under two ids, and ids are not aligned. */
static void lists_make(struct lists *l, int dim, uint64_t seed) {
    struct rng r = rng_make(seed, 3);
    l->dim = dim;
    for (int i = 0; i < LISTS * dim; i++)
        l->centroids[i] = rng_normal(&r);
    for (int i = 0; i < dim; i++)
        l->low[i] = -1 - rng_uniform(&r), l->step[i] = (2 + rng_uniform(&r)) / 255;
    for (int i = 0; i < ROWS * dim; i++)
        l->codes[i] = (uint8_t)rng_below(&r, 256);
    for (int row = 0, list = 0; row < ROWS; row++) {
        if (row % (ROWS / LISTS * 2) == 0 && row > 0) list += 2; /* every other one is empty */
        l->list_of[row] = list < LISTS ? list : LISTS - 1;
        if (row % 5 == 4 && l->list_of[row] == l->list_of[row - 1])
            memcpy(l->codes + row * dim, l->codes + (row - 1) * dim, (size_t)dim);
        l->id[row] = 7000 + (row * 7919) % ROWS;
        memcpy(l->id_bytes + 1 + (size_t)row * 8, &l->id[row], 8);
    }
    for (int i = 0; i < LISTS; i++)
        l->list[i] = (struct list_scan_list){0};
    for (int row = ROWS - 1; row >= 0; row--) {
        struct list_scan_list *list = &l->list[l->list_of[row]];
        *list = (struct list_scan_list){l->codes + row * dim, l->id_bytes + 1 + (size_t)row * 8, list->n + 1};
    }
    for (int i = 0; i < QUERIES * dim; i++)
        l->queries[i] = rng_normal(&r);
}

static struct list_scan_source source_of(struct lists *l, bool residual) {
    return (struct list_scan_source){l->dim, LISTS, l->centroids, l->list, l->low, l->step, residual};
}

/* In double precision: which lists a query visits, then the score of a row. */
static void visited_lists(bool visited[LISTS], const struct lists *l, const float *query, int nprobe) {
    double product[LISTS];
    for (int i = 0; i < LISTS; i++) {
        product[i] = 0;
        for (int d = 0; d < l->dim; d++)
            product[i] += (double)query[d] * (double)l->centroids[i * l->dim + d];
    }
    for (int i = 0; i < LISTS; i++) {
        int better = 0;
        for (int j = 0; j < LISTS; j++)
            better += product[j] > product[i] || (product[j] == product[i] && j < i);
        visited[i] = better < nprobe;
    }
}

static double row_score(const struct lists *l, const float *query, int row, bool residual) {
    double score = 0;
    for (int d = 0; d < l->dim; d++) {
        double number = (double)l->low[d] + (double)l->step[d] * l->codes[row * l->dim + d];
        if (residual) number += (double)l->centroids[l->list_of[row] * l->dim + d];
        score += (double)query[d] * number;
    }
    return score;
}

static bool left_out(const struct store_range *range, int64_t id) {
    return range && id >= range->begin && id < range->end;
}

/* The hits are rows of visited lists, with their scores, in order; no other row is better by more than the rounding of
 * weights. */
static void check_query(const struct lists *l, const int64_t *ids, const float *scores, const float *query, int nprobe,
                        const struct store_range *range, bool residual) {
    bool visited[LISTS], found[ROWS] = {false};
    int there = 0, hits = 0;
    const double slack = 2e-3 * sqrt((double)l->dim);
    visited_lists(visited, l, query, nprobe);
    for (int i = 0; i < K && ids[i] >= 0; i++, hits++) {
        int row = 0;
        while (row < ROWS && l->id[row] != ids[i])
            row++;
        CHECK(row < ROWS && !found[row] && visited[l->list_of[row]] && !left_out(range, ids[i]));
        found[row] = true;
        CHECK(fabs(row_score(l, query, row, residual) - (double)scores[i]) < slack);
        if (i > 0) CHECK(scores[i] < scores[i - 1] || (scores[i] == scores[i - 1] && ids[i] > ids[i - 1]));
    }
    for (int row = 0; row < ROWS; row++) {
        if (!visited[l->list_of[row]] || left_out(range, l->id[row])) continue;
        there++;
        if (!found[row]) CHECK(row_score(l, query, row, residual) < (double)scores[K - 1] + slack);
    }
    CHECK_EQ(hits, there < K ? there : K);
    for (int i = hits; i < K; i++)
        CHECK_EQ(ids[i], -1);
}

static void searches(int dim, bool residual, bool excluded) {
    static struct lists l;
    static int64_t ids[QUERIES * K], first[QUERIES * K];
    static float scores[QUERIES * K];
    struct store_range exclude[QUERIES];
    struct list_scan *x;
    struct threads *threads;
    CHECK_OK(threads_create(&threads, 3));
    lists_make(&l, dim, (uint64_t)dim);
    for (int q = 0; q < QUERIES; q++)
        exclude[q] = (struct store_range){7000 + q * 20, 7000 + q * 20 + (q % 3) * 300};
    const struct list_scan_source source = source_of(&l, residual);
    CHECK_OK(list_scan_make(&x, &source));
    for (int nprobe = 1; nprobe <= LISTS; nprobe += nprobe < 12 ? 5 : 14) {
        struct list_scan_search how = {
            .n = QUERIES, .queries = l.queries, .k = K, .nprobe = nprobe, .exclude = excluded ? exclude : NULL};
        list_scan_use(x, code_sums_best());
        CHECK_OK(list_scan_find(x, first, scores, &how));
        for (int q = 0; q < QUERIES; q++)
            check_query(&l, first + q * K, scores + q * K, l.queries + q * dim, nprobe, excluded ? exclude + q : NULL,
                        residual);
        /* Threads, loops, and the other queries of a batch change nothing. */
        for (int level = 0; level < CODE_SUMS_LEVELS; level++) {
            if (!code_sums_at(level)) continue;
            list_scan_use(x, code_sums_at(level));
            how.threads = threads;
            CHECK_OK(list_scan_find(x, ids, NULL, &how));
            CHECK(memcmp(ids, first, sizeof ids) == 0);
        }
        for (int q = 0; q < QUERIES; q++) {
            struct list_scan_search one = how;
            one.n = 1, one.queries += q * dim, one.exclude = excluded ? exclude + q : NULL;
            one.threads = q % 2 ? threads : NULL;
            CHECK_OK(list_scan_find(x, ids + q * K, NULL, &one));
        }
        CHECK(memcmp(ids, first, sizeof ids) == 0);
    }
    list_scan_free(x);
    threads_free(threads);
}

/* Rows with equal codes in one list have equal scores: the smaller id comes first, also at the end of the hits. */
static void ties(void) {
    static struct lists l;
    int64_t ids[K];
    struct list_scan *x;
    lists_make(&l, 24, 9);
    for (int row = 0; row < ROWS; row++)
        memcpy(l.codes + row * l.dim, l.codes, (size_t)l.dim);
    const struct list_scan_source source = source_of(&l, false);
    CHECK_OK(list_scan_make(&x, &source));
    CHECK_OK(list_scan_find(x, ids, NULL,
                            &(struct list_scan_search){.n = 1, .queries = l.queries, .k = K, .nprobe = LISTS}));
    for (int i = 0; i < K; i++)
        CHECK_EQ(ids[i], 7000 + i);
    list_scan_free(x);
}

/* ---- against FAISS ---- */

/* With every list visited both score all rows, so their hits differ only if scores are equal up to rounding. */
static void as_faiss(const char *factory, bool scanned) {
    enum { DIM = 48, N = 3000, FIRST = 100, HITS = 50, ASKED = 20 };
    static float rows[N * DIM];
    static int64_t own[ASKED * HITS], other[HITS];
    float queries[ASKED * DIM];
    char path[700];
    struct vectors *v;
    snprintf(path, sizeof path, "%s/lists.faiss", test_folder());
    for (int64_t i = 0; i < N; i++)
        fixture_vector(rows + i * DIM, DIM, (uint64_t)i, 0.6f);
    CHECK_OK(vectors_make(&v, factory, DIM));
    CHECK_OK(vectors_train(v, rows, N, 1));
    CHECK_OK(vectors_add(v, rows, N, FIRST, 1));
    CHECK(!vectors_scans(v));
    CHECK_OK(vectors_write(v, path));
    vectors_free(v);
    CHECK_OK(vectors_open(&v, path, DIM, N, FIRST, true));
    CHECK_EQ(vectors_scans(v), scanned);
    for (int q = 0; q < ASKED && scanned; q++)
        fixture_vector(queries + q * DIM, DIM, 5000 + (uint64_t)q, 0.6f);
    for (int nprobe = 2; nprobe <= 16 && scanned; nprobe *= 2) {
        int same = 0;
        const struct store_range range = {FIRST + 40, FIRST + 900};
        struct store_range each[ASKED];
        for (int q = 0; q < ASKED; q++)
            each[q] = range;
        CHECK_OK(vectors_scan(v, own, queries, ASKED, HITS, nprobe, each, NULL));
        for (int q = 0; q < ASKED; q++) {
            CHECK_OK(vectors_search(v, other, queries + q * DIM, 1, HITS, nprobe, &range, 1));
            for (int i = 0; i < HITS; i++)
                for (int j = 0; j < HITS; j++)
                    same += own[q * HITS + i] == other[j];
        }
        CHECK(same >= ASKED * HITS * 98 / 100);
    }
    vectors_free(v);
}

int main(void) {
    sums_are_exact();
    sums_are_products();
    wide_sums_fit();
    searches(1, true, false);
    searches(24, true, true);
    searches(64, false, true);
    searches(131, true, false);
    ties();
    as_faiss("IVF16,SQ8", true);
    as_faiss("IVF16_HNSW8,SQ8", true);
    as_faiss("IVF16,SQ6", false);
    as_faiss("IVF16,SQfp16", false);
    return 0;
}
