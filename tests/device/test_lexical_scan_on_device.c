/* test_lexical_scan_on_device.c -- sums over lists of postings on a GPU: the hits of the oracle and of the CPU twin,
 * equal bit for bit, also from run to run. Cases have up to as many windows as multiprocessors, and so many that later
 * ones leave out sums that earlier ones exclude: most, none, or those at ties. */
#include "tests/device/on_device.h"
#include "tests/ref/search/ref_lexical_scan.h"

static struct lexical_scan put_scan(const struct lexical_scan_case *c, bool absent) {
    struct lexical_scan s = c->scan;
    size_t parts = (size_t)(s.n_segments * s.n_queries);
    s.postings = put_bytes(c->postings, c->bytes);
    s.segments = put_bytes(c->segments, (size_t)s.n_segments * sizeof *c->segments);
    s.lists = put_bytes(c->lists, (size_t)(c->n_lists + 1) * sizeof *c->lists);
    s.parts = put_bytes(c->parts, parts * sizeof *c->parts);
    s.queries = put_bytes(c->queries, (size_t)s.n_queries * sizeof *c->queries);
    s.absent = absent ? put_bytes(c->absent, (size_t)s.windows * (LEXICAL_SCAN_WINDOW / 8)) : NULL;
    return s;
}

static void scan_case(const struct lexical_scan_case *c, bool absent, int k) {
    int64_t n = c->scan.n_queries * k, *index = zeros(n, sizeof *index), *again = zeros(n, sizeof *again);
    for (int pass = 0; pass < 2; pass++) {
        const struct lexical_scan s = put_scan(c, absent);
        struct mat score = put_plain(NULL, DTYPE_F32, 1, n);
        memset(index, 255, (size_t)n * sizeof *index);
        int64_t *index_device = put_bytes(index, (size_t)n * sizeof *index);
        gpu->ops->lexical_scan->forward(gpu, index_device, score.data, &s, k);
        device_download(gpu, index, index_device, (size_t)n * sizeof *index);
        float *found = take(score);
        drop_all();
        lexical_scan_case_check(c, index, found, absent, k);
        if (pass) CHECK_SAME(index, again, n);
        memcpy(again, index, (size_t)n * sizeof *index);
        free(found);
    }
    free(index), free(again);
}

static void given(const int32_t *chunks, int64_t segments, int64_t lists, int64_t queries, int n) {
    struct lexical_scan_case c = lexical_scan_case_make(&on_rng, chunks, segments, lists, queries, LEXICAL_SCAN_RANDOM);
    int64_t *chunk = zeros(queries * n, sizeof *chunk);
    float *right = zeros(queries * n, sizeof *right);
    lexical_scan_case_given(&c, &on_rng, chunk, right, n);
    const struct lexical_scan s = put_scan(&c, false);
    struct mat score = put_plain(NULL, DTYPE_F32, 1, queries * n);
    gpu->ops->lexical_scan->score(gpu, score.data, &s, put_bytes(chunk, (size_t)(queries * n) * sizeof *chunk), n);
    float *found = take(score);
    drop_all();
    CHECK_SAME(found, right, queries * n);
    free(chunk), free(right), free(found);
    lexical_scan_case_free(&c);
}

static void scan(const int32_t *chunks, int64_t segments, int64_t lists, int64_t queries, int k) {
    for (int kind = 0; kind < LEXICAL_SCAN_KINDS; kind++) {
        struct lexical_scan_case c =
            lexical_scan_case_make(&on_rng, chunks, segments, lists, queries, (enum lexical_scan_kind)kind);
        scan_case(&c, false, k);
        scan_case(&c, true, k);
        lexical_scan_case_free(&c);
    }
}

int main(int argc, char **argv) {
    enum { WINDOW = LEXICAL_SCAN_WINDOW };
    on_device_open(argc, argv);
    scan((const int32_t[]){1}, 1, 3, 2, 1);
    scan((const int32_t[]){50}, 1, 12, 3, 60);
    scan((const int32_t[]){WINDOW}, 1, 30, 3, 64);
    scan((const int32_t[]){WINDOW + 1, 0, 129, 2 * WINDOW - 3, 3}, 5, 24, 4, 100);
    scan((const int32_t[]){100}, 1, 6, 300, 5); /* more windows than multiprocessors, and two at a time */
    scan((const int32_t[]){WINDOW + 50}, 1, 8, 160, 40);
    if (!on_short) {
        scan((const int32_t[]){5 * WINDOW / 2}, 1, 100, 2, LEXICAL_SCAN_K_MAX);
        scan((const int32_t[]){9000, 20000, 7}, 3, 1500, 2, 256); /* several rounds of sparse and of dense lists */
        scan((const int32_t[]){300000, 1200000}, 2, 20, 3, 256);  /* merged in two steps */
        scan((const int32_t[]){3 * WINDOW}, 1, 16, 300, 32);
        scan((const int32_t[]){2 * WINDOW - 9, 4 * WINDOW + 1, 8}, 3, 9, 200,
             5); /* a pair of windows of two segments */
    }
    given((const int32_t[]){1}, 1, 3, 2, 4);
    given((const int32_t[]){WINDOW + 1, 0, 129, 2 * WINDOW - 3, 3}, 5, 24, 4, 100);
    given((const int32_t[]){300000, 70}, 2, 700, 2, 64);
    return on_device_close();
}
