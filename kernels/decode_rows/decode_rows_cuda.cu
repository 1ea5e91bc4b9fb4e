/* decode_rows_cuda.cu -- decode_rows.h: a pass of five kernels a layer (eight where a layer reads chunks), recorded as
 * one graph for each number of rows (8, 16, 32, 64).
 *
 *   qkv      norm, product                     decode_rows_product.cuh
 *   window   attention; the new key and value  decode_rows_attention.cuh
 *   output   product, added to the stream
 *   (query, chunks, output of GCA: added to the stream into a second buffer, which the MLP's norm reads)
 *   gate, up norm, product, SwiGLU
 *   down     product, added to the stream
 *
 * All that changes from pass to pass lies in an array of struct decode_row on the device. Rows without a text are
 * computed as zeros, so a pass of 20 costs what one of 32 does. Each kernel is a dependent launch: the next kernel's
 * blocks start, and read weights, keys and values, while the last blocks of the previous one still run. What a kernel
 * reads first is in the L2 cache by then (decode_rows_ahead.cuh). */
#include "kernels/decode_rows/decode_rows_attention.cuh"
#include <stddef.h>
#include <string.h>
extern "C" {
#include "base/memory.h"
#include "kernels/decode_rows/decode_rows_internal.h"
#include "kernels/device/carve.h"
}

enum { ROWS_SIZES = 4, ROWS_FUSED = 1, ROWS_KEPT = 2, ROWS_KINDS = 4, ROWS_TURNS = 2, ROWS_NARROW = 768 };
enum { ROWS_EMBED_BLOCKS = 128 };

struct decode_rows {
    struct device *dev;
    struct decode_step_layer *layers;
    int n_layers, d, f, heads, window;
    float eps;
    struct mat embed, head, final_norm;
    void *memory;
    size_t bytes;
    float *x, *sum, *qkv;
    bf16 *att, *act;
    /* On the device: of this pass; of all turns [ROWS_TURNS]. Pinned: [DECODE_ROWS_CALLS]. They are copied in a stream
     * of their own, while the last pass runs. */
    struct rows_texts *texts, *all_texts, *staging;
    unsigned calls;
    cudaStream_t copies;
    cudaEvent_t copied[ROWS_TURNS], done[ROWS_TURNS]; /* done: the last pass of this turn */
    /* Two of each, in turns: a graph that still runs would delay its next launch. */
    struct device_replay *replays[ROWS_TURNS][ROWS_SIZES][ROWS_KINDS];
};

/* ---- launches ---- */

template <int NT, int GROUPS, int T, bool NORM, rows_epilogue EPILOGUE>
static void rows_launch(struct device *dev, const char *op, const rows_product &p, int rows) {
    using block = rows_block<NT, GROUPS, T, NORM, EPILOGUE>;
    int tiles = (p.out + block::STEP - 1) / block::STEP, parts = rows / (8 * NT), most = device_cuda_processors(dev);
    launch_dependent(dev, op, decode_rows_product<NT, GROUPS, T, NORM, EPILOGUE, false>,
                     dim3((unsigned)(tiles < most ? tiles : most), (unsigned)parts), ROWS_THREADS, 0, p);
}
/* A kernel for one width, that of its registers, and whole tiles: a third of the instructions. False: not these. */
template <int NT, int GROUPS, int T, bool NORM, rows_epilogue EPILOGUE>
static bool rows_launch_exact(struct device *dev, const char *op, const rows_product &p, int rows) {
    using block = rows_block<NT, GROUPS, T, NORM, EPILOGUE, true>;
    if (p.k != block::K || p.out % block::STEP != 0) return false;
    launch_dependent(dev, op, decode_rows_product<NT, GROUPS, T, NORM, EPILOGUE, true>,
                     dim3((unsigned)(p.out / block::STEP), (unsigned)(rows / (8 * NT))), ROWS_THREADS, 0, p);
    return true;
}
/* Wide rows take fewer of them in a block, since they lie in registers. Each block reads all of its rows, so blocks of
 * many rows have 32 outputs: half as many blocks read the rows. Of 32 rows a block of the layers has 16, and 48 or 64
 * outputs: it reads weights before its wait, and rows after it. */
template <int T, rows_epilogue EPILOGUE>
static bool rows_launch_norm_exact(struct device *dev, const char *op, const rows_product &p, int rows) {
    if (rows == 8) return rows_launch_exact<1, 3, T, true, EPILOGUE>(dev, op, p, rows);
    if (rows == 16) return rows_launch_exact<2, 3, T, true, EPILOGUE>(dev, op, p, rows);
    if (rows == 64) return rows_launch_exact<4, 3, 2, true, EPILOGUE>(dev, op, p, rows);
    return rows_launch_exact<2, 3, EPILOGUE == ROWS_STORE ? 3 : 4, true, EPILOGUE>(dev, op, p, rows) ||
           rows_launch_exact<2, 3, 4, true, EPILOGUE>(dev, op, p, rows);
}
template <int T, rows_epilogue EPILOGUE>
static void rows_launch_norm(struct device *dev, const char *op, const rows_product &p, int rows) {
    if constexpr (EPILOGUE != ROWS_LOGITS)
        if (rows_launch_norm_exact<T, EPILOGUE>(dev, op, p, rows)) return;
    if (p.k <= ROWS_NARROW) {
        if (rows == 8)
            rows_launch<1, 3, T, true, EPILOGUE>(dev, op, p, rows);
        else if (rows == 16)
            rows_launch<2, 3, T, true, EPILOGUE>(dev, op, p, rows);
        else if (rows == 32 && T == 1)
            rows_launch<2, 3, T == 1 ? 4 : T, true, EPILOGUE>(dev, op, p, rows);
        else
            rows_launch<4, 3, 2, true, EPILOGUE>(dev, op, p, rows);
    } else if (rows == 8) {
        rows_launch<1, 4, T, true, EPILOGUE>(dev, op, p, rows);
    } else {
        rows_launch<2, 4, T, true, EPILOGUE>(dev, op, p, rows);
    }
}
static bool rows_launch_add_exact(struct device *dev, const char *op, const rows_product &p, int rows) {
    if (rows < 32)
        return rows_launch_exact<1, 3, 1, false, ROWS_ADD>(dev, op, p, rows) ||
               rows_launch_exact<1, 8, 1, false, ROWS_ADD>(dev, op, p, rows);
    return rows_launch_exact<2, 3, 1, false, ROWS_ADD>(dev, op, p, rows) ||
           rows_launch_exact<2, 8, 1, false, ROWS_ADD>(dev, op, p, rows);
}
static void rows_launch_add(struct device *dev, const char *op, const rows_product &p, int rows) {
    const int groups = (p.k + ROWS_WARPS * ROWS_GROUP - 1) / (ROWS_WARPS * ROWS_GROUP); /* of a warp */
    if (rows_launch_add_exact(dev, op, p, rows)) return;
    if (rows < 32 && groups <= 4)
        rows_launch<1, 4, 1, false, ROWS_ADD>(dev, op, p, rows);
    else if (rows < 32)
        rows_launch<1, 12, 1, false, ROWS_ADD>(dev, op, p, rows);
    else if (groups <= 4)
        rows_launch<2, 4, 1, false, ROWS_ADD>(dev, op, p, rows);
    else if (groups <= 8)
        rows_launch<2, 8, 1, false, ROWS_ADD>(dev, op, p, rows);
    else
        rows_launch<2, 12, 1, false, ROWS_ADD>(dev, op, p, rows);
}

template <int DIM> static void rows_launch_attention(struct device *dev, rows_attention p, int rows, bool chunks) {
    dim3 grid((unsigned)p.heads, (unsigned)rows);
    p.scale = ROWS_LOG2E / sqrtf((float)DIM);
    if (chunks)
        launch_dependent(dev, "decode_rows.chunks", decode_rows_attend_chunks<DIM>, grid, ROWS_THREADS, 0, p);
    else
        launch_dependent(dev, "decode_rows.window", decode_rows_attend<DIM>, grid, ROWS_THREADS, 0, p);
}
static void rows_attend(struct device *dev, const rows_attention &p, int rows, bool chunks) {
    if (p.d / p.heads == 64)
        rows_launch_attention<64>(dev, p, rows, chunks);
    else
        rows_launch_attention<128>(dev, p, rows, chunks);
}

/* A block a row; the others only read ahead. */
static __global__ void __launch_bounds__(ROWS_THREADS)
    decode_rows_embed(float *x, const bf16 *table, const struct decode_row *texts, int d, int rows,
                      const __grid_constant__ rows_ahead ahead) {
    launch_next();
    if ((int)blockIdx.x < rows) {
        const struct decode_row &text = texts[blockIdx.x];
        const int32_t *picked = text.picked;
        int64_t id = text.id;
        const bool is = text.position >= 0;
        if (is && picked) id = *picked;
        if (!is) id = 0;
        for (int i = threadIdx.x; i < d; i += ROWS_THREADS) {
            const float value = to_float(table[id * d + i]);
            x[(int64_t)blockIdx.x * d + i] = is ? value : 0.0f;
        }
    }
    rows_read_ahead(ahead);
}
static __global__ void __launch_bounds__(ROWS_THREADS)
    decode_rows_keep(const float *x, const struct decode_row *texts, int d) {
    launch_next();
    launch_wait();
    bf16 *to = (bf16 *)texts[blockIdx.x].lower;
    for (int i = threadIdx.x; i < d && to; i += ROWS_THREADS)
        to[i] = from_float<bf16>(x[(int64_t)blockIdx.x * d + i]);
}

/* ---- a pass ---- */

struct rows_pass {
    struct decode_rows *r;
    int rows, kind;
};

static rows_product rows_product_of(struct mat w, const void *x, struct mat norm, float eps) {
    rows_product p = {};
    p.x = x, p.w = (const bf16 *)w.data, p.norm = (const bf16 *)norm.data;
    p.k = (int)w.cols, p.out = (int)w.rows, p.eps = eps;
    return p;
}

/* Bytes of the head's matrix that the last layer's kernels read ahead, each: what they leave of the memory's time. */
enum { ROWS_AHEAD_HEAD = 12 << 20 };

static rows_ahead rows_ahead_weights(struct mat w) {
    rows_ahead a = {};
    a.weights = w.data, a.bytes = w.rows * w.cols * (int64_t)sizeof(bf16);
    return a;
}
/* Of a layer's last two kernels: what the next layer's first two read, or a part of the head. */
static rows_ahead rows_ahead_next(const struct decode_rows *r, int layer, bool last_kernel) {
    rows_ahead a = {};
    if (layer + 1 < r->n_layers) {
        if (!last_kernel) a = rows_ahead_weights(r->layers[layer + 1].qkv);
        return a;
    }
    const int64_t all = r->head.rows * r->head.cols * (int64_t)sizeof(bf16);
    const int64_t begin = last_kernel ? ROWS_AHEAD_HEAD : 0, left = all > begin ? all - begin : 0;
    a.weights = (const unsigned char *)r->head.data + begin;
    a.bytes = left < (int64_t)ROWS_AHEAD_HEAD ? left : (int64_t)ROWS_AHEAD_HEAD;
    return a;
}

static rows_ahead_keys rows_ahead_windows(const struct decode_rows *r, int rows, int layer) {
    rows_ahead_keys a = {};
    if (layer < r->n_layers) a.texts = r->texts;
    a.rows = rows, a.window = r->window, a.layer = layer, a.d = r->d;
    return a;
}

static void rows_issue_store(struct decode_rows *r, int rows, struct mat w, struct mat norm, rows_ahead ahead) {
    rows_product p = rows_product_of(w, r->x, norm, r->eps);
    p.y = r->qkv, p.ahead = ahead;
    rows_launch_norm<1, ROWS_STORE>(r->dev, "decode_rows.norm_product", p, rows);
}
/* y = the stream + x w^T */
static void rows_issue_add(struct decode_rows *r, int rows, float *y, const bf16 *x, struct mat w, rows_ahead ahead) {
    rows_product p = rows_product_of(w, x, {}, 0.0f);
    p.y = y, p.base = r->x, p.ahead = ahead;
    rows_launch_add(r->dev, "decode_rows.add_product", p, rows);
}
/* group: what GCA reads; -1: the window. */
static void rows_issue_attend(struct decode_rows *r, int rows, int layer, int group, rows_ahead ahead) {
    rows_attention p = {};
    p.o = r->att, p.q = r->qkv, p.texts = r->texts->row, p.ahead = ahead;
    p.d = r->d, p.heads = r->heads, p.window = r->window, p.layer = layer, p.group = group < 0 ? 0 : group;
    rows_attend(r->dev, p, rows, group >= 0);
}

/* Each kernel reads ahead for the second one after it (decode_rows_ahead.cuh). */
static void rows_issue_layer(struct decode_rows *r, const struct rows_pass *pass, int layer) {
    const struct decode_step_layer *l = &r->layers[layer];
    const int rows = pass->rows;
    const bool fused = l->group >= 0 && (pass->kind & ROWS_FUSED);
    float *in = r->x;
    rows_issue_store(r, rows, l->qkv, l->input_norm, rows_ahead_weights(l->o));
    rows_issue_attend(r, rows, layer, -1, rows_ahead_weights(fused ? l->gca_q : l->gate_up));
    rows_issue_add(r, rows, r->x, r->att, l->o, fused ? rows_ahead{} : rows_ahead_weights(l->down));
    /* GCA reaches the stream through the MLP alone (model.md §5.1). */
    if (fused) {
        rows_issue_store(r, rows, l->gca_q, l->gca_norm, rows_ahead_weights(l->gca_o));
        rows_issue_attend(r, rows, layer, l->group, rows_ahead_weights(l->gate_up));
        rows_issue_add(r, rows, r->sum, r->att, l->gca_o, rows_ahead_weights(l->down));
        in = r->sum;
    }
    rows_product p = rows_product_of(l->gate_up, in, l->post_norm, r->eps);
    p.out = r->f, p.act = r->act, p.ahead = rows_ahead_next(r, layer, false);
    p.ahead_keys = rows_ahead_windows(r, rows, layer + 1);
    rows_launch_norm<1, ROWS_SWIGLU>(r->dev, "decode_rows.swiglu", p, rows);
    rows_issue_add(r, rows, r->x, r->act, l->down, rows_ahead_next(r, layer, true));
}

static void rows_issue(void *context, struct device *dev) {
    const struct rows_pass *pass = (const struct rows_pass *)context;
    struct decode_rows *r = pass->r;
    const int blocks = pass->rows < ROWS_EMBED_BLOCKS ? ROWS_EMBED_BLOCKS : pass->rows;
    launch(dev, "decode_rows.embed", decode_rows_embed, (unsigned)blocks, ROWS_THREADS, 0, r->x,
           (const bf16 *)r->embed.data, r->texts->row, r->d, pass->rows, rows_ahead_weights(r->layers[0].qkv));
    bool kept = !(pass->kind & ROWS_KEPT);
    for (int i = 0; i < r->n_layers; i++) {
        if (!kept && r->layers[i].group >= 0) {
            kept = true;
            launch_dependent(dev, "decode_rows.keep", decode_rows_keep, (unsigned)pass->rows, ROWS_THREADS, 0, r->x,
                             r->texts->row, r->d);
        }
        rows_issue_layer(r, pass, i);
    }
    rows_product p = rows_product_of(r->head, r->x, r->final_norm, r->eps);
    p.texts = r->texts->row;
    rows_launch_norm<2, ROWS_LOGITS>(dev, "decode_rows.head", p, pass->rows);
}

/* The pass that starts next waits for the copy, which waits for the last pass that read this turn's array. */
static void rows_upload(struct decode_rows *r, const struct rows_texts *staging, int rows, unsigned turn) {
    const size_t bytes = offsetof(struct rows_texts, row) + (size_t)rows * sizeof *staging->row;
    r->texts = r->all_texts + turn;
    (void)cudaStreamWaitEvent(r->copies, r->done[turn], 0);
    (void)cudaMemcpyAsync(r->texts, staging, bytes, cudaMemcpyHostToDevice, r->copies);
    (void)cudaEventRecord(r->copied[turn], r->copies);
    (void)cudaStreamWaitEvent(device_cuda_stream(r->dev), r->copied[turn], 0);
    device_cuda_check(r->dev, "decode_rows.upload");
}

void decode_rows_run(struct decode_rows *r, const struct decode_row *rows, int n) {
    struct rows_pass pass = {r, 8, 0};
    int size = 0;
    assert(n >= 1 && n <= DECODE_ROWS_MAX);
    for (; pass.rows < n; pass.rows *= 2)
        size++;
    struct rows_texts *staging = r->staging + r->calls % DECODE_ROWS_CALLS;
    const unsigned turn = r->calls++ % ROWS_TURNS;
    int64_t positions[DECODE_ROWS_MAX];
    memcpy(staging->row, rows, (size_t)n * sizeof *rows);
    for (int i = n; i < pass.rows; i++) {
        staging->row[i] = {};
        staging->row[i].position = -1;
    }
    for (int i = 0; i < n; i++) {
        assert(rows[i].position < 0 || rows[i].ring_rows > r->window);
        positions[i] = rows[i].position;
        if (rows[i].lower) pass.kind |= ROWS_KEPT;
        for (int g = 0; g < DECODE_STEP_GROUPS_MAX; g++)
            if (rows[i].chunks[g].k > 0) pass.kind |= ROWS_FUSED;
    }
    staging->skip = rows_window_skip(positions, n, r->window, ROWS_AHEAD_KEYS / (4 * r->d));
    rows_upload(r, staging, pass.rows, turn);
    device_replay_run(r->dev, &r->replays[turn][size][pass.kind], rows_issue, &pass);
    (void)cudaEventRecord(r->done[turn], device_cuda_stream(r->dev));
    device_cuda_check(r->dev, "decode_rows.done");
}

/* ---- memory ---- */

static bool rows_dense(struct mat m) {
    return m.type == DTYPE_BF16 && m.stride == m.cols && m.cols % 8 == 0 && (uintptr_t)m.data % 16 == 0 &&
           m.rows <= INT32_MAX && m.cols <= INT32_MAX;
}
static bool rows_fit(struct device *dev, const struct decode_step_config *c) {
    if (dev->shares_memory || c->embed.type != DTYPE_BF16 || device_cuda_architecture(dev) < 80) return false;
    const int64_t d = c->embed.cols;
    if (c->heads <= 0 || (d != c->heads * 64 && d != c->heads * 128) || !rows_dense(c->embed) ||
        !rows_dense(c->final_norm) || (c->head.data && !rows_dense(c->head)))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        const struct decode_step_layer *l = &c->layers[i];
        const struct mat all[] = {l->input_norm, l->qkv, l->o, l->post_norm, l->gate_up, l->down};
        const struct mat gca[] = {l->gca_norm, l->gca_q, l->gca_o};
        for (size_t j = 0; j < ARRAY_LEN(all); j++)
            if (!rows_dense(all[j])) return false;
        for (size_t j = 0; j < ARRAY_LEN(gca) && l->group >= 0; j++)
            if (!rows_dense(gca[j])) return false;
    }
    return true;
}

static void rows_layout(void *of, struct carve *c) {
    struct decode_rows *r = (struct decode_rows *)of;
    const int64_t n = DECODE_ROWS_MAX;
    r->x = (float *)carve_bytes(c, n * r->d, sizeof(float));
    r->sum = (float *)carve_bytes(c, n * r->d, sizeof(float));
    r->qkv = (float *)carve_bytes(c, 3 * n * r->d, sizeof(float));
    r->att = (bf16 *)carve_bytes(c, n * r->d, sizeof(bf16));
    r->act = (bf16 *)carve_bytes(c, n * r->f, sizeof(bf16));
    r->all_texts = (struct rows_texts *)carve_bytes(c, ROWS_TURNS, sizeof(struct rows_texts));
}

static enum status rows_prepare(struct decode_rows *r, const struct decode_step_config *c) {
    TRY(memory_allocate(&r->layers, (size_t)c->n_layers));
    memcpy(r->layers, c->layers, (size_t)c->n_layers * sizeof *c->layers);
    r->n_layers = c->n_layers, r->heads = c->heads, r->window = c->window, r->eps = c->eps;
    r->embed = c->embed, r->head = c->head.data ? c->head : c->embed, r->final_norm = c->final_norm;
    r->d = (int)c->embed.cols, r->f = (int)c->layers[0].down.cols;
    TRY(carve_device(r->dev, &r->memory, &r->bytes, rows_layout, r));
    TRY(device_allocate_host(r->dev, &r->staging, DECODE_ROWS_CALLS));
    cudaError_t error = cudaStreamCreateWithFlags(&r->copies, cudaStreamNonBlocking);
    for (int i = 0; i < ROWS_TURNS && error == cudaSuccess; i++) {
        error = cudaEventCreateWithFlags(&r->copied[i], cudaEventDisableTiming);
        if (error == cudaSuccess) error = cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming);
        /* The first copy follows the op that zeroed the memory, and ops of the memory's last owner. */
        if (error == cudaSuccess) error = cudaEventRecord(r->done[i], device_cuda_stream(r->dev));
    }
    return error == cudaSuccess ? STATUS_OK : fail(STATUS_IO, "GPU: stream of rows: %s", cudaGetErrorString(error));
}

enum status decode_rows_create(struct decode_rows **out, struct device *dev, const struct decode_step_config *config) {
    struct decode_rows *r = NULL;
    *out = NULL;
    if (!rows_fit(dev, config)) return STATUS_OK;
    TRY(memory_allocate_zero(&r, 1));
    r->dev = dev;
    enum status status = rows_prepare(r, config);
    if (status == STATUS_OK)
        *out = r;
    else
        decode_rows_free(r);
    return status;
}

void decode_rows_free(struct decode_rows *r) {
    if (!r) return;
    for (int turn = 0; turn < ROWS_TURNS; turn++)
        for (int i = 0; i < ROWS_SIZES; i++)
            for (int j = 0; j < ROWS_KINDS; j++)
                device_replay_free(r->dev, r->replays[turn][i][j]);
    for (int turn = 0; turn < ROWS_TURNS; turn++) {
        if (r->copied[turn]) (void)cudaEventDestroy(r->copied[turn]);
        if (r->done[turn]) (void)cudaEventDestroy(r->done[turn]);
    }
    if (r->copies) (void)cudaStreamDestroy(r->copies);
    if (r->staging) device_release_host(r->dev, r->staging);
    device_release(r->dev, r->memory);
    memory_free(r->layers);
    memory_free(r);
}

/* ---- single kernels, for tests ---- */

static rows_attention rows_attention_of(const struct decode_rows_attention *a) {
    rows_attention p = {};
    p.o = (bf16 *)a->o, p.q = a->q, p.texts = a->texts;
    p.d = a->d, p.heads = a->heads, p.window = a->window, p.layer = a->layer, p.group = a->group;
    return p;
}
void decode_rows_run_window(struct device *dev, const struct decode_rows_attention *a) {
    rows_attend(dev, rows_attention_of(a), a->rows, false);
}
void decode_rows_run_chunks(struct device *dev, const struct decode_rows_attention *a) {
    rows_attend(dev, rows_attention_of(a), a->rows, true);
}

static rows_product rows_product_of_call(const struct decode_rows_product_call *c) {
    rows_product p = {};
    p.x = c->x, p.norm = (const bf16 *)c->norm, p.w = (const bf16 *)c->w;
    p.k = c->k, p.out = c->out, p.eps = c->eps, p.base = c->base, p.y = c->y;
    return p;
}
void decode_rows_run_product(struct device *dev, const struct decode_rows_product_call *c) {
    if (c->norm)
        rows_launch_norm<1, ROWS_STORE>(dev, "decode_rows.norm_product", rows_product_of_call(c), c->rows);
    else
        rows_launch_add(dev, "decode_rows.add_product", rows_product_of_call(c), c->rows);
}
void decode_rows_run_swiglu(struct device *dev, void *y, const struct decode_rows_product_call *c) {
    rows_product p = rows_product_of_call(c);
    p.act = (bf16 *)y;
    rows_launch_norm<1, ROWS_SWIGLU>(dev, "decode_rows.swiglu", p, c->rows);
}
