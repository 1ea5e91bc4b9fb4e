/* device_search.h -- what the searches on a device share: the source of their rows, and the buffer of their hits. */
#pragma once
#include "kernels/device/device.h"
#include "store/store.h"

struct landmark_source {
    int64_t rows;
    int dim;
    /* Rows first .. first + to.rows - 1 into `to`, dense memory of the device of landmark_source_type, in the
     * order of ops. Any rows, in any order, more than once: the same each time. */
    enum status (*read)(void *context, struct device *dev, struct mat to, int64_t first);
    void *context;
    struct store_dropped dropped; /* ids between those of the rows: row r is chunk store_dropped_nth(dropped, r) */
};
/* All rows of a view, in the order of chunk ids, without dropped ones. Valid as long as the view. */
struct landmark_source landmark_source_of(struct store_view *view);
/* fp16 as stored on a GPU, where ops read it at the speed of its memory; float32 on the CPU, whose ops take no
 * other. */
static inline enum dtype landmark_source_type(const struct device *dev) {
    return dev->shares_memory ? DTYPE_F32 : DTYPE_F16;
}
static inline uint64_t landmark_source_bytes(const struct landmark_source *s, const struct device *dev) {
    return (uint64_t)s->rows * (uint64_t)s->dim * (uint64_t)dtype_bytes(landmark_source_type(dev));
}
/* Memory for all rows; STATUS_NO_MEMORY when it is not there, when it would not leave `reserve` bytes for what the
 * program does next, or when there are more rows than ops count. */
enum status landmark_source_allocate(struct mat *out, const struct landmark_source *s, struct device *dev,
                                     uint64_t reserve);

/* ids and scores of hits in one block of memory, so that one copy fetches both. score follows index. */
struct hit_list { int64_t *index; float *score; };
/* Zeroed: empty. host: this process's memory; device: the device's, NULL where memory is shared; mapped: `host` as
 * the device may write it, or NULL. */
struct hit_buffer { void *host, *device, *mapped; int64_t capacity; };

/* Capacity for `count` hits at least; its contents are lost when it has to grow. */
enum status hit_buffer_reserve(struct hit_buffer *b, struct device *dev, int64_t count);
/* an empty one is fine, and is what it leaves */
void hit_buffer_release(struct hit_buffer *b, struct device *dev);

static inline size_t hit_list_bytes(int64_t count) { return (size_t)count * (sizeof(int64_t) + sizeof(float)); }
static inline struct hit_list hit_list_in(void *memory, int64_t count) {
    return (struct hit_list){(int64_t *)memory, (float *)(void *)((int64_t *)memory + count)};
}
static inline struct hit_list hit_buffer_host(const struct hit_buffer *b, int64_t count) {
    return hit_list_in(b->host, count);
}
static inline struct hit_list hit_buffer_device(const struct hit_buffer *b, const struct device *dev, int64_t count) {
    return hit_list_in(device_side(dev, b->host, b->device), count);
}
/* For an op that writes each hit once: this process's memory where the device can write it, else as hit_buffer_device.
 * device_fetch to hit_buffer_host copies either. */
static inline struct hit_list hit_buffer_mapped(const struct hit_buffer *b, const struct device *dev, int64_t count) {
    return b->mapped ? hit_list_in(b->mapped, count) : hit_buffer_device(b, dev, count);
}
