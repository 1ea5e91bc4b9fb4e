/* gca_cpu.c -- grouped cross-attention: a task is one head of one block of queries; the chunks it reads pass one after
 * the other through one softmax each, so o_k is never stored unless it is asked for (partial). */
#include "kernels/attend_internal.h"
#include "kernels/device_internal.h"
#include "kernels/gca.h"
#include <assert.h>
#include <math.h>
#include <string.h>

struct task {
    struct device *dev;
    struct mat o, lse, q; /* o: the output, or the parts */
    struct gca_pool pool;
    struct gca_blocks blocks;
    int heads, dim;
};

/* One softmax over the live rows of a slot. */
static void read_chunk(struct attend *a, const struct task *t, int32_t slot, int64_t column) {
    int64_t row = (int64_t)slot * t->pool.slot_rows;
    attend_softmax(a, t->pool.off_by_one);
    for (int key = 0; key < t->pool.live_rows; key += ATTEND_KEYS) {
        int n = t->pool.live_rows - key < ATTEND_KEYS ? t->pool.live_rows - key : ATTEND_KEYS;
        attend_keys(a, mat_row(t->pool.keys, row + key) + column, t->pool.keys.stride,
                    mat_row(t->pool.values, row + key) + column, t->pool.values.stride, n, NULL);
    }
}

static void forward_tile(const struct task *t, void *scratch, int64_t block, int64_t row, int rows, int64_t column) {
    struct attend a;
    int k = t->blocks.k;
    attend_begin(&a, scratch, mat_row(t->q, row) + column, t->q.stride, rows, t->dim);
    for (int i = 0; i < k; i++) {
        int32_t slot = t->blocks.slot[block * k + i];
        float weight = t->blocks.weight[block * k + i];
        if (slot < 0 || weight == 0.0f) continue;
        read_chunk(&a, t, slot, column);
        attend_add(&a, weight);
    }
    attend_store(&a, mat_row(t->o, row) + column, t->o.stride);
}

static void partial_tile(const struct task *t, void *scratch, int64_t block, int64_t row, int rows, int64_t column) {
    struct attend a;
    int64_t n = t->q.rows, head = column / t->dim;
    for (int i = 0; i < t->blocks.k; i++) {
        int32_t slot = t->blocks.slot[block * t->blocks.k + i];
        attend_begin(&a, scratch, mat_row(t->q, row) + column, t->q.stride, rows, t->dim);
        if (slot >= 0) {
            read_chunk(&a, t, slot, column);
            attend_add(&a, 1.0f);
        }
        attend_store(&a, mat_row(t->o, i * n + row) + column, t->o.stride);
        for (int r = 0; r < rows; r++)
            mat_row(t->lse, i * n + row + r)[head] = slot < 0 ? -INFINITY : attend_lse(&a, r);
    }
}

static void body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
    void *scratch = device_scratch(t->dev, worker);
    for (int64_t i = begin; i < end; i++) {
        int64_t block = i / t->heads, column = i % t->heads * t->dim;
        int64_t last = t->blocks.row_begin[block + 1];
        for (int64_t row = t->blocks.row_begin[block]; row < last; row += ATTEND_ROWS) {
            int rows = (int)(last - row < ATTEND_ROWS ? last - row : ATTEND_ROWS);
            if (t->lse.data)
                partial_tile(t, scratch, block, row, rows, column);
            else
                forward_tile(t, scratch, block, row, rows, column);
        }
    }
}

static void fill(struct mat m, int64_t first, int64_t last, float value) {
    for (int64_t row = first; row < last; row++)
        for (int64_t c = 0; c < m.cols; c++)
            mat_row(m, row)[c] = value;
}

static void check_blocks(const struct gca_blocks *b, int64_t rows) {
    assert(b->blocks >= 0 && b->k >= 0);
    assert(b->blocks == 0 || (b->row_begin[0] >= 0 && b->row_begin[b->blocks] <= rows));
}

static void check_pool(const struct gca_pool *p, struct mat q, int heads) {
    assert(heads > 0 && q.cols % heads == 0 && p->keys.cols == q.cols && p->values.cols == q.cols);
    assert(p->live_rows >= 1 && p->live_rows <= p->slot_rows && p->keys.rows == p->values.rows);
}

static void partial(struct device *dev, struct mat part, struct mat lse, struct mat q, struct gca_pool pool,
                    struct gca_blocks blocks, int heads) {
    int64_t n = q.rows, first = blocks.blocks ? blocks.row_begin[0] : n,
            last = blocks.blocks ? blocks.row_begin[blocks.blocks] : n;
    check_blocks(&blocks, n);
    check_pool(&pool, q, heads);
    assert(part.rows == blocks.k * n && lse.rows == part.rows && part.cols == q.cols && lse.cols == heads);
    for (int64_t i = 0; i < blocks.k; i++) {
        fill(part, i * n, i * n + first, 0.0f);
        fill(part, i * n + last, (i + 1) * n, 0.0f);
        fill(lse, i * n, i * n + first, -INFINITY);
        fill(lse, i * n + last, (i + 1) * n, -INFINITY);
    }
    struct task t = {dev, part, lse, q, pool, blocks, heads, (int)(q.cols / heads)};
    threads_for(dev->threads, (int64_t)blocks.blocks * heads, 1, body, &t);
}

static void forward(struct device *dev, struct mat o, struct mat q, struct gca_pool pool, struct gca_blocks blocks,
                    int heads) {
    int64_t n = q.rows, first = blocks.blocks ? blocks.row_begin[0] : n,
            last = blocks.blocks ? blocks.row_begin[blocks.blocks] : n;
    check_blocks(&blocks, n);
    check_pool(&pool, q, heads);
    assert(o.rows == n && o.cols == q.cols && blocks.weight);
    fill(o, 0, first, 0.0f);
    fill(o, last, n, 0.0f);
    struct task t = {dev, o, {0}, q, pool, blocks, heads, (int)(q.cols / heads)};
    threads_for(dev->threads, (int64_t)blocks.blocks * heads, 1, body, &t);
}

/* Factors of the parts of one row and head: the block's weights, or the softmax of the row's lse. */
static float lse_top(const struct task *t, int64_t row, int64_t head) {
    float top = -INFINITY;
    for (int64_t i = 0; i < t->blocks.k; i++)
        top = fmaxf(top, mat_row(t->lse, i * t->o.rows + row)[head]);
    return top;
}

static void combine_row(const struct task *t, int64_t block, int64_t row) {
    int64_t n = t->o.rows, k = t->blocks.k;
    for (int64_t head = 0; head < t->heads; head++) {
        float *o = mat_row(t->o, row) + head * t->dim;
        float top = t->blocks.weight ? 0.0f : lse_top(t, row, head), sum = 0.0f;
        memset(o, 0, (size_t)t->dim * sizeof(float));
        for (int64_t i = 0; i < k; i++) {
            if (t->blocks.slot[block * k + i] < 0) continue;
            const float *part = mat_row(t->q, i * n + row) + head * t->dim;
            float factor =
                t->blocks.weight ? t->blocks.weight[block * k + i] : expf(mat_row(t->lse, i * n + row)[head] - top);
            sum += factor;
            for (int c = 0; c < t->dim; c++)
                o[c] += factor * part[c];
        }
        if (t->blocks.weight || sum == 0.0f) continue;
        for (int c = 0; c < t->dim; c++)
            o[c] /= sum;
    }
}

static void combine_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
    (void)worker;
    for (int64_t block = begin; block < end; block++)
        for (int64_t row = t->blocks.row_begin[block]; row < t->blocks.row_begin[block + 1]; row++)
            combine_row(t, block, row);
}

static void combine(struct device *dev, struct mat o, struct mat part, struct mat lse, struct gca_blocks blocks,
                    int heads) {
    int64_t n = o.rows, first = blocks.blocks ? blocks.row_begin[0] : n,
            last = blocks.blocks ? blocks.row_begin[blocks.blocks] : n;
    check_blocks(&blocks, n);
    assert(heads > 0 && o.cols % heads == 0 && part.cols == o.cols && part.rows == blocks.k * n);
    assert(blocks.weight || (lse.rows == part.rows && lse.cols == heads));
    fill(o, 0, first, 0.0f);
    fill(o, last, n, 0.0f);
    struct task t = {
        .dev = dev, .o = o, .lse = lse, .q = part, .blocks = blocks, .heads = heads, .dim = (int)(o.cols / heads)};
    threads_for(dev->threads, blocks.blocks, 1, combine_body, &t);
}

const struct gca_ops gca_cpu = {.partial = partial, .combine = combine, .forward = forward};
