/* bench_decode_rows.cu -- a pass of kernels/decode_rows alone: an id of each of n texts of a Base LM of 124M
 * parameters, and of a DRT [6, 6] that reads eight chunks of 63 keys; microseconds by events, back to back. Texts at
 * position 64 (short) and 700 (full windows of 512); logits in host memory, in memory of the GPU, or not wanted. Then
 * texts at different positions from 20 to 407 (mixed), logits on the GPU: passes, and rounds of a pass and a pick
 * (kernels/pick) with top-p 0.95, whose ids the next pass reads. Then the kernels of a layer alone, each with the
 * weights of twelve layers in turns, so that they come from memory.
 *
 *   bench_decode_rows [RUNS] [--json FILE]
 *
 * RUNS: passes of each (200). limit: weights, keys and values read at the rate of a large copy; the logits besides. */
#include "tests/device/bench/bench_device.cuh"
extern "C" {
#include "kernels/decode_rows/decode_rows_internal.h"
#include "kernels/pick/pick.h"
}

enum {
    LAYERS = 12,
    LOWER = 6,
    D = 768,
    F = 2048,
    HEADS = 12,
    WORDS = 50265,
    STRIDE = 50272, /* logits of a row: a multiple of 16 bytes, as in a program */
    WINDOW = 512,
    RING = 640,
    SLOTS = 32,
    K = 8
};

static struct decode_step_layer layers[LAYERS];
static struct decode_rows *passes[2];
static unsigned char *rings;
static float *logits_host, *logits_device;
static struct mat keys, values;
static const int32_t *slot;
static const float *weight;

enum logits_kind { LOGITS_HOST, LOGITS_GPU, LOGITS_NONE };

static struct decode_row row_of(int i, int64_t position, bool drt, enum logits_kind kind) {
    struct decode_row r = {};
    const int64_t ring = (int64_t)RING * 2 * D * 2;
    r.position = position + i, r.id = 17 * i + 5;
    r.ring = rings + i * LAYERS * ring, r.ring_step = ring, r.ring_rows = RING;
    r.logits = kind == LOGITS_HOST ? logits_host + (int64_t)i * STRIDE
               : kind == LOGITS_GPU ? logits_device + (int64_t)i * STRIDE
                                    : NULL;
    if (!drt) return r;
    const int64_t pool = (int64_t)i * SLOTS * 64 * D;
    r.chunks[0].keys = (const bf16 *)keys.data + pool, r.chunks[0].values = (const bf16 *)values.data + pool;
    r.chunks[0].slot = slot, r.chunks[0].weight = weight, r.chunks[0].stride = D;
    r.chunks[0].k = K, r.chunks[0].slot_rows = 64, r.chunks[0].live_rows = 63, r.chunks[0].off_by_one = 1;
    return r;
}

static double mean_us(int runs, void (*body)(void *, int), void *context) {
    cudaEvent_t begin, end;
    float ms = 0;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int i = 0; i < 5; i++)
        body(context, i);
    cudaEventRecord(begin, device_cuda_stream(dev));
    for (int i = 0; i < runs; i++)
        body(context, i);
    cudaEventRecord(end, device_cuda_stream(dev));
    must(device_sync(dev));
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return ms * 1e3 / runs;
}

struct pass {
    bool drt;
    int n;
    struct decode_row rows[DECODE_ROWS_MAX];
};
static void pass_run(void *context, int) {
    struct pass *p = (struct pass *)context;
    decode_rows_run(passes[p->drt], p->rows, p->n); /* the same rows each time: the copy's source does not change */
}

static void bench_pass(int n, int64_t position, bool drt, int runs) {
    static const char *const kinds[] = {"to host memory", "on the GPU", "none"};
    const int seen = position < WINDOW ? (int)position + n / 2 : WINDOW;
    int64_t weights = LAYERS * (4 * D * D + 3 * D * F) + (int64_t)WORDS * D, numbers = weights;
    if (drt) numbers += 2 * (LAYERS - LOWER) * D * D + (int64_t)n * K * 63 * 2 * D;
    numbers += (int64_t)n * LAYERS * seen * 2 * D;
    const double bytes = 2.0 * (double)numbers;
    printf("pass,%s,%d texts,position %lld,limit %.1f us", drt ? "drt" : "base", n, (long long)position,
           bytes / copy_rate * 1e6);
    for (int kind = LOGITS_HOST; kind <= LOGITS_NONE; kind++) {
        struct pass p = {drt, n, {}};
        for (int i = 0; i < n; i++)
            p.rows[i] = row_of(i, position, drt, (enum logits_kind)kind);
        double us = mean_us(runs, pass_run, &p);
        printf(",logits %s %.1f us", kinds[kind], us);
        if (kind == LOGITS_HOST)
            result_value("us", us, "pass of %d texts at %lld, %s", n, (long long)position, drt ? "drt" : "base");
    }
    printf("\n");
    fflush(stdout);
}

struct round {
    struct pass pass;
    struct pick_row picks[DECODE_ROWS_MAX];
    uint64_t number;
};
static void round_run(void *context, int i) {
    struct round *r = (struct round *)context;
    pass_run(&r->pass, i);
    for (int row = 0; row < r->pass.n; row++)
        r->picks[row].rule.number = r->number;
    r->number++;
    dev->ops->pick->rows(dev, r->picks, r->pass.n, WORDS);
}

/* n: a power of two. The texts' order is not that of their positions. */
static struct round round_of(int n) {
    static int32_t *ids;
    static struct pick_result *results;
    struct round r = {};
    if (!ids) {
        ids = (int32_t *)take(DECODE_ROWS_MAX * sizeof *ids);
        results = (struct pick_result *)take(DECODE_ROWS_MAX * sizeof *results);
    }
    device_clear(dev, ids, DECODE_ROWS_MAX * sizeof *ids);
    r.pass.n = n;
    for (int i = 0; i < n; i++) {
        struct pick_row *pick = &r.picks[i];
        r.pass.rows[i] = row_of(i, 0, false, LOGITS_GPU);
        r.pass.rows[i].position = 20 + i * 37 % n * 387 / (n - 1);
        pick->logits = r.pass.rows[i].logits, pick->id = ids + i, pick->result = results + i;
        pick->ticket = 1ull << 32;
        pick->rule.scale = 1.442695f / 0.8f, pick->rule.penalty = 1;
        pick->rule.share = (uint64_t)(0.95 * 4294967296.0), pick->rule.least = 1, pick->rule.seed = 5 + i;
    }
    return r;
}

static void bench_mixed(int n, int runs) {
    struct round r = round_of(n);
    const double pass = mean_us(runs, pass_run, &r.pass);
    for (int i = 0; i < n; i++)
        r.pass.rows[i].picked = r.picks[i].id;
    const double round = mean_us(runs, round_run, &r);
    printf("mixed,%d texts,pass %.1f us,round %.1f us\n", n, pass, round);
    fflush(stdout);
    result_value("us", pass, "pass of %d mixed texts", n);
    result_value("us", round, "round of %d mixed texts", n);
}

struct part {
    int kind, rows;
    float *x, *y;
    void *narrow;
    const struct decode_row *texts;
};
static void part_run(void *context, int i) {
    const struct part *p = (const struct part *)context;
    const struct decode_step_layer *l = &layers[i % LAYERS];
    struct decode_rows_product_call c = {p->y, p->y, p->x, l->input_norm.data, l->qkv.data, p->rows, D, 3 * D, 1e-5f};
    struct decode_rows_attention a = {p->narrow, p->y, p->texts, p->rows, D, HEADS, WINDOW, i % LAYERS, 0};
    switch (p->kind) {
    case 0: decode_rows_run_product(dev, &c); break;
    case 1: decode_rows_run_window(dev, &a); break;
    case 2:
        c.x = p->narrow, c.norm = NULL, c.w = l->o.data, c.out = D;
        decode_rows_run_product(dev, &c);
        break;
    case 3:
        c.w = l->gate_up.data, c.out = F;
        decode_rows_run_swiglu(dev, p->narrow, &c);
        break;
    case 4:
        c.x = p->narrow, c.norm = NULL, c.w = l->down.data, c.k = F, c.out = D;
        decode_rows_run_product(dev, &c);
        break;
    default: decode_rows_run_chunks(dev, &a);
    }
}

static void bench_parts(int rows, int64_t position, int runs) {
    static const char *const names[] = {"query, key, value", "window", "output", "gate, up", "down", "chunks"};
    static struct decode_row texts[DECODE_ROWS_MAX];
    struct part p = {0, rows, NULL, NULL, NULL, NULL};
    for (int i = 0; i < rows; i++)
        texts[i] = row_of(i, position, true, LOGITS_NONE);
    p.x = (float *)matrix(DTYPE_F32, rows, D, 1).data, p.y = (float *)matrix(DTYPE_F32, rows, 3 * D, 1).data;
    p.narrow = matrix(DTYPE_BF16, rows, F, 1).data;
    void *texts_device = take(sizeof texts);
    device_upload(dev, texts_device, texts, sizeof texts);
    p.texts = (const struct decode_row *)texts_device;
    printf("kernels,%d rows,position %lld", rows, (long long)position);
    for (p.kind = 0; p.kind < 6; p.kind++)
        printf(",%s %.2f us", names[p.kind], mean_us(runs * 10, part_run, &p));
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    result_begin("bench_decode_rows", &argc, argv);
    const int runs = argc > 1 ? atoi(argv[1]) : 200, sizes[] = {2, 8, 16, 32, 64};
    const int32_t slots[K] = {5, 18, 31, 4, 7, 6, 19, 22};
    const float weights[K] = {0.26f, 0.17f, 0.13f, 0.11f, 0.09f, 0.09f, 0.08f, 0.07f};
    must(device_open(&dev, "cuda", 1));
    ceilings();
    for (int i = 0; i < LAYERS; i++) {
        struct decode_step_layer *l = &layers[i];
        l->input_norm = matrix(DTYPE_BF16, 1, D, 1), l->post_norm = matrix(DTYPE_BF16, 1, D, 1);
        l->gca_norm = matrix(DTYPE_BF16, 1, D, 1);
        l->qkv = matrix(DTYPE_BF16, 3 * D, D, 0.04f), l->o = matrix(DTYPE_BF16, D, D, 0.03f);
        l->gate_up = matrix(DTYPE_BF16, 2 * F, D, 0.04f), l->down = matrix(DTYPE_BF16, D, F, 0.02f);
        l->gca_q = matrix(DTYPE_BF16, D, D, 0.04f), l->gca_o = matrix(DTYPE_BF16, D, D, 0.04f);
    }
    struct mat embed = matrix(DTYPE_BF16, WORDS, D, 0.05f), norm = matrix(DTYPE_BF16, 1, D, 1);
    struct decode_step_config config = {layers, LAYERS, embed, norm, HEADS, WINDOW, 1e-5f};
    for (int drt = 0; drt < 2; drt++) {
        for (int i = 0; i < LAYERS; i++)
            layers[i].group = drt && i >= LOWER ? 0 : -1;
        must(decode_rows_create(&passes[drt], dev, &config));
        if (!passes[drt]) must(fail(STATUS_UNSUPPORTED, "this card has no such kernels"));
    }
    rings = (unsigned char *)matrix(DTYPE_BF16, (int64_t)DECODE_ROWS_MAX * LAYERS * RING, 2 * D, 1).data;
    keys = matrix(DTYPE_BF16, (int64_t)DECODE_ROWS_MAX * SLOTS * 64, D, 1);
    values = matrix(DTYPE_BF16, (int64_t)DECODE_ROWS_MAX * SLOTS * 64, D, 1);
    void *to = take(sizeof slots);
    device_upload(dev, to, slots, sizeof slots);
    slot = (const int32_t *)to;
    to = take(sizeof weights);
    device_upload(dev, to, weights, sizeof weights);
    weight = (const float *)to;
    logits_device = (float *)take(sizeof(float) * DECODE_ROWS_MAX * STRIDE);
    must(device_allocate_host(dev, &logits_host, (size_t)DECODE_ROWS_MAX * STRIDE));
    for (int drt = 0; drt < 2; drt++)
        for (int n : sizes)
            for (int64_t position : {64, 700})
                bench_pass(n, position, drt, runs);
    for (int n : {8, 16, 32, 64})
        bench_mixed(n, runs);
    for (int rows : {8, 32, 64})
        for (int64_t position : {64, 700})
            bench_parts(rows, position, runs);
    result_end();
    return 0; /* the end of the process frees the memory */
}
