/* scatter_sort_cuda.cu -- CUB's radix sort of pairs, which is stable. */
#include "kernels/cuda/scatter_sort_cuda.h"
#include <cub/device/device_radix_sort.cuh>
#include <limits.h>

scatter_plan scatter_allocate(struct device *dev, int64_t n, int64_t keys, void **more, size_t more_bytes) {
    scatter_plan p = {};
    assert(n <= INT_MAX && keys < UINT_MAX);
    p.n = n;
    while ((uint64_t)keys >> p.bits)
        p.bits++;
    (void)cub::DeviceRadixSort::SortPairs(NULL, p.temporary_bytes, p.key, p.key_sorted, p.item, p.item_sorted, (int)n,
                                          0, p.bits);
    size_t each = ((size_t)n * 4 + 255) / 256 * 256;
    unsigned char *at = (unsigned char *)device_cuda_scratch(dev, 4 * each + p.temporary_bytes + 256 + more_bytes);
    p.key = (uint32_t *)(void *)at;
    p.key_sorted = (uint32_t *)(void *)(at + each);
    p.item = (int32_t *)(void *)(at + 2 * each);
    p.item_sorted = (int32_t *)(void *)(at + 3 * each);
    p.temporary = at + 4 * each;
    if (more) *more = at + 4 * each + (p.temporary_bytes + 255) / 256 * 256;
    return p;
}

void scatter_sort(struct device *dev, const char *op, scatter_plan plan) {
    cudaError_t error =
        cub::DeviceRadixSort::SortPairs(plan.temporary, plan.temporary_bytes, plan.key, plan.key_sorted, plan.item,
                                        plan.item_sorted, (int)plan.n, 0, plan.bits, device_cuda_stream(dev));
    if (error != cudaSuccess) device_cuda_fault(dev, op, cudaGetErrorString(error));
    device_cuda_check(dev, op);
}
