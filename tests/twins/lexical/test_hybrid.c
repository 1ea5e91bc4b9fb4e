/* test_hybrid.c -- the merge of chunks found by words and by landmarks: many ties, chunks of both lists, empty slots,
 * chunks without a row, fewer chunks than results. The query of states in a ring buffer. */
#include "base/half.h"
#include "tests/ref/search/ref_hybrid.h"
#include "tests/twins/twins.h"

static void compare(int64_t n, int64_t d, int64_t chunks, int words, int landmarks, int k) {
    struct hybrid_case c = hybrid_case_make(&twin_rng, n, d, chunks, words, landmarks);
    for (int i = 0; i < DEVICES; i++)
        for (int mapped = 0; mapped < 2; mapped++) {
            struct guarded q = guarded_make(n, d, c.queries), rows = guarded_make(c.rows, d, c.data);
            struct guarded score = guarded_make(1, n * k, NULL), product = guarded_make(1, n * k, NULL);
            int64_t *index = malloc((size_t)(n * k + 1) * sizeof *index);
            float *found = zero_array(n * k), *products = zero_array(n * k);
            index[n * k] = 77;
            struct hybrid_merge m = {.queries = q.m,
                                     .words = {c.chunk[0], c.bm25[0], words},
                                     .landmarks = {c.chunk[1], c.bm25[1], landmarks},
                                     .rows = rows.m,
                                     .row_of = mapped ? c.row_of : NULL,
                                     .chunks = chunks,
                                     .weight = HYBRID_CASE_WEIGHT};
            twin_device[i]->ops->hybrid->merge(twin_device[i], index, score.m.data, &m, k); /* no products */
            memset(index, 255, (size_t)(n * k) * sizeof *index);
            m.product = product.m.data;
            twin_device[i]->ops->hybrid->merge(twin_device[i], index, score.m.data, &m, k);
            CHECK_EQ(index[n * k], 77);
            guarded_take(found, &score), guarded_take(products, &product);
            hybrid_case_check(&c, index, found, products, mapped, k);
            guarded_drop(&q), guarded_drop(&rows);
            free(index), free(found), free(products);
        }
    hybrid_case_free(&c);
}

static void query(int64_t rows, int64_t d, int64_t first, int64_t n, bool bf16) {
    float *ring = zero_array(rows * d), *found = zero_array(d);
    double *centre = malloc((size_t)d * sizeof *centre), *right = malloc((size_t)d * sizeof *right);
    uint16_t *half = malloc((size_t)(rows * d) * sizeof *half);
    for (int64_t i = 0; i < rows * d; i++) {
        ring[i] = rng_normal(&twin_rng);
        half[i] = half_to_bf16(ring[i]);
        if (bf16) ring[i] = half_from_bf16(half[i]);
    }
    for (int64_t j = 0; j < d; j++)
        centre[j] = (double)rng_normal(&twin_rng);
    hybrid_query_ref(right, ring, rows, d, first, n, centre);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded states = guarded_make(rows, d, ring), out = guarded_make(1, d, NULL);
        const struct mat of = bf16 ? mat_dense(half, DTYPE_BF16, rows, d) : states.m;
        twin_device[i]->ops->hybrid->query(twin_device[i], out.m.data, of, first, n, centre);
        guarded_take(found, &out);
        for (int64_t j = 0; j < d; j++)
            CHECK(n > 0 ? fabs((double)found[j] - right[j]) <= 1e-7 : found[j] == 0);
        guarded_drop(&states);
    }
    free(ring), free(found), free(centre), free(right), free(half);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(1, 16, 1, 1, 1, 1);
    compare(3, 16, 40, 20, 7, 30);
    compare(2, 64, 500, 256, 64, 64);
    compare(1, 64, 3000, 1024, 1024, 256);
    compare(2, 16, 30, 40, 0, 8);
    query(20, 16, 0, 16, false);
    query(20, 33, 13, 16, true);
    query(5, 384, 1234567, 5, false);
    query(7, 24, 3, 0, false);
    return twins_close();
}
