/* landmark_attention_cpu.c -- a task is one head and a tile of queries of one block, which read the same blocks: the
 * own block, then one softmax for each earlier block (kernels/attention/attend.c), mixed by the landmarks' scores with
 * a running maximum and sum. */
#include "kernels/attention/attend_internal.h"
#include "kernels/device/device_internal.h"
#include "kernels/landmark/landmark_internal.h"
#include <assert.h>
#include <limits.h>

struct landmark_task {
    struct device *dev;
    struct mat o, q, keys, values, lse; /* lse: data NULL: it is not computed */
    int64_t first;                      /* position of q's first row; key row of position 0 is 0 */
    struct landmark_shape shape;
    int topk, dim; /* topk 0: all */
};

/* The blocks that a row reads, by number. */
struct landmark_choice {
    int64_t block[LANDMARK_TOPK_MAX];
    float score[LANDMARK_TOPK_MAX];
    int count, next;
};

/* The current tile. total of `a` is not yet divided by sum. */
struct landmark_tile {
    struct attend a;
    float top[ATTEND_ROWS], sum[ATTEND_ROWS]; /* of the softmax over own and far */
    int64_t position, block;                  /* of the first row */
    int64_t column;
    float slope;
    struct landmark_choice *choices; /* [rows] */
};

/* Adds the result of the softmax in `a` with a score for each row; -inf: the row does not read it. */
static void landmark_mix(struct landmark_tile *tile, const float *score) {
    float keep[ATTEND_ROWS], add[ATTEND_ROWS];
    for (int r = 0; r < ATTEND_ROWS; r++)
        keep[r] = 1.0f, add[r] = 0.0f;
    for (int r = 0; r < tile->a.rows; r++) {
        if (score[r] == -INFINITY) continue;
        float top = score[r] > tile->top[r] ? score[r] : tile->top[r];
        keep[r] = expf(tile->top[r] - top);
        add[r] = expf(score[r] - top);
        tile->sum[r] = tile->sum[r] * keep[r] + add[r];
        tile->top[r] = top;
    }
    attend_mix(&tile->a, keep, add);
}

static void landmark_own(struct landmark_tile *tile, const struct landmark_task *t) {
    float score[ATTEND_ROWS];
    int64_t begin = tile->block * (t->shape.block + 1), n = tile->position + tile->a.rows - begin;
    if (n > t->shape.block) n = t->shape.block; /* no row reads the landmark of its own block */
    struct attend_bias bias = {.distance = tile->position - begin, .window = INT_MAX, .slope = tile->slope};
    attend_softmax(&tile->a, false);
    attend_keys(&tile->a, mat_row(t->keys, begin) + tile->column, t->keys.stride,
                mat_row(t->values, begin) + tile->column, t->values.stride, (int)n, &bias);
    for (int r = 0; r < tile->a.rows; r++)
        score[r] = tile->a.top[r] + logf(tile->a.sum[r]);
    landmark_mix(tile, score);
}

/* far(block) of row r. */
static float landmark_score(const struct landmark_tile *tile, const struct landmark_task *t, int r, int64_t block) {
    int64_t landmark = block * (t->shape.block + 1) + t->shape.block;
    return landmark_far(tile->a.q + r * tile->a.q_stride, mat_row(t->keys, landmark) + tile->column, t->dim,
                        tile->position + r - landmark, t->shape.window, tile->slope);
}

/* A constant added to all scores of a block does not change its softmax, so distances count as if the own block were
 * the next one. */
static void landmark_block(struct landmark_tile *tile, const struct landmark_task *t, int64_t block,
                           const float *score) {
    int64_t begin = block * (t->shape.block + 1);
    struct attend_bias bias = {.distance = t->shape.block + 1, .window = INT_MAX, .slope = tile->slope};
    attend_softmax(&tile->a, false);
    attend_keys(&tile->a, mat_row(t->keys, begin) + tile->column, t->keys.stride,
                mat_row(t->values, begin) + tile->column, t->values.stride, t->shape.block, &bias);
    landmark_mix(tile, score);
}

/* Keeps the best scores, highest first; of equal ones the earlier block. */
static void landmark_offer(struct landmark_choice *c, int topk, int64_t block, float score) {
    if (c->count == topk && !(score > c->score[topk - 1])) return;
    int at = c->count < topk ? c->count++ : topk - 1;
    for (; at > 0 && score > c->score[at - 1]; at--)
        c->block[at] = c->block[at - 1], c->score[at] = c->score[at - 1];
    c->block[at] = block, c->score[at] = score;
}

static void landmark_sort(struct landmark_choice *c) {
    for (int i = 1; i < c->count; i++) {
        int64_t block = c->block[i];
        float score = c->score[i];
        int at = i;
        for (; at > 0 && c->block[at - 1] > block; at--)
            c->block[at] = c->block[at - 1], c->score[at] = c->score[at - 1];
        c->block[at] = block, c->score[at] = score;
    }
}

static void landmark_choose(struct landmark_tile *tile, const struct landmark_task *t) {
    for (int r = 0; r < tile->a.rows; r++) {
        struct landmark_choice *c = &tile->choices[r];
        c->count = c->next = 0;
        for (int64_t block = 0; block < tile->block; block++)
            landmark_offer(c, t->topk, block, landmark_score(tile, t, r, block));
        landmark_sort(c);
    }
}

/* Each block that some row selected, in order. */
static void landmark_chosen(struct landmark_tile *tile, const struct landmark_task *t) {
    float score[ATTEND_ROWS];
    landmark_choose(tile, t);
    for (;;) {
        int64_t block = INT64_MAX;
        for (int r = 0; r < tile->a.rows; r++) {
            const struct landmark_choice *c = &tile->choices[r];
            if (c->next < c->count && c->block[c->next] < block) block = c->block[c->next];
        }
        if (block == INT64_MAX) return;
        for (int r = 0; r < tile->a.rows; r++) {
            struct landmark_choice *c = &tile->choices[r];
            bool reads = c->next < c->count && c->block[c->next] == block;
            score[r] = reads ? c->score[c->next] : -INFINITY;
            c->next += reads;
        }
        landmark_block(tile, t, block, score);
    }
}

static void landmark_all(struct landmark_tile *tile, const struct landmark_task *t) {
    float score[ATTEND_ROWS];
    for (int64_t block = 0; block < tile->block; block++) {
        for (int r = 0; r < tile->a.rows; r++)
            score[r] = landmark_score(tile, t, r, block);
        landmark_block(tile, t, block, score);
    }
}

/* Scratch: attend's part, then the tile's selections. */
enum { LANDMARK_CHOICES_AT = 1 << 20 };
_Static_assert(sizeof(float) * (2 * ATTEND_ROWS + ATTEND_KEYS * ATTEND_ROWS + 3 * ATTEND_DIM_MAX * ATTEND_ROWS) <=
                       LANDMARK_CHOICES_AT &&
                   LANDMARK_CHOICES_AT + ATTEND_ROWS * sizeof(struct landmark_choice) <= DEVICE_SCRATCH_BYTES,
               "a tile and its choices fit in a worker's scratch");

/* Rows row .. row + rows - 1 of q, of one block. */
static void landmark_rows(const struct landmark_task *t, unsigned char *scratch, int head, int64_t row, int rows) {
    struct landmark_tile tile = {.position = t->first + row,
                                 .block = (t->first + row) / (t->shape.block + 1),
                                 .column = (int64_t)head * t->dim,
                                 .slope = attention_alibi_slope(head, t->shape.heads),
                                 .choices = (struct landmark_choice *)(void *)(scratch + LANDMARK_CHOICES_AT)};
    for (int r = 0; r < rows; r++)
        tile.top[r] = -INFINITY;
    attend_begin(&tile.a, scratch, mat_row(t->q, row) + tile.column, t->q.stride, rows, t->dim);
    landmark_own(&tile, t);
    if (t->topk > 0)
        landmark_chosen(&tile, t);
    else
        landmark_all(&tile, t);
    attend_store(&tile.a, mat_row(t->o, row) + tile.column, t->o.stride);
    for (int r = 0; r < rows; r++) {
        float *o = mat_row(t->o, row + r) + tile.column, divide = 1.0f / tile.sum[r];
        for (int d = 0; d < t->dim; d++)
            o[d] *= divide;
        if (t->lse.data) mat_row(t->lse, row + r)[head] = tile.top[r] + logf(tile.sum[r]);
    }
}

/* The rows of q in a block of positions, in tiles. */
static void landmark_part(const struct landmark_task *t, unsigned char *scratch, int head, int64_t block) {
    int64_t size = t->shape.block + 1, begin = block * size - t->first, end = begin + size;
    if (end > t->q.rows) end = t->q.rows;
    for (int64_t row = begin > 0 ? begin : 0; row < end; row += ATTEND_ROWS)
        landmark_rows(t, scratch, head, row, (int)(end - row < ATTEND_ROWS ? end - row : ATTEND_ROWS));
}

static void landmark_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct landmark_task *t = context;
    int64_t first = t->first / (t->shape.block + 1);
    for (int64_t i = begin; i < end; i++)
        landmark_part(t, device_scratch(t->dev, worker), (int)(i % t->shape.heads), first + i / t->shape.heads);
}

static void landmark_attention_forward(struct device *dev, struct mat o, struct mat q, struct mat keys,
                                       struct mat values, int64_t first, struct landmark_shape shape, int topk) {
    assert(shape.heads > 0 && q.cols % shape.heads == 0 && o.cols == q.cols && keys.cols == q.cols);
    assert(values.cols == q.cols && o.rows == q.rows && first >= 0 && keys.rows >= first + q.rows &&
           values.rows >= first + q.rows);
    assert(shape.block >= 1 && shape.block <= LANDMARK_BLOCK_MAX && topk >= 1 && topk <= LANDMARK_TOPK_MAX);
    struct landmark_task t = {.dev = dev,
                              .o = o,
                              .q = q,
                              .keys = keys,
                              .values = values,
                              .first = first,
                              .shape = shape,
                              .topk = topk,
                              .dim = (int)(q.cols / shape.heads)};
    int64_t blocks = (first + q.rows - 1) / (shape.block + 1) - first / (shape.block + 1) + 1;
    if (q.rows > 0)
        threads_for(dev->threads, blocks * shape.heads, blocks == 1 ? device_share(dev, shape.heads) : 1, landmark_body,
                    &t);
}

struct landmark_sequences_task {
    struct landmark_task one; /* q, o, lse, keys, values: all rows */
    int64_t length;
};

static void landmark_sequences_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct landmark_sequences_task *all = context;
    int64_t blocks = all->length / (all->one.shape.block + 1), heads = all->one.shape.heads;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i / (blocks * heads) * all->length, rest = i % (blocks * heads);
        struct landmark_task t = all->one;
        t.q = mat_rows(all->one.q, first, all->length);
        t.o = mat_rows(all->one.o, first, all->length);
        t.keys = mat_rows(all->one.keys, first, all->length);
        t.values = mat_rows(all->one.values, first, all->length);
        t.lse = mat_rows(all->one.lse, first, all->length);
        landmark_part(&t, device_scratch(t.dev, worker), (int)(rest % heads), rest / heads);
    }
}

static void landmark_attention_forward_sequences(struct device *dev, struct mat o, struct mat lse,
                                                 const struct landmark_sequences *in) {
    struct mat q = in->q;
    int heads = in->shape.heads, size = in->shape.block + 1;
    assert(heads > 0 && q.cols % heads == 0 && o.cols == q.cols && in->k.cols == q.cols && in->v.cols == q.cols);
    assert(in->shape.block >= 1 && in->shape.block <= LANDMARK_BLOCK_MAX);
    assert(in->length > 0 && in->length % size == 0 && q.rows % in->length == 0 && o.rows == q.rows);
    assert(in->k.rows == q.rows && in->v.rows == q.rows && lse.data && lse.rows == q.rows && lse.cols == heads);
    struct landmark_sequences_task t = {{.dev = dev,
                                         .o = o,
                                         .q = q,
                                         .keys = in->k,
                                         .values = in->v,
                                         .lse = lse,
                                         .shape = in->shape,
                                         .dim = (int)(q.cols / heads)},
                                        in->length};
    threads_for(dev->threads, q.rows / size * heads, 1, landmark_sequences_body, &t);
}

const struct landmark_attention_ops landmark_attention_cpu = {
    .forward = landmark_attention_forward,
    .forward_sequences = landmark_attention_forward_sequences,
    .backward_sequences = landmark_attention_backward,
};
