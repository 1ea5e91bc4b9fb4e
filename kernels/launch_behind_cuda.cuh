/* launch_behind_cuda.cuh -- a kernel that is there before the one in front of it has ended, so that neither its launch nor what it
 * prepares costs time: it calls launch_wait before it looks at anything that is made there, or writes what is read there. On GPUs
 * before Hopper it is launched as any other. */
#pragma once
#include "kernels/cuda.cuh"

/* As launch (cuda.cuh). The kernel in front is one that calls launch_next. */
template <typename... Parameters, typename... Arguments>
static void launch_behind(struct device *dev, const char *op, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                          size_t shared_bytes, Arguments... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid, how.blockDim = block, how.dynamicSmemBytes = shared_bytes, how.stream = device_cuda_stream(dev);
    how.attrs = &early, how.numAttrs = device_cuda_architecture(dev) >= 90;
    (void)cudaLaunchKernelEx(&how, kernel, (Parameters)arguments...);
    device_cuda_check(dev, op);
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
