/* device_cuda.cu -- opens the current GPU: one stream, scratch, cuBLASLt, the table of CUDA twins.
 *
 * A fault of the GPU appears late, at any call, and all later calls fail, too. So the first one is kept, with the op
 * that was launched last, and later faults are ignored until device_sync returns it. */
#include "kernels/cuda/cuda.cuh"
#include <stdio.h>
#include <string.h>
extern "C" {
#include "base/memory.h"
#include "kernels/device/idle_blocks.h"
#include "kernels/linear/blas_library_internal.h"
}

extern "C" {
static const struct ops ops_cuda = {
    .matmul = &matmul_cuda,
    .norm = &norm_cuda,
    .rope = &rope_cuda,
    .attention = &attention_cuda,
    .chunk_attention = &chunk_attention_cuda,
    .gca = &gca_cuda,
    .elementwise = &elementwise_cuda,
    .embed = &embed_cuda,
    .loss = &loss_cuda,
    .topk = &topk_cuda,
    .adamw = &adamw_cuda,
    .kmeans_assign = &kmeans_assign_cuda,
    .ivf_scan = &ivf_scan_cuda,
    .lexical_scan = &lexical_scan_cuda,
    .hybrid = &hybrid_cuda,
    .candidates = &candidates_cuda,
    .token_memory = &token_memory_cuda,
    .next_token = &next_token_cuda,
    .packed_keys = &packed_keys_cuda,
    .pick = &pick_cuda,
    .bert = &bert_cuda,
    .state_gate = &state_gate_cuda,
    .landmark_attention = &landmark_attention_cuda,
};
}

enum { SCRATCH_BYTES = 1 << 30 };
/* Of released memory that is kept: sessions of a server. */
static const size_t IDLE_BYTES = (size_t)4 << 30, IDLE_HOST_BYTES = (size_t)256 << 20;

/* The architecture that the loaded code was compiled for. A build may have code for an older GPU (sm_80's code on a
 * newer one), and then some kernels are empty. So the code's architecture decides, not the GPU's. */
struct code_kind {
    int architecture;
    bool hopper;
};

static __global__ void code_kind_of(struct code_kind *out) {
#if defined(__CUDA_ARCH__)
    *out = {__CUDA_ARCH__ / 10, HOPPER};
#endif
}

struct device_cuda {
    cudaStream_t stream, fetches; /* of ops; of simultaneous downloads */
    cudaEvent_t made, sent;       /* the slot of the next fetch; the end of the last send */
    bool fetching;                /* a copy is in flight in `fetches` */
    void *scratch;
    unsigned *counters;
    struct blas_cuda *blas;
    struct device_rope rope;
    int gpu, processors, shared_bytes;
    struct code_kind code;
    struct idle_blocks idle, idle_host;
    bool host_used; /* ops may still use an idle block of pinned memory */
    char fault[256]; /* "": none yet */
    enum status fault_status;
};

struct device_cuda_memory {
    struct device device;
    struct device_cuda state;
};

static struct device_cuda *state_of(struct device *dev) {
    return (struct device_cuda *)dev->state;
}

cudaStream_t device_cuda_stream(struct device *dev) {
    return state_of(dev)->stream;
}

size_t device_cuda_scratch_bytes(struct device *) {
    return SCRATCH_BYTES;
}

void *device_cuda_scratch(struct device *dev, size_t bytes) {
    assert(bytes <= SCRATCH_BYTES);
    (void)bytes;
    return state_of(dev)->scratch;
}

unsigned *device_cuda_counters(struct device *dev) {
    return state_of(dev)->counters;
}

int device_cuda_processors(struct device *dev) {
    return state_of(dev)->processors;
}

int device_cuda_architecture(struct device *dev) {
    return state_of(dev)->code.architecture;
}

bool device_cuda_hopper(struct device *dev) {
    return state_of(dev)->code.hopper;
}

int device_cuda_shared_bytes(struct device *dev) {
    return state_of(dev)->shared_bytes;
}

struct blas_cuda *device_cuda_blas(struct device *dev) {
    return state_of(dev)->blas;
}

struct device_rope *device_cuda_rope(struct device *dev) {
    return &state_of(dev)->rope;
}

static void keep_fault(struct device *dev, enum status status, const char *op, const char *what) {
    struct device_cuda *s = state_of(dev);
    if (s->fault[0]) return;
    s->fault_status = status;
    if (s->gpu > 0)
        snprintf(s->fault, sizeof s->fault, "GPU %d: %s: %s", s->gpu, op, what);
    else
        snprintf(s->fault, sizeof s->fault, "GPU: %s: %s", op, what);
}

static void keep_error(struct device *dev, const char *op, cudaError_t error) {
    if (error == cudaSuccess) return;
    (void)cudaGetLastError(); /* clears CUDA's own copy, which it would report at the next launch of any device */
    keep_fault(dev, error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_IO, op, cudaGetErrorString(error));
}

void device_cuda_check(struct device *dev, const char *op) {
    keep_error(dev, op, cudaGetLastError());
}

void device_cuda_fault(struct device *dev, const char *op, const char *what) {
    keep_fault(dev, STATUS_IO, op, what);
}

static enum status cuda_fault(struct device *dev) {
    struct device_cuda *s = state_of(dev);
    return s->fault[0] ? fail(s->fault_status, "%s", s->fault) : STATUS_OK;
}

static enum status cuda_sync(struct device *dev) {
    keep_error(dev, "found when waiting", cudaStreamSynchronize(state_of(dev)->stream));
    return cuda_fault(dev);
}

/* The caller handles an allocation that does not fit; it is not a fault of the device. */
static enum status out_of_memory(size_t bytes, cudaError_t error) {
    size_t available = 0, all = 0;
    (void)cudaGetLastError();
    if (error != cudaErrorMemoryAllocation || cudaMemGetInfo(&available, &all) != cudaSuccess)
        return fail(STATUS_IO, "GPU: allocation of %zu bytes: %s", bytes, cudaGetErrorString(error));
    return fail(STATUS_NO_MEMORY, "GPU: %.2f GiB are needed, %.2f of %.2f GiB are free: take a smaller batch or model",
                (double)bytes / (1 << 30), (double)available / (1 << 30), (double)all / (1 << 30));
}

/* Queued ops may still write memory that is freed, and copies may read it. */
static cudaError_t wait_all(const struct device_cuda *s) {
    const cudaError_t error = cudaStreamSynchronize(s->stream), copies = cudaStreamSynchronize(s->fetches);
    return error != cudaSuccess ? error : copies;
}

static void drop_idle(struct device_cuda *s) {
    (void)wait_all(s);
    for (void *memory; (memory = idle_blocks_drop(&s->idle)) != NULL;)
        (void)cudaFree(memory);
    for (void *memory; (memory = idle_blocks_drop(&s->idle_host)) != NULL;)
        (void)cudaFreeHost(memory);
}

static enum status cuda_allocate(struct device *dev, void **out, size_t bytes) {
    struct device_cuda *s = state_of(dev);
    const size_t size = idle_blocks_size(bytes);
    void *memory = idle_blocks_take(&s->idle, size);
    if (!memory) {
        cudaError_t error = cudaMalloc(&memory, size);
        if (error == cudaErrorMemoryAllocation && s->idle.kept > 0) {
            (void)cudaGetLastError();
            drop_idle(s);
            error = cudaMalloc(&memory, size);
        }
        if (error != cudaSuccess) return out_of_memory(bytes, error);
        (void)idle_blocks_add(&s->idle, memory, size); /* else it is freed when it is released */
    }
    keep_error(dev, "clearing new memory", cudaMemsetAsync(memory, 0, bytes ? bytes : 1, s->stream));
    *out = memory;
    return STATUS_OK;
}

/* The next owner's ops come after those that still use the memory, since all are in one stream. cudaFree waits. */
static void cuda_release(struct device *dev, void *memory) {
    struct device_cuda *s = state_of(dev);
    if (s->fetching) keep_error(dev, "release", cudaStreamSynchronize(s->fetches));
    if (!idle_blocks_keep(&s->idle, memory)) keep_error(dev, "release", cudaFree(memory));
}

static enum status cuda_allocate_host(struct device *dev, void **out, size_t bytes) {
    struct device_cuda *s = state_of(dev);
    const size_t size = idle_blocks_size(bytes);
    *out = idle_blocks_take(&s->idle_host, size);
    if (*out && s->host_used) { /* the new owner may write it at once */
        keep_error(dev, "pinned memory", wait_all(s));
        s->host_used = false;
    }
    if (*out) return STATUS_OK;
    cudaError_t error = cudaMallocHost(out, size);
    if (error == cudaSuccess) (void)idle_blocks_add(&s->idle_host, *out, size);
    if (error == cudaSuccess) return STATUS_OK;
    (void)cudaGetLastError();
    return fail(STATUS_NO_MEMORY, "GPU: %zu bytes of pinned memory: %s", bytes, cudaGetErrorString(error));
}

/* Without a wait, so that the end of one text does not delay the others. */
static void cuda_release_host(struct device *dev, void *memory) {
    struct device_cuda *s = state_of(dev);
    s->host_used = true;
    if (idle_blocks_keep(&s->idle_host, memory)) return;
    keep_error(dev, "release of pinned memory", wait_all(s));
    keep_error(dev, "release of pinned memory", cudaFreeHost(memory));
}

static void *cuda_reach(struct device *dev, void *memory) {
    struct cudaPointerAttributes where;
    (void)dev;
    if (cudaPointerGetAttributes(&where, memory) == cudaSuccess)
        return where.type == cudaMemoryTypeHost ? where.devicePointer : NULL;
    (void)cudaGetLastError();
    return NULL;
}

/* Pageable memory is staged before the call returns; pinned memory is not, hence the wait. */
static void cuda_upload(struct device *dev, void *to, const void *from, size_t bytes) {
    struct cudaPointerAttributes where;
    keep_error(dev, "upload", cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, state_of(dev)->stream));
    bool pinned = cudaPointerGetAttributes(&where, from) == cudaSuccess && where.type == cudaMemoryTypeHost;
    if (pinned) keep_error(dev, "upload", cudaStreamSynchronize(state_of(dev)->stream));
}

static void cuda_download(struct device *dev, void *to, const void *from, size_t bytes) {
    keep_error(dev, "download", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, state_of(dev)->stream));
    keep_error(dev, "download", cudaStreamSynchronize(state_of(dev)->stream));
}

static void cuda_send(struct device *dev, void *to, const void *from, size_t bytes) {
    struct device_cuda *s = state_of(dev);
    keep_error(dev, "send", cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, s->stream));
    keep_error(dev, "send", cudaEventRecord(s->sent, s->stream));
}

static void cuda_send_wait(struct device *dev) {
    keep_error(dev, "send", cudaEventSynchronize(state_of(dev)->sent));
}

static void cuda_fetch(struct device *dev, void *to, const void *from, size_t bytes) {
    struct device_cuda *s = state_of(dev);
    keep_error(dev, "fetch", cudaEventRecord(s->made, s->stream));
    if (to == from) return; /* written in place */
    keep_error(dev, "fetch", cudaStreamWaitEvent(s->fetches, s->made, 0));
    keep_error(dev, "fetch", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->fetches));
    s->fetching = true;
}

static void cuda_fetch_wait(struct device *dev) {
    struct device_cuda *s = state_of(dev);
    keep_error(dev, "fetch", cudaEventSynchronize(s->made));
    if (s->fetching) keep_error(dev, "fetch", cudaStreamSynchronize(s->fetches));
    s->fetching = false;
}

static void cuda_copy(struct device *dev, void *to, const void *from, size_t bytes) {
    keep_error(dev, "copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_of(dev)->stream));
}

static void cuda_copy_rows(struct device *dev, struct mat to, struct mat from) {
    size_t size = (size_t)dtype_bytes(to.type);
    keep_error(dev, "copy of rows",
               cudaMemcpy2DAsync(to.data, (size_t)to.stride * size, from.data, (size_t)from.stride * size,
                                 (size_t)to.cols * size, (size_t)to.rows, cudaMemcpyDeviceToDevice,
                                 state_of(dev)->stream));
}

static void cuda_clear(struct device *dev, void *memory, size_t bytes) {
    keep_error(dev, "clear", cudaMemsetAsync(memory, 0, bytes, state_of(dev)->stream));
}

/* The first op of a shape makes rope's table, and an op of another shape replaces it. Recorded ops read the table. */
struct device_replay {
    cudaGraphExec_t graph; /* NULL: not recorded (yet) */
    struct device_rope rope;
    bool ran, plain; /* run once; it cannot be recorded: always op by op */
};

static bool same_rope(const struct device_rope *a, const struct device_rope *b) {
    return a->half == b->half && a->period == b->period && a->theta == b->theta;
}

/* Runs the body into a graph instead of the stream. */
static cudaError_t record(struct device *dev, struct device_replay *r, device_ops *body, void *context) {
    struct device_cuda *s = state_of(dev);
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) return error;
    body(context, dev);
    error = cudaStreamEndCapture(s->stream, &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&r->graph, graph, 0);
    if (graph) (void)cudaGraphDestroy(graph);
    r->rope = s->rope;
    return error;
}

static void cuda_replay(struct device *dev, struct device_replay **replay, device_ops *body, void *context) {
    struct device_cuda *s = state_of(dev);
    struct device_replay *r = *replay;
    if (!r && memory_allocate_zero(&r, 1) == STATUS_OK) *replay = r;
    bool plain = !r || r->plain || !r->ran || s->fault[0] || (r->graph && !same_rope(&r->rope, &s->rope));
    if (!plain && !r->graph && record(dev, r, body, context) != cudaSuccess) {
        (void)cudaGetLastError();
        r->graph = NULL;
        plain = r->plain = true;
    }
    if (plain)
        body(context, dev);
    else
        keep_error(dev, "replay", cudaGraphLaunch(r->graph, s->stream));
    if (r) r->ran = true;
}

static void cuda_replay_free(struct device_replay *replay) {
    if (replay->graph) (void)cudaGraphExecDestroy(replay->graph);
    memory_free(replay);
}

/* The GPU's parallelism is inside ops: every worker of the host uses the same device. */
static struct device *cuda_worker(struct device *dev, int worker) {
    (void)worker;
    return dev;
}

static void cuda_enter(struct device *dev) {
    keep_error(dev, "selection of the GPU", cudaSetDevice(state_of(dev)->gpu));
}

static void cuda_close(struct device *dev) {
    struct device_cuda *s = state_of(dev);
    if (s->stream) (void)cudaStreamSynchronize(s->stream);
    blas_cuda_close(s->blas);
    drop_idle(s);
    idle_blocks_release(&s->idle);
    idle_blocks_release(&s->idle_host);
    (void)cudaFree(s->rope.cosine);
    (void)cudaFree(s->scratch);
    (void)cudaFree(s->counters);
    if (s->made) (void)cudaEventDestroy(s->made);
    if (s->sent) (void)cudaEventDestroy(s->sent);
    if (s->fetches) (void)cudaStreamDestroy(s->fetches);
    if (s->stream) (void)cudaStreamDestroy(s->stream);
    threads_free(dev->threads);
    memory_free(dev); /* the first member of struct device_cuda_memory */
}

static const struct device_runtime runtime = {
    .close = cuda_close,
    .sync = cuda_sync,
    .fault = cuda_fault,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .allocate_host = cuda_allocate_host,
    .release_host = cuda_release_host,
    .reach = cuda_reach,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .copy_rows = cuda_copy_rows,
    .clear = cuda_clear,
    .send = cuda_send,
    .send_wait = cuda_send_wait,
    .fetch = cuda_fetch,
    .fetch_wait = cuda_fetch_wait,
    .replay = cuda_replay,
    .replay_free = cuda_replay_free,
    .worker = cuda_worker,
    .enter = cuda_enter,
    .peers = &device_peers_cuda,
};

static enum status find_gpu(struct device_cuda *s) {
    int count = 0, gpu = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        (void)cudaGetLastError();
        return fail(STATUS_UNSUPPORTED, "no GPU was found (%s): use --device cpu",
                    error == cudaSuccess ? "the driver sees none" : cudaGetErrorString(error));
    }
    error = cudaGetDevice(&gpu);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&s->processors, cudaDevAttrMultiProcessorCount, gpu);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&s->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
    if (error != cudaSuccess) return fail(STATUS_IO, "GPU %d: %s", gpu, cudaGetErrorString(error));
    s->gpu = gpu;
    if (major < 8)
        return fail(STATUS_UNSUPPORTED, "no usable GPU: its compute capability is %d.%d, 8.0 or newer is needed: use "
                                        "--device cpu", major, minor);
    return STATUS_OK;
}

static enum status find_code(struct device_cuda *s) {
    struct code_kind *code_device = (struct code_kind *)s->scratch;
    code_kind_of<<<1, 1, 0, s->stream>>>(code_device);
    cudaError_t error = cudaGetLastError();
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion)
        return fail(STATUS_UNSUPPORTED, "GPU: this program was built for others: build with its compute capability in "
                                        "-DDRT_CUDA_ARCHITECTURES, or use --device cpu");
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(&s->code, code_device, sizeof s->code, cudaMemcpyDeviceToHost, s->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(s->stream);
    return error == cudaSuccess ? STATUS_OK : fail(STATUS_IO, "GPU: first kernel: %s", cudaGetErrorString(error));
}

static enum status open_parts(struct device_cuda *s) {
    cudaError_t error = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&s->fetches, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&s->made, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&s->sent, cudaEventDisableTiming);
    if (error != cudaSuccess) return fail(STATUS_IO, "GPU: stream: %s", cudaGetErrorString(error));
    error = cudaMalloc(&s->scratch, SCRATCH_BYTES);
    if (error != cudaSuccess) return out_of_memory(SCRATCH_BYTES, error);
    TRY(find_code(s));
    size_t counters = DEVICE_CUDA_COUNTERS * sizeof *s->counters;
    error = cudaMalloc((void **)&s->counters, counters);
    if (error == cudaSuccess) error = cudaMemsetAsync(s->counters, 0, counters, s->stream);
    if (error != cudaSuccess) return out_of_memory(counters, error);
    size_t table = DEVICE_ROPE_MAX * sizeof(float);
    error = cudaMalloc((void **)&s->rope.cosine, 2 * table);
    if (error != cudaSuccess) return out_of_memory(2 * table, error);
    s->rope.sine = s->rope.cosine + DEVICE_ROPE_MAX;
    return blas_cuda_open(&s->blas);
}

static void *load_blas(void *) {
    blas_cuda_load();
    return NULL;
}

/* Makes the context of the current GPU, if there is none. cuBLASLt is loaded meanwhile: both take 0.1 s and more.
 * Called after CUDA has loaded the driver, because a thread that loads a library delays others that do. */
static void make_context(void) {
    pthread_t loading;
    const bool loads = threads_start(&loading, load_blas, NULL);
    (void)cudaFree(NULL);
    (void)cudaGetLastError();
    if (loads) pthread_join(loading, NULL);
}

enum status device_open_cuda(struct device **out, int threads) {
    struct device_cuda found = {};
    struct device_cuda_memory *m = NULL;
    TRY(find_gpu(&found));
    make_context();
    TRY(memory_allocate_zero(&m, 1));
    m->state = found;
    m->state.idle.limit = IDLE_BYTES, m->state.idle_host.limit = IDLE_HOST_BYTES;
    m->device = {.ops = &ops_cuda, .runtime = &runtime, .threads = NULL, .state = &m->state, .name = "cuda"};
    enum status status = threads_create(&m->device.threads, threads);
    if (status == STATUS_OK) status = open_parts(&m->state);
    if (status != STATUS_OK) {
        cuda_close(&m->device);
        return status;
    }
    *out = &m->device;
    return STATUS_OK;
}

void device_warm_cuda(void) {
    if (device_count_cuda() > 0) make_context();
}

bool device_built_cuda(void) {
    return true;
}

int device_count_cuda(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    (void)cudaGetLastError();
    return 0;
}

enum status device_open_cuda_number(struct device **out, int number, int threads) {
    int before = 0;
    cudaError_t error = cudaGetDevice(&before);
    if (error == cudaSuccess) error = cudaSetDevice(number);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return fail(STATUS_UNSUPPORTED, "GPU %d: %s", number, cudaGetErrorString(error));
    }
    enum status status = device_open_cuda(out, threads);
    (void)cudaSetDevice(before);
    return status;
}
