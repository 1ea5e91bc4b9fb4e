/* decode_step_cuda.cu -- the decode step (decode_step.h) on Hopper and newer: one cooperative launch, clusters of eight
 * thread blocks, one block on each multiprocessor. README.md draws the pipeline; docs/kernels/decode_step.md has
 * measurements and rejected variants.
 *
 *   grid       15 clusters x 8 blocks (H200) x 11 warps: 8 consumers, 1 producer, 2 exchange warps
 *   attention  cluster c -> heads c, c + 15, ...
 *              norm; the head's query, key and value: each block a share of the rows, sent to the cluster
 *              the window: each block a share, sent to the cluster
 *              the output matrix: each block a share of the rows, the head's columns of them
 *              So every head adds to the residual stream.
 *   GCA        layers that read chunks: the same with the GCA query, the chunks and the GCA output matrix
 *   MLP        all blocks: norm, gate and up of a share of the units, SwiGLU, Wdown's columns of these units
 *              The cluster adds up its contributions and adds the sum to the residual stream.
 *   head       all blocks: final norm, a share of the vocabulary's rows
 *
 * A layer has two exchanges between clusters (three with GCA); all of them are sums (decode_step_exchange.cuh).
 *
 * Bound by reading the weights once, 58 us for the 124M model; measured 89 us back to back (H200, 12 layers of d 768,
 * 50,265 ids), 107 us with eight chunks read in six layers. */
#include "kernels/decode_step/decode_step_kernel.cuh"
#include "kernels/decode_step/decode_step_pack.cuh"
extern "C" {
#include "base/memory.h"
#include "kernels/decode_step/decode_step.h"
}

/* ---- kernels: specialised for shapes known when this is compiled, and general ones ---- */

static const step_kernel decode_step_kernels[] = {
    decode_step_entry<64, 3, 24>(), decode_step_entry<64, 4, 24>(), decode_step_entry<64, 1, 0>(),
    decode_step_entry<64, 2, 0>(),  decode_step_entry<64, 3, 0>(),  decode_step_entry<64, 4, 0>(),
    decode_step_entry<64, 8, 0>(),  decode_step_entry<128, 1, 0>(), decode_step_entry<128, 2, 0>(),
    decode_step_entry<128, 4, 0>(), decode_step_entry<128, 8, 0>(),
};

/* A reader of the key state starts so many layers before its layer: it copies keys of megabytes meanwhile. */
enum { PERMIT_LAYERS = 2 };

struct decode_step_weights {
    struct device *dev;
    struct step_task task; /* arguments that are the same for all texts and steps */
    const step_kernel *kernel;
    mutable bool late; /* the driver has refused an early launch */
    int blocks, window;
    size_t p;              /* columns of the residual stream, rounded up */
    unsigned char *packed; /* weights, layer after layer, then the norms'; of 8 bits: then the head's */
    bool i8;
    bool fused[DECODE_STEP_GROUPS_MAX];
};

struct decode_step {
    const struct decode_step_weights *weights;
    struct step_task task;
    step_accumulator *exchange; /* two buffers [exchanges, p]: of this step, of the next */
    bool second;                /* which buffer this step uses */
    /* [2]: counts key states, and blocks that have written their part of logits and shares; their next values */
    uint32_t *ready, at, done_at;
    struct logit_share *shares; /* [blocks * STEP_WARPS] */
    unsigned long long *best;   /* [2]: of a pick (decode_step_pick.cuh) */
    /* [blocks] of host memory: the number of the last awaited step whose logits the block has written; that number */
    uint32_t *written, *written_device, awaited;
};

static bool decode_step_dense(struct mat m) {
    return m.type == DTYPE_BF16 && m.stride == m.cols && (uintptr_t)m.data % 16 == 0;
}

static bool decode_step_packed(struct mat m) {
    return m.type == DTYPE_I8 && (uintptr_t)m.data % 16 == 0;
}

static bool decode_step_fits(struct device *dev, const struct decode_step_config *c) {
    const bool i8 = c->head.data && c->head.type == DTYPE_I8;
    bool (*fits)(struct mat) = i8 ? decode_step_packed : decode_step_dense;
    int64_t d = c->embed.cols, f = c->layers[0].gate_up.rows / 2;
    if (dev->shares_memory || device_cuda_architecture(dev) < 90 || c->n_layers < 1 || c->n_layers > STEP_LAYERS_MAX ||
        c->heads > STEP_COUNT || d % c->heads || f % 8 || !decode_step_dense(c->embed) ||
        !decode_step_dense(c->final_norm) || (c->head.data && !decode_step_packed(c->head)))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        const struct decode_step_layer *w = &c->layers[i];
        if (!fits(w->qkv) || !fits(w->o) || !fits(w->gate_up) || !fits(w->down)) return false;
    }
    return true;
}

/* Cooperative: all blocks run at once, or the launch fails, since blocks wait for each other. Early: the blocks start
 * while the kernel before, a pick, still runs on a few multiprocessors. It waits for nothing that this step does. */
static cudaLaunchConfig_t decode_step_launch(const struct decode_step_weights *w, bool early,
                                             cudaLaunchAttribute (&attributes)[3]) {
    cudaLaunchConfig_t launch = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {STEP_CLUSTER, 1, 1};
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    launch.gridDim = dim3((unsigned)w->blocks), launch.blockDim = dim3(STEP_THREADS);
    launch.dynamicSmemBytes = (size_t)device_cuda_shared_bytes(w->dev);
    launch.stream = device_cuda_stream(w->dev);
    attributes[2].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[2].val.programmaticStreamSerializationAllowed = 1;
    launch.attrs = attributes, launch.numAttrs = early ? 3 : 2;
    return launch;
}

static step_pace decode_step_pace(bool i8) {
    int gpu = 0, kilohertz = 0, bits = 0;
    (void)cudaGetDevice(&gpu);
    (void)cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, gpu);
    (void)cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, gpu);
    return STEP_PACE[2e3 * kilohertz * bits / 8 >= STEP_FAST_MEMORY][i8]; /* two transfers a cycle */
}

/* Selects the kernel for this shape, with as many clusters as can run at once. False: no kernel fits. */
static bool decode_step_select_kernel(struct decode_step_weights *w, int d, int f, int dim) {
    int strips = (d + 255) / 256, shared = device_cuda_shared_bytes(w->dev);
    const step_kernel *kernels = w->i8 ? decode_step_kernels_i8 : decode_step_kernels;
    const int n = w->i8 ? (int)DECODE_STEP_KERNELS_I8 : (int)ARRAY_LEN(decode_step_kernels);
    for (int i = 0; i < n; i++) {
        const step_kernel &k = kernels[i];
        cudaLaunchAttribute attributes[3];
        int clusters = 0;
        if (k.dim != dim || k.strips < strips) continue;
        w->blocks = STEP_CLUSTER;
        cudaLaunchConfig_t launch = decode_step_launch(w, false, attributes);
        for (const void *kernel : k.kernel) {
            int fit = 0;
            if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) != cudaSuccess ||
                cudaOccupancyMaxActiveClusters(&fit, kernel, &launch) != cudaSuccess)
                fit = 0, (void)cudaGetLastError();
            clusters = kernel == k.kernel[0] || fit < clusters ? fit : clusters;
        }
        if (clusters < 1) continue;
        w->blocks = clusters * STEP_CLUSTER;
        int units = step_units(f, w->blocks - 1, w->blocks), capacity = (shared - (int)k.shared) / 128 * 128;
        bool even = f / 8 % w->blocks == 0;
        if (k.units ? (units != k.units && (units != k.units - 8 || !even)) || k.strips > strips : units > UNITS_MAX)
            continue;
        if (k.largest(units) > capacity) continue;
        w->kernel = &k, w->task.capacity = capacity, w->p = (size_t)k.strips * 256;
        w->task.pace = decode_step_pace(w->i8);
        return true;
    }
    return false;
}

/* each: numbers of a piece; of 8 bits: its bytes. */
template <step_matrix WHICH>
static void decode_step_pack_matrix(struct decode_step_weights *w, unsigned char *to, int64_t stride, struct mat from,
                                    int pieces, int64_t each) {
    const struct step_task &t = w->task;
    const cudaStream_t stream = device_cuda_stream(w->dev);
    const step_packing_shape shape = {t.d, t.f, w->kernel->dim, (int)w->p};
    if (w->i8) {
        step_packing_i8 c = {to,
                             stride,
                             (const unsigned char *)from.data,
                             (int)from.rows,
                             (int)from.cols,
                             w->kernel->mlp(1, 0),
                             w->kernel->mlp(0, 1),
                             shape};
        step_pack_i8(WHICH, c, pieces, each, stream);
    } else if constexpr (WHICH != PACK_HEAD) {
        step_packing c = {(bf16 *)(void *)to, stride / 2, (const bf16 *)from.data, shape};
        dim3 grid((unsigned)((each + 255) / 256), (unsigned)pieces);
        decode_step_pack<WHICH><<<grid, 256, 0, stream>>>(c, (int)each);
    }
    device_cuda_check(w->dev, "decode_step_weights");
}

static void decode_step_pack_layers(struct decode_step_weights *w, const struct decode_step_config *c) {
    const struct step_task &t = w->task;
    int p = (int)w->p, dim = w->kernel->dim, shares = t.heads * STEP_CLUSTER;
    int units = step_units(t.f, w->blocks - 1, w->blocks), tile = w->i8 ? step_tile_i8(p) : 8 * p;
    int output = p / STEP_CLUSTER * (w->i8 ? dim + 4 : dim), qkv = 3 * dim / STEP_CLUSTER / 8 * tile, query = qkv / 3;
    int down = w->i8 ? units * p + (int)w->kernel->mlp(0, 1) : units * p;
    int number = w->i8 ? 1 : 2; /* bytes of what is counted here */
    unsigned char *to = w->packed;
    bf16 *norms = (bf16 *)t.norms;
    for (int i = 0; i < c->n_layers; i++) {
        const struct decode_step_layer *l = &c->layers[i];
        bool fuses = c->layers[i].group >= 0;
        const void *norm[] = {l->input_norm.data, fuses ? l->gca_norm.data : NULL, l->post_norm.data};
        for (const void *from : norm) {
            decode_step_pack_norm<<<(unsigned)(p / 256), 256, 0, device_cuda_stream(w->dev)>>>(norms,
                                                                                               (const bf16 *)from, t.d);
            norms += p;
        }
        int64_t stride = number * (int64_t)(qkv + output);
        decode_step_pack_matrix<PACK_QKV>(w, to, stride, l->qkv, shares, qkv);
        decode_step_pack_matrix<PACK_OUTPUT>(w, to + number * qkv, stride, l->o, shares, output);
        to += shares * stride, stride = number * (int64_t)(query + output);
        if (fuses) {
            decode_step_pack_matrix<PACK_QUERY>(w, to, stride, l->gca_q, shares, query);
            decode_step_pack_matrix<PACK_OUTPUT>(w, to + number * query, stride, l->gca_o, shares, output);
            to += shares * stride;
        }
        decode_step_pack_matrix<PACK_GATE_UP>(w, to, 0, l->gate_up, w->blocks, units / 4 * tile);
        decode_step_pack_matrix<PACK_DOWN>(w, to, 0, l->down, w->blocks, down);
        to += w->kernel->mlp(t.f, w->blocks);
    }
    if (w->i8)
        decode_step_pack_matrix<PACK_HEAD>(w, (unsigned char *)t.head, 0, c->head, 1,
                                           (t.vocab + 7) / 8 * (int64_t)t.head_tile);
}

static enum status decode_step_prepare(struct decode_step_weights *w, const struct decode_step_config *c) {
    struct step_task *t = &w->task;
    int64_t bytes = 0;
    t->d = (int)c->embed.cols, t->f = (int)c->layers[0].gate_up.rows / 2, t->heads = c->heads;
    t->embed = (const bf16 *)c->embed.data, t->final_norm = (const bf16 *)c->final_norm.data;
    t->vocab = (int)c->embed.rows, t->eps = c->eps, t->share = 1.0f / (float)t->d, t->slope = -8.0f / (float)c->heads;
    t->n_layers = c->n_layers;
    w->window = c->window;
    for (int i = 0; i < c->n_layers; i++) {
        int group = c->layers[i].group;
        t->layers[i] = {NULL, group, i > 0 && group > c->layers[i - 1].group};
        if (group >= 0) w->fused[group] = true;
        bytes += w->kernel->layer(t->heads, t->f, group >= 0, w->blocks);
        t->exchanges += group >= 0 ? 3 : 2;
    }
    const int64_t norms = (int64_t)c->n_layers * 3 * (int64_t)w->p * (int64_t)sizeof(bf16);
    t->head_tile = w->i8 ? step_tile_i8(t->d) : 0;
    TRY(device_allocate(w->dev, &w->packed, (size_t)(bytes + norms + (t->vocab + 7) / 8 * (int64_t)t->head_tile)));
    t->packed = w->packed;
    t->norms = (const bf16 *)(const void *)(t->packed + bytes);
    t->head = t->packed + bytes + norms;
    decode_step_pack_layers(w, c);
    return STATUS_OK;
}

enum status decode_step_weights_create(struct decode_step_weights **out, struct device *dev,
                                       const struct decode_step_config *config) {
    *out = NULL;
    if (!decode_step_fits(dev, config)) return STATUS_OK;
    struct decode_step_weights *w = NULL;
    TRY(memory_allocate_zero(&w, 1));
    w->dev = dev, w->i8 = config->head.data && config->head.type == DTYPE_I8;
    int64_t d = config->embed.cols;
    enum status status = STATUS_OK;
    bool serves = decode_step_select_kernel(w, (int)d, (int)config->layers[0].gate_up.rows / 2, (int)d / config->heads);
    if (serves) status = decode_step_prepare(w, config);
    if (serves && status == STATUS_OK)
        *out = w;
    else
        decode_step_weights_free(w);
    return status;
}

void decode_step_weights_free(struct decode_step_weights *w) {
    if (!w) return;
    device_release(w->dev, w->packed);
    memory_free(w);
}

enum status decode_step_create(struct decode_step **out, const struct decode_step_weights *weights,
                               const struct mat *rings) {
    struct decode_step *t = NULL;
    *out = NULL;
    if (rings[0].rows * rings[0].stride > INT32_MAX) return STATUS_OK; /* offsets in a ring are 32 bits */
    TRY(memory_allocate_zero(&t, 1));
    t->weights = weights, t->task = weights->task;
    t->task.ring = (int)rings[0].rows;
    for (int i = 0; i < t->task.n_layers; i++) {
        assert(decode_step_dense(rings[i]) && rings[i].rows == rings[0].rows);
        t->task.layers[i].ring = (bf16 *)rings[i].data;
    }
    enum status status = device_allocate(weights->dev, &t->exchange, 2 * (size_t)t->task.exchanges * weights->p);
    if (status == STATUS_OK) status = device_allocate(weights->dev, &t->ready, 2);
    if (status == STATUS_OK) status = device_allocate(weights->dev, &t->shares, weights->blocks * STEP_WARPS);
    if (status == STATUS_OK) status = device_allocate(weights->dev, &t->best, 2);
    if (status == STATUS_OK) status = device_allocate_host(weights->dev, &t->written, weights->blocks);
    if (status == STATUS_OK) {
        memset(t->written, 0, (size_t)weights->blocks * sizeof *t->written);
        t->written_device = (uint32_t *)device_reach(weights->dev, t->written);
    }
    t->task.ready = t->ready, t->task.done = t->ready + 1, t->task.shares = t->shares;
    if (status == STATUS_OK)
        *out = t;
    else
        decode_step_free(t);
    return status;
}

void decode_step_free(struct decode_step *t) {
    if (!t) return;
    device_release(t->weights->dev, t->exchange);
    device_release(t->weights->dev, t->ready);
    device_release(t->weights->dev, t->shares);
    device_release(t->weights->dev, t->best);
    device_release_host(t->weights->dev, t->written);
    memory_free(t);
}

void decode_step_run(struct decode_step *t, const struct decode_step_output *out, int32_t id, int64_t position,
                     const struct decode_step_fusion *fusions) {
    decode_step_run_id(t, out, {id, NULL}, position, fusions);
}

void decode_step_run_id(struct decode_step *t, const struct decode_step_output *out, struct decode_step_id id,
                        int64_t position, const struct decode_step_fusion *fusions) {
    const struct decode_step_weights *w = t->weights;
    struct step_task task = t->task;
    int64_t begin = position > w->window ? position - w->window : 0;
    task.logits = out->logits, task.inputs = (bf16 *)out->inputs, task.key_state = (bf16 *)out->keys;
    if (out->awaited) task.written = t->written_device, task.step = ++t->awaited;
    task.id = id.id, task.picked = id.picked;
    if (out->pick) {
        const struct pick_row *row = out->pick;
        assert(decode_step_picks(row) && out->logits == row->logits && !out->keys);
        task.pick = {row->banned, t->best, row->id, &row->result->ticket, row->ticket};
    }
    task.key_layer = out->keys ? out->key_layer - 1 : -1;
    task.permit_layer = out->keys ? max(task.key_layer - PERMIT_LAYERS, 0) : -1;
    task.row = (int)(position % task.ring), task.first = (int)(begin % task.ring),
    task.keys = (int)(position - begin) + 1;
    size_t size = (size_t)task.exchanges * w->p; /* accumulators of a buffer */
    task.exchange_buffer = t->exchange + t->second * size;
    task.next_exchange_buffer = t->exchange + !t->second * size;
    t->second = !t->second;
    for (int g = 0; g < DECODE_STEP_GROUPS_MAX; g++) {
        if (!w->fused[g] || fusions[g].blocks.blocks == 0) continue;
        const struct decode_step_fusion *f = &fusions[g];
        assert(decode_step_dense(f->pool.keys) && decode_step_dense(f->pool.values) &&
               f->blocks.k <= DECODE_STEP_SLOTS_MAX);
        task.fusion[g] = {(const bf16 *)f->pool.keys.data,
                          (const bf16 *)f->pool.values.data,
                          f->blocks.slot,
                          f->blocks.weight,
                          f->blocks.k,
                          f->pool.slot_rows,
                          f->pool.live_rows,
                          f->pool.off_by_one};
    }
    void *arguments[] = {&task};
    cudaLaunchAttribute attributes[3];
    const void *kernel = w->kernel->kernel[out->keys != NULL];
    const bool early = id.picked && !w->late;
    cudaLaunchConfig_t launch = decode_step_launch(w, early, attributes);
    cudaError_t error = cudaLaunchKernelExC(&launch, kernel, arguments);
    if (error != cudaSuccess && early) {
        (void)cudaGetLastError();
        w->late = true;
        launch = decode_step_launch(w, false, attributes);
        error = cudaLaunchKernelExC(&launch, kernel, arguments);
    }
    if (error != cudaSuccess) {
        device_cuda_fault(w->dev, "decode_step", cudaGetErrorString(error));
        return; /* the counts do not rise */
    }
    device_cuda_check(w->dev, "decode_step");
    if (out->keys) t->at++;
    if (out->keys && out->logits) t->done_at += (uint32_t)w->blocks;
}

void decode_step_wait(struct decode_step *t) {
    enum { LOOKS = 1 << 16 }; /* some 0.1 ms: then the stream is looked at, as a kernel that failed writes nothing */
    const cudaStream_t stream = device_cuda_stream(t->weights->dev);
    for (int i = 0; i < t->weights->blocks; i++)
        for (unsigned looks = 1; __atomic_load_n(&t->written[i], __ATOMIC_ACQUIRE) != t->awaited; looks++) {
            if (looks % LOOKS != 0) continue;
            cudaError_t error = cudaStreamQuery(stream);
            if (error == cudaErrorNotReady) continue;
            if (error != cudaSuccess) device_cuda_fault(t->weights->dev, "decode_step", cudaGetErrorString(error));
            if (__atomic_load_n(&t->written[i], __ATOMIC_ACQUIRE) != t->awaited) return;
        }
}

struct decode_step_result decode_step_result(const struct decode_step *t) {
    const int blocks = t->weights->blocks;
    return {t->ready, t->at, t->ready + 1, t->done_at, t->shares, blocks * STEP_WARPS,
            device_cuda_processors(t->weights->dev) - blocks};
}
