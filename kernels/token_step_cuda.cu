/* token_step_cuda.cu -- see token_step.h and token_step.cuh. Phases of a layer, a barrier behind each:
 *
 *   qkv        norm, the three products; key and value go into the ring
 *   attention  a head's window is split over the blocks that it has; parts go to device memory
 *   output     the parts of a head joined, the product, the residual
 *   (fusion)   upper layers that read chunks: norm and query product; a block a head and slot; the output product
 *   gate, up   norm, both products of a column in one warp, SwiGLU
 *   down       the product, the residual
 *
 * Bound by the barriers: 60 of them in 12 layers, beside 250 MB of weights. */
#include "kernels/token_step.cuh"
#include <string.h>
extern "C" {
#include "base/memory.h"
#include "kernels/token_step.h"
}

enum { WIDTH_MAX = 4 * STEP_THREADS }; /* of d */

struct step_layer {
    const bf16 *input_norm, *qkv, *o, *post_norm, *gate_up, *down, *gca_norm, *gca_q, *gca_o;
    bf16 *ring;
    int group;
    bool first; /* of its group */
};
struct step_fusion {
    const bf16 *keys, *values;
    const int32_t *slot;
    const float *weight;
    int k, slot_rows, live_rows, null_key;
};
struct step_task {
    const step_layer *layers;
    const bf16 *embed, *final_norm;
    float *x, *sum, *q, *act, *part, *logits;
    bf16 *inputs;
    unsigned *count, base;
    int row, first, keys, ring; /* rows of the ring: the position's, its window's first; keys in the window */
    int n_layers, d, f, heads, vocab, id;
    float eps;
    step_fusion fusion[MODEL_GROUPS_MAX];
};

/* In their order; those from FUSE_QUERY to FUSE_OUTPUT for layers that read chunks. */
enum step_phase { QKV, ATTEND, OUTPUT, FUSE_QUERY, FUSE_ATTEND, FUSE_OUTPUT, GATE_UP, DOWN, HEAD };

struct token_step {
    struct device *dev;
    struct step_task task;
    int blocks, dim, window;
    size_t shared_bytes;
    unsigned barriers, fused_layers[MODEL_GROUPS_MAX];
    void *memory;
};

/* v = RMS(x) * w, in shared memory. x: float32 of this step, or (NULL) a row of the embedding. */
static __device__ __forceinline__ void norm_into(step_vector v, const float *x, const bf16 *row, const bf16 *w, const step_task &t,
                                                 float *shared) {
    float sum = 0.0f, y[WIDTH_MAX / STEP_THREADS], by[WIDTH_MAX / STEP_THREADS];
#pragma unroll
    for (int j = 0; j < WIDTH_MAX / STEP_THREADS; j++) {
        int i = j * STEP_THREADS + threadIdx.x;
        y[j] = i >= t.d ? 0.0f : x ? __ldcg(x + i) : to_float(row[i]);
        by[j] = i < t.d ? to_float(w[i]) : 0.0f;
        sum += y[j] * y[j];
    }
    float scale = rsqrtf(block_sum(sum, shared) / (float)t.d + t.eps);
#pragma unroll
    for (int j = 0; j < WIDTH_MAX / STEP_THREADS; j++) {
        int i = j * STEP_THREADS + threadIdx.x;
        if (i < t.d) v.set(i, y[j] * scale * by[j]);
    }
}

/* The window of one head, cut into `splits` pieces of which this is one. */
template <int DIM>
static __device__ __forceinline__ step_keys window_keys(const step_task &t, const step_layer &l, int head, int split, int splits) {
    int each = (t.keys + splits - 1) / splits, first = min(split * each, t.keys), count = min(each, t.keys - first);
    step_keys s;
    s.keys = l.ring + head * DIM;
    s.values = s.keys + t.d;
    s.stride = 2 * t.d;
    s.first = t.first + first;
    if (s.first >= t.ring) s.first -= t.ring;
    s.ring = t.ring;
    s.count = count;
    s.fresh = first + count == t.keys ? count - 1 : -1;
    s.slope = exp2f(-8.0f * (float)(head + 1) / (float)t.heads);
    s.distance = (float)(t.keys - 1 - first);
    return s;
}

template <int DIM>
static __device__ __forceinline__ step_keys slot_keys(const step_task &t, const step_fusion &f, int head, int place) {
    step_keys s;
    int slot = f.slot[place];
    bool empty = slot < 0 || f.weight[place] == 0.0f;
    s.keys = f.keys + (int64_t)(empty ? 0 : slot) * f.slot_rows * t.d + head * DIM;
    s.values = f.values + (s.keys - f.keys);
    s.stride = t.d;
    s.first = 0;
    s.ring = INT32_MAX;
    s.count = empty ? 0 : f.live_rows;
    s.fresh = -1;
    s.slope = s.distance = 0.0f;
    return s;
}

/* v: each head's parts joined by their highest scores and sums. factors [3 * heads * splits]. */
template <int DIM> static __device__ __forceinline__ void join_window(step_vector v, const step_task &t, int splits, float *factors) {
    enum { WIDTH = step_attention<DIM>::WIDTH };
    int parts = t.heads * splits, mine = threadIdx.x;
    float m = -INFINITY;
    if (mine < parts) {
        float2 both = __ldcg((const float2 *)(t.part + mine * WIDTH + DIM));
        m = both.x;
        factors[mine] = both.x;
        factors[parts + mine] = both.y;
    }
    __syncthreads();
    if (mine < parts) {
        int begin = mine / splits * splits;
        float most = -INFINITY, all = 0.0f;
#pragma unroll 4
        for (int s = begin; s < begin + splits; s++)
            most = fmaxf(most, factors[s]);
#pragma unroll 4
        for (int s = begin; s < begin + splits; s++)
            all += __expf(factors[s] - most) * factors[parts + s];
        factors[2 * parts + mine] = __expf(m - most) / all;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = mine; i < t.d; i += STEP_THREADS) {
        float y = 0.0f;
        int begin = i / DIM * splits;
        const float *part = t.part + begin * WIDTH + i % DIM;
#pragma unroll 8
        for (int s = 0; s < splits; s++)
            y += factors[2 * parts + begin + s] * __ldcg(part + s * WIDTH);
        v.set(i, y);
    }
}

/* v: the slots' parts, which carry their weights, added. */
template <int DIM> static __device__ __forceinline__ void join_slots(step_vector v, const step_task &t, int k) {
    enum { WIDTH = step_attention<DIM>::WIDTH };
#pragma unroll 1
    for (int i = threadIdx.x; i < t.d; i += STEP_THREADS) {
        float y = 0.0f;
        const float *part = t.part + i / DIM * k * WIDTH + i % DIM;
#pragma unroll 8
        for (int place = 0; place < k; place++)
            y += __ldcg(part + place * WIDTH);
        v.set(i, y);
    }
}

/* A piece of a head's keys for each block. */
template <int DIM>
static __device__ __forceinline__ void attend(const step_task &t, const step_layer &l, bool window, step_barrier &barrier, float *shared) {
    enum { WIDTH = step_attention<DIM>::WIDTH };
    const step_fusion &f = t.fusion[window ? 0 : l.group];
    int each = window ? gridDim.x / t.heads : f.k, pieces = t.heads * each;
    step_attention<DIM> attention;
    float *out = shared + STEP_WARPS * WIDTH;
#pragma unroll 1
    for (int piece = blockIdx.x; piece < pieces || piece == (int)blockIdx.x; piece += gridDim.x) {
        int head = piece / each;
        step_keys s = {};
        if (piece < pieces)
            s = window ? window_keys<DIM>(t, l, head, piece % each, each) : slot_keys<DIM>(t, f, head, piece % each);
        attention.begin(s);
        if (piece == (int)blockIdx.x) barrier.wait();
        if (piece >= pieces) break;
        attention.run(out, s, t.q + head * DIM, shared);
        __syncthreads();
        float factor = 1.0f;
        if (!window) {
            float most = f.null_key ? fmaxf(out[DIM], 0.0f) : out[DIM];
            float all = __expf(out[DIM] - most) * out[DIM + 1] + (f.null_key ? __expf(-most) : 0.0f);
            factor = s.count ? f.weight[piece % each] * __expf(out[DIM] - most) / all : 0.0f;
        }
        if (threadIdx.x < WIDTH) t.part[piece * WIDTH + threadIdx.x] = s.count || window ? out[threadIdx.x] * factor : 0.0f;
        __syncthreads();
    }
}

/* What a product's row is for. */
struct step_finish {
    const step_task &t;
    const step_layer &l;
    step_phase phase;
    float gate;
    __device__ __forceinline__ void operator()(int unit, int half, float y) {
        if (phase == GATE_UP && half == 0) gate = y;
        if (threadIdx.x % 32) return;
        switch (phase) {
        case QKV:
            if (unit < t.d)
                t.q[unit] = y;
            else
                l.ring[(int64_t)t.row * 2 * t.d + unit - t.d] = from_float<bf16>(y);
            break;
        case FUSE_QUERY: t.q[unit] = y; break;
        case OUTPUT:
        case DOWN: t.x[unit] = __ldcg(t.x + unit) + y; break;
        case FUSE_OUTPUT: t.sum[unit] = __ldcg(t.x + unit) + y; break;
        case GATE_UP:
            if (half) t.act[unit] = gate / (1.0f + __expf(-gate)) * y;
            break;
        default: t.logits[unit] = y;
        }
    }
};

static __device__ __forceinline__ void begin_product(step_product &product, const step_task &t, const step_layer &l, step_phase phase) {
    const bf16 *w = phase == QKV          ? l.qkv
                    : phase == OUTPUT     ? l.o
                    : phase == FUSE_QUERY ? l.gca_q
                    : phase == FUSE_OUTPUT ? l.gca_o
                    : phase == GATE_UP    ? l.gate_up
                    : phase == DOWN       ? l.down
                                          : t.embed;
    int rows = phase == QKV ? 3 * t.d : phase == GATE_UP ? t.f : phase == HEAD ? t.vocab : t.d;
    product.begin(w, phase == DOWN ? t.f : t.d, rows, phase == GATE_UP ? t.f : 0);
}

template <int DIM>
static __device__ __forceinline__ void load_vector(step_vector v, const step_task &t, const step_layer &l, int n, step_phase phase,
                                                   bool fused, float *shared) {
    switch (phase) {
    case OUTPUT: join_window<DIM>(v, t, gridDim.x / t.heads, shared); break;
    case FUSE_OUTPUT: join_slots<DIM>(v, t, t.fusion[l.group].k); break;
    case DOWN:
#pragma unroll 4
        for (int i = threadIdx.x; i < t.f; i += STEP_THREADS)
            v.set(i, __ldcg(t.act + i));
        break;
    default: {
        const bf16 *w = phase == QKV ? l.input_norm : phase == FUSE_QUERY ? l.gca_norm : phase == GATE_UP ? l.post_norm : t.final_norm;
        const float *x = phase == GATE_UP && fused ? t.sum : phase == QKV && n == 0 ? NULL : t.x;
        norm_into(v, x, t.embed + (int64_t)t.id * t.d, w, t, shared);
    }
    }
    __syncthreads();
}

template <int DIM> static __global__ void __launch_bounds__(STEP_THREADS, 1) token_step_kernel(const __grid_constant__ step_task t) {
    extern __shared__ float4 memory[];
    int longest = (max(t.d, t.f) + 7) / 8;
    step_vector v = {{memory, memory + longest}};
    float *shared = (float *)(memory + 2 * longest);
    step_barrier barrier = {t.count, t.base};
    step_phase phase = QKV;
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < t.d; i += STEP_THREADS)
            t.x[i] = to_float(t.embed[(int64_t)t.id * t.d + i]);
#pragma unroll 1
    for (int n = 0; n < t.n_layers || (n == t.n_layers && t.logits);) {
        if (n == t.n_layers) phase = HEAD;
        const step_layer &l = t.layers[min(n, t.n_layers - 1)];
        bool fused = l.group >= 0 && t.fusion[l.group].k > 0;
        if (phase == ATTEND || phase == FUSE_ATTEND) {
            attend<DIM>(t, l, phase == ATTEND, barrier, shared);
        } else {
            step_product product;
            begin_product(product, t, l, phase);
            if (n > 0 || phase != QKV) barrier.wait();
            if (phase == QKV && l.first && t.inputs && blockIdx.x == 0)
                for (int i = threadIdx.x; i < t.d; i += STEP_THREADS)
                    t.inputs[l.group * t.d + i] = from_float<bf16>(__ldcg(t.x + i));
            load_vector<DIM>(v, t, l, n, phase, fused, shared);
            product.run(v, step_finish{t, l, phase, 0.0f});
        }
        if (phase == HEAD) return;
        barrier.arrive();
        if (phase == DOWN) n++;
        phase = phase == DOWN ? QKV : phase == OUTPUT && !fused ? GATE_UP : (step_phase)(phase + 1);
    }
}

static bool dense_bf16(struct mat m) {
    return m.type == DTYPE_BF16 && m.stride == m.cols && (uintptr_t)m.data % 16 == 0;
}

static bool fits(struct device *dev, const struct token_step_config *c) {
    int64_t d = c->embed.cols, f = c->layers[0].weights->gate.rows;
    if (dev->shares_memory || c->n_layers < 1 || d % c->heads || (d / c->heads != 64 && d / c->heads != 128)) return false;
    if (d % 8 || f % 8 || d > WIDTH_MAX || !dense_bf16(c->embed) || !dense_bf16(c->final_norm) || c->heads > device_cuda_processors(dev))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        const struct block_weights *w = c->layers[i].weights;
        if (!dense_bf16(w->qkv) || !dense_bf16(w->o) || !dense_bf16(w->gate_up) || !dense_bf16(w->down) ||
            !dense_bf16(c->layers[i].ring) || c->layers[i].ring.rows != c->layers[0].ring.rows)
            return false;
    }
    return true;
}

static const void *kernel_of(int dim) {
    return dim == 64 ? (const void *)token_step_kernel<64> : (const void *)token_step_kernel<128>;
}

/* Shared memory: the vector, and what the phases need beside it. */
static size_t shared_bytes(int d, int f, int dim, int blocks) {
    size_t vector = (size_t)(((d > f ? d : f) + 7) / 8) * 2 * sizeof(float4);
    size_t attention = (size_t)(STEP_WARPS + 1) * (size_t)(dim + 2) * sizeof(float), join = 3 * (size_t)blocks * sizeof(float);
    return vector + (attention > join ? attention : join) + 64 * sizeof(float);
}

static enum status upload_layers(struct token_step *t, const struct token_step_config *c, size_t offset) {
    struct step_layer *layers = NULL;
    size_t bytes = (size_t)c->n_layers * sizeof *layers;
    TRY(memory_allocate_zero((void **)&layers, (size_t)c->n_layers, sizeof *layers));
    for (int i = 0; i < c->n_layers; i++) {
        const struct block_weights *w = c->layers[i].weights;
        auto at = [](struct mat m) { return (const bf16 *)m.data; };
        layers[i] = {at(w->input_norm), at(w->qkv),      at(w->o),     at(w->post_norm), at(w->gate_up),
                     at(w->down),       at(w->gca_norm), at(w->gca_q), at(w->gca_o),     (bf16 *)c->layers[i].ring.data,
                     c->layers[i].group, i > 0 && c->layers[i].group > c->layers[i - 1].group};
        if (layers[i].group >= 0) t->fused_layers[layers[i].group]++;
    }
    device_upload(t->dev, (unsigned char *)t->memory + offset, layers, bytes);
    memory_free(layers);
    t->task.layers = (const step_layer *)((unsigned char *)t->memory + offset);
    return STATUS_OK;
}

static enum status prepare(struct token_step *t, const struct token_step_config *c) {
    struct step_task *k = &t->task;
    k->d = (int)c->embed.cols, k->f = (int)c->layers[0].weights->gate.rows, k->heads = c->heads;
    t->dim = k->d / k->heads;
    t->blocks = device_cuda_processors(t->dev);
    t->shared_bytes = shared_bytes(k->d, k->f, t->dim, t->blocks);
    k->embed = (const bf16 *)c->embed.data, k->final_norm = (const bf16 *)c->final_norm.data;
    k->vocab = (int)c->embed.rows, k->eps = c->eps;
    t->window = c->window;
    k->n_layers = c->n_layers;
    k->ring = (int)c->layers[0].ring.rows;
    t->barriers = 5 * (unsigned)c->n_layers;
    /* Parts: those of the window, or a head and slot each. */
    int pieces = k->heads * TOKEN_STEP_SLOTS_MAX;
    size_t parts = (size_t)(t->blocks > pieces ? t->blocks : pieces) * (size_t)(t->dim + 2);
    size_t vectors[] = {(size_t)k->d, (size_t)k->d, (size_t)k->d, (size_t)k->f, parts}, used = 256;
    float **to[] = {&k->x, &k->sum, &k->q, &k->act, &k->part};
    size_t all = used;
    for (size_t n : vectors)
        all += (n * sizeof(float) + 255) / 256 * 256;
    TRY(device_allocate(t->dev, &t->memory, all + (size_t)c->n_layers * sizeof(struct step_layer)));
    k->count = (unsigned *)t->memory;
    for (int i = 0; i < 5; i++) {
        *to[i] = (float *)(void *)((unsigned char *)t->memory + used);
        used += (vectors[i] * sizeof(float) + 255) / 256 * 256;
    }
    if (cudaFuncSetAttribute(kernel_of(t->dim), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)t->shared_bytes) != cudaSuccess)
        return fail(STATUS_UNSUPPORTED, "GPU: %zu bytes of shared memory for the token step", t->shared_bytes);
    return upload_layers(t, c, all);
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

void token_step_run(struct token_step *t, float *logits, void *inputs, int32_t id, int64_t position,
                    const struct token_step_fusion *fusions) {
    struct step_task task = t->task;
    unsigned barriers = t->barriers;
    int64_t begin = position > t->window ? position - t->window : 0;
    task.logits = logits, task.inputs = (bf16 *)inputs, task.id = id;
    task.row = (int)(position % task.ring), task.first = (int)(begin % task.ring), task.keys = (int)(position - begin) + 1;
    for (int g = 0; g < MODEL_GROUPS_MAX; g++) {
        if (!t->fused_layers[g] || fusions[g].blocks.blocks == 0) continue;
        const struct token_step_fusion *f = &fusions[g];
        assert(dense_bf16(f->pool.keys) && dense_bf16(f->pool.values) && f->blocks.k <= TOKEN_STEP_SLOTS_MAX);
        task.fusion[g] = {(const bf16 *)f->pool.keys.data, (const bf16 *)f->pool.values.data, f->blocks.slot, f->blocks.weight,
                          f->blocks.k, f->pool.slot_rows, f->pool.live_rows, f->pool.off_by_one};
        barriers += 3 * t->fused_layers[g];
    }
    void *arguments[] = {&task};
    cudaError_t error = cudaLaunchCooperativeKernel(kernel_of(t->dim), dim3((unsigned)t->blocks), dim3(STEP_THREADS), arguments,
                                                    t->shared_bytes, device_cuda_stream(t->dev));
    if (error != cudaSuccess) device_cuda_fault(t->dev, "token_step", cudaGetErrorString(error));
    device_cuda_check(t->dev, "token_step");
    t->task.base += barriers * (unsigned)t->blocks;
}
