/* loss_cpu.c -- log-likelihood in blocks of the vocabulary: a task multiplies a block of rows with a block of the
 * table in its scratch, and leaves maximum and sum of exponents per row; the blocks are then joined in order, so the
 * result does not depend on the number of threads. */
#include "kernels/device_internal.h"
#include "kernels/loss.h"
#include "kernels/simd_internal.h"
#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <math.h>

enum { ROWS = 128, WORDS = 512, BLOCKS_MAX = 8192 }; /* vocabularies to 4 million words */

struct part {
    float top, sum;
};
struct task {
    struct device *dev;
    struct mat x, table; /* x: at most ROWS rows */
    const int32_t *targets;
    struct part *parts; /* [blocks][x.rows] */
    float *target_logit;
};

static struct part row_part(const float *logits, int64_t n) {
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
    return (struct part){top, v_sum(sum) + rest};
}

static void body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
    float *logits = (float *)device_scratch(t->dev, worker);
    for (int64_t block = begin; block < end; block++) {
        int64_t first = block * WORDS, words = t->table.rows - first < WORDS ? t->table.rows - first : WORDS;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)t->x.rows, (int)words, (int)t->x.cols, 1.0f,
                    t->x.data, (int)t->x.stride, mat_row(t->table, first), (int)t->table.stride, 0.0f, logits, WORDS);
        for (int64_t r = 0; r < t->x.rows; r++) {
            t->parts[block * t->x.rows + r] = row_part(logits + r * WORDS, words);
            int64_t target = t->targets[r] - first;
            if (target >= 0 && target < words) t->target_logit[r] = logits[r * WORDS + target];
        }
    }
}

static float join(const struct task *t, int64_t blocks, int64_t row) {
    float top = -INFINITY;
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++)
        top = fmaxf(top, t->parts[b * t->x.rows + row].top);
    for (int64_t b = 0; b < blocks; b++) {
        struct part p = t->parts[b * t->x.rows + row];
        sum += (double)p.sum * exp((double)p.top - (double)top);
    }
    return (float)((double)top + log(sum) - (double)t->target_logit[row]);
}

static void forward(struct device *dev, float *nll, struct mat x, struct mat table, const int32_t *targets) {
    int64_t blocks = (table.rows + WORDS - 1) / WORDS;
    assert(x.cols == table.cols && x.stride <= INT_MAX && table.stride <= INT_MAX && blocks >= 1 &&
           blocks <= BLOCKS_MAX);
    for (int64_t i = 0; i < x.rows; i++)
        assert(targets[i] < table.rows);
    /* Logits of a task take the front of a worker's scratch; the parts take the back of the first worker's. */
    size_t logits_bytes = (size_t)ROWS * WORDS * sizeof(float);
    int64_t rows =
        (int64_t)((DEVICE_SCRATCH_BYTES - logits_bytes - ROWS * sizeof(float)) / sizeof(struct part)) / blocks;
    if (rows > ROWS) rows = ROWS;
    assert(rows >= 1);
    float *target_logit = (float *)(void *)((unsigned char *)device_scratch(dev, 0) + logits_bytes);
    for (int64_t first = 0; first < x.rows; first += rows) {
        int64_t n = x.rows - first < rows ? x.rows - first : rows;
        struct task t = {
            dev,         mat_rows(x, first, n), table, targets + first, (struct part *)(void *)(target_logit + ROWS),
            target_logit};
        threads_for(dev->threads, blocks, 1, body, &t);
        for (int64_t r = 0; r < n; r++)
            nll[first + r] = targets[first + r] < 0 ? 0.0f : join(&t, blocks, r);
    }
}

const struct loss_ops loss_cpu = {.forward = forward};
