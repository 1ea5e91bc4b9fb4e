/* test_hybrid_on_device.c -- the merge of a hybrid search on a GPU, equal bit for bit to the oracle; the query of
 * states in a ring buffer. */
#include "tests/device/on_device.h"
#include "tests/ref/search/ref_hybrid.h"

static void merge(int64_t n, int64_t d, int64_t chunks, int words, int landmarks, int k, int pad) {
    struct hybrid_case c = hybrid_case_make(&on_rng, n, d, chunks, words, landmarks);
    const size_t of_words = (size_t)(n * words + 1), of_landmarks = (size_t)(n * landmarks + 1);
    for (int mapped = 0; mapped < 2; mapped++) {
        int64_t *index = zeros(n * k, sizeof *index);
        struct mat score = put_plain(NULL, DTYPE_F32, 1, n * k), product = put_plain(NULL, DTYPE_F32, 1, n * k);
        memset(index, 255, (size_t)(n * k) * sizeof *index);
        int64_t *index_device = put_bytes(index, (size_t)(n * k) * sizeof *index);
        struct hybrid_merge m = {
            .queries = put(c.queries, DTYPE_F32, n, d, pad, 0),
            .words = {put_bytes(c.chunk[0], of_words * 8), put_bytes(c.bm25[0], of_words * 4), words},
            .landmarks = {put_bytes(c.chunk[1], of_landmarks * 8), put_bytes(c.bm25[1], of_landmarks * 4), landmarks},
            .rows = put(c.data, DTYPE_F16, c.rows, d, pad, 0),
            .row_of = mapped ? put_bytes(c.row_of, (size_t)chunks * sizeof *c.row_of) : NULL,
            .chunks = chunks,
            .weight = HYBRID_CASE_WEIGHT};
        gpu->ops->hybrid->merge(gpu, index_device, score.data, &m, k); /* no products */
        m.product = product.data;
        gpu->ops->hybrid->merge(gpu, index_device, score.data, &m, k);
        device_download(gpu, index, index_device, (size_t)(n * k) * sizeof *index);
        float *found = take(score), *products = take(product);
        drop_all();
        hybrid_case_check(&c, index, found, products, mapped, k);
        free(index), free(found), free(products);
    }
    hybrid_case_free(&c);
}

static void query(int64_t rows, int64_t d, int64_t first, int64_t n, enum dtype type) {
    float *ring = normals(rows * d, 1.0f, type);
    double *centre = zeros(d, sizeof *centre), *right = zeros(d, sizeof *right);
    for (int64_t j = 0; j < d; j++)
        centre[j] = (double)rng_normal(&on_rng);
    hybrid_query_ref(right, ring, rows, d, first, n, centre);
    struct mat out = put_plain(NULL, DTYPE_F32, 1, d);
    gpu->ops->hybrid->query(gpu, out.data, put(ring, type, rows, d, 8, 0), first, n,
                            put_bytes(centre, (size_t)d * sizeof *centre));
    float *found = take(out);
    for (int64_t j = 0; j < d; j++)
        CHECK(n > 0 ? fabs((double)found[j] - right[j]) <= 1e-7 : found[j] == 0);
    drop_all();
    free(ring), free(centre), free(right), free(found);
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    merge(1, 16, 1, 1, 1, 1, 0);
    merge(3, 16, 40, 20, 7, 30, 8);
    merge(2, 64, 500, 256, 64, 64, 0);
    merge(1, 1024, 3000, 1024, 1024, 256, 0);
    merge(2, 16, 30, 40, 0, 8, 0);
    merge(70, 64, 300, 90, 33, 40, 0);
    for (int type = 0; type < 2; type++) {
        query(20, 16, 0, 16, type ? DTYPE_BF16 : DTYPE_F32);
        query(20, 384, 13, 16, type ? DTYPE_BF16 : DTYPE_F32);
        query(5, 2048, 1234567, 5, type ? DTYPE_BF16 : DTYPE_F32);
        query(16, 8192, 3, 16, type ? DTYPE_BF16 : DTYPE_F32);
        query(7, 24, 3, 0, type ? DTYPE_BF16 : DTYPE_F32);
    }
    return on_device_close();
}
