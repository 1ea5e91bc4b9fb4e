/* device_nocuda.c -- stands in for device_cuda.cu in a build without CUDA. */
#include "kernels/device/device_internal.h"

enum status device_open_cuda(struct device **out, int threads) {
    (void)out;
    (void)threads;
    return fail(STATUS_UNSUPPORTED, "no GPU support: this program was built without CUDA (install the CUDA toolkit and "
                                    "configure with -DDRT_CUDA=ON, or use --device cpu)");
}

void device_warm_cuda(void) {}

bool device_built_cuda(void) {
    return false;
}

enum status device_open_cuda_number(struct device **out, int number, int threads) {
    (void)number;
    return device_open_cuda(out, threads);
}

int device_count_cuda(void) {
    return 0;
}
