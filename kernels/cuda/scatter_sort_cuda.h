/* scatter_sort_cuda.h -- pairs of a key and an item, sorted by key in a stable order. scatter_sort_cuda.cu alone
 * includes CUB's sort, whose headers take longer to compile than most kernels. */
#pragma once
#include "kernels/cuda/cuda.cuh"

struct scatter_plan { /* in the device's scratch memory */
    uint32_t *key, *key_sorted;
    int32_t *item, *item_sorted;
    void *temporary;
    size_t temporary_bytes;
    int64_t n;
    int bits;
};

/* Allocates scratch memory for n items of `keys` keys, and *more of `more_bytes`. The key `keys` marks an item that is
 * left out. */
scatter_plan scatter_allocate(struct device *dev, int64_t n, int64_t keys, void **more, size_t more_bytes);

/* Sorts plan.key and plan.item. */
void scatter_sort(struct device *dev, const char *op, scatter_plan plan);
