/* launch_cuda.cuh -- launches with an attribute: programmatic dependent launch, and clusters. On GPUs before Hopper
 * both are ordinary launches. */
#pragma once
#include "kernels/cuda/cuda.cuh"

/* As launch (cuda.cuh), with an attribute; NULL: without. */
template <typename... Parameters, typename... Arguments>
static void launch_attribute(struct device *dev, const char *op, void (*kernel)(Parameters...),
                             cudaLaunchAttribute *attribute, dim3 grid, dim3 block, size_t shared_bytes,
                             Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared_bytes;
    config.stream = device_cuda_stream(dev);
    config.attrs = attribute, config.numAttrs = attribute != NULL;
    (void)cudaLaunchKernelEx(&config, kernel, (Parameters)arguments...);
    device_cuda_check(dev, op);
}

/* Programmatic dependent launch: the kernel starts before the previous kernel of the stream has ended, so its launch
 * and its prologue overlap that kernel. It calls launch_wait before it reads what the previous kernel writes, or writes
 * what that one reads. The previous kernel must call launch_next. */
template <typename... Parameters, typename... Arguments>
static void launch_dependent(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                             size_t shared_bytes, Arguments... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    launch_attribute(dev, op, kernel, device_cuda_architecture(dev) >= 90 ? &early : NULL, grid, block, shared_bytes,
                     arguments...);
}
static __device__ __forceinline__ void launch_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void launch_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Launches clusters of `cluster` thread blocks along x; 1: without clusters. */
template <typename... Parameters, typename... Arguments>
static void launch_clusters(struct device *dev, const char *op, void (*kernel)(Parameters...), int cluster, dim3 grid,
                            dim3 block, size_t shared_bytes, Arguments... arguments) {
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim.x = (unsigned)cluster, together.val.clusterDim.y = 1, together.val.clusterDim.z = 1;
    launch_attribute(dev, op, kernel, cluster > 1 ? &together : NULL, grid, block, shared_bytes, arguments...);
}
