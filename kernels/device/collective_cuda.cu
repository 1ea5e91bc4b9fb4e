/* collective_cuda.cu -- GPUs that train together sum through NCCL, on the device's own stream.
 *
 * NCCL is loaded when it is first used, so that a program on one GPU needs no NCCL; its header gives the types. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/library_cuda.cuh"
#include <nccl.h>
#include <string.h>
extern "C" {
#include "base/memory.h"
#include "kernels/device/device_internal.h"
}

static_assert(sizeof(ncclUniqueId) == 128, "device_peers hands over 128 bytes");

struct nccl {
    decltype(&ncclGetUniqueId) get_identity;
    decltype(&ncclCommInitRank) init;
    decltype(&ncclAllReduce) all_reduce;
    decltype(&ncclCommGetAsyncError) async_error;
    decltype(&ncclCommDestroy) destroy;
    decltype(&ncclGetErrorString) text;
};

struct peers {
    struct nccl nccl;
    ncclComm_t communicator;
};

static enum status load(struct nccl *out) {
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL); /* stays open as long as the program */
    if (!library)
        return fail(STATUS_UNSUPPORTED,
                    "NCCL was not found (%s): install it or put its folder into LD_LIBRARY_PATH, or train "
                    "with one process",
                    dlerror());
    const struct library_symbol symbols[] = {
        {"ncclGetUniqueId", (void **)&out->get_identity}, {"ncclCommInitRank", (void **)&out->init},
        {"ncclAllReduce", (void **)&out->all_reduce},     {"ncclCommGetAsyncError", (void **)&out->async_error},
        {"ncclCommDestroy", (void **)&out->destroy},      {"ncclGetErrorString", (void **)&out->text},
    };
    return library_symbols(library, symbols, ARRAY_LEN(symbols), "libnccl.so.2", "it is too old");
}

static enum status failed(const struct nccl *n, const char *what, ncclResult_t result) {
    return fail(STATUS_IO, "NCCL: %s: %s", what, n->text(result));
}

static enum status identity(uint8_t out[128]) {
    struct nccl n;
    TRY(load(&n));
    ncclUniqueId id;
    ncclResult_t result = n.get_identity(&id);
    if (result != ncclSuccess) return failed(&n, "identity", result);
    memcpy(out, &id, sizeof id);
    return STATUS_OK;
}

static void leave(void *peers) {
    struct peers *p = (struct peers *)peers;
    if (p->communicator) (void)p->nccl.destroy(p->communicator);
    memory_free(p);
}

static enum status join(void **out, struct device *dev, const uint8_t id[128], int rank, int world) {
    (void)dev; /* its GPU is the process' current one */
    struct peers *p = NULL;
    TRY(memory_allocate_zero(&p, 1));
    enum status s = load(&p->nccl);
    if (s == STATUS_OK) {
        ncclUniqueId whole;
        memcpy(&whole, id, sizeof whole);
        ncclResult_t result = p->nccl.init(&p->communicator, world, whole, rank);
        if (result != ncclSuccess) s = failed(&p->nccl, "joining", result);
    }
    if (s != STATUS_OK) {
        leave(p);
        return s;
    }
    *out = p;
    return STATUS_OK;
}

static enum status sum(void *peers, struct device *dev, float *x, int64_t n) {
    struct peers *p = (struct peers *)peers;
    ncclResult_t result =
        p->nccl.all_reduce(x, x, (size_t)n, ncclFloat, ncclSum, p->communicator, device_cuda_stream(dev));
    if (result != ncclSuccess) return failed(&p->nccl, "sum", result);
    ncclResult_t earlier = ncclSuccess;
    result = p->nccl.async_error(p->communicator, &earlier);
    if (result == ncclSuccess) result = earlier;
    return result == ncclSuccess ? STATUS_OK : failed(&p->nccl, "sum", result);
}

extern "C" const struct device_peers device_peers_cuda = {
    .identity = identity, .join = join, .sum = sum, .leave = leave};
