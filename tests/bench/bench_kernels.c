/* bench_kernels.c -- every op against the rates of the machine: GFLOP/s against OpenBLAS's product for ops bound by
 * arithmetic, GB/s against a plain reading loop (few rows, topk) or memcpy (others) for ops bound by memory. Usage:
 * bench_kernels [threads [seconds a case]] [--json FILE]; CSV on stdout. The best of many short runs counts. */
#include "base/clock.h"
#include "base/rng.h"
#include "kernels/ops.h"
#include "tests/bench/result.h"
#include <assert.h>
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 384, F = 1024, HEADS = 6, ROWS = 512, VOCAB = 16384, LANDMARKS = 100000, SLOTS = 64, BIG = 1 << 24 };
enum { SPAN = 127, SPANS = 64 }; /* of a token memory */

struct bench {
    struct device *dev;
    double seconds, product, copy, read; /* GFLOP/s, GB/s, GB/s of this machine */
    struct mat x, y, q, qkv, w, table, landmarks;
    float *packed, *rounded, *big, *big2, *sums;
    int32_t ids[ROWS], slot[8 * ROWS / 64];
    int64_t index[8 * ROWS], visible[ROWS], row_begin[ROWS / 64 + 1];
    float score[8 * ROWS], weight[8 * ROWS / 64];
    int32_t values[SPANS * SPAN], spans[8 * ROWS / 64], span_begin[SPANS + 1], span_place[8 * ROWS / 64];
    float squares[SPANS * SPAN], stats[5 * ROWS], slopes[ROWS], tau;
};
static_assert(8 * ROWS / 64 == SPANS);

static struct mat random_mat(int64_t rows, int64_t cols) {
    float *a = aligned_alloc(64, (size_t)(rows * cols * 4 + 63) / 64 * 64);
    struct rng rng = rng_make((uint64_t)(rows + cols), 0);
    for (int64_t i = 0; i < rows * cols; i++)
        a[i] = rng_uniform(&rng) - 0.5f;
    return mat_f32(a, rows, cols);
}

typedef void job(struct bench *b);

/* samples: all times, NULL: not kept. */
static double best_time(struct bench *b, job *run, struct samples *samples) {
    double best = 1e30, stop = clock_seconds() + b->seconds;
    for (int i = 0; i < 3 || clock_seconds() < stop; i++) {
        double start = clock_seconds();
        run(b);
        double took = clock_seconds() - start;
        if (took < best) best = took;
        if (samples) samples_add(samples, took);
    }
    return best;
}

/* The rates of the machine. */
static void product_body(void *context, int64_t begin, int64_t end, int worker) {
    struct bench *b = context;
    (void)worker;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)(end - begin), D, D, 1.0f, b->big + begin * D, D,
                b->w.data, D, 0.0f, b->big2 + begin * D, D);
}
static void product(struct bench *b) {
    int64_t pieces = threads_count(b->dev->threads);
    threads_for(b->dev->threads, 4096, (4096 + pieces - 1) / pieces, product_body, b);
}
static void copy_body(void *context, int64_t begin, int64_t end, int worker) {
    struct bench *b = context;
    (void)worker;
    memcpy(b->big2 + begin, b->big + begin, (size_t)(end - begin) * sizeof(float));
}
static void copy(struct bench *b) {
    threads_for(b->dev->threads, BIG, BIG / 64, copy_body, b);
}
static void read_body(void *context, int64_t begin, int64_t end, int worker) {
    struct bench *b = context;
    float sum[64] = {0};
    for (int64_t i = begin; i < end; i += 64)
        for (int j = 0; j < 64; j++)
            sum[j] += b->big[i + j];
    for (int j = 0; j < 64; j++)
        b->sums[worker] += sum[j];
}
static void read_all(struct bench *b) {
    threads_for(b->dev->threads, BIG, BIG / 64, read_body, b);
}

/* The ops. */
static void many_rows(struct bench *b) {
    b->dev->ops->matmul->forward(b->dev, mat_cols(b->qkv, 0, 2 * F), b->x, mat_rows(b->w, 0, 2 * F), false);
}
static void packed_rows(struct bench *b) {
    b->dev->ops->matmul->forward_packed(b->dev, mat_cols(b->qkv, 0, 2 * F), b->x, b->packed, false);
}
static void rounded_rows(struct bench *b) {
    b->dev->ops->matmul->forward_rounded(b->dev, mat_cols(b->qkv, 0, 2 * F), b->x, b->rounded, false);
}
static void rounded_passage(struct bench *b) {
    b->dev->ops->matmul->forward_rounded(b->dev, mat_rows(mat_cols(b->qkv, 0, 2 * F), 0, 126), mat_rows(b->x, 0, 126),
                                         b->rounded, false);
}
static void one_row(struct bench *b) {
    struct mat w = mat_f32(b->big, BIG / D, D);
    b->dev->ops->matmul->forward(b->dev, mat_f32(b->big2, 1, w.rows), mat_rows(b->x, 0, 1), w, false);
}
static void eight_rows(struct bench *b) {
    struct mat w = mat_f32(b->big, BIG / D, D);
    b->dev->ops->matmul->forward(b->dev, mat_f32(b->big2, 8, w.rows), mat_rows(b->x, 0, 8), w, false);
}
static void norm(struct bench *b) {
    b->dev->ops->norm->forward(b->dev, b->y, mat_f32(NULL, ROWS, 1), b->x, mat_rows(b->w, 0, 1), 1e-5f);
}
static void rope(struct bench *b) {
    b->dev->ops->rope->forward(b->dev, b->q, HEADS, 64, 10000.0f);
}
static void swiglu(struct bench *b) {
    b->dev->ops->elementwise->swiglu(b->dev, mat_f32(b->big2, ROWS, F), mat_cols(b->qkv, 0, F), mat_cols(b->qkv, F, F));
}
static void add(struct bench *b) {
    b->dev->ops->elementwise->add(b->dev, b->y, b->x, b->q);
}
static void embed(struct bench *b) {
    b->dev->ops->embed->forward(b->dev, b->y, b->table, b->ids, 0);
}
static void chunk_attention(struct bench *b) {
    b->dev->ops->chunk_attention->forward(b->dev, b->y, b->x, b->q, b->q, HEADS, 64);
}
static void attention(struct bench *b) {
    struct mat ring = mat_rows(b->table, 0, 1024);
    b->dev->ops->attention->forward(b->dev, b->y, b->x, ring, mat_rows(b->table, 1024, 1024), 5000, HEADS, 512);
}
static void attention_one(struct bench *b) {
    b->dev->ops->attention->forward(b->dev, mat_rows(b->y, 0, 1), mat_rows(b->x, 0, 1), mat_rows(b->table, 0, 1024),
                                    mat_rows(b->table, 1024, 1024), 5000, HEADS, 512);
}
static struct gca_pool pool(struct bench *b) {
    return (struct gca_pool){mat_rows(b->table, 0, SLOTS * 64), mat_rows(b->table, SLOTS * 64, SLOTS * 64), 64, 63,
                             true};
}
static void gca(struct bench *b) {
    b->dev->ops->gca->forward(b->dev, b->y, b->x, pool(b),
                              (struct gca_blocks){b->row_begin, b->slot, b->weight, ROWS / 64, 8}, HEADS);
}
static void gca_one(struct bench *b) {
    static const int64_t begin[] = {0, 1};
    b->dev->ops->gca->forward(b->dev, mat_rows(b->y, 0, 1), mat_rows(b->x, 0, 1), pool(b),
                              (struct gca_blocks){begin, b->slot, b->weight, 1, 8}, HEADS);
}
static void loss(struct bench *b) {
    b->dev->ops->loss->forward(b->dev, b->score, b->x, b->table, b->ids);
}
static void topk_many(struct bench *b) {
    b->dev->ops->topk->forward(b->dev, b->index, b->score, b->x, mat_rows(b->landmarks, 0, 10000), b->visible, 8);
}
static void topk_one(struct bench *b) {
    static const int64_t all = LANDMARKS;
    b->dev->ops->topk->forward(b->dev, b->index, b->score, mat_rows(b->x, 0, 1), b->landmarks, &all, 8);
}

/* Token memories: 8 blocks of 64 rows with 8 slots of 127 entries each; and one row against 64 slots. */
static struct token_memory memory_of(struct bench *b, int blocks, int k) {
    struct token_memory m = {.tau = &b->tau};
    m.slots = (struct memory_slots){.keys = mat_rows(b->landmarks, 0, SPANS * SPAN),
                                    .value = b->values,
                                    .slot = b->spans,
                                    .square = b->squares,
                                    .row_begin = b->row_begin,
                                    .slot_rows = SPAN,
                                    .blocks = blocks,
                                    .k = k,
                                    .block_rows = 64};
    return m;
}
static struct token_memory_stats memory_stats(struct bench *b) {
    float *at = b->stats;
    return (struct token_memory_stats){at, at + ROWS, at + 2 * ROWS, at + 3 * ROWS, at + 4 * ROWS};
}
static void memory_forward(struct bench *b) {
    struct token_memory m = memory_of(b, ROWS / 64, 8);
    b->dev->ops->token_memory->forward(b->dev, memory_stats(b), b->x, &m, b->ids);
}
static void memory_backward(struct bench *b) {
    struct token_memory m = memory_of(b, ROWS / 64, 8);
    const struct token_memory_gradients to = {.dstates = b->y,
                                              .dkeys = mat_f32(b->big, SPANS * SPAN, D),
                                              .dlog_p = b->slopes,
                                              .dlse = b->slopes,
                                              .inverse = {b->span_begin, b->span_place, SPANS}};
    b->dev->ops->token_memory->backward(b->dev, &to, b->x, &m, b->ids, memory_stats(b));
}
static void memory_weights(struct bench *b) {
    struct token_memory m = memory_of(b, 1, SPANS);
    struct mat w = mat_f32(b->big2, 1, token_memory_columns(&m));
    b->dev->ops->token_memory->weights(b->dev, w, mat_rows(b->x, 0, 1), &m);
}

enum bound { ARITHMETIC, COPY, READ };
static void report(struct bench *b, const char *name, job *run, double work, enum bound bound) {
    static const char *const limits[] = {"sgemm", "memcpy", "reading"};
    struct samples times = {0};
    double best = best_time(b, run, &times), rate = work * 1e-9 / best,
           limit = bound == ARITHMETIC ? b->product
                   : bound == COPY     ? b->copy
                                       : b->read;
    struct figure f = {.unit = "us",
                       .values = times.at,
                       .count = times.count,
                       .scale = 1e6,
                       .peer = limits[bound],
                       .ratio = rate / limit};
    result_figure(&f, "%s", name);
    samples_free(&times);
    printf("kernels,%s,threads=%d,%.1f us,%.1f %s,%.0f%% of %s\n", name, threads_count(b->dev->threads), best * 1e6,
           rate, bound == ARITHMETIC ? "GFLOP/s" : "GB/s", 100.0 * rate / limit, limits[bound]);
}

static void setup(struct bench *b) {
    b->x = random_mat(ROWS, D);
    b->y = random_mat(ROWS, D);
    b->q = random_mat(ROWS, D);
    b->qkv = random_mat(ROWS, 2 * F);
    b->w = random_mat(2 * F, D);
    b->table = random_mat(VOCAB, D);
    b->landmarks = random_mat(LANDMARKS, D);
    b->big = random_mat(BIG, 1).data;
    b->big2 = random_mat(BIG, 1).data;
    b->sums = calloc(256, sizeof *b->sums);
    b->packed = aligned_alloc(64, (size_t)matmul_cpu.packed_elements(2 * F, D) * 4);
    b->dev->ops->matmul->pack(b->dev, b->packed, b->w);
    b->rounded = aligned_alloc(64, (size_t)matmul_cpu.packed_elements(2 * F, D) * 4);
    b->dev->ops->matmul->pack_rounded(b->dev, b->rounded, b->w);
    for (int i = 0; i < ROWS; i++)
        b->ids[i] = i * 31 % VOCAB, b->visible[i] = 10000, b->slopes[i] = -1.0f;
    for (int i = 0; i <= ROWS / 64; i++)
        b->row_begin[i] = i * 64;
    for (int i = 0; i < 8 * ROWS / 64; i++)
        b->slot[i] = i * 7 % SLOTS, b->weight[i] = 0.125f, b->spans[i] = i * 11 % SPANS;
    for (int i = 0; i < SPANS * SPAN; i++)
        b->values[i] = i * 37 % VOCAB;
    b->tau = D / 16.0f;
    b->dev->ops->token_memory->squares(b->dev, b->squares, mat_rows(b->landmarks, 0, SPANS * SPAN));
    b->dev->ops->gca->invert(b->dev, b->span_begin, b->span_place, b->spans, 8 * ROWS / 64, SPANS);
}

int main(int argc, char **argv) {
    static struct bench b;
    result_begin("bench_kernels", &argc, argv);
    b.seconds = argc > 2 ? strtod(argv[2], NULL) : 0.5;
    if (device_open(&b.dev, "cpu", argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0) != STATUS_OK) return 1;
    setup(&b);
    b.product = 2.0 * 4096 * D * D * 1e-9 / best_time(&b, product, NULL);
    b.copy = 8.0 * BIG * 1e-9 / best_time(&b, copy, NULL);
    b.read = 4.0 * BIG * 1e-9 / best_time(&b, read_all, NULL);
    printf("kernels,machine,threads=%d,sgemm %.1f GFLOP/s,memcpy %.1f GB/s (read + written),reading %.1f GB/s\n",
           threads_count(b.dev->threads), b.product, b.copy, b.read);
    result_value("GFLOP/s", b.product, "sgemm, the limit");
    result_value("GB/s", b.copy, "memcpy, read and written, the limit");
    result_value("GB/s", b.read, "reading, the limit");
    double rows = ROWS, d = D;
    report(&b, "matmul 512 rows", many_rows, 2 * rows * d * 2 * F, ARITHMETIC);
    report(&b, "matmul packed 512 rows", packed_rows, 2 * rows * d * 2 * F, ARITHMETIC);
    report(&b, "matmul packed, rounded 512 rows", rounded_rows, 2 * rows * d * 2 * F, ARITHMETIC);
    report(&b, "matmul packed, rounded 126 rows", rounded_passage, 2 * 126 * d * 2 * F, ARITHMETIC);
    report(&b, "matmul 1 row, 64 MB", one_row, 4.0 * BIG, READ);
    report(&b, "matmul 8 rows, 64 MB", eight_rows, 4.0 * BIG, READ);
    report(&b, "attention 512 rows", attention, 4 * rows * 513 * d, ARITHMETIC);
    report(&b, "attention 1 row", attention_one, 8.0 * 513 * d, READ);
    report(&b, "chunk_attention 8 chunks", chunk_attention, 4 * rows * 64 * d, ARITHMETIC);
    report(&b, "token_memory 512 rows x 1016", memory_forward, 2 * rows * 8 * SPAN * d, ARITHMETIC);
    report(&b, "token_memory backward", memory_backward, 6 * rows * 8 * SPAN * d, ARITHMETIC);
    report(&b, "token_memory weights 1 row x 8128", memory_weights, 4.0 * SPANS * SPAN * d, READ);
    report(&b, "gca 512 rows x 8", gca, 4 * rows * 8 * 63 * d, ARITHMETIC);
    report(&b, "gca 1 row x 8", gca_one, 8.0 * 8 * 63 * d, READ);
    report(&b, "loss 512 rows", loss, 2 * rows * VOCAB * d, ARITHMETIC);
    report(&b, "topk 512 queries x 10k", topk_many, 2 * rows * 10000 * d, ARITHMETIC);
    report(&b, "topk 1 query x 100k", topk_one, 4.0 * LANDMARKS * d, READ);
    report(&b, "norm", norm, 8 * rows * d, COPY);
    report(&b, "rope", rope, 8 * rows * d, COPY);
    report(&b, "swiglu", swiglu, 12 * rows * F, COPY);
    report(&b, "add", add, 12 * rows * d, COPY);
    report(&b, "embed", embed, 8 * rows * d, COPY);
    device_close(b.dev);
    result_end();
    return 0;
}
