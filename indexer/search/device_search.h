/* device_search.h -- used by all searches on a device: the source of their rows, and the buffer for their hits. */
#pragma once
#include "kernels/device/device_pair.h"
#include "kernels/search/ivf_scan.h"
#include "store/store.h"
#include <pthread.h>

struct landmark_source {
    int64_t rows;
    int64_t first;                       /* for a slice: row 0 is row `first` of the rows that `read` reads */
    int dim;
    /* Copies rows first .. first + to.rows - 1 into `to`, dense device memory of landmark_source_type, in the order of
     * ops. Any rows may be read, in any order and repeatedly, and are the same each time. */
    enum status (*read)(void *context, struct device *dev, struct mat to, int64_t first);
    /* The same into memory of this process, by several threads at a time, which give the same lock; NULL: only `read`
     * is there. */
    enum status (*copy)(void *context, pthread_mutex_t *lock, struct mat to, int64_t first);
    void *context;
    /* ids without a row: row r is chunk store_dropped_nth(dropped, first + r) */
    struct store_dropped dropped;
};
/* All rows of a view, in the order of chunk ids, without dropped ones. Valid while the view is open. */
struct landmark_source landmark_source_of(struct store_view *view);
/* Cuts the rows into n ranges of equal size, and returns range i, counted from 0. */
struct landmark_source landmark_source_slice(const struct landmark_source *s, int i, int n);
/* Reads rows at .. at + to.rows - 1 of the source by its function `read`. */
static inline enum status landmark_source_rows(const struct landmark_source *s, struct device *dev, struct mat to,
                                               int64_t at) {
    return s->read(s->context, dev, to, s->first + at);
}
/* fp16 as stored on a GPU, where ops read it at the speed of its memory; float32 on the CPU, whose ops
 * accept only float32. */
static inline enum dtype landmark_source_type(const struct device *dev) {
    return dev->shares_memory ? DTYPE_F32 : DTYPE_F16;
}
static inline uint64_t landmark_source_bytes(const struct landmark_source *s, const struct device *dev) {
    return (uint64_t)s->rows * (uint64_t)s->dim * (uint64_t)dtype_bytes(landmark_source_type(dev));
}
/* Allocates memory for all rows. STATUS_NO_MEMORY: it is not available, it would not leave `reserve` bytes free, or
 * there are more rows than ops can count. */
enum status landmark_source_allocate(struct mat *out, const struct landmark_source *s, struct device *dev,
                                     uint64_t reserve);

/* An index in device memory as the ops of a hybrid search read it (kernels/lexical/hybrid.h). */
struct landmark_lists {
    struct ivf_scan_lists lists;         /* of all rows; ids are chunks */
    int nprobe;                          /* lists that a query scans */
    const int32_t *row_of;               /* [chunks]: the row of each, -1: none; NULL: chunk c has row c */
    int64_t chunks;
};
/* Allocates row_of, device memory, from the chunk of each row, in memory of this process. */
enum status landmark_rows_of(struct device *dev, int32_t **row_of, const int32_t *chunk_of, int64_t rows,
                             int64_t chunks);

/* Ids and scores of hits in one block of memory, so that one copy fetches both. `score` follows `index`. */
struct hit_list { int64_t *index; float *score; };
/* Zeroed: empty. mapped: the address at which the device may write pair.host, or NULL. */
struct hit_buffer { struct device_pair pair; void *mapped; int64_t capacity; };

/* Makes the capacity at least `count` hits. The contents are lost if it grows. */
enum status hit_buffer_reserve(struct hit_buffer *b, struct device *dev, int64_t count);
/* an empty one is fine; afterwards it is empty */
void hit_buffer_release(struct hit_buffer *b, struct device *dev);

static inline size_t hit_list_bytes(int64_t count) { return (size_t)count * (sizeof(int64_t) + sizeof(float)); }
static inline struct hit_list hit_list_in(void *memory, int64_t count) {
    return (struct hit_list){(int64_t *)memory, (float *)(void *)((int64_t *)memory + count)};
}
static inline struct hit_list hit_buffer_host(const struct hit_buffer *b, int64_t count) {
    return hit_list_in(b->pair.host, count);
}
static inline struct hit_list hit_buffer_device(const struct hit_buffer *b, int64_t count) {
    return hit_list_in(b->pair.device, count);
}
/* For an op that writes each hit once: memory of this process if the device can write it, otherwise as
 * hit_buffer_device. device_fetch to hit_buffer_host copies either. */
static inline struct hit_list hit_buffer_mapped(const struct hit_buffer *b, int64_t count) {
    return hit_list_in(b->mapped ? b->mapped : b->pair.device, count);
}
