/* collective_nonccl.c -- stands in for collective_cuda.cu in a CUDA build on a machine without nccl.h. */
#include "kernels/device/device_internal.h"

static enum status collective_nonccl_refuse(void) {
    return fail(STATUS_UNSUPPORTED,
                "this program was built without NCCL: install its header and configure anew, or train "
                "with one process");
}

static enum status collective_nonccl_identity(uint8_t out[128]) {
    (void)out;
    return collective_nonccl_refuse();
}

static enum status collective_nonccl_join(void **peers, struct device *dev, const uint8_t id[128], int rank,
                                          int world) {
    (void)peers, (void)dev, (void)id, (void)rank, (void)world;
    return collective_nonccl_refuse();
}

static enum status collective_nonccl_sum(void *peers, struct device *dev, float *x, int64_t n) {
    (void)peers, (void)dev, (void)x, (void)n;
    return collective_nonccl_refuse();
}

static void collective_nonccl_leave(void *peers) {
    (void)peers;
}

extern const struct device_peers device_peers_cuda;
const struct device_peers device_peers_cuda = {.identity = collective_nonccl_identity,
                                               .join = collective_nonccl_join,
                                               .sum = collective_nonccl_sum,
                                               .leave = collective_nonccl_leave};
