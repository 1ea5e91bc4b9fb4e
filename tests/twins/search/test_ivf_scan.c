/* test_ivf_scan.c -- lists of any size, empty ones, many ties, excluded ranges, nprobe and k larger than the index, and
 * more lists than fit one round of the selection. */
#include "tests/ref/search/ref_ivf_scan.h"
#include "tests/twins/twins.h"

static void compare(int64_t lists, int64_t rows, int64_t d, int64_t n, int nprobe, int k) {
    struct ivf_scan_case c = ivf_scan_case_make(&twin_rng, lists, rows, d, n);
    for (int i = 0; i < DEVICES; i++)
        for (int holes = 0; holes < 2; holes++) {
            struct guarded q = guarded_make(n, d, c.queries), centroids = guarded_make(lists, d, c.centroids);
            struct guarded data = guarded_make(rows, d, c.data), score = guarded_make(1, n * k, NULL);
            int64_t *index = malloc((size_t)(n * k + 1) * sizeof *index);
            float *found = zero_array(n * k);
            index[n * k] = 77;
            const struct ivf_scan_lists in = {centroids.m, data.m, c.begin, c.id};
            twin_device[i]->ops->ivf_scan->forward(twin_device[i], index, score.m.data, q.m, in,
                                                   holes ? (const int64_t(*)[2])c.hole : NULL, nprobe, k);
            CHECK_EQ(index[n * k], 77);
            guarded_take(found, &score);
            ivf_scan_case_check(&c, index, found, holes, nprobe, k);
            guarded_drop(&q), guarded_drop(&centroids), guarded_drop(&data);
            free(index), free(found);
        }
    ivf_scan_case_free(&c);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(1, 1, 8, 1, 1, 1);
    compare(1, 30, 24, 3, 5, 40);
    compare(50, 700, 16, 9, 7, 8);
    compare(50, 40, 33, 5, 20, 8);
    compare(9, 300, 64, 7, 9, 50);
    compare(700, 3000, 8, 20, 100, 8);
    compare(3, 5, 8, 2, 1000, 3);
    compare(IVF_SCAN_LISTS_MAX, 300000, 8, 1, 160000, 200);
    return twins_close();
}
