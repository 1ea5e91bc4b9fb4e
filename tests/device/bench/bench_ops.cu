/* bench_ops.cu -- ops of one training step and of search, timed by events, as a share of ceilings measured in the same
 * run: a device copy (bytes read and written) and a bfloat16 product of 8192^3, both on random numbers.
 *
 *   bench_ops [--landmarks N] [--best K,K,...] [--search] [--loss] [--json FILE]
 *
 * N: millions of landmarks for search, 20; K: results of a query, 8; --search: search alone; --loss: the loss alone
 *
 * Columns: op, time, GB/s or TFLOP/s, share of the ceiling that bounds the op: memory or arithmetic. */
#include "kernels/linear/exp_product_cuda.cuh"
#include "tests/device/bench/bench_device.cuh"

static void products(int64_t n, int64_t out, int64_t in, enum dtype residual) {
    char name[64];
    struct mat x = matrix(DTYPE_BF16, n, in, 1.0f), w = matrix(DTYPE_BF16, out, in, 0.02f),
               y = matrix(residual, n, out, 1.0f);
    struct mat dy = matrix(DTYPE_BF16, n, out, 1.0f), dw = matrix(DTYPE_F32, out, in, 0.0f);
    double operations = 2.0 * (double)n * (double)out * (double)in;
    const auto *m = dev->ops->matmul;
    snprintf(name, sizeof name, "matmul.forward %lldx%lldx%lld%s", (long long)n, (long long)out, (long long)in,
             residual == DTYPE_F32 ? " += f32" : "");
    report(name, 0, operations, [&] { m->forward(dev, y, x, w, residual == DTYPE_F32); });
    if (residual == DTYPE_BF16) {
        report("  backward_input", 0, operations, [&] { m->backward_input(dev, x, dy, w, false); });
        report("  backward_weight (f32 +=)", 0, operations, [&] { m->backward_weight(dev, dw, dy, x); });
    }
    drop();
}

/* The first product of a SwiGLU and its gate: in two passes, and in one. */
static void gated(int64_t n, int64_t f, int64_t in) {
    struct mat x = matrix(DTYPE_BF16, n, in, 1.0f), w = matrix(DTYPE_BF16, 2 * f, in, 0.02f),
               both = matrix(DTYPE_BF16, n, 2 * f, 1.0f), y = matrix(DTYPE_BF16, n, f, 1.0f);
    double operations = 4.0 * (double)n * (double)f * (double)in;
    const auto *m = dev->ops->matmul;
    report("matmul.forward and swiglu, 65536x4096x768", 0, operations, [&] {
        m->forward(dev, both, x, w, false);
        dev->ops->elementwise->swiglu(dev, y, mat_cols(both, 0, f), mat_cols(both, f, f));
    });
    report("  product alone", 0, operations, [&] { m->forward(dev, both, x, w, false); });
    report("matmul.forward_gated, 65536x4096x768", 0, operations, [&] { m->forward_gated(dev, y, both, x, w); });
    drop();
}

static void rowwise(int64_t n, int64_t d, int64_t f) {
    double size = (double)n * (double)d;
    struct mat x = matrix(DTYPE_BF16, n, d, 1.0f), y = matrix(DTYPE_BF16, n, d, 1.0f),
               z = matrix(DTYPE_BF16, n, d, 1.0f);
    struct mat r = matrix(DTYPE_F32, n, d, 1.0f), s = matrix(DTYPE_F32, n, d, 1.0f);
    struct mat w = matrix(DTYPE_BF16, 1, d, 1.0f), dw = matrix(DTYPE_F32, 1, d, 1.0f),
               rstd = matrix(DTYPE_F32, n, 1, 1.0f);
    report("norm.forward bf16", 4 * size, 0, [&] { dev->ops->norm->forward(dev, y, rstd, x, w, 1e-5f); });
    report("norm.forward f32 -> bf16", 6 * size, 0, [&] { dev->ops->norm->forward(dev, y, rstd, r, w, 1e-5f); });
    report("norm.backward bf16", 6 * size, 0, [&] { dev->ops->norm->backward(dev, z, dw, y, x, w, rstd, false); });
    report("norm.backward bf16, dx +=", 8 * size, 0,
           [&] { dev->ops->norm->backward(dev, z, dw, y, x, w, rstd, true); });
    report("norm.backward f32 x, bf16 dy, f32 dx +=", 14 * size, 0,
           [&] { dev->ops->norm->backward(dev, s, dw, y, r, w, rstd, true); });
    report("rope.forward bf16", 4 * size, 0, [&] { dev->ops->rope->forward(dev, x, (int)d / 64, 64, 10000.0f); });
    report("elementwise.add bf16", 6 * size, 0, [&] { dev->ops->elementwise->add(dev, z, x, y); });
    drop();
    size = (double)n * (double)f;
    struct mat both = matrix(DTYPE_BF16, n, 2 * f, 1.0f), h = matrix(DTYPE_BF16, n, f, 1.0f),
               dh = matrix(DTYPE_BF16, n, f, 1.0f);
    struct mat gate = mat_cols(both, 0, f), up = mat_cols(both, f, f);
    report("elementwise.swiglu bf16", 6 * size, 0, [&] { dev->ops->elementwise->swiglu(dev, h, gate, up); });
    report("elementwise.swiglu_backward bf16, in place", 10 * size, 0,
           [&] { dev->ops->elementwise->swiglu_backward(dev, gate, up, dh, gate, up); });
    drop();
}

static void tables(int64_t n, int64_t d, int words) {
    struct mat table = matrix(DTYPE_BF16, words, d, 0.02f), x = matrix(DTYPE_BF16, n, d, 1.0f);
    struct mat dtable = matrix(DTYPE_F32, words, d, 0.0f), dx = matrix(DTYPE_BF16, n, d, 1.0f),
               nll = matrix(DTYPE_F32, 1, n, 0.0f);
    int32_t *ids = (int32_t *)take((size_t)n * 4);
    fill_ids<<<256, 256, 0, device_cuda_stream(dev)>>>(ids, n, words);
    double size = (double)n * (double)d, operations = 2.0 * size * words;
    char name[64];
    if (words == 50265) {
        report("embed.forward bf16", 4 * size, 0, [&] { dev->ops->embed->forward(dev, x, table, ids, 0); });
        report("embed.backward bf16 -> f32", 2 * size, 0, [&] { dev->ops->embed->backward(dev, dtable, dx, ids, 0); });
    }
    snprintf(name, sizeof name, "loss.forward, %d words", words);
    report(
        name, 0, operations, [&] { dev->ops->loss->forward(dev, (float *)nll.data, x, table, ids); }, 5);
    const loss_rows rows = {ids, nullptr, 1e-4f};
    snprintf(name, sizeof name, "loss.forward_backward, %d words", words);
    report(
        name, 0, 3 * operations,
        [&] { dev->ops->loss->forward_backward(dev, (float *)nll.data, dx, dtable, x, table, rows); }, 5);
    drop();
}

/* The parts of the loss with gradients, for the rows of a slice. */
static void exponentials(int64_t n, int64_t d, int words) {
    int64_t stride = blocks_for(words, 64) * 64, wide = words / 64 * 64;
    struct mat table = matrix(DTYPE_BF16, words, d, 0.02f), x = matrix(DTYPE_BF16, n, d, 1.0f),
               e = matrix(DTYPE_BF16, n, stride, 1.0f), logits = matrix(DTYPE_F32, n, wide, 0.0f),
               dtable = matrix(DTYPE_F32, words, d, 0.0f), raw = matrix(DTYPE_F32, n, d, 0.0f);
    int32_t *ids = (int32_t *)take((size_t)n * 4);
    fill_ids<<<256, 256, 0, device_cuda_stream(dev)>>>(ids, n, words);
    float *shift = (float *)matrix(DTYPE_F32, 1, n, 0.0f).data;
    const exp_rows rows = {shift, ids, (float *)matrix(DTYPE_F32, 1, n, 0.0f).data,
                           (float *)matrix(DTYPE_F32, n, exp_product_parts(words), 0.0f).data};
    double operations = 2.0 * (double)n * (double)d * (double)wide;
    const auto *m = dev->ops->matmul;
    for (struct mat to : {e, (struct mat){}})
        report(to.data ? "exp_product" : "exp_product, not stored", 0, operations,
               [&] { exp_product(dev, "bench", to, rows, x, table); });
    report("  logits float32, cuBLASLt", 0, operations,
           [&] { m->forward(dev, logits, x, mat_rows(table, 0, wide), false); });
    report("  dx, cuBLASLt", 0, operations,
           [&] { m->backward_input(dev, raw, mat_cols(e, 0, wide), mat_rows(table, 0, wide), false); });
    report("  dtable, cuBLASLt", 0, operations,
           [&] { m->backward_weight(dev, mat_rows(dtable, 0, wide), mat_cols(e, 0, wide), x); });
    report("  dtable of the remaining words", 0, 2.0 * (double)n * (double)d * (double)(words - wide), [&] {
        m->backward_weight(dev, mat_rows(dtable, wide, words - wide), mat_cols(e, wide, words - wide), x);
    });
    drop();
}

static void optimiser(int64_t n) {
    struct mat p = matrix(DTYPE_F32, 1, n, 0.02f), m = matrix(DTYPE_F32, 1, n, 0.01f),
               v = matrix(DTYPE_F32, 1, n, 0.0f);
    struct mat g = matrix(DTYPE_F32, 1, n, 0.01f), copy = matrix(DTYPE_BF16, 1, n, 1.0f),
               sum = matrix(DTYPE_F32, 1, 1, 0.0f);
    struct adamw_step how = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 100};
    report("adamw.norm, 146M", 4.0 * (double)n, 0,
           [&] { dev->ops->adamw->norm(dev, (float *)sum.data, (float *)g.data, n); });
    report("adamw.update, 146M, bf16 copy", 30.0 * (double)n, 0, [&] {
        dev->ops->adamw->update(dev, {(float *)p.data, (float *)m.data, (float *)v.data, copy}, (float *)g.data, n,
                                (float *)sum.data, 1.0f, how);
    });
    drop();
}

static void search(int64_t landmarks, int64_t d, enum dtype type, enum dtype query_type, std::vector<int64_t> counts,
                   int k) {
    struct mat l = matrix(type, landmarks, d, 1.0f);
    for (int64_t n : counts) {
        struct mat q = matrix(query_type, n, d, 1.0f);
        int64_t *index = (int64_t *)take((size_t)n * 8 * k), *visible = (int64_t *)take((size_t)n * 8);
        float *score = (float *)take((size_t)n * 4 * k);
        std::vector<int64_t> all((size_t)n, landmarks);
        device_upload(dev, visible, all.data(), all.size() * 8);
        char name[80];
        snprintf(name, sizeof name, "topk %lldM x %lld %s, best %d, %lld %s queries", (long long)landmarks / 1000000,
                 (long long)d, type == DTYPE_F16 ? "fp16" : "bf16", k, (long long)n,
                 query_type == DTYPE_F32 ? "f32" : "bf16");
        report(
            name, 2.0 * (double)landmarks * (double)d, 2.0 * (double)landmarks * (double)d * (double)n,
            [&] { dev->ops->topk->forward(dev, index, score, q, l, visible, k); }, n > 2000 ? 2 : 5);
    }
    drop();
}

static void losses() {
    gated(65536, 2048, 768);
    tables(65520, 768, 50265);
    tables(65520, 768, 50304);
    exponentials(5632, 768, 50265);
}

static void steps() {
    products(65536, 2304, 768, DTYPE_BF16);
    products(65536, 4096, 768, DTYPE_BF16);
    products(65536, 768, 2048, DTYPE_BF16);
    products(65536, 768, 768, DTYPE_BF16);
    products(65536, 768, 2048, DTYPE_F32);
    rowwise(65536, 768, 2048);
    losses();
    optimiser(145980672);
}

int main(int argc, char **argv) {
    int64_t landmarks = 20;
    const char *best = "8";
    result_begin("bench_ops", &argc, argv);
    bool search_only = false, loss_only = false;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--search") == 0)
            search_only = true;
        else if (strcmp(argv[i], "--loss") == 0)
            loss_only = true;
        else if (strcmp(argv[i], "--landmarks") == 0 && i + 1 < argc)
            landmarks = strtoll(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--best") == 0 && i + 1 < argc)
            best = argv[++i];
    must(device_open(&dev, "cuda", 1));
    cudaDeviceProp card;
    cudaGetDeviceProperties(&card, 0);
    result_gpu(card.name);
    printf("%s, %d multiprocessors\n", card.name, card.multiProcessorCount);
    ceilings();
    if (loss_only) losses();
    if (!search_only && !loss_only) steps();
    for (char *next = (char *)best; *next && !loss_only; next += *next == ',') {
        int k = (int)strtol(next, &next, 10);
        search(landmarks * 1000000, 1024, DTYPE_F16, DTYPE_BF16, {1, 8, 16, 32, 64, 128, 1024, 8192}, k);
        search(landmarks * 1000000, 1024, DTYPE_BF16, DTYPE_BF16, {64, 1024}, k);
        search(landmarks * 1000000, 1024, DTYPE_F16, DTYPE_F32, {32, 64, 256}, k);
    }
    device_close(dev);
    result_end();
    return 0;
}
