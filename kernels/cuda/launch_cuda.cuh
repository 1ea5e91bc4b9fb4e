/* launch_cuda.cuh -- launches with more said than grid and block: behind, in clusters. On GPUs before Hopper both are launched as
 * any other. */
#pragma once
#include "kernels/cuda/cuda.cuh"

/* As launch (cuda.cuh), with an attribute; `has`: or without. */
template <typename... Parameters, typename... Arguments>
static void launch_with(struct device *dev, const char *op, void (*kernel)(Parameters...), cudaLaunchAttribute attribute, bool has,
                        dim3 grid, dim3 block, size_t shared_bytes, Arguments... arguments) {
    cudaLaunchConfig_t how = {};
    how.gridDim = grid, how.blockDim = block, how.dynamicSmemBytes = shared_bytes, how.stream = device_cuda_stream(dev);
    how.attrs = &attribute, how.numAttrs = has;
    (void)cudaLaunchKernelEx(&how, kernel, (Parameters)arguments...);
    device_cuda_check(dev, op);
}

/* A kernel that is there before the one in front of it has ended, so that neither its launch nor what it prepares costs time: it
 * calls launch_wait before it looks at anything that is made there, or writes what is read there. The kernel in front is one that
 * calls launch_next. */
template <typename... Parameters, typename... Arguments>
static void launch_behind(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                          size_t shared_bytes, Arguments... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    launch_with(dev, op, kernel, early, device_cuda_architecture(dev) >= 90, grid, block, shared_bytes, arguments...);
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

/* Blocks of `cluster` along x work together; 1: each for itself. */
template <typename... Parameters, typename... Arguments>
static void launch_clusters(struct device *dev, const char *op, void (*kernel)(Parameters...), int cluster, dim3 grid, dim3 block,
                            size_t shared_bytes, Arguments... arguments) {
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim.x = (unsigned)cluster, together.val.clusterDim.y = 1, together.val.clusterDim.z = 1;
    launch_with(dev, op, kernel, together, cluster > 1, grid, block, shared_bytes, arguments...);
}
