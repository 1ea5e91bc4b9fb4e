/* token_step_cuda.cu -- see token_step.h and token_step.cuh. Phases of a layer, each
 * reading what all blocks made in the one before:
 *
 *   qkv        norm, the three products; key and value go into the ring
 *   attention  a head's window is split over the blocks that it has; parts go to device memory
 *   output     the parts of a head joined, the product, the residual
 *   (fusion)   upper layers that read chunks: norm and query product; a block a head and slot; the output product
 *   gate, up   norm, both products of a column in one warp, SwiGLU
 *   down       the product, the residual
 *
 * Bound by the way from block to block, 60 times in 12 layers, beside reading 250 MB of weights. */
#include "kernels/token_step.cuh"
#include <string.h>
extern "C" {
#include "base/memory.h"
#include "kernels/token_step.h"
}

enum { WIDTH_MAX = 4 * STEP_THREADS /* of d */, LAYERS_MAX = 96 };

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
    const bf16 *embed, *final_norm;
    step_word *middle, *end, *qkv, *part, *query, *slot_part, *sum, *act; /* of the phases, in their order; end: of DOWN */
    float *logits;
    bf16 *inputs;
    unsigned base; /* phase p of layer n: base + n * PHASES + p */
    int row, first, keys, ring; /* rows of the ring: the position's, its window's first; keys in the window */
    int n_layers, d, f, heads, vocab, id;
    float eps;
    step_fusion fusion[MODEL_GROUPS_MAX];
    step_layer layers[LAYERS_MAX]; /* constant memory: a pointer that had to be fetched first would cost a phase half its time */
};

/* In their order; those from FUSE_QUERY to FUSE_OUTPUT for layers that read chunks. */
enum step_phase { QKV, ATTEND, OUTPUT, FUSE_QUERY, FUSE_ATTEND, FUSE_OUTPUT, GATE_UP, DOWN, HEAD, PHASES };

struct token_step {
    struct device *dev;
    struct step_task task;
    int blocks, dim, window;
    size_t shared_bytes, bytes;
    bool fused[MODEL_GROUPS_MAX];
    void *memory;
};

/* v = x * w, and the warps' sums of squares in `squares`: the root's division comes behind the product. x: words, or
 * (NULL) a row of the embedding; `copy` [d] gets x, too. */
static __device__ __forceinline__ void norm_into(step_vector v, const step_word *x, unsigned phase, const bf16 *row, const bf16 *w,
                                                 bf16 *copy, const step_task &t, float *squares) {
    enum { EACH = WIDTH_MAX / STEP_THREADS / 2 };
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int i = 2 * (j * STEP_THREADS + threadIdx.x);
        if (i >= t.d) break;
        float2 by = __bfloat1622float2(*(const __nv_bfloat162 *)(w + i));
        float2 y = x ? step_take(x + i, phase) : __bfloat1622float2(*(const __nv_bfloat162 *)(row + i));
        if (copy) *(__nv_bfloat162 *)(copy + i) = __float22bfloat162_rn(y);
        sum += y.x * y.x + y.y * y.y;
        v.set(i, make_float2(y.x * by.x, y.y * by.y));
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = sum;
}

/* 1 / the root of the mean square, in every thread. */
static __device__ __forceinline__ float scale_of(const step_task &t, const float *squares) {
    float sum = squares[threadIdx.x % STEP_WARPS];
#pragma unroll
    for (int offset = STEP_WARPS / 2; offset; offset /= 2)
        sum += __shfl_xor_sync(~0u, sum, offset);
    return rsqrtf(sum / (float)t.d + t.eps);
}

/* The window of one head, cut into `splits` pieces of which this is one. */
template <int DIM>
static __device__ __forceinline__ step_keys window_keys(const step_task &t, const step_layer &l, int head, int split, int splits,
                                                         unsigned phase) {
    int each = (t.keys + splits - 1) / splits, first = min(split * each, t.keys), count = min(each, t.keys - first);
    step_keys s;
    s.keys = l.ring + head * DIM;
    s.values = s.keys + t.d;
    s.stride = 2 * t.d;
    s.first = t.first + first;
    if (s.first >= t.ring) s.first -= t.ring;
    s.ring = t.ring;
    s.count = count;
    s.fresh = count && first + count == t.keys ? count - 1 : -1;
    s.fresh_key = t.qkv + t.d + head * DIM;
    s.fresh_value = s.fresh_key + t.d;
    s.fresh_phase = phase;
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
    s.fresh_key = s.fresh_value = NULL;
    s.fresh_phase = 0;
    s.slope = s.distance = 0.0f;
    return s;
}

/* Blocks that share a head's window: parts are read by every block, so no more than one pass of keys needs. */
template <int DIM> static __device__ __forceinline__ int splits_of(const step_task &t) {
    return min((int)gridDim.x / t.heads, (t.keys + step_attention<DIM>::PASS - 1) / step_attention<DIM>::PASS);
}

/* to += factor * the four columns of two words. */
static __device__ __forceinline__ void add_pairs(float4 &to, float factor, const float2 &words) {
    unsigned a = __float_as_uint(words.x), b = __float_as_uint(words.y);
    to.x += factor * step_low(a), to.y += factor * step_high(a), to.z += factor * step_low(b), to.w += factor * step_high(b);
}

/* v: each head's parts joined by their highest scores and sums. factors [3 * heads * splits]. */
template <int DIM>
static __device__ __forceinline__ void join_window(step_vector v, const step_task &t, unsigned phase, float *factors) {
    enum { WORDS = step_attention<DIM>::WORDS };
    int splits = splits_of<DIM>(t), parts = t.heads * splits, mine = threadIdx.x;
    float m = -INFINITY;
    if (mine < parts) {
        float2 both = step_take(t.part + mine * WORDS + DIM / 2, phase);
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
    for (int i = 4 * mine; i < t.d; i += 4 * STEP_THREADS) {
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        int begin = i / DIM * splits;
        const step_word *part = t.part + begin * WORDS + i % DIM / 2;
#pragma unroll 1
        for (int s = 0; s < splits; s += 4) { /* parts behind the last: the last again, which counts nothing */
            uint4 raw[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                raw[k] = step_look(part + min(s + k, splits - 1) * WORDS);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                while (raw[k].y != phase || raw[k].w != phase)
                    raw[k] = step_look(part + min(s + k, splits - 1) * WORDS);
                float factor = s + k < splits ? factors[2 * parts + begin + s + k] : 0.0f;
                add_pairs(y, factor, make_float2(__uint_as_float(raw[k].x), __uint_as_float(raw[k].z)));
            }
        }
        v.set(i, make_float2(y.x, y.y));
        v.set(i + 2, make_float2(y.z, y.w));
    }
}

/* v: the slots' parts, which carry their weights, added. */
template <int DIM> static __device__ __forceinline__ void join_slots(step_vector v, const step_task &t, int k, unsigned phase) {
    enum { WORDS = step_attention<DIM>::WORDS };
#pragma unroll 1
    for (int i = 4 * threadIdx.x; i < t.d; i += 4 * STEP_THREADS) {
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const step_word *part = t.slot_part + i / DIM * k * WORDS + i % DIM / 2;
#pragma unroll 1
        for (int place = 0; place < k; place += 4) {
            uint4 raw[4];
#pragma unroll
            for (int n = 0; n < 4; n++)
                raw[n] = step_look(part + min(place + n, k - 1) * WORDS);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                while (raw[n].y != phase || raw[n].w != phase)
                    raw[n] = step_look(part + min(place + n, k - 1) * WORDS);
                add_pairs(y, place + n < k ? 1.0f : 0.0f, make_float2(__uint_as_float(raw[n].x), __uint_as_float(raw[n].z)));
            }
        }
        v.set(i, make_float2(y.x, y.y));
        v.set(i + 2, make_float2(y.z, y.w));
    }
}

/* A piece of a head's keys for each block. `made`: the phase of the queries. */
template <int DIM>
static __device__ __forceinline__ void attend(const step_task &t, const step_layer &l, bool window, unsigned made, unsigned phase,
                                              float *shared) {
    enum { WORDS = step_attention<DIM>::WORDS, WIDTH = step_attention<DIM>::WIDTH };
    const step_fusion &f = t.fusion[window ? 0 : l.group];
    int each = window ? splits_of<DIM>(t) : f.k, pieces = t.heads * each;
    step_attention<DIM> attention;
    float *out = shared + STEP_WARPS * WIDTH;
#pragma unroll 1
    for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        int head = piece / each;
        step_keys s = window ? window_keys<DIM>(t, l, head, piece % each, each, made) : slot_keys<DIM>(t, f, head, piece % each);
        attention.begin(s);
        attention.run(out, s, (window ? t.qkv : t.query) + head * DIM, made, shared);
        __syncthreads();
        float factor = 1.0f;
        if (!window) {
            float most = f.null_key ? fmaxf(out[DIM], 0.0f) : out[DIM];
            float all = __expf(out[DIM] - most) * out[DIM + 1] + (f.null_key ? __expf(-most) : 0.0f);
            factor = s.count ? f.weight[piece % each] * __expf(out[DIM] - most) / all : 0.0f;
        }
        step_word *part = (window ? t.part : t.slot_part) + piece * WORDS;
        if (!window && s.count == 0) factor = 0.0f;
        if (threadIdx.x < DIM / 2) {
            __nv_bfloat162 pair = __floats2bfloat162_rn(out[2 * threadIdx.x] * factor, out[2 * threadIdx.x + 1] * factor);
            step_put(part + threadIdx.x, __uint_as_float(*(const unsigned *)&pair), phase);
        } else if (threadIdx.x < DIM / 2 + 2) {
            step_put(part + threadIdx.x, out[DIM + threadIdx.x - DIM / 2], phase);
        }
        __syncthreads();
    }
}

/* What a product's row is for. `own`: the residual stream's row of this warp, which every phase deals out alike. */
struct step_finish {
    const step_task &t;
    const step_layer &l;
    step_phase phase;
    unsigned number;
    float scale, &own, gate; /* scale: of the vector */
    __device__ __forceinline__ void operator()(int unit, int half, float y) {
        y *= scale;
        if (phase == OUTPUT || phase == DOWN) own += y;
        if (phase == GATE_UP && half == 0) gate = y;
        if (threadIdx.x % 32) return;
        switch (phase) {
        case QKV:
            step_put(t.qkv + unit, y, number);
            if (unit >= t.d) l.ring[(int64_t)t.row * 2 * t.d + unit - t.d] = from_float<bf16>(y);
            break;
        case OUTPUT: step_put(t.middle + unit, own, number); break;
        case FUSE_QUERY: step_put(t.query + unit, y, number); break;
        case FUSE_OUTPUT: step_put(t.sum + unit, own + y, number); break;
        case GATE_UP:
            if (half) step_put(t.act + unit, gate / (1.0f + __expf(-gate)) * y, number);
            break;
        case DOWN: step_put(t.end + unit, own, number); break;
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

/* The factor that is still missing is returned. `zero`: the number of this layer's phase 0. */
template <int DIM>
static __device__ __forceinline__ float load_vector(step_vector v, const step_task &t, const step_layer &l, int n, step_phase phase,
                                                   unsigned zero, bool fused, float *shared) {
    switch (phase) {
    case OUTPUT: join_window<DIM>(v, t, zero + ATTEND, shared); break;
    case FUSE_OUTPUT: join_slots<DIM>(v, t, t.fusion[l.group].k, zero + FUSE_ATTEND); break;
    case DOWN:
#pragma unroll 2
        for (int i = 2 * threadIdx.x; i < t.f; i += 2 * STEP_THREADS)
            v.set(i, step_take(t.act + i, zero + GATE_UP));
        break;
    default: {
        bool first = phase == QKV, mlp = phase == GATE_UP;
        const bf16 *w = first ? l.input_norm : phase == FUSE_QUERY ? l.gca_norm : mlp ? l.post_norm : t.final_norm;
        const step_word *x = mlp && fused ? t.sum : mlp || phase == FUSE_QUERY ? t.middle : n == 0 ? NULL : t.end;
        unsigned made = mlp && fused ? zero + FUSE_OUTPUT : mlp || phase == FUSE_QUERY ? zero + OUTPUT : zero - PHASES + DOWN;
        bf16 *copy = first && l.first && t.inputs && blockIdx.x == 0 ? t.inputs + l.group * t.d : NULL;
        norm_into(v, x, made, t.embed + (int64_t)t.id * t.d, w, copy, t, shared);
        __syncthreads();
        return scale_of(t, shared);
    }
    }
    __syncthreads();
    return 1.0f;
}

template <int DIM> static __global__ void __launch_bounds__(STEP_THREADS, 1) token_step_kernel(const __grid_constant__ step_task t) {
    extern __shared__ float4 memory[];
    int longest = (max(t.d, t.f) + 7) / 8, row = blockIdx.x + gridDim.x * (threadIdx.x / 32);
    step_vector v = {{memory, memory + longest}};
    float *shared = (float *)(memory + 2 * longest);
    float own = row < t.d ? to_float(t.embed[(int64_t)t.id * t.d + row]) : 0.0f;
    step_phase phase = QKV;
#pragma unroll 1
    for (int n = 0; n < t.n_layers || (n == t.n_layers && t.logits);) {
        if (n == t.n_layers) phase = HEAD;
        unsigned zero = t.base + (unsigned)n * PHASES;
        const step_layer &l = t.layers[min(n, t.n_layers - 1)];
        bool fused = l.group >= 0 && t.fusion[l.group].k > 0;
        if (phase == ATTEND || phase == FUSE_ATTEND) {
            attend<DIM>(t, l, phase == ATTEND, zero + (phase == ATTEND ? QKV : FUSE_QUERY), zero + phase, shared);
        } else {
            step_product product;
            begin_product(product, t, l, phase);
            float scale = load_vector<DIM>(v, t, l, n, phase, zero, fused, shared);
            product.run(v, step_finish{t, l, phase, zero + phase, scale, own, 0.0f});
            if (phase == HEAD) return;
            __syncthreads(); /* the vector is read: the next phase writes it */
        }
        if (phase == DOWN) n++;
        phase = phase == DOWN ? QKV : phase == OUTPUT && !fused ? GATE_UP : (step_phase)(phase + 1);
    }
}

static bool dense_bf16(struct mat m) {
    return m.type == DTYPE_BF16 && m.stride == m.cols && (uintptr_t)m.data % 16 == 0;
}

static bool fits(struct device *dev, const struct token_step_config *c) {
    int64_t d = c->embed.cols, f = c->layers[0].weights->gate.rows;
    if (dev->shares_memory || c->n_layers < 1 || c->n_layers > LAYERS_MAX || d % c->heads || (d / c->heads != 64 && d / c->heads != 128)) return false;
    if (d % 8 || f % 8 || d > WIDTH_MAX || !dense_bf16(c->embed) || !dense_bf16(c->final_norm) || c->heads > device_cuda_processors(dev) ||
        3 * d < device_cuda_processors(dev) || f < device_cuda_processors(dev) || d > STEP_WARPS * device_cuda_processors(dev))
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

static void lay_layers(struct token_step *t, const struct token_step_config *c) {
    auto at = [](struct mat m) { return (const bf16 *)m.data; };
    for (int i = 0; i < c->n_layers; i++) {
        const struct block_weights *w = c->layers[i].weights;
        int group = c->layers[i].group;
        t->task.layers[i] = {at(w->input_norm), at(w->qkv),      at(w->o),     at(w->post_norm), at(w->gate_up),
                             at(w->down),       at(w->gca_norm), at(w->gca_q), at(w->gca_o),     (bf16 *)c->layers[i].ring.data,
                             group,             i > 0 && group > c->layers[i - 1].group};
        if (group >= 0) t->fused[group] = true;
    }
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
    size_t d = (size_t)k->d, width = (size_t)t->dim / 2 + 2, all = 0;
    size_t words[] = {d, d, 3 * d, (size_t)t->blocks * width, d, (size_t)k->heads * TOKEN_STEP_SLOTS_MAX * width, d, (size_t)k->f};
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
    if (cudaFuncSetAttribute(kernel_of(t->dim), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)t->shared_bytes) != cudaSuccess)
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

void token_step_run(struct token_step *t, float *logits, void *inputs, int32_t id, int64_t position,
                    const struct token_step_fusion *fusions) {
    struct step_task task = t->task;
    int64_t begin = position > t->window ? position - t->window : 0;
    task.logits = logits, task.inputs = (bf16 *)inputs, task.id = id;
    task.row = (int)(position % task.ring), task.first = (int)(begin % task.ring), task.keys = (int)(position - begin) + 1;
    for (int g = 0; g < MODEL_GROUPS_MAX; g++) {
        if (!t->fused[g] || fusions[g].blocks.blocks == 0) continue;
        const struct token_step_fusion *f = &fusions[g];
        assert(dense_bf16(f->pool.keys) && dense_bf16(f->pool.values) && f->blocks.k <= TOKEN_STEP_SLOTS_MAX);
        task.fusion[g] = {(const bf16 *)f->pool.keys.data, (const bf16 *)f->pool.values.data, f->blocks.slot, f->blocks.weight,
                          f->blocks.k, f->pool.slot_rows, f->pool.live_rows, f->pool.off_by_one};
    }
    void *arguments[] = {&task};
    cudaError_t error = cudaLaunchCooperativeKernel(kernel_of(t->dim), dim3((unsigned)t->blocks), dim3(STEP_THREADS), arguments,
                                                    t->shared_bytes, device_cuda_stream(t->dev));
    if (error != cudaSuccess) device_cuda_fault(t->dev, "token_step", cudaGetErrorString(error));
    device_cuda_check(t->dev, "token_step");
    t->task.base += (unsigned)(t->task.n_layers + 1) * PHASES;
    if (t->task.base > UINT32_MAX / 2) { /* numbers start again, in clean memory */
        device_clear(t->dev, t->memory, t->bytes);
        t->task.base = PHASES;
    }
}
