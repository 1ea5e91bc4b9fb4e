/* test_ivf_scan_on_device.c -- an inverted file on a GPU: the hits of a scan, equal bit for bit; the operations of
 * k-means, and equal bits of two runs of k-means. */
#include "kernels/search/kmeans.h"
#include "tests/device/on_device.h"
#include "tests/ref/search/ref_ivf_scan.h"

static void scan(int64_t lists, int64_t rows, int64_t d, int64_t n, int nprobe, int k, int pad) {
    struct ivf_scan_case c = ivf_scan_case_make(&on_rng, lists, rows, d, n);
    for (int holes = 0; holes < 2; holes++) {
        int64_t *index = zeros(n * k, sizeof *index);
        struct mat score = put_plain(NULL, DTYPE_F32, 1, n * k);
        memset(index, 255, (size_t)(n * k) * sizeof *index);
        int64_t *index_device = put_bytes(index, (size_t)(n * k) * sizeof *index);
        const struct ivf_scan_lists in = {
            put(c.centroids, DTYPE_F16, lists, d, pad, 0), put(c.data, DTYPE_F16, rows, d, pad, 0),
            put_bytes(c.begin, (size_t)(lists + 1) * sizeof *c.begin), put_bytes(c.id, (size_t)rows * sizeof *c.id)};
        const void *hole = put_bytes(c.hole, (size_t)n * sizeof *c.hole);
        gpu->ops->ivf_scan->forward(gpu, index_device, score.data, put(c.queries, DTYPE_F32, n, d, pad, 0), in,
                                    holes ? hole : NULL, nprobe, k);
        device_download(gpu, index, index_device, (size_t)(n * k) * sizeof *index);
        float *found = take(score);
        drop_all();
        ivf_scan_case_check(&c, index, found, holes, nprobe, k);
        free(index), free(found);
    }
    ivf_scan_case_free(&c);
}

static void scans(void) {
    scan(1, 1, 8, 1, 1, 1, 0);
    scan(1, 30, 24, 3, 5, 40, 0);
    scan(50, 700, 128, 9, 7, 8, 8);
    scan(50, 40, 768, 5, 20, 8, 0); /* results that stay empty */
    scan(1, 30, 24, 1, 1, 40, 0);   /* one query, more results than a list has: fewer rows than results */
    scan(50, 700, 136, 1, 7, 33, 8);
    scan(40, 900, 136, 33, 6, 8, 0); /* from here on the scan is list by list */
    if (on_short) return;
    scan(1, 60000, 128, 1, 1, 1024, 0);
    scan(40, 40000, 384, 1, 13, 64, 8);
    scan(3000, 9000, 64, 1, 2900, 700, 0);
    scan(300, 5000, 64, 1100, 20, 8, 8);
    scan(3, 4000, 768, 50, 2, 8, 0); /* several pieces of a list that all queries visit */
    scan(700, 3000, 24, 200, 700, 32, 0);
    scan(5, 60, 2048, 40, 3, 40, 0);
    scan(9, 300, 264, 70, 9, 70, 0); /* several passes, several rounds of a list */
    scan(3000, 9000, 64, 40, 100, 8, 0);
    scan(9000, 20000, 8, 3, 500, 8, 0);
    scan(20000, 20000, 8, 3, 64, 8, 0);
    scan(40000, 50000, 8, 2, 64, 8, 0);
    scan(30, 2000, 1024, 33, 4, 32, 0);
    scan(30, 500, 2048, 20, 4, 8, 0);
}

static void sums(int64_t n, int64_t lists, int64_t d, enum dtype type) {
    float *x = normals(n * d, 1.0f, type), *naive = zeros(lists * d, 4), *out[2];
    double *ref = zeros(lists * d, 8);
    int64_t *list = zeros(n, sizeof *list);
    int32_t *counts = zeros(lists, sizeof *counts), *found = zeros(lists, sizeof *found);
    for (int64_t i = 0; i < n; i++) {
        list[i] = i % 3 ? (int64_t)rng_below(&on_rng, (uint64_t)lists + 1) - 1 : lists / 2; /* one list has very many */
        if (list[i] < 0) continue;
        counts[list[i]]++;
        for (int64_t j = 0; j < d; j++) {
            ref[list[i] * d + j] += (double)x[i * d + j];
            naive[list[i] * d + j] += x[i * d + j];
        }
    }
    for (int pass = 0; pass < 2; pass++) {
        struct mat to = put_plain(NULL, DTYPE_F32, lists, d);
        memset(found, 255, (size_t)lists * sizeof *found);
        int32_t *found_device = put_bytes(found, (size_t)lists * sizeof *found);
        gpu->ops->kmeans_assign->sums(gpu, to, found_device, put(x, type, n, d, 8, 0),
                                      put_bytes(list, (size_t)n * sizeof *list));
        device_download(gpu, found, found_device, (size_t)lists * sizeof *found);
        out[pass] = take(to);
        drop_all();
        CHECK_SAME(found, counts, lists);
        CHECK_ON("kmeans_assign.sums", out[pass], naive, ref, lists * d, DTYPE_F32);
    }
    CHECK_SAME(out[0], out[1], lists * d);
    free(out[0]), free(out[1]), free(x), free(naive), free(ref), free(list), free(counts), free(found);
}

static void rows(int64_t n, int64_t d, enum dtype type) {
    float *x = normals(n * d, 3.0f, DTYPE_F32), *naive = zeros(n * d, 4), *empty = zeros(2 * n * d, 4);
    double *ref = zeros(n * d, 8);
    int64_t *row = zeros(n, sizeof *row);
    for (int64_t r = 0; r < n; r++) {
        double square = 0;
        float sum = 0;
        for (int64_t j = 0; j < d; j++) {
            if (r == 0) x[j] = 0;
            square += (double)x[r * d + j] * (double)x[r * d + j], sum += x[r * d + j] * x[r * d + j];
        }
        for (int64_t j = 0; j < d && r > 0; j++)
            ref[r * d + j] = (double)x[r * d + j] / sqrt(square), naive[r * d + j] = x[r * d + j] / sqrtf(sum);
        row[r] = 2 * ((r * 7 + 3) % n);
    }
    struct mat out = put_plain(NULL, type, n, d), wide = put_plain(empty, type, 2 * n, d);
    gpu->ops->kmeans_assign->unit(gpu, out, put(x, DTYPE_F32, n, d, 4, 0));
    gpu->ops->kmeans_assign->scatter_rows(gpu, wide, out, put_bytes(row, (size_t)n * sizeof *row));
    float *unit = take(out), *placed = take(wide);
    CHECK_ON("kmeans_assign.unit", unit, naive, ref, n * d, type);
    for (int64_t r = 0; r < n; r++)
        CHECK_SAME(placed + row[r] * d, unit + r * d, d);
    const int32_t pairs[2][2] = {{0, 1}, {2, 1}};
    struct mat s = put(x, DTYPE_F32, n, d, 4, 0);
    gpu->ops->kmeans_assign->split(gpu, s, put_bytes(pairs, sizeof pairs), 2);
    float *split = take(s);
    const float up = 1.0f + 1.0f / 1024, down = 1.0f - 1.0f / 1024;
    for (int64_t j = 0; j < d; j++) {
        float more = j % 2 ? down : up, less = j % 2 ? up : down, once = x[d + j] * less;
        CHECK(split[j] == x[d + j] * more && split[2 * d + j] == once * more && split[d + j] == once * less);
    }
    drop_all();
    free(x), free(naive), free(empty), free(ref), free(row), free(unit), free(placed), free(split);
}

/* Points of fp16 against themselves, and k-means over clustered ones: the same bits twice, no list with two directions.
 */
static void clusters(int64_t n, int64_t d, int64_t directions, int64_t lists) {
    struct rng rng = rng_make(3, 0);
    float *x = zeros(n * d, 4), *out[2];
    int64_t *list = zeros(n, 8), *visible = zeros(n, 8), *of = zeros(lists, 8);
    for (int64_t i = 0; i < n * d; i++)
        x[i] = as_type((i / d % directions == i % d ? 1.0f : 0.0f) + 0.03f * rng_normal(&rng), DTYPE_F16);
    for (int64_t i = 0; i < n; i++)
        visible[i] = lists;
    for (int64_t l = 0; l < lists; l++)
        of[l] = -1;
    for (int pass = 0; pass < 2; pass++) {
        struct mat points = put_plain(x, DTYPE_F16, n, d), centroids = put_plain(NULL, DTYPE_F32, lists, d);
        struct mat rounded = put_plain(NULL, DTYPE_F16, lists, d);
        int64_t *list_device = put_bytes(list, (size_t)n * 8);
        const struct kmeans_config how = {.seed = 5};
        CHECK_OK(kmeans_fit(gpu, centroids, points, &how));
        gpu->ops->kmeans_assign->unit(gpu, rounded, centroids);
        kmeans_assign(gpu, list_device, put_plain(NULL, DTYPE_F32, 1, n).data, points, rounded,
                      put_bytes(visible, (size_t)n * 8));
        device_download(gpu, list, list_device, (size_t)n * 8);
        out[pass] = take(centroids);
        drop_all();
    }
    CHECK_SAME(out[0], out[1], lists * d);
    for (int64_t i = 0; i < n; i++) {
        CHECK(list[i] >= 0 && list[i] < lists);
        if (of[list[i]] >= 0) CHECK_EQ(of[list[i]], i % directions);
        of[list[i]] = i % directions;
    }
    free(x), free(out[0]), free(out[1]), free(list), free(visible), free(of);
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    scans();
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        sums(1, 1, 8, types[t]);
        sums(500, 7, 33, types[t]);
        rows(10, 16, types[t]);
        rows(71, 50, types[t]);
        if (on_short) continue;
        sums(30000, 300, 768, types[t]);
        rows(3, 9, types[t]);
    }
    clusters(2000, 64, 8, 40);
    if (!on_short) clusters(60000, 384, 50, 400); /* the kernel of many queries */
    return on_device_close();
}
