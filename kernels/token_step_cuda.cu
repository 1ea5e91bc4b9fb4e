/* token_step_cuda.cu -- see token_step.h. Phases of a layer, each reading what all blocks made in the one before:
 *
 *   qkv        norm, the three products; key and value go into the ring
 *   attention  a head's window is split over a few blocks; parts go to device memory
 *   output     the parts of a head joined, the product, the residual
 *   (fusion)   upper layers that read chunks: norm and query product; a block a head and slot; the output product
 *   gate, up   norm, both products of a unit, SwiGLU
 *   down       the product, the residual
 *
 * Weights stream into shared memory (token_step_ring.cuh), products run on matrix units (token_step_product.cuh),
 * numbers go from block to block in words that say when they are there (token_step_words.cuh). For Hopper and newer.
 *
 * H200, 12 layers of d 768, 50265 words: 147 to 157 us back to back, of which the head 17 (all weights once: 58); about
 * 3,500 cycles a phase, where a look into the L2 cache takes 570. The longest wait is OUTPUT's, for attention's parts.
 * What every warp does between two words counts, so eight warps beat sixteen. Tried and lost: rows copied one by one and
 * sixteen warps (204 us; 480 while registers were spilled), one code for all phases (211; 232 with sixteen warps), warps
 * of their own that add the sums and fetch keys (185 to 208). */
#include "kernels/token_step_attend.cuh"
#include <string.h>
extern "C" {
#include "base/memory.h"
#include "kernels/token_step.h"
}

enum { WIDTH_MAX = 2048 /* of d */ };

struct token_step {
    struct device *dev;
    struct step_task task;
    int blocks, dim, window;
    size_t shared_bytes, bytes;
    bool fused[MODEL_GROUPS_MAX];
    void *memory;
};

/* Shared memory: what the workers share, attention's rows, a scratch for each warp, attention's keys, the ring. */
template <int DIM> struct step_layout {
    enum {
        SCRATCH = 2 * STEP_STRIPS * 64, /* split strips; or the query in parts, a key and a value */
        ROWS = (sizeof(step_shared) + 15) / 16 * 16,
        SCRATCHES = ROWS + 2 * step_attention<DIM>::WARPS * (DIM + 2) * (int)sizeof(float),
        KEYS = SCRATCHES + STEP_WARPS * SCRATCH,
        RING = (KEYS + step_attention<DIM>::BYTES + 127) / 128 * 128
    };
};

template <int DIM, int D>
static __device__ __forceinline__ void work(const step_task &t, unsigned char *memory, step_ring ring) {
    using layout = step_layout<DIM>;
    int warp = threadIdx.x / 32;
    step_worker<D> worker = {t,    *(step_shared *)memory, memory + layout::SCRATCHES + warp * layout::SCRATCH,
                             ring, (int)threadIdx.x % 32,  warp,
                             0};
    step_pieces<DIM> pieces;
    pieces.attention.room = shared_address(memory + layout::KEYS + warp * 16 * step_attention<DIM>::ROW);
    pieces.rows = (float(*)[step_attention<DIM>::WARPS * (DIM + 2)])(memory + layout::ROWS), pieces.turn = 0;
    pieces.window_head = (int)blockIdx.x / t.splits, pieces.window_split = (int)blockIdx.x % t.splits;
    const step_shares &shares = worker.shared.shares;
    if ((int)threadIdx.x < shares.units[OUTPUT])
        worker.shared.own[threadIdx.x] = to_float(t.embed[(int64_t)t.id * t.d + shares.begin[OUTPUT] + threadIdx.x]);
    unsigned zero = t.base; /* the number of the layer's phase 0 */
#pragma unroll 1
    for (int n = 0; n < t.n_layers; n++, zero += PHASES) {
        const step_layer &l = t.layers[n];
        pieces.begin_window(t, l);
        worker.template normed<QKV>(l, zero + QKV, n == 0 ? NULL : t.end, zero - PHASES + DOWN,
                                    l.first && t.inputs && blockIdx.x == 0 ? t.inputs + l.group * t.d : NULL);
        pieces.template run<true>(t, l, zero + QKV, zero + ATTEND, worker.scratch);
        worker.template join<OUTPUT, DIM>(l, zero + OUTPUT, t.part, t.splits, zero + ATTEND);
        bool fused = step_fused(t, l);
        if (fused) {
            pieces.begin_slot(t, l, blockIdx.x);
            worker.template normed<FUSE_QUERY>(l, zero + FUSE_QUERY, t.middle, zero + OUTPUT, NULL);
            pieces.template run<false>(t, l, zero + FUSE_QUERY, zero + FUSE_ATTEND, worker.scratch);
            worker.template join<FUSE_OUTPUT, DIM>(l, zero + FUSE_OUTPUT, t.slot_part, t.fusion[l.group].k,
                                                   zero + FUSE_ATTEND);
        }
        worker.template normed<GATE_UP>(l, zero + GATE_UP, fused ? t.sum : t.middle,
                                        zero + (fused ? FUSE_OUTPUT : OUTPUT), NULL);
        worker.down(l, zero + DOWN, zero + GATE_UP);
    }
    if (t.logits) worker.template normed<HEAD>(t.layers[0], zero + HEAD, t.end, zero - PHASES + DOWN, NULL);
}

template <int DIM, int D>
static __global__ void __launch_bounds__(STEP_THREADS, 1) token_step_kernel(const __grid_constant__ step_task t) {
/* Older cards have no copies of whole pieces of memory; fits() keeps them away. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char memory[];
    step_shared &shared = *(step_shared *)memory;
    step_ring ring = {shared_address(memory + step_layout<DIM>::RING),
                      shared_address(shared.full),
                      shared_address(shared.empty),
                      t.capacity,
                      0,
                      0,
                      0};
    if (threadIdx.x < RING_SLOTS) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ring.full + threadIdx.x * 8) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ring.empty + threadIdx.x * 8), "r"((int)STEP_WARPS)
                     : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (threadIdx.x < PHASES) shared.shares.lay(t, threadIdx.x);
    __syncthreads();
    if (threadIdx.x >= STEP_WORKERS)
        step_bringer<step_worker<D>::STRIPS>{ring, 0, 0, 0}.run(t, shared.shares);
    else
        work<DIM, D>(t, memory, ring);
#endif
}

static bool dense_bf16(struct mat m) {
    return m.type == DTYPE_BF16 && m.stride == m.cols && (uintptr_t)m.data % 16 == 0;
}

/* Bytes left for the ring. */
static int ring_capacity(struct device *dev, int dim) {
    return (device_cuda_shared_bytes(dev) - (dim == 64 ? (int)step_layout<64>::RING : (int)step_layout<128>::RING)) /
           128 * 128;
}

static bool fits(struct device *dev, const struct token_step_config *c) {
    int64_t d = c->embed.cols, f = c->layers[0].weights->gate.rows;
    if (dev->shares_memory || device_cuda_architecture(dev) < 90 || c->n_layers < 1 || c->n_layers > STEP_LAYERS_MAX ||
        d % c->heads || (d / c->heads != 64 && d / c->heads != 128))
        return false;
    if (d % 8 || f % 8 || d > WIDTH_MAX || !dense_bf16(c->embed) || !dense_bf16(c->final_norm) ||
        c->heads > device_cuda_processors(dev) || 3 * d < device_cuda_processors(dev) ||
        f < device_cuda_processors(dev) || d > 16 * device_cuda_processors(dev))
        return false;
    int capacity = ring_capacity(dev, (int)(d / c->heads));
    if (step_stage_rows((int)d, capacity) < 2 || step_stage_rows((int)f, capacity) < 1) return false;
    for (int i = 0; i < c->n_layers; i++) {
        const struct block_weights *w = c->layers[i].weights;
        if (!dense_bf16(w->qkv) || !dense_bf16(w->o) || !dense_bf16(w->gate_up) || !dense_bf16(w->down) ||
            !dense_bf16(c->layers[i].ring) || c->layers[i].ring.rows != c->layers[0].ring.rows)
            return false;
    }
    return true;
}

static const void *kernel_of(int dim, int d) {
    if (dim == 64 && d == 768) return (const void *)token_step_kernel<64, 768>;
    if (dim == 64 && d == 1024) return (const void *)token_step_kernel<64, 1024>;
    if (dim == 64) return d <= 1024 ? (const void *)token_step_kernel<64, 0> : (const void *)token_step_kernel<64, -1>;
    return d <= 1024 ? (const void *)token_step_kernel<128, 0> : (const void *)token_step_kernel<128, -1>;
}

static void lay_layers(struct token_step *t, const struct token_step_config *c) {
    auto at = [](struct mat m) { return (const bf16 *)m.data; };
    for (int i = 0; i < c->n_layers; i++) {
        const struct block_weights *w = c->layers[i].weights;
        int group = c->layers[i].group;
        t->task.layers[i] = {at(w->input_norm),
                             at(w->qkv),
                             at(w->o),
                             at(w->post_norm),
                             at(w->gate_up),
                             at(w->down),
                             at(w->gca_norm),
                             at(w->gca_q),
                             at(w->gca_o),
                             (bf16 *)c->layers[i].ring.data,
                             group,
                             i > 0 && group > c->layers[i - 1].group};
        if (group >= 0) t->fused[group] = true;
    }
}

static enum status prepare(struct token_step *t, const struct token_step_config *c) {
    struct step_task *k = &t->task;
    k->d = (int)c->embed.cols, k->f = (int)c->layers[0].weights->gate.rows, k->heads = c->heads;
    t->dim = k->d / k->heads;
    t->blocks = device_cuda_processors(t->dev);
    t->shared_bytes = (size_t)device_cuda_shared_bytes(t->dev);
    k->capacity = ring_capacity(t->dev, t->dim);
    k->rows_d = step_stage_rows(k->d, k->capacity), k->rows_f = step_stage_rows(k->f, k->capacity);
    k->embed = (const bf16 *)c->embed.data, k->final_norm = (const bf16 *)c->final_norm.data;
    k->vocab = (int)c->embed.rows, k->eps = c->eps;
    t->window = c->window;
    k->n_layers = c->n_layers;
    k->ring = (int)c->layers[0].ring.rows;
    size_t d = (size_t)k->d, width = (size_t)t->dim / 2 + 2, all = 0;
    size_t words[] = {
        d, d, 3 * d, (size_t)t->blocks * width, d, (size_t)k->heads * TOKEN_STEP_SLOTS_MAX * width, d, (size_t)k->f};
    step_word **to[] = {&k->middle, &k->end, &k->qkv, &k->part, &k->query, &k->slot_part, &k->sum, &k->act};
    for (size_t n : words)
        all += (n * sizeof(step_word) + 255) / 256 * 256;
    t->bytes = all;
    TRY(device_allocate(t->dev, &t->memory, all));
    unsigned char *next = (unsigned char *)t->memory;
    for (int i = 0; i < 8; i++) {
        *to[i] = (step_word *)(void *)next;
        next += (words[i] * sizeof(step_word) + 255) / 256 * 256;
    }
    k->base = PHASES; /* new memory is zero: no phase has that number */
    if (cudaFuncSetAttribute(kernel_of(t->dim, t->task.d), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)t->shared_bytes) != cudaSuccess)
        return fail(STATUS_UNSUPPORTED, "GPU: %zu bytes of shared memory for the token step", t->shared_bytes);
    lay_layers(t, c);
    return STATUS_OK;
}

enum status token_step_create(struct token_step **out, struct device *dev, const struct token_step_config *config) {
    *out = NULL;
    if (!fits(dev, config)) return STATUS_OK;
    struct token_step *t = NULL;
    TRY(memory_allocate_zero((void **)&t, 1, sizeof *t));
    t->dev = dev;
    enum status status = prepare(t, config);
    if (status == STATUS_OK) {
        *out = t;
        return STATUS_OK;
    }
    token_step_free(t);
    return status;
}

void token_step_free(struct token_step *t) {
    if (!t) return;
    device_release(t->dev, t->memory);
    memory_free(t);
}

/* Blocks that share a head's window: every block reads all parts, so no more than the keys in flight need; and no more
 * than the product behind takes at a time. */
static int splits_of(const struct token_step *t, int keys) {
    int batch = t->dim == 64 ? step_attention<64>::BATCH : step_attention<128>::BATCH;
    return min(min(t->blocks / t->task.heads, 8), (keys + batch - 1) / batch);
}

void token_step_run(struct token_step *t, float *logits, void *inputs, int32_t id, int64_t position,
                    const struct token_step_fusion *fusions) {
    struct step_task task = t->task;
    int64_t begin = position > t->window ? position - t->window : 0;
    task.logits = logits, task.inputs = (bf16 *)inputs, task.id = id;
    task.row = (int)(position % task.ring), task.first = (int)(begin % task.ring),
    task.keys = (int)(position - begin) + 1;
    task.splits = splits_of(t, task.keys);
    for (int g = 0; g < MODEL_GROUPS_MAX; g++) {
        if (!t->fused[g] || fusions[g].blocks.blocks == 0) continue;
        const struct token_step_fusion *f = &fusions[g];
        assert(dense_bf16(f->pool.keys) && dense_bf16(f->pool.values) && f->blocks.k <= TOKEN_STEP_SLOTS_MAX);
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
    cudaError_t error =
        cudaLaunchCooperativeKernel(kernel_of(t->dim, t->task.d), dim3((unsigned)t->blocks), dim3(STEP_THREADS),
                                    arguments, t->shared_bytes, device_cuda_stream(t->dev));
    if (error != cudaSuccess) device_cuda_fault(t->dev, "token_step", cudaGetErrorString(error));
    device_cuda_check(t->dev, "token_step");
    t->task.base += (unsigned)(t->task.n_layers + 1) * PHASES;
    if (t->task.base > UINT32_MAX / 2) { /* numbers start again, in clean memory */
        device_clear(t->dev, t->memory, t->bytes);
        t->task.base = PHASES;
    }
}
