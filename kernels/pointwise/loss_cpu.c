/* loss_cpu.c -- log-likelihood in blocks of the vocabulary.
 *
 * A task multiplies a block of 128 rows with 512 rows of the table (ids of the vocabulary) in its scratch, and keeps
 * the maximum and the sum of exponentials of each row. The blocks are then joined in order, so the result does not
 * depend on the number of threads. Bound by arithmetic: one product of 2 n V d (gradients: four). */
#include "kernels/device/device_internal.h"
#include "kernels/linear/blas_cpu.h"
#include "kernels/linear/matmul_i8.h"
#include "kernels/pointwise/loss.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { ROWS = 128, COLUMNS = 512, BLOCKS_MAX = 8192 }; /* vocabularies up to 4 million ids */

/* Logits of a block: rows of COLUMNS, also if the vocabulary ends earlier. */
static struct mat loss_block(float *logits, int64_t rows, int64_t columns) {
    return mat_cols(mat_f32(logits, rows, COLUMNS), 0, columns);
}

struct loss_part {
    float top, sum;
};
struct loss_task {
    struct device *dev;
    struct mat x, table; /* x: at most ROWS rows */
    const int32_t *targets;
    struct loss_part *parts; /* [blocks][x.rows] */
    float *target_logit;
};

/* logits [rows of x, rows of table] = scale x table^T. */
static void loss_logits(struct mat logits, struct mat x, struct mat table, float scale) {
    blas_cpu_product((struct blas_product){.y = logits, .a = x, .b = table, .b_transposed = true, .scale = scale});
}
/* From the logits' gradients: dx = keep dx + logits table, and dtable += logits^T x. */
static void loss_backward_inputs(struct mat dx, float keep, struct mat logits, struct mat table) {
    blas_cpu_product((struct blas_product){.y = dx, .a = logits, .b = table, .scale = 1.0f, .keep = keep});
}
static void loss_backward_table(struct mat dtable, struct mat logits, struct mat x) {
    blas_cpu_product(
        (struct blas_product){.y = dtable, .a = logits, .b = x, .a_transposed = true, .scale = 1.0f, .keep = 1.0f});
}

static struct loss_part loss_row_part(const float *logits, int64_t n) {
    vf highest = v_set(-INFINITY), sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        highest = v_max(highest, v_load(logits + i));
    float top = v_largest(highest), rest = 0.0f;
    for (; i < n; i++)
        top = logits[i] > top ? logits[i] : top;
    for (i = 0; i + LANES <= n; i += LANES)
        sum += v_exp(v_load(logits + i) - top);
    for (; i < n; i++)
        rest += expf(logits[i] - top);
    return (struct loss_part){top, v_sum(sum) + rest};
}

/* The logits of a block of the vocabulary. A table of 8 bits needs scratch memory of its own, at the end. */
static void loss_block_logits(const struct loss_task *t, float *logits, int worker, int64_t first, int64_t columns) {
    const struct mat to = loss_block(logits, t->x.rows, columns);
    if (t->table.type != DTYPE_I8) {
        loss_logits(to, t->x, mat_rows(t->table, first, columns), 1.0f);
        return;
    }
    unsigned char *scratch = device_scratch(t->dev, worker);
    scratch += DEVICE_SCRATCH_BYTES - matmul_i8.scratch_bytes(t->x.rows, t->x.cols);
    matmul_i8.some((enum matmul_i8_path)device_cpu(t->dev)->i8, to, t->x, t->table, first, scratch);
}

static void loss_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const struct loss_task *t = context;
    float *logits = (float *)device_scratch(t->dev, worker);
    for (int64_t block = begin; block < end; block++) {
        int64_t first = block * COLUMNS, columns = t->table.rows - first < COLUMNS ? t->table.rows - first : COLUMNS;
        loss_block_logits(t, logits, worker, first, columns);
        for (int64_t r = 0; r < t->x.rows; r++) {
            t->parts[block * t->x.rows + r] = loss_row_part(logits + r * COLUMNS, columns);
            int64_t target = t->targets[r] - first;
            if (target >= 0 && target < columns) t->target_logit[r] = logits[r * COLUMNS + target];
        }
    }
}

static float loss_join(const struct loss_task *t, int64_t blocks, int64_t row) {
    float top = -INFINITY;
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++)
        top = fmaxf(top, t->parts[b * t->x.rows + row].top);
    for (int64_t b = 0; b < blocks; b++) {
        struct loss_part p = t->parts[b * t->x.rows + row];
        sum += (double)p.sum * exp((double)p.top - (double)top);
    }
    return (float)((double)top + log(sum) - (double)t->target_logit[row]);
}

static void loss_forward(struct device *dev, float *nll, struct mat x, struct mat table, const int32_t *targets) {
    int64_t blocks = (table.rows + COLUMNS - 1) / COLUMNS;
    assert(x.cols == table.cols && blocks >= 1 && blocks <= BLOCKS_MAX);
    for (int64_t i = 0; i < x.rows; i++)
        assert(targets[i] < table.rows);
    /* Logits of a task are at the front of a worker's scratch; the parts are at the back of the first worker's. */
    size_t logits_bytes = (size_t)ROWS * COLUMNS * sizeof(float);
    const size_t rounded_bytes = table.type == DTYPE_I8 ? (size_t)matmul_i8.scratch_bytes(1, x.cols) : 0;
    const size_t bytes_a_row = (size_t)blocks * sizeof(struct loss_part) + rounded_bytes;
    int64_t rows = (int64_t)((DEVICE_SCRATCH_BYTES - logits_bytes - ROWS * sizeof(float)) / bytes_a_row);
    if (rows > ROWS) rows = ROWS;
    assert(rows >= 1);
    float *target_logit = (float *)(void *)((unsigned char *)device_scratch(dev, 0) + logits_bytes);
    for (int64_t first = 0; first < x.rows; first += rows) {
        int64_t n = x.rows - first < rows ? x.rows - first : rows;
        struct loss_task t = {dev,
                              mat_rows(x, first, n),
                              table,
                              targets + first,
                              (struct loss_part *)(void *)(target_logit + ROWS),
                              target_logit};
        threads_for(dev->threads, blocks, 1, loss_blocks, &t);
        for (int64_t r = 0; r < n; r++)
            nll[first + r] = targets[first + r] < 0 ? 0.0f : loss_join(&t, blocks, r);
    }
}

/* Gradients. Logits are computed twice. In the first pass a task is a block of rows. It reads the vocabulary with a
 * running maximum, like attention its keys, and computes the row's maximum and sum, and dx. In the second pass a task
 * is a block of table rows. It reads the rows in order, and only this task adds to its rows of dtable. PART_ROWS rows
 * at a time, whose maxima and sums follow the logits in the first worker's scratch. */
enum { PART_ROWS = 1 << 16 };

struct loss_backward_task {
    struct device *dev;
    struct mat dx, dtable, x, table;
    const int32_t *targets;
    const float *weight;     /* [x.rows], or NULL */
    struct loss_part *parts; /* [x.rows] of the whole vocabulary: a float log sum exp of hundreds would cost digits */
    float *nll, scale;
};

/* logits[i] = factor * exp(logits[i] - base); returns their sum. */
static float loss_exponents(float *logits, int64_t n, float base, float factor) {
    vf sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf e = factor * v_exp(v_load(logits + i) - base);
        v_store(logits + i, e);
        sum += e;
    }
    float rest = 0.0f;
    for (; i < n; i++) {
        logits[i] = factor * expf(logits[i] - base);
        rest += logits[i];
    }
    return v_sum(sum) + rest;
}

/* The rows of a block that are computed. Where only a task's answers are predicted, most rows have no target: rows
 * before the first and after the last target are then left out, if they are at least half of the block. */
static int64_t loss_live_rows(const struct loss_backward_task *t, int64_t *row, int64_t n) {
    int64_t first = 0, end = n;
    while (first < end && t->targets[*row + first] < 0)
        first++;
    while (end > first && t->targets[*row + end - 1] < 0)
        end--;
    if (2 * (end - first) > n) return n;
    *row += first;
    return end - first;
}

/* Factor of row r's loss in the gradient. */
static float loss_row_scale(const struct loss_backward_task *t, int64_t r) {
    return t->weight ? t->scale * t->weight[r] : t->scale;
}

static void loss_scale_row(float *x, int64_t n, float factor) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(x + i, factor * v_load(x + i));
    for (; i < n; i++)
        x[i] *= factor;
}

struct loss_running {
    float top[ROWS], target[ROWS];
    double sum[ROWS];
};

/* Logits of one block of table rows become exponents below the running maximum; earlier sums are rescaled to a new
 * maximum. */
static void loss_running_exponents(const struct loss_backward_task *t, struct loss_running *now, float *logits,
                                   int64_t row, int64_t n, int64_t first_column, int64_t columns) {
    for (int64_t r = 0; r < n; r++) {
        float *own = logits + r * COLUMNS;
        int64_t target = t->targets[row + r] - first_column;
        if (target >= 0 && target < columns) now->target[r] = own[target];
        float top = now->top[r];
        for (int64_t i = 0; i < columns; i++)
            top = own[i] > top ? own[i] : top;
        if (top > now->top[r]) {
            float shrink = first_column == 0 ? 0.0f : expf(now->top[r] - top);
            if (first_column > 0) loss_scale_row(mat_row(t->dx, row + r), t->dx.cols, shrink);
            now->sum[r] *= (double)shrink;
            now->top[r] = top;
        }
        now->sum[r] += (double)loss_exponents(own, columns, top, 1.0f);
    }
}

static void loss_input_block(const struct loss_backward_task *t, float *logits, int64_t row, int64_t n) {
    struct loss_running now;
    for (int64_t r = 0; r < n; r++) {
        now.top[r] = -INFINITY;
        now.target[r] = 0.0f;
        now.sum[r] = 0.0;
    }
    for (int64_t first_column = 0; first_column < t->table.rows; first_column += COLUMNS) {
        int64_t columns = t->table.rows - first_column < COLUMNS ? t->table.rows - first_column : COLUMNS;
        struct mat table = mat_rows(t->table, first_column, columns), block = loss_block(logits, n, columns);
        loss_logits(block, mat_rows(t->x, row, n), table, 1.0f);
        loss_running_exponents(t, &now, logits, row, n, first_column, columns);
        loss_backward_inputs(mat_rows(t->dx, row, n), first_column == 0 ? 0.0f : 1.0f, block, table);
    }
    for (int64_t r = 0; r < n; r++) {
        int32_t target = t->targets[row + r];
        float *dx = mat_row(t->dx, row + r), factor = (float)(1.0 / now.sum[r]), scale = loss_row_scale(t, row + r);
        double lse = (double)now.top[r] + log(now.sum[r]);
        t->parts[row + r] = (struct loss_part){now.top[r], (float)now.sum[r]};
        t->nll[row + r] = target < 0 ? 0.0f : (float)(lse - (double)now.target[r]);
        for (int64_t i = 0; i < t->dx.cols; i++)
            dx[i] = target < 0 ? 0.0f : scale * (dx[i] * factor - mat_row(t->table, target)[i]);
    }
}

static void loss_input_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const struct loss_backward_task *t = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * ROWS, n = t->x.rows - row < ROWS ? t->x.rows - row : ROWS;
        int64_t first = row, live = loss_live_rows(t, &first, n);
        for (int64_t r = row; live < n && r < row + n; r++) {
            t->nll[r] = 0.0f;
            memset(mat_row(t->dx, r), 0, (size_t)t->dx.cols * sizeof(float));
        }
        if (live > 0) loss_input_block(t, device_scratch(t->dev, worker), first, live);
    }
}

static void loss_table_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const struct loss_backward_task *t = context;
    float *logits = device_scratch(t->dev, worker);
    for (int64_t i = begin; i < end; i++) {
        int64_t first_column = i * COLUMNS,
                columns = t->table.rows - first_column < COLUMNS ? t->table.rows - first_column : COLUMNS;
        for (int64_t begin_row = 0; begin_row < t->x.rows; begin_row += ROWS) {
            int64_t row = begin_row, n = t->x.rows - row < ROWS ? t->x.rows - row : ROWS;
            n = loss_live_rows(t, &row, n);
            if (n == 0) continue;
            struct mat block = loss_block(logits, n, columns), x = mat_rows(t->x, row, n);
            loss_logits(block, x, mat_rows(t->table, first_column, columns), 1.0f);
            for (int64_t r = 0; r < n; r++) {
                int64_t target = t->targets[row + r], target_column = target - first_column;
                if (target < 0) {
                    memset(logits + r * COLUMNS, 0, (size_t)columns * sizeof(float));
                    continue;
                }
                struct loss_part p = t->parts[row + r];
                float scale = loss_row_scale(t, row + r);
                loss_exponents(logits + r * COLUMNS, columns, p.top, scale / p.sum);
                if (target_column >= 0 && target_column < columns) logits[r * COLUMNS + target_column] -= scale;
            }
            loss_backward_table(mat_rows(t->dtable, first_column, columns), block, x);
        }
    }
}

static void loss_forward_backward(struct device *dev, float *nll, struct mat dx, struct mat dtable, struct mat x,
                                  struct mat table, struct loss_rows rows) {
    assert(x.cols == table.cols && dx.rows == x.rows && dx.cols == x.cols && table.rows >= 1);
    assert(dtable.rows == table.rows && dtable.cols == table.cols);
    for (int64_t i = 0; i < x.rows; i++)
        assert(rows.targets[i] < table.rows);
    struct loss_part *parts = (struct loss_part *)(void *)((float *)device_scratch(dev, 0) + ROWS * COLUMNS);
    for (int64_t first = 0; first < x.rows; first += PART_ROWS) {
        int64_t n = x.rows - first < PART_ROWS ? x.rows - first : PART_ROWS;
        struct loss_backward_task t = {.dev = dev,
                                       .dx = mat_rows(dx, first, n),
                                       .dtable = dtable,
                                       .x = mat_rows(x, first, n),
                                       .table = table,
                                       .targets = rows.targets + first,
                                       .weight = rows.weight ? rows.weight + first : NULL,
                                       .parts = parts,
                                       .nll = nll + first,
                                       .scale = rows.scale};
        threads_for(dev->threads, (n + ROWS - 1) / ROWS, 1, loss_input_blocks, &t);
        threads_for(dev->threads, (table.rows + COLUMNS - 1) / COLUMNS, 1, loss_table_blocks, &t);
    }
}

/* Contrastive: candidates are few, so all logits of a row fit the scratch. As above a task is first a block of rows
 * (nll, hit, dx), then a block of candidates (dtable). The maximum and sum of each row are kept in between. */
enum { CONTRAST_ROWS = 64, CONTRAST_BYTES = DEVICE_SCRATCH_BYTES / 2 };

struct contrastive_task {
    struct device *dev;
    struct mat dx, dtable, x, table;
    const int32_t *targets, *excluded;
    const float *alone;
    struct loss_part *parts; /* [x.rows] */
    float *nll, *hit, scale, factor;
    int64_t rows; /* of a block */
};

static void contrastive_logits(const struct contrastive_task *t, float *logits, int64_t row, int64_t n,
                               int64_t first_column, int64_t columns) {
    loss_logits(mat_f32(logits, n, columns), mat_rows(t->x, row, n), mat_rows(t->table, first_column, columns),
                t->scale);
    for (int64_t r = 0; r < n; r++) {
        int64_t out = t->excluded[row + r] - first_column;
        if (t->excluded[row + r] >= 0 && out >= 0 && out < columns) logits[r * columns + out] = -INFINITY;
        for (int64_t c = 0; t->alone && c < columns; c++)
            if (t->alone[first_column + c] != 0.0f && first_column + c != t->targets[row + r])
                logits[r * columns + c] = -INFINITY;
    }
}

/* Logits of candidates first_column .. first_column+columns-1 become d nll / d(x.table[v]), times the caller's weight.
 */
static void contrastive_gradient(const struct contrastive_task *t, float *logits, int64_t row, int64_t first_column,
                                 int64_t columns) {
    int64_t target = t->targets[row] - first_column;
    struct loss_part p = t->parts[row];
    if (t->targets[row] < 0) {
        memset(logits, 0, (size_t)columns * sizeof *logits);
        return;
    }
    loss_exponents(logits, columns, p.top, t->factor / p.sum);
    if (target >= 0 && target < columns) logits[target] -= t->factor;
}

static void contrastive_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct contrastive_task *t = context;
    float *logits = device_scratch(t->dev, worker);
    int64_t columns = t->table.rows;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * t->rows, n = t->x.rows - row < t->rows ? t->x.rows - row : t->rows;
        contrastive_logits(t, logits, row, n, 0, columns);
        for (int64_t r = 0; r < n; r++) {
            int32_t target = t->targets[row + r];
            struct loss_part p = loss_row_part(logits + r * columns, columns);
            float chosen = target < 0 ? 0.0f : logits[r * columns + target];
            t->parts[row + r] = p;
            t->hit[row + r] = target >= 0 && chosen >= p.top ? 1.0f : 0.0f;
            t->nll[row + r] = target < 0 ? 0.0f : (float)((double)p.top - (double)chosen + log((double)p.sum));
            contrastive_gradient(t, logits + r * columns, row + r, 0, columns);
        }
        loss_backward_inputs(mat_rows(t->dx, row, n), 1.0f, mat_f32(logits, n, columns), t->table);
    }
}

static void contrastive_landmarks(void *context, int64_t begin, int64_t end, int worker) {
    const struct contrastive_task *t = context;
    float *logits = device_scratch(t->dev, worker);
    for (int64_t i = begin; i < end; i++) {
        int64_t first_column = i * COLUMNS,
                columns = t->table.rows - first_column < COLUMNS ? t->table.rows - first_column : COLUMNS;
        for (int64_t row = 0; row < t->x.rows; row += ROWS) {
            int64_t n = t->x.rows - row < ROWS ? t->x.rows - row : ROWS;
            contrastive_logits(t, logits, row, n, first_column, columns);
            for (int64_t r = 0; r < n; r++)
                contrastive_gradient(t, logits + r * columns, row + r, first_column, columns);
            loss_backward_table(mat_rows(t->dtable, first_column, columns), mat_f32(logits, n, columns),
                                mat_rows(t->x, row, n));
        }
    }
}

static void loss_contrastive(struct device *dev, float *nll, float *hit, struct mat dx, struct mat dtable, struct mat x,
                             struct mat table, struct loss_contrast how) {
    int64_t fits = CONTRAST_BYTES / (int64_t)sizeof(float) / table.rows;
    assert(x.cols == table.cols && dx.rows == x.rows && dx.cols == x.cols && dtable.rows == table.rows &&
           dtable.cols == table.cols);
    assert(fits >= 1 && x.rows <= (int64_t)(CONTRAST_BYTES / sizeof(struct loss_part)));
    for (int64_t i = 0; i < x.rows; i++)
        assert(how.targets[i] < table.rows && (how.targets[i] < 0 || how.targets[i] != how.excluded[i]));
    struct contrastive_task t = {
        .dev = dev,
        .dx = dx,
        .dtable = dtable,
        .x = x,
        .table = table,
        .targets = how.targets,
        .excluded = how.excluded,
        .alone = how.alone,
        .parts = (struct loss_part *)(void *)((unsigned char *)device_scratch(dev, 0) + CONTRAST_BYTES),
        .nll = nll,
        .hit = hit,
        .scale = how.scale,
        .factor = how.scale * how.weight,
        .rows = fits < CONTRAST_ROWS ? fits : CONTRAST_ROWS};
    threads_for(dev->threads, (x.rows + t.rows - 1) / t.rows, 1, contrastive_rows, &t);
    threads_for(dev->threads, (table.rows + COLUMNS - 1) / COLUMNS, 1, contrastive_landmarks, &t);
}

const struct loss_ops loss_cpu = {
    .forward = loss_forward, .contrastive = loss_contrastive, .forward_backward = loss_forward_backward};
