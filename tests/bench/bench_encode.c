/* bench_encode.c -- the rate of the encoder, and of the layers of a Base LM that read passages for a token memory, as a
 * share of OpenBLAS's rate on a 4096 x d x d product with the same threads in the same run. Usage: bench_encode
 * [threads [seconds [float32]]] [--json FILE]; CSV on stdout. Weights are bf16 numbers, as models are saved; with
 * "float32" they are not, which is slower on a processor with AMX (kernels/linear/matmul_amx.h).
 *
 * The product is divided into one piece of rows for each thread, as OpenBLAS divides it. Both run in turns, and the
 * best time of each counts, because other work on the machine only adds time. Executed operations are counted (2 for a
 * multiply-add, attention included, norms and exponentials not). Landmarks alone need less work than all rows, so their
 * chunks/s gain more than their rate shows; "all rows" counts the operations of all rows for the same time. */
#include "base/clock.h"
#include "base/rng.h"
#include "decoder/decoder_passages.h"
#include "encoder/encoder.h"
#include "kernels/ops.h"
#include "tests/bench/result.h"
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(enum status s) {
    if (s == STATUS_OK) return;
    fprintf(stderr, "bench_encode: %s\n", status_message());
    exit(1);
}

enum { PRODUCT_ROWS = 4096 };
struct product {
    float *x, *w, *y;
    int d;
};

static void product_body(void *context, int64_t begin, int64_t end, int worker) {
    struct product *p = context;
    (void)worker;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)(end - begin), p->d, p->d, 1.0f, p->x + begin * p->d,
                p->d, p->w, p->d, 0.0f, p->y + begin * p->d, p->d);
}

static float *random_floats(int64_t n, uint64_t seed) {
    float *a = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    struct rng rng = rng_make(seed, 0);
    for (int64_t i = 0; i < n; i++)
        a[i] = rng_uniform(&rng) - 0.5f;
    return a;
}

/* Multiply-adds of one chunk, twice. */
static double chunk_operations(const struct model_config *c, bool landmark_only) {
    double S = c->chunk + 1, d = c->hidden, f = c->ffn, full = c->encoder_layers;
    double row = 4 * d * d + 3 * d * f, attention = 2 * S * d;
    double layer = S * (row + attention);
    double last = S * 2 * d * d + (2 * d * d + 3 * d * f + attention);
    return 2.0 * (landmark_only ? (full - 1) * layer + last : full * layer);
}

/* Truncated to bf16 numbers: only the time counts. */
static void cut_weights(struct params *params) {
    for (int i = 0; i < params_count(params); i++) {
        const struct param *p = params_at(params, i);
        for (int64_t j = 0; j < p->rows * p->cols; j++) {
            uint32_t bits;
            memcpy(&bits, p->data + j, sizeof bits);
            bits &= 0xffff0000u;
            memcpy((float *)p->data + j, &bits, sizeof bits);
        }
    }
}

struct bench {
    const struct model_config *c;
    struct device *dev;
    struct encoder *e;
    struct product product;
    int threads;
    double seconds;
};

static void report(const struct bench *b, const char *what, int64_t chunks, double best, double blas,
                   double operations) {
    double rate = (double)chunks / best;
    printf("encode,%s,d=%d,f=%d,layers=%d,threads=%d,chunks=%lld,%.0f chunks/s,%.0f tokens/s,%.1f GFLOP/s,blas %.1f "
           "GFLOP/s,%.0f%%,all rows %.0f%%\n",
           what, b->c->hidden, b->c->ffn, b->c->encoder_layers, b->threads, (long long)chunks, rate, rate * b->c->chunk,
           rate * operations * 1e-9, blas, 100.0 * rate * operations * 1e-9 / blas,
           100.0 * rate * chunk_operations(b->c, false) * 1e-9 / blas);
}

static void measure(struct bench *b, const char *what, const struct encoder_output *out, const int32_t *ids,
                    int64_t chunks) {
    double best_product = 1e30, best_encode = 1e30, d = b->c->hidden, stop = clock_seconds() + b->seconds;
    int64_t piece = (PRODUCT_ROWS + b->threads - 1) / b->threads;
    struct samples products = {0}, encodes = {0};
    for (int run = 0; run < 3 || clock_seconds() < stop; run++) {
        double start = clock_seconds();
        threads_for(b->dev->threads, PRODUCT_ROWS, piece, product_body, &b->product);
        double middle = clock_seconds();
        encoder_encode(b->e, out, ids, chunks);
        double end = clock_seconds();
        if (middle - start < best_product) best_product = middle - start;
        if (end - middle < best_encode) best_encode = end - middle;
        samples_add(&products, middle - start);
        samples_add(&encodes, end - middle);
    }
    report(b, what, chunks, best_encode, 2.0 * PRODUCT_ROWS * d * d * 1e-9 / best_product,
           chunk_operations(b->c, !out->keys.data));
    double product = samples_quantile(products.at, products.count, 0.5);
    double encode = samples_quantile(encodes.at, encodes.count, 0.5);
    double operations = chunk_operations(b->c, !out->keys.data) * (double)chunks;
    struct figure f = {.unit = "chunks/s",
                       .values = encodes.at,
                       .count = encodes.count,
                       .work = (double)chunks,
                       .peer = "OpenBLAS sgemm",
                       .ratio = operations / encode / (2.0 * PRODUCT_ROWS * d * d / product)};
    result_figure(&f, "encoder, 2 layers, d %d, %s", b->c->hidden, what);
    samples_free(&products), samples_free(&encodes);
}

static void bench(int hidden, int ffn, int threads, double seconds, bool float32) {
    struct model_config c;
    struct params *params;
    char text[512];
    int length =
        snprintf(text, sizeof text,
                 "{\"vocab_size\": 16384, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d,"
                 "\"decoder_layers\": [1, 1], \"encoder_layers\": 2, \"enc_chunk_size\": 63, \"chunk_topk\": 8, "
                 "\"slide_window\": 512,"
                 "\"chunk_id\": 16383, \"pad_id\": 16382, \"rms_norm_eps\": 1e-5, \"encoder_input\": \"tokens\"}",
                 hidden, ffn, hidden / 64);
    must(model_config_parse(&c, "bench", text, (size_t)length));
    must(params_init(&params, &c, 1));
    if (!float32) cut_weights(params);
    struct bench b = {.c = &c, .seconds = seconds};
    must(device_open(&b.dev, "cpu", threads));
    struct weights weights = weights_of_params(params);
    must(encoder_create(&b.e, b.dev, &c, &weights, 0));
    b.threads = threads_count(b.dev->threads);
    b.product =
        (struct product){random_floats((int64_t)PRODUCT_ROWS * hidden, 1), random_floats((int64_t)hidden * hidden, 2),
                         random_floats((int64_t)PRODUCT_ROWS * hidden, 3), hidden};
    int64_t chunks = 8 * b.threads; /* short, so that the best of many is without other work */
    int32_t *ids = malloc((size_t)(chunks * 63) * sizeof *ids);
    float *landmarks = malloc((size_t)(chunks * hidden) * sizeof *landmarks),
          *kv = malloc((size_t)(chunks * 128 * hidden) * sizeof *kv);
    struct rng rng = rng_make(4, 0);
    for (int64_t i = 0; i < chunks * 63; i++)
        ids[i] = (int32_t)rng_below(&rng, 16000);
    struct encoder_output pools = {.keys = mat_dense(kv, DTYPE_F32, chunks * 64, hidden),
                                   .values = mat_dense(kv + chunks * 64 * hidden, DTYPE_F32, chunks * 64, hidden)};
    measure(&b, "landmarks", &(struct encoder_output){.landmarks = landmarks}, ids, chunks);
    measure(&b, "keys+values", &pools, ids, chunks);
    free(ids), free(landmarks), free(kv), free(b.product.x), free(b.product.w), free(b.product.y);
    encoder_free(b.e);
    params_free(params);
    device_close(b.dev);
}

/* ---- passages, read by the layers of a Base LM ---- */

struct passages_bench {
    struct model_config c;
    struct device *dev;
    struct decoder *decoder;
    struct decoder_passages *passages;
    struct product product; /* of float32 numbers, by OpenBLAS */
    float *packed;          /* product.w, as the layers multiply by their weights */
};

/* Multiply-adds of one passage, twice: every layer, the last one without its MLP. */
static double passage_operations(const struct model_config *c, int64_t length) {
    double d = c->hidden, f = c->ffn, layers = model_config_layers(c), rows = (double)length;
    return 2.0 * rows * (layers * (4 * d * d + rows * d) + (layers - 1) * 3 * d * f);
}

static void passages_measure(struct passages_bench *b, int64_t chunks, int64_t n, double seconds) {
    const int64_t length = chunks * b->c.chunk, d = b->c.hidden;
    const int threads = threads_count(b->dev->threads);
    int32_t *ids = malloc((size_t)(n * length) * sizeof *ids);
    float *keys = random_floats(n * length * d, 5);
    struct rng rng = rng_make(4, 0);
    for (int64_t i = 0; i < n * length; i++)
        ids[i] = (int32_t)rng_below(&rng, 16000);
    must(decoder_passages_create(&b->passages, b->decoder, length, PASSAGES_EXACT));
    struct samples blas = {0}, packed = {0}, encodes = {0};
    const double stop = clock_seconds() + seconds, product = 2.0 * PRODUCT_ROWS * (double)(d * d);
    for (int run = 0; run < 3 || clock_seconds() < stop; run++) {
        double at[4] = {clock_seconds()};
        threads_for(b->dev->threads, PRODUCT_ROWS, (PRODUCT_ROWS + threads - 1) / threads, product_body, &b->product);
        at[1] = clock_seconds();
        b->dev->ops->matmul->forward_packed(b->dev, mat_f32(b->product.y, PRODUCT_ROWS, d),
                                            mat_f32(b->product.x, PRODUCT_ROWS, d), b->packed, false);
        at[2] = clock_seconds();
        decoder_passages_encode(b->passages, mat_f32(keys, n * length, d), model_config_layers(&b->c), ids, n);
        at[3] = clock_seconds();
        samples_add(&blas, at[1] - at[0]), samples_add(&packed, at[2] - at[1]), samples_add(&encodes, at[3] - at[2]);
    }
    const double each = samples_quantile(encodes.at, encodes.count, 0.5) / (double)n,
                 rate = passage_operations(&b->c, length) / each * 1e-9,
                 of_packed = product / samples_quantile(packed.at, packed.count, 0.5) * 1e-9,
                 of_blas = product / samples_quantile(blas.at, blas.count, 0.5) * 1e-9;
    printf("passages,d=%lld,layers=%d,threads=%d,passages=%lld,chunks=%lld,%.0f passages/s,%.0f tokens/s,%.1f GFLOP/s,"
           "packed product %.1f GFLOP/s,%.0f%%,blas %.1f GFLOP/s\n",
           (long long)d, model_config_layers(&b->c), threads, (long long)n, (long long)chunks, 1 / each,
           (double)length / each, rate, of_packed, 100 * rate / of_packed, of_blas);
    struct figure f = {.unit = "passages/s",
                       .values = encodes.at,
                       .count = encodes.count,
                       .work = (double)n,
                       .peer = "packed product",
                       .ratio = rate / of_packed};
    result_figure(&f, "decoder, %d layers, d %lld, %lld passages of %lld", model_config_layers(&b->c), (long long)d,
                  (long long)n, (long long)chunks);
    samples_free(&blas), samples_free(&packed), samples_free(&encodes);
    decoder_passages_free(b->passages);
    free(ids), free(keys);
}

/* The shape of base-28m. The head is not run. */
static void bench_passages(int threads, double seconds, bool float32) {
    static const char text[] =
        "{\"vocab_size\": 16384, \"hidden_size\": 384, \"intermediate_size\": 1024, \"num_attention_heads\": 6,"
        "\"decoder_layers\": [12], \"encoder_layers\": 0, \"enc_chunk_size\": 63, \"chunk_topk\": 8, "
        "\"slide_window\": 512, \"chunk_id\": 16383, \"pad_id\": 16382, \"rms_norm_eps\": 1e-5}";
    struct passages_bench b = {0};
    struct params *params;
    must(model_config_parse(&b.c, "bench", text, sizeof text - 1));
    must(params_init(&params, &b.c, 1));
    if (!float32) cut_weights(params);
    must(device_open(&b.dev, "cpu", threads));
    struct weights weights = weights_of_params(params);
    must(decoder_create(&b.decoder, b.dev, &b.c, &weights, 0));
    const int64_t d = b.c.hidden;
    struct mat w = weights_tensor(&weights, "language_model.model.layers.0.self_attn.o_proj.weight");
    b.product =
        (struct product){random_floats(PRODUCT_ROWS * d, 1), w.data, random_floats(PRODUCT_ROWS * d, 3), (int)d};
    b.packed = aligned_alloc(64, (size_t)(b.dev->ops->matmul->packed_elements(d, d) * 4 + 63) / 64 * 64);
    b.dev->ops->matmul->pack(b.dev, b.packed, w);
    passages_measure(&b, 1, 64, seconds);
    passages_measure(&b, 3, 64, seconds);
    passages_measure(&b, 3, 8, seconds);
    passages_measure(&b, 3, 1, seconds);
    free(b.product.x), free(b.product.y), free(b.packed);
    decoder_free(b.decoder);
    params_free(params);
    device_close(b.dev);
}

int main(int argc, char **argv) {
    result_begin("bench_encode", &argc, argv);
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 3.0;
    bool float32 = argc > 3 && strcmp(argv[3], "float32") == 0;
    bench_passages(threads, seconds, float32);
    bench(384, 1024, threads, seconds, float32);
    bench(768, 2048, threads, seconds, float32);
    result_end();
    return 0;
}
