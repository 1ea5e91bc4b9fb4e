/* clustering.c -- see clustering.h. */
#include "indexer/search/clustering.h"
#include "base/half.h"
#include "base/memory.h"
#include "kernels/search/kmeans.h"
#include <stdio.h>

enum { SEED = 1234, BLOCK_FLOATS = 1 << 20 };

/* Copies rows to a device that does not share memory: as fp16, block by block. */
static enum status clustering_upload(struct device *dev, struct mat to, const float *rows) {
    uint16_t *block;
    int64_t count = to.rows * to.cols;
    TRY(memory_allocate(&block, BLOCK_FLOATS));
    for (int64_t at = 0; at < count; at += BLOCK_FLOATS) {
        int64_t n = count - at < BLOCK_FLOATS ? count - at : BLOCK_FLOATS;
        half_to_f16_row(block, rows + at, (size_t)n);
        device_upload(dev, (uint16_t *)to.data + at, block, (size_t)n * sizeof *block);
    }
    memory_free(block);
    return device_sync(dev);
}

struct watch {
    const struct progress *progress;
};

static void watch_report(void *context, int iteration, int iterations, int64_t done, int64_t total) {
    const struct watch *w = context;
    char detail[64];
    snprintf(detail, sizeof detail, "k-means iteration %d of %d", iteration, iterations);
    progress_step_detail(w->progress, "train index", detail, "vectors", done, total);
}

static bool watch_stop(void *context) {
    const struct watch *w = context;
    return progress_stop_requested(w->progress);
}

static enum status fit_apart(struct device *dev, float *centroids, struct mat centroids_device, struct mat points,
                             const float *rows, const struct kmeans_config *how) {
    TRY(clustering_upload(dev, points, rows));
    TRY(kmeans_fit(dev, centroids_device, points, how));
    device_download(dev, centroids, centroids_device.data, mat_bytes(centroids_device));
    return device_sync(dev);
}

static enum status clustering_fit(void *context, float *centroids, const float *rows, int64_t n, int dim, int64_t lists,
                                  const struct progress *progress) {
    struct device *dev = context;
    struct watch watch = {progress};
    const struct kmeans_config how = {.seed = SEED, .stop = watch_stop, .report = watch_report, .context = &watch};
    if (dev->shares_memory) return kmeans_fit(dev, mat_f32(centroids, lists, dim), mat_f32(rows, n, dim), &how);
    struct mat centroids_device = mat_dense(NULL, DTYPE_F32, lists, dim), points = mat_dense(NULL, DTYPE_F16, n, dim);
    enum status s;
    TRY_GOTO(s, device_allocate(dev, &centroids_device.data, mat_bytes(centroids_device)), out);
    TRY_GOTO(s, device_allocate(dev, &points.data, (size_t)(n * dim) * sizeof(uint16_t)), out);
    s = fit_apart(dev, centroids, centroids_device, points, rows, &how);
out:
    device_release(dev, points.data);
    device_release(dev, centroids_device.data);
    return s;
}

struct store_clustering clustering_on(struct device *dev) {
    return (struct store_clustering){.fit = clustering_fit, .context = dev};
}
