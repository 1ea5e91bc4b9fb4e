/* bert_encoder.c -- the layers, for batches of texts of any lengths.
 *
 * Texts are sorted by length and stored one after another. Attention runs once for each length of a batch, everything
 * else over all rows at once, and no position is padded. On the CPU each thread computes its own batches through all
 * layers with serial ops, as in the model's encoder. A single batch is computed by all threads together. */
#include "encoder/bert/bert_encoder.h"
#include "base/memory.h"
#include "encoder/bert/bert_internal.h"
#include "kernels/device/carve.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a batch. On the CPU they stay in the caches of a core. A GPU needs many rows to use all of its processors. */
enum { BATCH_ROWS = 512, BATCH_ROWS_GPU = 1 << 16 };

struct bert_workspace {
    struct mat x, h, qkv, up; /* [rows, d], [rows, d], [rows, 3d], [rows, f] */
    struct mat out;           /* [rows, d] float32: a text has at least one row */
    int32_t *ids_device;
    int64_t *begin_device;
    int32_t *ids;   /* on the host: ids, then positions [2 * rows] */
    int64_t *begin; /* [rows + 1] */
    float *out_host;
};

struct bert {
    struct bert_config config;
    struct bert_weights weights;
    struct device *dev;
    enum dtype type;
    int threads;
    int64_t rows;                      /* of a batch */
    struct bert_workspace *workspaces; /* [threads] */
    void *memory;
    size_t bytes;
    int32_t *ids_host;
    int64_t *begin_host;
    float *out_host; /* of all workspaces */
    struct bert_text *order;
    size_t order_capacity;
    int64_t *cuts;
    size_t cut_capacity; /* capacity for the first texts of the batches */
};

struct bert_text {
    int64_t index, length;
};

/* ---- memory ------------------------------------------------------------------------------------------------- */

/* On the CPU rows are padded as in encoder.c, because strides of large powers of two map to few sets of a cache. */
static struct mat carve_rows(struct carve *c, const struct bert *b, int64_t cols) {
    int64_t stride = b->dev->shares_memory ? (cols + 15) / 16 * 16 + 16 : (cols + 7) / 8 * 8;
    void *data = carve_bytes(c, b->rows * stride, (size_t)dtype_bytes(b->type));
    return (struct mat){.data = data, .type = b->type, .rows = b->rows, .cols = cols, .stride = stride};
}

static void carve_workspaces(void *of, struct carve *c) {
    struct bert *b = of;
    int64_t d = b->config.hidden;
    for (int i = 0; i < b->threads; i++) {
        struct bert_workspace *w = &b->workspaces[i];
        w->x = carve_rows(c, b, d);
        w->h = carve_rows(c, b, d);
        w->qkv = carve_rows(c, b, 3 * d);
        w->up = carve_rows(c, b, b->config.ffn);
        w->out = carve_mat(c, DTYPE_F32, b->rows, d);
        w->ids_device = carve_bytes(c, 2 * b->rows, sizeof *w->ids_device);
        w->begin_device = carve_bytes(c, b->rows + 1, sizeof *w->begin_device);
    }
}

static enum status create_workspaces(struct bert *b) {
    size_t rows = (size_t)b->rows, n = (size_t)b->threads;
    TRY(memory_allocate_zero(&b->workspaces, n));
    TRY(carve_device(b->dev, &b->memory, &b->bytes, carve_workspaces, b));
    TRY(memory_allocate(&b->ids_host, 2 * rows * n));
    TRY(memory_allocate(&b->begin_host, (rows + 1) * n));
    TRY(memory_allocate(&b->out_host, rows * (size_t)b->config.hidden * n));
    for (size_t i = 0; i < n; i++) {
        b->workspaces[i].ids = b->ids_host + 2 * rows * i;
        b->workspaces[i].begin = b->begin_host + (rows + 1) * i;
        b->workspaces[i].out_host = b->out_host + rows * (size_t)b->config.hidden * i;
    }
    return STATUS_OK;
}

enum status bert_open(struct bert **out, const char *folder, struct device *dev, enum dtype type) {
    struct bert *b;
    enum status s;
    TRY(memory_allocate_zero(&b, 1));
    b->dev = dev;
    b->type = type;
    b->threads = dev->shares_memory ? threads_count(dev->threads) : 1;
    TRY_GOTO(s, bert_config_load(&b->config, folder), out);
    TRY_GOTO(s, bert_weights_load(&b->weights, folder, &b->config, dev, type), out);
    b->rows = dev->shares_memory ? BATCH_ROWS : BATCH_ROWS_GPU;
    if (b->rows < b->config.max_tokens) b->rows = b->config.max_tokens;
    s = create_workspaces(b);
out:
    if (s == STATUS_OK)
        *out = b;
    else
        bert_close(b);
    return s;
}

void bert_close(struct bert *b) {
    if (!b) return;
    bert_weights_free(&b->weights, b->dev);
    device_release(b->dev, b->memory);
    memory_free(b->workspaces);
    memory_free(b->ids_host);
    memory_free(b->begin_host);
    memory_free(b->out_host);
    memory_free(b->order);
    memory_free(b->cuts);
    memory_free(b);
}

const struct bert_config *bert_config_of(const struct bert *b) {
    return &b->config;
}

size_t bert_bytes(const struct bert *b) {
    return b->weights.bytes + b->bytes;
}

void bert_fingerprint(const struct bert *b, uint8_t out[16]) {
    memcpy(out, b->weights.fingerprint, 16);
}

/* ---- layers ------------------------------------------------------------------------------------------------- */

struct bert_job {
    struct bert *b;
    float *rows;
    const int32_t *ids;
    const int64_t *begin;
    int64_t n, batches;
    bool unit;
};

static void bert_product(struct device *dev, struct mat y, struct mat x, const struct bert_linear *w) {
    assert(y.cols == w->out && x.cols == w->in);
    dev->ops->matmul->forward_packed(dev, y, x, w->packed, false);
}

/* Runs attention for consecutive texts of one length. The output overwrites the queries. */
static void bert_attention(const struct bert *b, struct device *dev, const struct bert_workspace *w, struct mat qkv,
                           int64_t texts) {
    int64_t d = b->config.hidden;
    for (int64_t i = 0, end; i < texts; i = end) {
        int64_t length = w->begin[i + 1] - w->begin[i];
        for (end = i + 1; end < texts && w->begin[end + 1] - w->begin[end] == length;)
            end++;
        struct mat run = mat_rows(qkv, w->begin[i], w->begin[end] - w->begin[i]);
        struct mat q = mat_cols(run, 0, d);
        dev->ops->chunk_attention->forward(dev, q, q, mat_cols(run, d, d), mat_cols(run, 2 * d, d), b->config.heads,
                                           (int)length);
    }
}

static void bert_run_layer(const struct bert *b, struct device *dev, const struct bert_workspace *w,
                           const struct bert_layer *l, int64_t texts) {
    int64_t rows = w->begin[texts];
    struct mat x = mat_rows(w->x, 0, rows), h = mat_rows(w->h, 0, rows), qkv = mat_rows(w->qkv, 0, rows),
               up = mat_rows(w->up, 0, rows);
    bert_product(dev, qkv, x, &l->qkv);
    dev->ops->bert->add_bias(dev, qkv, qkv, l->qkv.bias);
    bert_attention(b, dev, w, qkv, texts);
    bert_product(dev, h, mat_cols(qkv, 0, b->config.hidden), &l->output);
    dev->ops->bert->layer_norm(dev, x, h, x, l->output.bias, l->attention_norm);
    bert_product(dev, up, x, &l->up);
    dev->ops->bert->gelu(dev, up, up, l->up.bias);
    bert_product(dev, h, up, &l->down);
    dev->ops->bert->layer_norm(dev, x, h, x, l->down.bias, l->norm);
}

/* Copies the ids and positions of a batch's texts, in the order of their lengths. */
static void bert_stage(const struct bert_job *job, struct device *dev, const struct bert_workspace *w, int64_t first,
                       int64_t texts) {
    int64_t rows = 0;
    for (int64_t i = 0; i < texts; i++) {
        const struct bert_text *t = &job->b->order[first + i];
        w->begin[i] = rows;
        memcpy(w->ids + rows, job->ids + job->begin[t->index], (size_t)t->length * sizeof *w->ids);
        rows += t->length;
    }
    w->begin[texts] = rows;
    for (int64_t i = 0; i < texts; i++)
        for (int64_t r = w->begin[i]; r < w->begin[i + 1]; r++)
            w->ids[rows + r] = (int32_t)(r - w->begin[i]);
    device_upload(dev, w->ids_device, w->ids, (size_t)(2 * rows) * sizeof *w->ids);
    device_upload(dev, w->begin_device, w->begin, (size_t)(texts + 1) * sizeof *w->begin);
}

static void bert_run_batch(const struct bert_job *job, struct device *dev, const struct bert_workspace *w,
                           int64_t batch) {
    const struct bert *b = job->b;
    int64_t first = b->cuts[batch], texts = (batch + 1 < job->batches ? b->cuts[batch + 1] : job->n) - first;
    int64_t d = b->config.hidden;
    bert_stage(job, dev, w, first, texts);
    int64_t rows = w->begin[texts];
    struct mat x = mat_rows(w->x, 0, rows), h = mat_rows(w->h, 0, rows), out = mat_rows(w->out, 0, texts);
    dev->ops->embed->forward(dev, x, b->weights.words, w->ids_device, 0);
    dev->ops->embed->forward(dev, h, b->weights.positions, w->ids_device + rows, 0);
    dev->ops->bert->layer_norm(dev, x, x, h, b->weights.type, b->weights.norm);
    for (int i = 0; i < b->config.layers; i++)
        bert_run_layer(b, dev, w, &b->weights.layers[i], texts);
    dev->ops->bert->mean(dev, out, x, w->begin_device, job->unit);
    device_download(dev, w->out_host, out.data, mat_bytes(out));
    for (int64_t i = 0; i < texts; i++)
        memcpy(job->rows + b->order[first + i].index * d, w->out_host + i * d, (size_t)d * sizeof *job->rows);
}

static void bert_run_batches(void *context, int64_t begin, int64_t end, int worker) {
    const struct bert_job *job = context;
    for (int64_t i = begin; i < end; i++)
        bert_run_batch(job, device_worker(job->b->dev, worker), &job->b->workspaces[worker], i);
}

static int by_length(const void *a, const void *b) {
    const struct bert_text *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorts the texts and divides them into batches. */
static enum status bert_plan(struct bert *b, const int64_t *begin, int64_t n, int64_t *batches) {
    TRY(memory_grow(&b->order, &b->order_capacity, (size_t)n));
    TRY(memory_grow(&b->cuts, &b->cut_capacity, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        b->order[i] = (struct bert_text){i, begin[i + 1] - begin[i]};
        assert(b->order[i].length >= 1 && b->order[i].length <= b->config.max_tokens);
    }
    qsort(b->order, (size_t)n, sizeof *b->order, by_length);
    *batches = 0;
    for (int64_t i = 0, rows = 0; i < n; i++) {
        if (i == 0 || rows + b->order[i].length > b->rows) {
            b->cuts[(*batches)++] = i;
            rows = 0;
        }
        rows += b->order[i].length;
    }
    return STATUS_OK;
}

enum status bert_encode(struct bert *b, float *rows, const int32_t *ids, const int64_t *begin, int64_t n, bool unit) {
    struct bert_job job = {.b = b, .rows = rows, .ids = ids, .begin = begin, .n = n, .unit = unit};
    for (int64_t i = begin[0]; i < begin[n]; i++)
        assert(ids[i] >= 0 && ids[i] < b->config.vocab_size);
    if (n == 0) return STATUS_OK;
    TRY(bert_plan(b, begin, n, &job.batches));
    if (b->dev->shares_memory && job.batches > 1) {
        threads_for(b->dev->threads, job.batches, 1, bert_run_batches, &job);
        return STATUS_OK;
    }
    for (int64_t i = 0; i < job.batches; i++)
        bert_run_batch(&job, b->dev, &b->workspaces[0], i);
    return device_sync(b->dev);
}
