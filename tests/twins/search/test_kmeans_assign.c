/* test_kmeans_assign.c -- sums in the order of points, splits in order, lengths of 1, scattered rows; and the centroids
 * that k-means finds with them. */
#include "kernels/search/kmeans.h"
#include "tests/twins/twins.h"

static void sums(int64_t n, int64_t lists, int64_t d) {
    float *x = random_array(n * d, 1.0f), *naive = zero_array(lists * d), *out[DEVICES];
    double *ref = double_array(lists * d);
    int64_t *list = malloc((size_t)(n + 1) * sizeof *list);
    int32_t *counts = calloc((size_t)lists, sizeof *counts), *found = malloc((size_t)lists * sizeof *found);
    for (int64_t i = 0; i < n; i++) {
        list[i] = (int64_t)rng_below(&twin_rng, (uint64_t)lists + 1) - 1;
        if (list[i] < 0) continue;
        counts[list[i]]++;
        for (int64_t j = 0; j < d; j++) {
            ref[list[i] * d + j] += (double)x[i * d + j];
            naive[list[i] * d + j] += x[i * d + j];
        }
    }
    for (int i = 0; i < DEVICES; i++) {
        struct guarded from = guarded_make(n, d, x), to = guarded_make(lists, d, NULL);
        out[i] = zero_array(lists * d);
        memset(found, 255, (size_t)lists * sizeof *found);
        twin_device[i]->ops->kmeans_assign->sums(twin_device[i], to.m, found, from.m, list);
        guarded_take(out[i], &to), guarded_drop(&from);
        CHECK(memcmp(counts, found, (size_t)lists * sizeof *found) == 0);
        CHECK_TWIN(out[i], naive, ref, lists * d);
    }
    CHECK_BITS(out[0], out[1], lists * d);
    for (int i = 0; i < DEVICES; i++)
        free(out[i]);
    free(x), free(naive), free(ref), free(list), free(counts), free(found);
}

static void rows(int64_t n, int64_t d) {
    float *x = random_array(n * d, 3.0f), *naive = zero_array(n * d), *out = zero_array(2 * n * d);
    double *ref = double_array(n * d);
    for (int64_t j = 0; j < d; j++)
        x[j] = 0; /* row 0 has length 0 */
    for (int64_t r = 0; r < n; r++) {
        double square = 0;
        float sum = 0;
        for (int64_t j = 0; j < d; j++)
            square += (double)x[r * d + j] * (double)x[r * d + j], sum += x[r * d + j] * x[r * d + j];
        for (int64_t j = 0; j < d && r > 0; j++)
            ref[r * d + j] = (double)x[r * d + j] / sqrt(square), naive[r * d + j] = x[r * d + j] / sqrtf(sum);
    }
    int64_t *row = malloc((size_t)n * sizeof *row);
    for (int64_t r = 0; r < n; r++)
        row[r] = 2 * ((r * 7 + 3) % n); /* n is not a multiple of 7 */
    const int32_t pairs[2][2] = {{0, 1}, {2, 1}};
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        struct guarded from = guarded_make(n, d, x), to = guarded_make(n, d, NULL), wide = guarded_make(2 * n, d, out);
        dev->ops->kmeans_assign->unit(dev, to.m, from.m);
        dev->ops->kmeans_assign->unit(dev, from.m, from.m); /* in place */
        for (int64_t r = 0; r < n; r++)
            CHECK(memcmp(mat_row(to.m, r), mat_row(from.m, r), (size_t)d * sizeof(float)) == 0);
        guarded_take(out, &to);
        CHECK_TWIN(out, naive, ref, n * d);
        dev->ops->kmeans_assign->scatter_rows(dev, wide.m, from.m, row);
        for (int64_t r = 0; r < n; r++)
            CHECK(memcmp(mat_row(wide.m, row[r]), mat_row(from.m, r), (size_t)d * sizeof(float)) == 0);
        guarded_drop(&from), guarded_drop(&wide);
        struct guarded s = guarded_make(n, d, x);
        dev->ops->kmeans_assign->split(dev, s.m, pairs, 2);
        const float up = 1.0f + 1.0f / 1024, down = 1.0f - 1.0f / 1024;
        for (int64_t j = 0; j < d; j++) {
            float more = j % 2 ? down : up, less = j % 2 ? up : down, once = x[d + j] * less;
            CHECK(mat_row(s.m, 0)[j] == x[d + j] * more);
            CHECK(mat_row(s.m, 2)[j] == once * more);
            CHECK(mat_row(s.m, 1)[j] == once * less);
        }
        guarded_drop(&s);
    }
    free(x), free(naive), free(ref), free(row), free(out);
}

/* Points around well separated directions: each direction gets centroids of its own. */
static void finds_clusters(void) {
    enum { N = 3000, D = 40, TRUE_CLUSTERS = 12, LISTS = 60 };
    float *x = zero_array(N * D), *out[DEVICES];
    struct rng rng = rng_make(3, 0); /* fixed, not the test's seed: a draw can miss a direction */
    for (int64_t i = 0; i < N * D; i++)
        x[i] = 0.05f * rng_normal(&rng);
    for (int64_t i = 0; i < N; i++)
        x[i * D + i % TRUE_CLUSTERS * 3] += 1.0f + 0.1f * (float)(i % 5);
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        out[i] = zero_array(LISTS * D);
        struct mat centroids = mat_f32(out[i], LISTS, D);
        const struct kmeans_config how = {.seed = 5};
        CHECK_OK(kmeans_fit(dev, centroids, mat_f32(x, N, D), &how));
        for (int64_t l = 0; l < LISTS; l++) {
            double square = 0;
            for (int64_t j = 0; j < D; j++)
                square += (double)out[i][l * D + j] * (double)out[i][l * D + j];
            CHECK(fabs(square - 1) < 1e-5);
        }
        int64_t list[N], visible[N];
        static float score[N];
        bool pure[LISTS] = {false};
        int of[LISTS];
        for (int64_t p = 0; p < N; p++)
            visible[p] = LISTS;
        kmeans_assign(dev, list, score, mat_f32(x, N, D), centroids, visible);
        for (int64_t p = 0; p < N; p++) { /* no list has points of two directions */
            CHECK(list[p] >= 0 && list[p] < LISTS);
            if (pure[list[p]]) CHECK_EQ(of[list[p]], p % TRUE_CLUSTERS);
            pure[list[p]] = true;
            of[list[p]] = (int)(p % TRUE_CLUSTERS);
        }
    }
    CHECK_BITS(out[0], out[1], LISTS * D);
    for (int i = 0; i < DEVICES; i++)
        free(out[i]);
    free(x);
}

static bool at_once(void *context) {
    return ++*(int *)context > 2;
}

/* As many lists as points, equal points, more points than the sample, and a stop. */
static void edges(void) {
    enum { N = 700, D = 8 };
    float *x = random_array(N * D, 1.0f), *out = zero_array(N * D);
    const struct kmeans_config how = {.seed = 1, .iterations = 3};
    CHECK_OK(kmeans_fit(twin_device[1], mat_f32(out, N, D), mat_f32(x, N, D), &how));
    CHECK_OK(kmeans_fit(twin_device[1], mat_f32(out, 1, D), mat_f32(x, N, D), &how));
    CHECK_OK(kmeans_fit(twin_device[1], mat_f32(out, 2, D), mat_f32(x, N, D), &how));
    for (int64_t i = D; i < N * D; i++)
        x[i] = x[i % D];
    CHECK_OK(kmeans_fit(twin_device[1], mat_f32(out, 50, D), mat_f32(x, N, D), &how));
    for (int64_t i = 0; i < 50 * D; i++)
        CHECK(isfinite(out[i]));
    int asked = 0;
    const struct kmeans_config stopped = {.seed = 1, .stop = at_once, .context = &asked};
    CHECK_FAILS(kmeans_fit(twin_device[1], mat_f32(out, 50, D), mat_f32(x, N, D), &stopped), STATUS_INTERRUPTED,
                "stopped");
    free(x), free(out);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    sums(1, 1, 8);
    sums(500, 7, 33);
    sums(3000, 100, 130);
    sums(0, 3, 16);
    rows(10, 16);
    rows(71, 50);
    rows(3, 1);
    finds_clusters();
    edges();
    return twins_close();
}
