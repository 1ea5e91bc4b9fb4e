/* test_vectors_graph.c -- centroids in a graph that several threads make: the same bytes for any number of threads, a
 * graph that passes the check before FAISS reads it, and that finds nearly all of the nearest centroids. */
#include "base/file.h"
#include "base/rng.h"
#include "store/index/segment_check_internal.h"
#include "store/index/vectors_internal.h"
#include "tests/test.h"

enum { DIM = 12, LISTS = 3000, ROWS = 6000, QUERIES = 500, VISITED = 24 };

static float rows[ROWS][DIM];

/* The first rows, at length 1; rows 10 .. 29 are equal. */
static enum status first_rows(void *context, float *centroids, const float *from, int64_t n, int dim, int64_t lists,
                              const struct progress *progress) {
    (void)context, (void)progress;
    CHECK(n >= lists && dim == DIM);
    for (int64_t l = 0; l < lists; l++) {
        const float *row = from + (l >= 10 && l < 30 ? 10 : l) * dim;
        float square = 0;
        for (int i = 0; i < dim; i++)
            square += row[i] * row[i];
        for (int i = 0; i < dim; i++)
            centroids[l * dim + i] = row[i] / sqrtf(square);
    }
    return STATUS_OK;
}

static struct vectors *make(const char *index, int threads, char path[600]) {
    struct vectors *v;
    struct threads *pool = NULL;
    const struct store_clustering clustering = {.fit = first_rows};
    if (threads > 0) CHECK_OK(threads_create(&pool, threads));
    CHECK_OK(vectors_make(&v, index, DIM));
    CHECK_OK(vectors_give_centroids(v, &clustering, rows[0], ROWS, ROWS, pool, NULL));
    CHECK_OK(vectors_train(v, rows[0], ROWS, 1));
    snprintf(path, 600, "%s/%s-%d", test_folder(), index, threads);
    CHECK_OK(vectors_write(v, path));
    threads_free(pool);
    return v;
}

/* The share of the nearest rows that are found in the lists visited. */
static double recall(struct vectors *v) {
    int found = 0;
    static int64_t ids[QUERIES], all[QUERIES];
    CHECK_OK(vectors_add(v, rows[0], LISTS, 0, 1));
    CHECK_OK(vectors_search(v, ids, rows[LISTS], QUERIES, 1, VISITED, NULL, 1));
    CHECK_OK(vectors_search(v, all, rows[LISTS], QUERIES, 1, LISTS, NULL, 1)); /* not by the graph */
    for (int i = 0; i < QUERIES; i++)
        found += ids[i] == all[i];
    return (double)found / QUERIES;
}

static double test_graph(const char *index, double least) {
    char first[600], again[600];
    struct vectors *v = make(index, 0, first);
    const struct segment_shape shape = {.dim = DIM};
    bool known = false;
    CHECK_OK(segment_check_file(first, &shape, true, &known));
    CHECK(known);
    for (int threads = 1; threads <= 4; threads++) {
        uint32_t a, b;
        vectors_free(make(index, threads, again));
        CHECK_OK(file_checksum(&a, first));
        CHECK_OK(file_checksum(&b, again));
        CHECK_EQ(a, b);
    }
    const double part = recall(v);
    printf("%s: %.3f of the nearest rows in %d of %d lists\n", index, part, VISITED, LISTS);
    CHECK(part >= least);
    vectors_free(v);
    return part;
}

int main(int argc, char **argv) {
    test_start(argc, argv, 20261127);
    struct rng r = rng_make(test_seed(), 0);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < DIM; j++)
            rows[i][j] = rng_normal(&r);
    const double exact = test_graph("IVF3000,SQ8", 0.5); /* no graph: the nearest lists are visited */
    test_graph("IVF3000_HNSW16,SQ8", exact - 0.06);
    test_graph("IVF3000_HNSW4,Flat", exact - 0.2);
    return test_done();
}
