/* landmark_source.h -- where an index in memory of a device gets its rows from: a store, or anything else that can give them. */
#pragma once
#include "kernels/device/device.h"
#include "store/store.h"

struct landmark_source {
    int64_t rows;
    int dim;
    /* Rows first .. first + to.rows - 1 into `to`, memory of the device, of landmark_source_type, dense; in the order of ops.
     * Asked for any rows in any order, and more than once: the same each time. */
    enum status (*read)(void *context, struct device *dev, struct mat to, int64_t first);
    void *context;
    struct store_dropped dropped;        /* ids between those of the rows: row r is chunk store_dropped_nth(dropped, r) */
};
/* All rows of a view, in the order of chunk ids, without dropped ones. Valid as long as the view. */
struct landmark_source landmark_source_of(struct store_view *view);
/* fp16 as stored on a GPU, where ops read it at the speed of its memory; float32 on the CPU, whose ops take no other. */
static inline enum dtype landmark_source_type(const struct device *dev) { return dev->shares_memory ? DTYPE_F32 : DTYPE_F16; }
static inline uint64_t landmark_source_bytes(const struct landmark_source *s, const struct device *dev) {
    return (uint64_t)s->rows * (uint64_t)s->dim * (uint64_t)dtype_bytes(landmark_source_type(dev));
}
/* Memory for all rows, with `reserve` bytes besides for what the program does next; STATUS_NO_MEMORY when that is not there, or
 * rows are more than ops count. */
enum status landmark_source_allocate(struct mat *out, const struct landmark_source *s, struct device *dev, uint64_t reserve);
