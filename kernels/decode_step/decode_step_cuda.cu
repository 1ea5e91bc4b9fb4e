/* decode_step_cuda.cu -- see decode_step.h. Clusters of eight blocks, one on each multiprocessor, work on a layer:
 *
 *   attention  a cluster a head: norm, the head's query, key and value (each block a share of the rows), told to the
 *              cluster; each block a piece of the window, told to the cluster; each block a share of the rows of the
 *              output product, of it the head's columns. So every head adds to the residual stream
 *   (fusion)   upper layers that read chunks, in the same way: the query, the chunks, the output product
 *   MLP        every block: norm, gate and up of its units, SwiGLU, what they add to all rows. The cluster's sum of
 *              it is added to the residual stream
 *
 * So a layer has two exchanges between clusters (three with fusion), all of them sums. Weights stream into shared
 * memory (decode_step_pipeline.cuh), products run on matrix units (decode_step_product.cuh), decode_step_exchange.cuh says how
 * numbers travel. For Hopper and newer.
 *
 * H200 (15 clusters), 12 layers of d 768, 50265 words: 101 us back to back, of which the head 19 (all weights once:
 * 58), and 111 with eight chunks read in six layers. By stamps of one warp (which add 2 to 4 %), a layer takes 11,600
 * cycles and 3,700 of them wait for weights: the warp that brings them is never idle, for with what lies between its
 * pauses a piece comes to 250 to 320 cycles and a stage to 400 more. A layer that reads chunks takes 14,500, none of
 * them for weights. An exchange between clusters takes 1,600 to 2,400, from this block's summands to the sum, slower
 * blocks waited for; in an earlier form, norms and products 560 and 600, vectors told 810, window 1,200 and its join
 * 580, output 510, activations and their product 740, told and added 650; with chunks, query 400, told 700, chunks
 * 1,350, their join 770, output 300. Tried and lost: five exchanges a layer in words of one number each (147 to 157
 * us), every block looking for all sums itself (an exchange of 3,600 cycles) or for none before it has added its own,
 * weights of two or three layers kept in L2, two looks at a word under way at once, waiting without the barrier's own
 * pause (2 us more), weights asked for 2 KiB at a time (118 us), one code for window and chunks (107 us, of which
 * rolled loops in the warp that brings the weights cost 4), the query over chunks as a sum over the window's heads that
 * the same exchange carries (by Wq diag(norm) Wo: 114 us for 111, its bytes cost more than the step saved). Asked for
 * more often, weights come in time where no chunks are read (90 us), and stand in the way of the words where they are:
 * 108 us for 111. */
#include "kernels/decode_step/decode_step_pack.cuh"
#include "kernels/decode_step/decode_step_consumer.cuh"
extern "C" {
#include "base/memory.h"
#include "kernels/decode_step/decode_step.h"
}

template <int DIM, int STRIPS, int UNITS> struct step_memory {
    using shared = step_shared<DIM, STRIPS, UNITS>;
    enum { RING = (sizeof(shared) + 127) / 128 * 128 };
};

template <int DIM, int STRIPS, int UNITS>
static __global__ void __launch_bounds__(STEP_THREADS, 1) decode_step_kernel(const __grid_constant__ step_task t) {
/* Older cards have no clusters; fits() keeps them away. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    using shared_memory = step_shared<DIM, STRIPS, UNITS>;
    extern __shared__ __align__(128) unsigned char memory[];
    shared_memory &shared = *(shared_memory *)memory;
    step_ring ring = {shared_address(memory + step_memory<DIM, STRIPS, UNITS>::RING),
                      shared_address(shared.full),
                      shared_address(shared.empty),
                      t.capacity,
                      0,
                      0,
                      0};
    if (threadIdx.x < RING_SLOTS)
        barrier_init(&shared.full[threadIdx.x], 1), barrier_init(&shared.empty[threadIdx.x], STEP_WARPS);
    if (threadIdx.x < 3) barrier_init(&shared.told[threadIdx.x], 1);
    if (threadIdx.x < STREAM_SLOTS) barrier_init(&shared.gathered[threadIdx.x], 1);
    if (threadIdx.x < RING_SLOTS) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    step_cluster_barrier();
    if (threadIdx.x >= STEP_WORKERS + 32) {
        step_gatherer<DIM, STRIPS, UNITS>{shared, t.words, 0}.run(t);
    } else if (threadIdx.x >= STEP_WORKERS) {
        step_bringer<DIM, STRIPS, UNITS>{ring, 0, 0, 0, 0, 0, 0}.run(t);
    } else {
        for (int i = blockIdx.x * STEP_WORKERS + threadIdx.x; i < t.exchanges * step_sizes<DIM, STRIPS, UNITS>::P;
             i += gridDim.x * STEP_WORKERS)
            t.next[i] = 0;
        int warp = threadIdx.x / 32, rank = blockIdx.x % STEP_CLUSTER;
        step_worker<DIM, STRIPS, UNITS> worker = {
            {t,
             shared,
             ring,
             (int)threadIdx.x % 32,
             warp,
             rank,
             step_there(shared_address(memory), warp),
             step_units(t.f, blockIdx.x, gridDim.x),
             0,
             t.words,
             0,
             false,
             false,
             {}},
            {shared_address(shared.keys + warp % step_attention<DIM>::WARPS * 16 * step_attention<DIM>::ROW)},
            (int)blockIdx.x / STEP_CLUSTER,
            (int)gridDim.x / STEP_CLUSTER,
            0,
            0,
            0.0f,
            0};
        worker.run();
    }
    __syncwarp();
    step_cluster_barrier(); /* nobody writes to a block that is gone */
#endif
}

/* ---- one kernel for each shape that is known when this is compiled, and one for any other ---- */

struct step_kernel {
    int dim, strips, units; /* units: of a block, or eight less; 0: any number up to UNITS_MAX */
    const void *kernel;
    size_t shared;             /* bytes before the ring */
    int (*largest)(int units); /* bytes of a stage */
    int64_t (*layer)(int heads, int f, bool fuses);
};
template <int DIM, int STRIPS, int UNITS> static int largest_stage(int units) {
    using sizes = step_sizes<DIM, STRIPS, UNITS>;
    int product = max(sizes::stage_tiles(sizes::QKV_TILES), sizes::GATE_STAGE) * sizes::TILE + sizes::NORM;
    int head = sizes::HEAD_TILES * sizes::TILE + sizes::NORM;
    return max(max(product, head), max((int)sizes::OUTPUT, sizes::DOWN_STAGE * sizes::down(units)));
}
template <int DIM, int STRIPS, int UNITS> static constexpr step_kernel kernel_of() {
    return {DIM,
            STRIPS,
            UNITS,
            (const void *)decode_step_kernel<DIM, STRIPS, UNITS>,
            (size_t)step_memory<DIM, STRIPS, UNITS>::RING,
            largest_stage<DIM, STRIPS, UNITS>,
            step_sizes<DIM, STRIPS, UNITS>::layer};
}
static const step_kernel kernels[] = {
    kernel_of<64, 3, 24>(), kernel_of<64, 4, 24>(), kernel_of<64, 1, 0>(),  kernel_of<64, 2, 0>(),
    kernel_of<64, 3, 0>(),  kernel_of<64, 4, 0>(),  kernel_of<64, 8, 0>(),  kernel_of<128, 1, 0>(),
    kernel_of<128, 2, 0>(), kernel_of<128, 4, 0>(), kernel_of<128, 8, 0>(),
};

struct decode_step_weights {
    struct device *dev;
    struct step_task task; /* what is the same for all texts and steps */
    const step_kernel *kernel;
    int blocks, window;
    size_t p; /* columns of the residual stream, rounded up */
    void *packed;
    bool fused[DECODE_STEP_GROUPS_MAX];
};

struct decode_step {
    const struct decode_step_weights *weights;
    struct step_task task;
    void *words;
    bool turn; /* of the words */
};

static bool dense_bf16(struct mat m) {
    return m.type == DTYPE_BF16 && m.stride == m.cols && (uintptr_t)m.data % 16 == 0;
}

static bool fits(struct device *dev, const struct decode_step_config *c) {
    int64_t d = c->embed.cols, f = c->layers[0].gate_up.rows / 2;
    if (dev->shares_memory || device_cuda_architecture(dev) < 90 || c->n_layers < 1 || c->n_layers > STEP_LAYERS_MAX ||
        c->heads > STEP_COUNT || d % c->heads || f % 8 || !dense_bf16(c->embed) || !dense_bf16(c->final_norm))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        const struct decode_step_layer *w = &c->layers[i];
        if (!dense_bf16(w->qkv) || !dense_bf16(w->o) || !dense_bf16(w->gate_up) || !dense_bf16(w->down)) return false;
    }
    return true;
}

/* All blocks run at once, or none: they wait for each other. */
static cudaLaunchConfig_t launch_of(const struct decode_step_weights *w, cudaLaunchAttribute (&attributes)[2]) {
    cudaLaunchConfig_t launch = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {STEP_CLUSTER, 1, 1};
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    launch.gridDim = dim3((unsigned)w->blocks), launch.blockDim = dim3(STEP_THREADS);
    launch.dynamicSmemBytes = (size_t)device_cuda_shared_bytes(w->dev);
    launch.stream = device_cuda_stream(w->dev);
    launch.attrs = attributes, launch.numAttrs = 2;
    return launch;
}

/* The kernel that serves, with as many clusters as run at once; false: none does. */
static bool choose(struct decode_step_weights *w, int d, int f, int dim) {
    int strips = (d + 255) / 256, shared = device_cuda_shared_bytes(w->dev);
    for (const step_kernel &k : kernels) {
        cudaLaunchAttribute attributes[2];
        int clusters = 0;
        if (k.dim != dim || k.strips < strips) continue;
        w->blocks = STEP_CLUSTER;
        cudaLaunchConfig_t launch = launch_of(w, attributes);
        if (cudaFuncSetAttribute(k.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) != cudaSuccess ||
            cudaOccupancyMaxActiveClusters(&clusters, k.kernel, &launch) != cudaSuccess || clusters < 1) {
            (void)cudaGetLastError();
            continue;
        }
        w->blocks = clusters * STEP_CLUSTER;
        int units = step_units(f, w->blocks - 1, w->blocks), capacity = (shared - (int)k.shared) / 128 * 128;
        bool even = f / 8 % w->blocks == 0;
        if (k.units ? (units != k.units && (units != k.units - 8 || !even)) || k.strips > strips : units > UNITS_MAX)
            continue;
        if (k.largest(units) > capacity) continue;
        w->kernel = &k, w->task.capacity = capacity, w->p = (size_t)k.strips * 256;
        return true;
    }
    return false;
}

template <step_matrix WHICH>
static void pack(struct decode_step_weights *w, unsigned char *to, int64_t stride, struct mat from, int pieces, int each) {
    const struct step_task &t = w->task;
    step_packing c = {(bf16 *)(void *)to, stride / 2, (const bf16 *)from.data, t.d, t.f, w->kernel->dim, (int)w->p};
    dim3 grid((unsigned)((each + 255) / 256), (unsigned)pieces);
    decode_step_pack<WHICH><<<grid, 256, 0, device_cuda_stream(w->dev)>>>(c, each);
    device_cuda_check(w->dev, "decode_step_weights");
}

static void pack_layers(struct decode_step_weights *w, const struct decode_step_config *c) {
    const struct step_task &t = w->task;
    int p = (int)w->p, dim = w->kernel->dim, shares = t.heads * STEP_CLUSTER, output = p / STEP_CLUSTER * dim;
    int qkv = 3 * dim / STEP_CLUSTER * p, query = qkv / 3, units = step_units(t.f, w->blocks - 1, w->blocks);
    unsigned char *to = (unsigned char *)w->packed;
    bf16 *norms = (bf16 *)t.norms;
    for (int i = 0; i < c->n_layers; i++) {
        const struct decode_step_layer *l = &c->layers[i];
        bool fuses = c->layers[i].group >= 0;
        const void *norm[] = {l->input_norm.data, fuses ? l->gca_norm.data : NULL, l->post_norm.data};
        for (const void *from : norm) {
            decode_step_pack_norm<<<(unsigned)(p / 256), 256, 0, device_cuda_stream(w->dev)>>>(norms, (const bf16 *)from,
                                                                                              t.d);
            norms += p;
        }
        int64_t stride = 2 * (int64_t)(qkv + output);
        pack<PACK_QKV>(w, to, stride, l->qkv, shares, qkv);
        pack<PACK_OUTPUT>(w, to + 2 * qkv, stride, l->o, shares, output);
        to += shares * stride, stride = 2 * (int64_t)(query + output);
        if (fuses) {
            pack<PACK_QUERY>(w, to, stride, l->gca_q, shares, query);
            pack<PACK_OUTPUT>(w, to + 2 * query, stride, l->gca_o, shares, output);
            to += shares * stride;
        }
        pack<PACK_GATE_UP>(w, to, 0, l->gate_up, w->blocks, 2 * units * p);
        pack<PACK_DOWN>(w, to, 0, l->down, w->blocks, units * p);
        to += 2 * 3 * (int64_t)t.f * p;
    }
}

static enum status prepare(struct decode_step_weights *w, const struct decode_step_config *c) {
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
        bytes += w->kernel->layer(t->heads, t->f, group >= 0);
        t->exchanges += group >= 0 ? 3 : 2;
    }
    TRY(device_allocate_bytes(w->dev, &w->packed, (size_t)bytes + (size_t)c->n_layers * 3 * w->p * sizeof(bf16)));
    t->packed = (const unsigned char *)w->packed;
    t->norms = (const bf16 *)(const void *)(t->packed + bytes);
    pack_layers(w, c);
    return STATUS_OK;
}

enum status decode_step_weights_create(struct decode_step_weights **out, struct device *dev,
                                 const struct decode_step_config *config) {
    *out = NULL;
    if (!fits(dev, config)) return STATUS_OK;
    struct decode_step_weights *w = NULL;
    TRY(memory_allocate_zero(&w, 1));
    w->dev = dev;
    int64_t d = config->embed.cols;
    enum status status = STATUS_OK;
    bool serves = choose(w, (int)d, (int)config->layers[0].gate_up.rows / 2, (int)d / config->heads);
    if (serves) status = prepare(w, config);
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

enum status decode_step_create(struct decode_step **out, const struct decode_step_weights *weights, const struct mat *rings) {
    struct decode_step *t = NULL;
    *out = NULL;
    if (rings[0].rows * rings[0].stride > INT32_MAX) return STATUS_OK; /* a ring's numbers are counted in 32 bits */
    TRY(memory_allocate_zero(&t, 1));
    t->weights = weights, t->task = weights->task;
    t->task.ring = (int)rings[0].rows;
    for (int i = 0; i < t->task.n_layers; i++) {
        assert(dense_bf16(rings[i]) && rings[i].rows == rings[0].rows);
        t->task.layers[i].ring = (bf16 *)rings[i].data;
    }
    enum status status =
        device_allocate_bytes(weights->dev, &t->words, 2 * (size_t)t->task.exchanges * weights->p * sizeof(step_word));
    if (status == STATUS_OK)
        *out = t;
    else
        decode_step_free(t);
    return status;
}

void decode_step_free(struct decode_step *t) {
    if (!t) return;
    device_release(t->weights->dev, t->words);
    memory_free(t);
}

void decode_step_run(struct decode_step *t, float *logits, void *inputs, int32_t id, int64_t position,
                    const struct decode_step_fusion *fusions) {
    const struct decode_step_weights *w = t->weights;
    struct step_task task = t->task;
    int64_t begin = position > w->window ? position - w->window : 0;
    task.logits = logits, task.inputs = (bf16 *)inputs, task.id = id;
    task.row = (int)(position % task.ring), task.first = (int)(begin % task.ring),
    task.keys = (int)(position - begin) + 1;
    size_t words = (size_t)task.exchanges * w->p;
    task.words = (step_word *)t->words + t->turn * words, task.next = (step_word *)t->words + !t->turn * words;
    t->turn = !t->turn;
    for (int g = 0; g < DECODE_STEP_GROUPS_MAX; g++) {
        if (!w->fused[g] || fusions[g].blocks.blocks == 0) continue;
        const struct decode_step_fusion *f = &fusions[g];
        assert(dense_bf16(f->pool.keys) && dense_bf16(f->pool.values) && f->blocks.k <= DECODE_STEP_SLOTS_MAX);
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
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t launch = launch_of(w, attributes);
    cudaError_t error = cudaLaunchKernelExC(&launch, w->kernel->kernel, arguments);
    if (error != cudaSuccess) device_cuda_fault(w->dev, "decode_step", cudaGetErrorString(error));
    device_cuda_check(w->dev, "decode_step");
}
