/* gca_cpu.c -- grouped cross-attention: a task is one head of one block of queries. It computes one softmax for each
 * chunk that the block reads and adds it to the output; o_k is stored only by partial. */
#include "kernels/attention/attend_backward_internal.h"
#include "kernels/attention/gca.h"
#include "kernels/device/device_internal.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

struct gca_task {
    struct device *dev;
    struct mat o, lse, q; /* o: the output or the parts */
    struct gca_pool pool;
    struct gca_blocks blocks;
    int heads, dim;
    bool parts; /* o is the parts */
};

static void gca_fill(struct mat m, int64_t first, int64_t last, float value) {
    for (int64_t row = first; row < last; row++)
        for (int64_t c = 0; c < m.cols; c++)
            mat_row(m, row)[c] = value;
}

/* Fills the rows of no block, in each of m's planes of n rows. m.data NULL: nothing. */
static void gca_fill_outside(struct mat m, int64_t n, const struct gca_blocks *b, float value) {
    int64_t first = b->blocks ? b->row_begin[0] : n, last = b->blocks ? b->row_begin[b->blocks] : n;
    for (int64_t plane = 0; plane < m.rows && m.data; plane += n) {
        gca_fill(m, plane, plane + first, value);
        gca_fill(m, plane + last, plane + n, value);
    }
}

/* lse of query rows row, row + 1, ... of one head and index i, as a column. */
static struct mat gca_lse_column(const struct gca_task *t, int64_t i, int64_t row, int rows, int64_t head) {
    struct mat m = t->lse;
    if (!m.data) return m;
    if (t->parts)
        m.data = mat_row(m, i * t->q.rows + row) + head;
    else
        m.data = mat_row(m, head * t->blocks.k + i) + row, m.stride = 1;
    m.rows = rows, m.cols = 1;
    return m;
}

/* One softmax over the live rows of a slot. */
static void gca_read_chunk(struct attend *a, const struct gca_task *t, int32_t slot, int64_t column) {
    int64_t row = (int64_t)slot * t->pool.slot_rows;
    attend_softmax(a, t->pool.off_by_one);
    for (int key = 0; key < t->pool.live_rows; key += ATTEND_KEYS) {
        int n = t->pool.live_rows - key < ATTEND_KEYS ? t->pool.live_rows - key : ATTEND_KEYS;
        attend_keys(a, mat_row(t->pool.keys, row + key) + column, t->pool.keys.stride,
                    mat_row(t->pool.values, row + key) + column, t->pool.values.stride, n, NULL);
    }
}

static void gca_forward_tile(const struct gca_task *t, void *scratch, int64_t block, int64_t row, int rows,
                             int64_t column) {
    struct attend a;
    int64_t head = column / t->dim;
    attend_begin(&a, scratch, mat_row(t->q, row) + column, t->q.stride, rows, t->dim);
    for (int i = 0; i < t->blocks.k; i++) {
        int32_t slot = t->blocks.slot[block * t->blocks.k + i];
        float weight = t->blocks.weight[block * t->blocks.k + i];
        if (slot < 0) {
            if (t->lse.data) gca_fill(gca_lse_column(t, i, row, rows, head), 0, rows, -INFINITY);
            continue;
        }
        if (weight == 0.0f && !t->lse.data) continue;
        gca_read_chunk(&a, t, slot, column);
        if (weight != 0.0f) attend_add(&a, weight);
        attend_keep(&a, gca_lse_column(t, i, row, rows, head), 0, 0);
    }
    attend_store(&a, mat_row(t->o, row) + column, t->o.stride);
}

static void gca_partial_tile(const struct gca_task *t, void *scratch, int64_t block, int64_t row, int rows,
                             int64_t column) {
    struct attend a;
    int64_t n = t->q.rows, head = column / t->dim;
    for (int i = 0; i < t->blocks.k; i++) {
        int32_t slot = t->blocks.slot[block * t->blocks.k + i];
        attend_begin(&a, scratch, mat_row(t->q, row) + column, t->q.stride, rows, t->dim);
        if (slot >= 0) {
            gca_read_chunk(&a, t, slot, column);
            attend_add(&a, 1.0f);
            attend_keep(&a, gca_lse_column(t, i, row, rows, head), 0, 0);
        } else {
            gca_fill(gca_lse_column(t, i, row, rows, head), 0, rows, -INFINITY);
        }
        attend_store(&a, mat_row(t->o, i * n + row) + column, t->o.stride);
    }
}

static void gca_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct gca_task *t = context;
    void *scratch = device_scratch(t->dev, worker);
    for (int64_t i = begin; i < end; i++) {
        int64_t block = i / t->heads, column = i % t->heads * t->dim;
        int64_t last = t->blocks.row_begin[block + 1];
        for (int64_t row = t->blocks.row_begin[block]; row < last; row += ATTEND_ROWS) {
            int rows = (int)(last - row < ATTEND_ROWS ? last - row : ATTEND_ROWS);
            if (t->parts)
                gca_partial_tile(t, scratch, block, row, rows, column);
            else
                gca_forward_tile(t, scratch, block, row, rows, column);
        }
    }
}

static void gca_check_blocks(const struct gca_blocks *b, int64_t rows) {
    assert(b->blocks >= 0 && b->k >= 0);
    assert(b->blocks == 0 || (b->row_begin[0] >= 0 && b->row_begin[b->blocks] <= rows));
}

static void gca_check_pool(const struct gca_pool *p, struct mat q, int heads) {
    assert(heads > 0 && q.cols % heads == 0 && p->keys.cols == q.cols && p->values.cols == q.cols);
    assert(p->live_rows >= 1 && p->live_rows <= p->slot_rows && p->keys.rows == p->values.rows);
}

static void gca_partial(struct device *dev, struct mat part, struct mat lse, struct mat q, struct gca_pool pool,
                        struct gca_blocks blocks, int heads) {
    int64_t n = q.rows;
    gca_check_blocks(&blocks, n);
    gca_check_pool(&pool, q, heads);
    assert(part.rows == blocks.k * n && lse.rows == part.rows && part.cols == q.cols && lse.cols == heads);
    gca_fill_outside(part, n, &blocks, 0.0f);
    gca_fill_outside(lse, n, &blocks, -INFINITY);
    struct gca_task t = {dev, part, lse, q, pool, blocks, heads, (int)(q.cols / heads), true};
    threads_for(dev->threads, (int64_t)blocks.blocks * heads, 1, gca_body, &t);
}

static void gca_forward_keep(struct device *dev, struct mat o, struct mat lse, struct mat q, struct gca_pool pool,
                             struct gca_blocks blocks, int heads) {
    int64_t n = q.rows;
    gca_check_blocks(&blocks, n);
    gca_check_pool(&pool, q, heads);
    assert(o.rows == n && o.cols == q.cols && blocks.weight);
    assert(!lse.data || (lse.rows == (int64_t)blocks.k * heads && lse.cols == n));
    gca_fill_outside(o, n, &blocks, 0.0f);
    int64_t first = blocks.blocks ? blocks.row_begin[0] : n, last = blocks.blocks ? blocks.row_begin[blocks.blocks] : n;
    if (lse.data) {
        gca_fill(mat_cols(lse, 0, first), 0, lse.rows, -INFINITY);
        gca_fill(mat_cols(lse, last, n - last), 0, lse.rows, -INFINITY);
    }
    struct gca_task t = {dev, o, lse, q, pool, blocks, heads, (int)(q.cols / heads), false};
    int64_t grain = blocks.blocks == 1 ? device_share(dev, heads) : 1;
    threads_for(dev->threads, (int64_t)blocks.blocks * heads, grain, gca_body, &t);
}

static void gca_forward(struct device *dev, struct mat o, struct mat q, struct gca_pool pool, struct gca_blocks blocks,
                        int heads) {
    gca_forward_keep(dev, o, (struct mat){0}, q, pool, blocks, heads);
}

static float gca_lse_top(const struct gca_task *t, int64_t row, int64_t head) {
    float top = -INFINITY;
    for (int64_t i = 0; i < t->blocks.k; i++)
        top = fmaxf(top, mat_row(t->lse, i * t->o.rows + row)[head]);
    return top;
}

/* Factors of the parts of one row and head: the block's weights, or the softmax of the row's lse. */
static void gca_combine_row(const struct gca_task *t, int64_t block, int64_t row) {
    int64_t n = t->o.rows, k = t->blocks.k;
    for (int64_t head = 0; head < t->heads; head++) {
        float *o = mat_row(t->o, row) + head * t->dim;
        float top = t->blocks.weight ? 0.0f : gca_lse_top(t, row, head), sum = 0.0f;
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

static void gca_combine_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct gca_task *t = context;
    (void)worker;
    for (int64_t block = begin; block < end; block++)
        for (int64_t row = t->blocks.row_begin[block]; row < t->blocks.row_begin[block + 1]; row++)
            gca_combine_row(t, block, row);
}

static void gca_combine(struct device *dev, struct mat o, struct mat part, struct mat lse, struct gca_blocks blocks,
                        int heads) {
    gca_check_blocks(&blocks, o.rows);
    assert(heads > 0 && o.cols % heads == 0 && part.cols == o.cols && part.rows == blocks.k * o.rows);
    assert(blocks.weight || (lse.rows == part.rows && lse.cols == heads));
    gca_fill_outside(o, o.rows, &blocks, 0.0f);
    struct gca_task t = {
        .dev = dev, .o = o, .lse = lse, .q = part, .blocks = blocks, .heads = heads, .dim = (int)(o.cols / heads)};
    threads_for(dev->threads, blocks.blocks, 1, gca_combine_body, &t);
}

/* Gradients. With delta = P dP summed over a chunk's keys (= dout . o_k): dweight = sum of delta over rows and heads,
 * dS = weight P (dP - delta), and a slot's dK and dV are sums over the entries that read it. Two passes, so that no two
 * tasks write the same number: a task of the first is a block (dq, dweight), a task of the second is one head of a slot
 * (dkeys, dvalues), entries in order. Both compute P and dP. A tile has all keys of a chunk, because delta is a sum
 * over them. */
struct gca_backward_task {
    struct device *dev;
    struct mat dq, dkeys, dvalues, dout, q, lse;
    float *dweight;
    struct gca_pool pool;
    struct gca_blocks blocks;
    struct gca_inverse inverse;
    int heads, dim, rows; /* rows: of a tile */
};

static struct attend_grad gca_grad_of_head(const struct gca_backward_task *t, int worker, int64_t head) {
    int64_t column = head * t->dim;
    struct attend_grad g = {.q = mat_cols(t->q, column, t->dim),
                            .k = mat_cols(t->pool.keys, column, t->dim),
                            .v = mat_cols(t->pool.values, column, t->dim),
                            .dout = mat_cols(t->dout, column, t->dim),
                            .dq = mat_cols(t->dq, column, t->dim),
                            .dk = mat_cols(t->dkeys, column, t->dim),
                            .dv = mat_cols(t->dvalues, column, t->dim),
                            .p = device_scratch(t->dev, worker)};
    g.dp = g.p + (int64_t)t->rows * t->pool.live_rows;
    return g;
}

/* Divides P by its sum over a chunk's keys (and the null key). Backward's scores are rounded differently from
 * forward's; if one key has nearly all the weight, P (dP - delta) would be only that difference. */
static void gca_normalise(float *weight, int keys, float null_weight) {
    vf sum = {0};
    int j = 0;
    for (; j + LANES <= keys; j += LANES)
        sum += v_load(weight + j);
    if (j < keys) sum += v_load_part(weight + j, keys - j);
    float factor = 1.0f / (v_sum(sum) + null_weight);
    for (j = 0; j < keys; j++)
        weight[j] *= factor;
}

/* P, dP and delta of a tile; returns the sum of delta. */
static double gca_tile_weights(const struct gca_backward_task *t, const struct attend_grad *g, float *delta,
                               int64_t entry, int64_t head, int64_t row, int rows) {
    int keys = t->pool.live_rows;
    int64_t key = (int64_t)t->blocks.slot[entry] * t->pool.slot_rows;
    const float *lse = mat_row(t->lse, head * t->blocks.k + entry % t->blocks.k) + row;
    double sum = 0.0;
    attend_grad_weights(g, row, rows, key, keys, lse, 1, NULL);
    for (int r = 0; r < rows; r++) {
        float *weight = g->p + (int64_t)r * keys;
        gca_normalise(weight, keys, t->pool.off_by_one ? expf(-lse[r]) : 0.0f);
        delta[r] = v_dot(weight, g->dp + (int64_t)r * keys, keys);
        sum += (double)delta[r];
    }
    return sum;
}

static void gca_queries_entry(const struct gca_backward_task *t, int worker, int64_t block, int64_t entry) {
    float delta[ATTEND_ROWS], weight = t->blocks.weight[entry];
    int64_t first = t->blocks.row_begin[block], last = t->blocks.row_begin[block + 1];
    int64_t key = (int64_t)t->blocks.slot[entry] * t->pool.slot_rows;
    double sum = 0.0;
    for (int64_t head = 0; head < t->heads; head++) {
        struct attend_grad g = gca_grad_of_head(t, worker, head);
        for (int64_t row = first; row < last; row += t->rows) {
            int rows = (int)(last - row < t->rows ? last - row : t->rows);
            sum += gca_tile_weights(t, &g, delta, entry, head, row, rows);
            if (weight == 0.0f) continue;
            attend_grad_scores(&g, rows, t->pool.live_rows, delta, weight);
            attend_grad_queries(&g, row, rows, key, t->pool.live_rows);
        }
    }
    t->dweight[entry] = (float)sum;
}

static void gca_queries_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct gca_backward_task *t = context;
    for (int64_t block = begin; block < end; block++) {
        gca_fill(t->dq, t->blocks.row_begin[block], t->blocks.row_begin[block + 1], 0.0f);
        for (int64_t entry = block * t->blocks.k; entry < (block + 1) * t->blocks.k; entry++)
            if (t->blocks.slot[entry] < 0)
                t->dweight[entry] = 0.0f;
            else
                gca_queries_entry(t, worker, block, entry);
    }
}

static void gca_slots_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct gca_backward_task *t = context;
    float delta[ATTEND_ROWS];
    int keys = t->pool.live_rows;
    for (int64_t i = begin; i < end; i++) {
        int64_t slot = i / t->heads, head = i % t->heads, key = slot * t->pool.slot_rows;
        struct attend_grad g = gca_grad_of_head(t, worker, head);
        for (int32_t at = t->inverse.begin[slot]; at < t->inverse.begin[slot + 1]; at++) {
            int64_t entry = t->inverse.entry[at], block = entry / t->blocks.k;
            int64_t last = t->blocks.row_begin[block + 1];
            float weight = t->blocks.weight[entry];
            if (weight == 0.0f) continue;
            for (int64_t row = t->blocks.row_begin[block]; row < last; row += t->rows) {
                int rows = (int)(last - row < t->rows ? last - row : t->rows);
                gca_tile_weights(t, &g, delta, entry, head, row, rows);
                attend_grad_scores(&g, rows, keys, delta, weight);
                attend_grad_keys(&g, row, rows, key, keys, weight);
            }
        }
    }
}

static void gca_backward(struct device *dev, const struct gca_gradients *to, struct mat dout, struct mat q,
                         struct gca_pool pool, struct gca_blocks blocks, struct gca_inverse inverse, struct mat lse) {
    struct mat dq = to->dq, dkeys = to->dkeys, dvalues = to->dvalues;
    float *dweight = to->dweight;
    assert(blocks.k >= 1);
    int heads = (int)lse.rows / blocks.k;
    int64_t n = q.rows;
    int64_t fits = DEVICE_SCRATCH_BYTES / (2 * (int64_t)sizeof(float) * pool.live_rows);
    gca_check_blocks(&blocks, n);
    gca_check_pool(&pool, q, heads);
    assert(fits >= 1 && dq.rows == n && dout.rows == n && lse.cols == n);
    assert(dkeys.rows == pool.keys.rows && dvalues.rows == pool.keys.rows && blocks.weight);
    assert(inverse.slots * pool.slot_rows <= pool.keys.rows);
    gca_fill_outside(dq, n, &blocks, 0.0f);
    struct gca_backward_task t = {.dev = dev,
                                  .dq = dq,
                                  .dkeys = dkeys,
                                  .dvalues = dvalues,
                                  .dout = dout,
                                  .q = q,
                                  .lse = lse,
                                  .dweight = dweight,
                                  .pool = pool,
                                  .blocks = blocks,
                                  .inverse = inverse,
                                  .heads = heads,
                                  .dim = (int)(q.cols / heads),
                                  .rows = (int)(fits < ATTEND_ROWS ? fits : ATTEND_ROWS)};
    threads_for(dev->threads, blocks.blocks, 1, gca_queries_body, &t);
    threads_for(dev->threads, inverse.slots * heads, 1, gca_slots_body, &t);
}

/* A counting sort. begin[s + 1] is first the number of entries of slot s, then the position of the next one to be
 * written, and at the end the position after the last. */
static void gca_invert(struct device *dev, int32_t *begin, int32_t *entry, const int32_t *slot, int64_t entries,
                       int64_t slots) {
    (void)dev;
    assert(entries <= INT32_MAX);
    memset(begin, 0, (size_t)(slots + 1) * sizeof *begin);
    for (int64_t i = 0; i < entries; i++) {
        assert(slot[i] < slots);
        if (slot[i] >= 0) begin[slot[i] + 1]++;
    }
    int32_t sum = 0;
    for (int64_t s = 1; s <= slots; s++) {
        int32_t count = begin[s];
        begin[s] = sum; /* where slot s - 1 begins */
        sum += count;
    }
    for (int64_t i = 0; i < entries; i++)
        if (slot[i] >= 0) entry[begin[slot[i] + 1]++] = (int32_t)i;
}

const struct gca_ops gca_cpu = {
    .partial = gca_partial,
    .combine = gca_combine,
    .forward_keep = gca_forward_keep,
    .backward = gca_backward,
    .invert = gca_invert,
    .forward = gca_forward,
};
