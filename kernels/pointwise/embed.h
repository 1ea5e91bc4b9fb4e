/* embed.h -- rows of the embedding table: x[r] = table[ids[r]]; a negative id reads row pad_id (model.md §1.5). */
#pragma once
#include "kernels/device/device.h"

struct embed_ops {
    void (*forward)(struct device *dev, struct mat x, struct mat table, const int32_t *ids, int32_t pad_id);
    /* dtable[ids[r]] += dx[r], float32, in the order of rows; ids that are negative or pad_id get nothing
     * (model.md §6.3). */
    void (*backward)(struct device *dev, struct mat dtable, struct mat dx, const int32_t *ids, int32_t pad_id);
};
extern const struct embed_ops embed_cpu;
