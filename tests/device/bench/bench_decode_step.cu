/* bench_decode_step.cu -- the kernel of kernels/decode_step/decode_step.h alone: a position of a Base LM, of a DRT
 * [6, 6] that reads eight chunks of 63 keys, and of that DRT without the head (a landmark's), in turns; microseconds
 * back to back, and with a wait after each launch. It first prints a check sum of the logits, over short and full
 * windows, which a change of the kernel's schedule must not change. The same with weights of 8 bits, and how far their
 * logits are from those of bf16.
 *
 *   bench_decode_step [RUNS [small] [exact]] [--json FILE]
 *
 * RUNS: runs of each in a round (100); there are ten rounds. 0: the check sums alone (for the sanitizers).
 * small: the shape of base-28m instead of that of the 124M models. exact: weights that both types represent, so that
 * the logits differ by the rounding of vectors alone. */
#include "kernels/cuda/cuda.cuh"
#include "tests/bench/result.h"
#include <algorithm>
#include <chrono>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern "C" {
#include "base/half.h"
#include "kernels/decode_step/decode_step.h"
#include "kernels/linear/matmul.h"
}

enum {
    LAYERS = 12,
    LOWER = 6,
    WINDOW = 512,
    RING = 640,
    SLOTS = 64,
    K = 8
};

static struct device *dev;
static bool exact;
static int D = 768, F = 2048, HEADS = 12, WORDS = 50265;

static void must(enum status s) {
    if (s == STATUS_OK) return;
    fprintf(stderr, "bench_decode_step: %s\n", status_message());
    exit(s == STATUS_UNSUPPORTED ? 77 : 1);
}
static __global__ void fill(bf16 *to, int64_t n, uint64_t seed, float mean, float scale, bool steps) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t x = ((uint64_t)i + seed * 1000003u) * 0x9E3779B97F4A7C15u;
        x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
        float y = mean + scale * ((float)(x >> 40) * 0x1p-23f - 1.0f) * 1.7320508f;
        if (steps && mean == 0.0f && scale < 0.5f) { /* 127 steps to the greatest number of a block of 64 */
            float step = exp2f(rintf(log2f(scale * 1.7320508f / 127.0f)));
            y = i % 64 == 0 ? 127.0f * step : fminf(fmaxf(rintf(y / step), -127.0f), 127.0f) * step;
        }
        to[i] = from_float<bf16>(y);
    }
}
static struct mat made(int64_t rows, int64_t cols, float mean, float scale) {
    static uint64_t seed;
    struct mat m = mat_dense(NULL, DTYPE_BF16, rows, cols);
    must(device_allocate_bytes(dev, &m.data, (size_t)(rows * cols) * sizeof(bf16)));
    fill<<<512, 256, 0, device_cuda_stream(dev)>>>((bf16 *)m.data, rows * cols, ++seed, mean, scale,
                                                       exact);
    return m;
}
template <typename T> static T *to_device(const T *from, size_t n) {
    void *to;
    must(device_allocate_bytes(dev, &to, n * sizeof(T)));
    device_upload(dev, to, from, n * sizeof(T));
    return (T *)to;
}

/* The same matrix in 8 bits. */
static struct mat made_i8(struct mat m) {
    const size_t n = (size_t)(m.rows * m.cols), bytes = (size_t)matmul_i8_bytes(m.rows, m.cols);
    uint16_t *half = (uint16_t *)malloc(n * sizeof *half);
    float *numbers = (float *)malloc(n * sizeof *numbers);
    unsigned char *packed = (unsigned char *)aligned_alloc(64, (bytes + 63) / 64 * 64);
    device_download(dev, half, m.data, n * sizeof *half);
    must(device_sync(dev));
    half_from_bf16_row(numbers, half, n);
    matmul_cpu.pack_i8(dev, packed, mat_f32(numbers, m.rows, m.cols));
    struct mat out = mat_dense(to_device(packed, bytes), DTYPE_I8, m.rows, m.cols);
    free(half), free(numbers), free(packed);
    return out;
}

struct text {
    const char *name;
    struct decode_step *step;
    const struct decode_step_fusion *fusions;
    bool head;
    double together, alone;
    struct samples each_together, each_alone;
};

static void text_step(const text &x, float *logits, void *inputs, int position) {
    struct decode_step_output out = {};
    out.logits = x.head ? logits : NULL, out.inputs = inputs;
    decode_step_run(x.step, &out, position % WORDS, position, x.fusions);
}
static double clock_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
static void check_sum(const text &x, float *logits, void *inputs) {
    uint64_t sum = 1469598103934665603u;
    for (int position : {0, 1, 2, 63, 600, 601}) {
        text_step(x, logits, inputs, position);
        must(device_sync(dev));
        for (int i = 0; i < WORDS; i++) {
            uint32_t bits;
            memcpy(&bits, logits + i, sizeof bits);
            sum = (sum ^ bits) * 1099511628211u;
        }
    }
    printf("check sum,%s,%016llx,first logit %.6f\n", x.name, (unsigned long long)sum, (double)logits[0]);
}

/* Logits of x and of y at one position, of the same keys. */
static void check_difference(const text &x, const text &y, float *logits, void *inputs) {
    float *first = (float *)malloc((size_t)WORDS * sizeof *first);
    double squares = 0, size = 0;
    text_step(x, logits, inputs, 601);
    must(device_sync(dev));
    memcpy(first, logits, (size_t)WORDS * sizeof *first);
    text_step(y, logits, inputs, 601);
    must(device_sync(dev));
    for (int i = 0; i < WORDS; i++)
        squares += ((double)logits[i] - first[i]) * ((double)logits[i] - first[i]),
            size += (double)first[i] * first[i];
    printf("difference,%s,%s,%.5f of the logits\n", x.name, y.name, sqrt(squares / size));
    free(first);
}

int main(int argc, char **argv) {
    const int ROUNDS = 10;
    result_begin("bench_decode_step", &argc, argv);
    cudaDeviceProp card;
    int runs = argc > 1 ? atoi(argv[1]) : 100;
    for (int i = 2; i < argc; i++) {
        exact = exact || strcmp(argv[i], "exact") == 0;
        if (strcmp(argv[i], "small") == 0) D = 384, F = 1024, HEADS = 6, WORDS = 16384;
    }
    struct decode_step_layer w[LAYERS] = {};
    struct decode_step_layer layers[LAYERS];
    struct mat rings[LAYERS];
    struct decode_step_weights *weights[2][2];
    struct decode_step *step[2][2]; /* [8 bits][DRT] */
    must(device_open(&dev, "cuda", 0));
    cudaGetDeviceProperties(&card, 0);
    result_gpu(card.name);
    for (int i = 0; i < LAYERS; i++) {
        w[i].input_norm = made(1, D, 1, 0.1f), w[i].post_norm = made(1, D, 1, 0.1f),
        w[i].gca_norm = made(1, D, 1, 0.1f);
        w[i].qkv = made(3 * D, D, 0, 0.04f), w[i].o = made(D, D, 0, 0.03f);
        w[i].gate_up = made(2 * F, D, 0, 0.04f), w[i].down = made(D, F, 0, 0.02f);
        w[i].gca_q = made(D, D, 0, 0.04f), w[i].gca_o = made(D, D, 0, 0.04f);
        rings[i] = made(RING, 2 * D, 0, 1);
    }
    struct decode_step_config config = {layers, LAYERS, made(WORDS, D, 0, 0.05f), made(1, D, 1, 0.1f), HEADS,
                                        WINDOW, 1e-5f, {}};
    for (int i8 = 0; i8 < 2; i8++) {
        for (int i = 0; i8 && i < LAYERS; i++)
            for (struct mat *m : {&w[i].qkv, &w[i].o, &w[i].gate_up, &w[i].down, &w[i].gca_q, &w[i].gca_o})
                *m = made_i8(*m);
        if (i8) config.head = made_i8(config.embed);
        for (int drt = 0; drt < 2; drt++) {
            for (int i = 0; i < LAYERS; i++)
                layers[i] = w[i], layers[i].group = drt && i >= LOWER ? 0 : -1;
            must(decode_step_weights_create(&weights[i8][drt], dev, &config));
            if (!weights[i8][drt]) must(fail(STATUS_UNSUPPORTED, "this card has no such kernel"));
            must(decode_step_create(&step[i8][drt], weights[i8][drt], rings));
        }
    }
    struct decode_step_fusion none[DECODE_STEP_GROUPS_MAX] = {}, chunks[DECODE_STEP_GROUPS_MAX] = {};
    const int32_t slot[K] = {5, 18, 31, 44, 57, 6, 19, 32};
    const float weight[K] = {0.26f, 0.17f, 0.13f, 0.11f, 0.09f, 0.09f, 0.08f, 0.07f};
    chunks[0].pool = {made(SLOTS * 64, D, 0, 1), made(SLOTS * 64, D, 0, 1), 64, 63, true};
    chunks[0].blocks = {NULL, to_device(slot, K), to_device(weight, K), 1, K};
    void *memory, *inputs;
    must(device_allocate_host_bytes(dev, &memory, WORDS * sizeof(float)));
    must(device_allocate_bytes(dev, &inputs, D * sizeof(bf16)));
    float *logits = (float *)memory;
    text texts[] = {{"base", step[0][0], none, true, 0, 0, {}, {}},
                    {"drt", step[0][1], chunks, true, 0, 0, {}, {}},
                    {"drt without head", step[0][1], chunks, false, 0, 0, {}, {}},
                    {"base, 8 bits", step[1][0], none, true, 0, 0, {}, {}},
                    {"drt, 8 bits", step[1][1], chunks, true, 0, 0, {}, {}},
                    {"drt without head, 8 bits", step[1][1], chunks, false, 0, 0, {}, {}}};
    for (const text &x : texts)
        if (x.head) check_sum(x, logits, inputs);
    for (int i = 0; i < 2; i++)
        check_difference(texts[i], texts[i + 3], logits, inputs);
    if (runs < 1) return 0;
    for (int round = 0; round < ROUNDS; round++)
        for (text &x : texts) {
            for (int i = 0; i < 20; i++)
                text_step(x, logits, inputs, 700 + i);
            must(device_sync(dev));
            double start = clock_now();
            for (int i = 0; i < runs; i++)
                text_step(x, logits, inputs, 720 + i);
            must(device_sync(dev));
            double between = clock_now();
            for (int i = 0; i < runs; i++) {
                text_step(x, logits, inputs, 720 + i);
                must(device_sync(dev));
            }
            double end = clock_now();
            samples_add(&x.each_together, (between - start) / runs * 1e6);
            samples_add(&x.each_alone, (end - between) / runs * 1e6);
            x.together += (between - start) / runs / ROUNDS * 1e6, x.alone += (end - between) / runs / ROUNDS * 1e6;
        }
    for (const text &x : texts)
        printf("token step,%s,%.2f us back to back,%.2f us one by one,%.4f and %.4f times base\n", x.name, x.together,
               x.alone, x.together / texts[0].together, x.alone / texts[0].alone);
    for (const text &x : texts) {
        struct figure f = {};
        f.unit = "us", f.values = x.each_together.at, f.count = x.each_together.count;
        if (&x != texts) f.peer = "Base LM", f.ratio = texts[0].together / x.together;
        result_figure(&f, "kernel of a token, back to back, %s", x.name);
        f.values = x.each_alone.at;
        if (&x != texts) f.ratio = texts[0].alone / x.alone;
        result_figure(&f, "kernel of a token, one by one, %s", x.name);
    }
    result_end();
    return 0; /* the end of the process frees the memory */
}
