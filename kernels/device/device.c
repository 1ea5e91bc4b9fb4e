/* device.c -- views of matrices, and the calls that every kind of device shares. */
#include "kernels/device/device.h"
#include "kernels/device/device_internal.h"
#include <assert.h>
#include <string.h>

struct mat mat_dense(void *data, enum dtype type, int64_t rows, int64_t cols) {
    return (struct mat){.data = data, .type = type, .rows = rows, .cols = cols, .stride = cols};
}

struct mat mat_f32(const float *data, int64_t rows, int64_t cols) {
    return mat_dense((float *)data, DTYPE_F32, rows, cols);
}

static void *device_moved(struct mat m, int64_t elements) {
    return m.data ? (unsigned char *)m.data + elements * dtype_bytes(m.type) : NULL;
}

struct mat mat_rows(struct mat m, int64_t first, int64_t rows) {
    assert(first >= 0 && rows >= 0 && first + rows <= m.rows);
    m.data = device_moved(m, first * m.stride);
    m.rows = rows;
    return m;
}

struct mat mat_cols(struct mat m, int64_t first, int64_t cols) {
    assert(first >= 0 && cols >= 0 && first + cols <= m.cols);
    m.data = device_moved(m, first);
    m.cols = cols;
    return m;
}

enum status device_open(struct device **out, const char *kind, int threads) {
    if (strcmp(kind, "cpu") == 0) return device_open_cpu(out, threads);
    if (strcmp(kind, "cuda") == 0) return device_open_cuda(out, threads);
    return fail(STATUS_UNSUPPORTED, "device \"%s\" is unknown: use cpu or cuda", kind);
}

void device_warm(const char *kind) {
    if (strcmp(kind, "cpu") != 0) device_warm_cuda();
}

bool device_built(const char *kind) {
    return strcmp(kind, "cpu") == 0 || (strcmp(kind, "cuda") == 0 && device_built_cuda());
}

void device_close(struct device *dev) {
    if (dev) dev->runtime->close(dev);
}

enum status device_sync(struct device *dev) {
    return dev->runtime->sync(dev);
}

enum status device_fault(struct device *dev) {
    return dev->runtime->fault(dev);
}

enum status device_allocate_bytes(struct device *dev, void **out, size_t bytes) {
    return dev->runtime->allocate(dev, out, bytes);
}

void device_release(struct device *dev, void *memory) {
    if (memory) dev->runtime->release(dev, memory);
}

enum status device_allocate_host_bytes(struct device *dev, void **out, size_t bytes) {
    return dev->runtime->allocate_host(dev, out, bytes);
}

void device_release_host(struct device *dev, void *memory) {
    if (memory) dev->runtime->release_host(dev, memory);
}

void *device_reach(struct device *dev, void *memory) {
    return dev->runtime->reach ? dev->runtime->reach(dev, memory) : memory;
}

enum status device_buffer(struct device *dev, void **out, size_t bytes) {
    *out = NULL;
    return dev->shares_memory ? STATUS_OK : device_allocate_bytes(dev, out, bytes);
}

void device_upload(struct device *dev, void *to, const void *from, size_t bytes) {
    if (bytes && to != from) dev->runtime->upload(dev, to, from, bytes);
}

void device_download(struct device *dev, void *to, const void *from, size_t bytes) {
    if (bytes && to != from) dev->runtime->download(dev, to, from, bytes);
}

void device_send(struct device *dev, void *to, const void *from, size_t bytes) {
    if (!dev->runtime->send)
        device_upload(dev, to, from, bytes);
    else if (bytes && to != from)
        dev->runtime->send(dev, to, from, bytes);
}

void device_send_wait(struct device *dev) {
    if (dev->runtime->send_wait) dev->runtime->send_wait(dev);
}

void device_fetch(struct device *dev, void *to, const void *from, size_t bytes) {
    if (!dev->runtime->fetch)
        device_download(dev, to, from, bytes);
    else if (bytes)
        dev->runtime->fetch(dev, to, from, bytes);
}

void device_fetch_wait(struct device *dev) {
    if (dev->runtime->fetch_wait) dev->runtime->fetch_wait(dev);
}

void device_copy(struct device *dev, void *to, const void *from, size_t bytes) {
    if (bytes) dev->runtime->copy(dev, to, from, bytes);
}

void device_copy_rows(struct device *dev, struct mat to, struct mat from) {
    assert(to.rows == from.rows && to.cols == from.cols && to.type == from.type);
    if (to.rows && to.cols) dev->runtime->copy_rows(dev, to, from);
}

void device_clear(struct device *dev, void *memory, size_t bytes) {
    if (bytes) dev->runtime->clear(dev, memory, bytes);
}

void device_replay_run(struct device *dev, struct device_replay **replay, device_ops *body, void *context) {
    if (dev->runtime->replay)
        dev->runtime->replay(dev, replay, body, context);
    else
        body(context, dev);
}

void device_replay_free(struct device *dev, struct device_replay *replay) {
    if (replay) dev->runtime->replay_free(replay);
}

struct device *device_worker(struct device *dev, int worker) {
    return dev->runtime->worker(dev, worker);
}
