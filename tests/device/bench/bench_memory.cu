/* bench_memory.cu -- token memories, timed by events, as a share of ceilings measured in the same run
 * (bench_device.cuh).
 *
 *   bench_memory [--short] [--json FILE]
 *
 * The bound of each case is the larger of two: one read of the keys for each block of rows (in backward also a read and
 * a write of their gradients), and 2 d operations for each row and entry (backward 6 d). */
#include "tests/device/bench/bench_device.cuh"

static constexpr int VOCABULARY = 16384, SPAN = 127; /* SPAN: entries of a slot, a chunk of 64 tokens and the next */
static constexpr int SHARES = 960;                    /* of the logits: consumer warps of a decode step */

__global__ static void fill_slots(int32_t *to, int64_t n, int slots) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        to[i] = (int32_t)(((uint64_t)i * 2654435761u + 12345u) % (uint64_t)slots);
}
__global__ static void fill_value(float *to, int64_t n, float x) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        to[i] = x;
}

static const float *floats(int64_t n, float x) {
    float *to = (float *)take((size_t)n * sizeof(float));
    fill_value<<<256, 256, 0, device_cuda_stream(dev)>>>(to, n, x);
    return to;
}
static int32_t *words(int64_t n) {
    int32_t *to = (int32_t *)take((size_t)n * sizeof(int32_t));
    fill_ids<<<256, 256, 0, device_cuda_stream(dev)>>>(to, n, VOCABULARY);
    return to;
}
static const float *squares(struct mat keys) {
    float *to = (float *)take((size_t)keys.rows * sizeof(float));
    dev->ops->token_memory->squares(dev, to, keys);
    return to;
}

struct memory_shape {
    int64_t n, d;
    int block_rows, k, slots;
    int64_t length;
    int limit;
};
struct memory_bench {
    struct token_memory memory;
    struct mat states;
    struct gca_inverse inverse;
    double bytes, pairs; /* keys once for each block of rows; rows times entries */
};

static memory_bench make(memory_shape s) {
    memory_bench b = {};
    double key_bytes = 2.0 * (double)s.d;
    b.states = matrix(DTYPE_BF16, s.n, s.d, 1.0f);
    b.memory.tau = floats(1, (float)s.d / 4);
    if (s.k) {
        struct memory_slots &m = b.memory.slots;
        m.keys = matrix(DTYPE_BF16, (int64_t)s.slots * SPAN, s.d, 1.0f);
        m.value = words(m.keys.rows), m.square = squares(m.keys);
        m.blocks = (int)(s.n / s.block_rows), m.k = s.k, m.slot_rows = SPAN, m.block_rows = s.block_rows;
        int64_t readers = (int64_t)m.blocks * s.k;
        int32_t *slot = (int32_t *)take((size_t)readers * 4), *begin = (int32_t *)take((size_t)(s.slots + 1) * 4);
        int32_t *reader = (int32_t *)take((size_t)readers * 4);
        fill_slots<<<256, 256, 0, device_cuda_stream(dev)>>>(slot, readers, s.slots);
        std::vector<int64_t> rows;
        for (int i = 0; i <= m.blocks; i++)
            rows.push_back((int64_t)i * s.block_rows);
        int64_t *row_begin = (int64_t *)take(rows.size() * sizeof(int64_t));
        device_upload(dev, row_begin, rows.data(), rows.size() * sizeof(int64_t));
        dev->ops->gca->invert(dev, begin, reader, slot, readers, s.slots);
        m.slot = slot, m.row_begin = row_begin, b.inverse = {begin, reader, s.slots};
        b.pairs += (double)s.n * s.k * SPAN, b.bytes += (double)m.blocks * s.k * SPAN * key_bytes;
    }
    if (s.limit) {
        struct memory_past &p = b.memory.past;
        p.keys = s.n == 1 ? matrix(DTYPE_BF16, s.length, s.d, 1.0f) : b.states;
        p.value = words(p.keys.rows), p.square = squares(p.keys);
        p.length = s.n == 1 ? 1 : s.length, p.ring = s.length, p.first = s.n == 1 ? s.length - 1 : 0, p.limit = s.limit;
        double entries = s.n == 1 ? (double)s.limit : (double)s.length / 2;
        b.pairs += (double)s.n * entries, b.bytes += (double)blocks_for(s.n, 64) * entries * key_bytes;
    }
    return b;
}

static void train(const char *what, memory_shape s) {
    char name[96];
    memory_bench b = make(s);
    float *out = (float *)take((size_t)(s.n * 5) * sizeof(float));
    struct token_memory_stats stats = {out, out + s.n, out + 2 * s.n, out + 3 * s.n, out + 4 * s.n};
    const int32_t *target = words(s.n);
    struct mat dstates = matrix(DTYPE_F32, s.n, s.d, 0.0f), dkeys = {};
    if (s.k) dkeys = matrix(DTYPE_F32, b.memory.slots.keys.rows, s.d, 0.0f);
    const struct token_memory_gradients g = {
        dstates,           dkeys,    s.limit ? dstates : (struct mat){}, (float *)take(4), floats(s.n, -1.0f),
        floats(s.n, 0.1f), b.inverse};
    double operations = 2.0 * (double)s.d * b.pairs, sums = 8.0 * (double)s.d * (double)(s.n + (s.k ? dkeys.rows : 0));
    const struct token_memory_ops *op = dev->ops->token_memory;
    snprintf(name, sizeof name, "token_memory.forward %s, d %lld", what, (long long)s.d);
    report(name, b.bytes, operations, [&] { op->forward(dev, stats, b.states, &b.memory, target); });
    report(
        "  backward", 2 * b.bytes + sums, 3 * operations,
        [&] { op->backward(dev, &g, b.states, &b.memory, target, stats); }, 5);
    drop();
}

static void decode(memory_shape s) {
    char name[96];
    memory_bench b = make(s);
    struct mat w = matrix(DTYPE_F32, s.n, token_memory_columns(&b.memory), 0.0f),
               p = matrix(DTYPE_F32, s.n, VOCABULARY, 0.0f);
    int32_t *column = (int32_t *)take((size_t)s.n * 8 * 4), *token = words(s.n);
    float *weight = (float *)take((size_t)s.n * 8 * 4);
    const struct token_memory_ops *op = dev->ops->token_memory;
    snprintf(name, sizeof name, "token_memory.weights %lld row, %lld entries, d %lld", (long long)s.n,
             (long long)w.cols, (long long)s.d);
    report(name, b.bytes, 0, [&] { op->weights(dev, w, b.states, &b.memory); });
    report("  distribution", 4.0 * (double)(w.cols + VOCABULARY), 0, [&] { op->distribution(dev, p, w, &b.memory); });
    report("  contributors, best 8", 4.0 * (double)w.cols, 0,
           [&] { op->contributors(dev, column, weight, w, &b.memory, token, 8, 1e-3f); });
    drop();
}

/* The mixture of one id: k slots and an own past, of a vocabulary. raw_d: of a state that is projected; 0: it is not.
 * idle: the memories are read by so many multiprocessors, as during a decode step that has just ended; 0: by all. */
static void next_token(int64_t d, int64_t raw_d, int64_t vocab, int k, int limit, int idle) {
    char name[160];
    memory_bench b = make({1, d, 1, k, 2048, limit + 1, limit});
    struct next_token_task t = {};
    struct memory_gate gate = {};
    for (int i = 0; i < MEMORY_FEATURES; i++)
        gate.deviation[i] = 1;
    void *gate_device = take(sizeof gate);
    device_upload(dev, gate_device, &gate, sizeof gate);
    t.gate = (const struct memory_gate *)gate_device, t.logits = floats(vocab, 1.0f), t.vocab = vocab;
    t.state = raw_d ? matrix(DTYPE_BF16, 1, raw_d, 1.0f) : b.states;
    if (raw_d) t.projection = matrix(DTYPE_BF16, d, raw_d, 1.0f / sqrtf((float)raw_d));
    t.side[0].memory.past = b.memory.past, t.side[1].memory.slots = b.memory.slots;
    t.side[0].marks = {(float)limit, 0, 0, 0}, t.side[1].marks = {(float)k, 3, 1, 2};
    for (int i = 0; i < MEMORY_SIDES; i++) {
        t.side[i].memory.tau = b.memory.tau;
        t.side[i].weights = matrix(DTYPE_F32, 1, token_memory_columns(&t.side[i].memory), 0.0f);
        t.side[i].p = (float *)take((size_t)vocab * sizeof(float));
    }
    std::vector<logit_share> shares; /* as the decode step leaves them */
    for (int i = 0; i < SHARES; i++)
        shares.push_back({1.0f, (int32_t)(vocab * i / SHARES), (float)vocab / SHARES, 0.0f});
    logit_share *shares_device = (logit_share *)take(shares.size() * sizeof(logit_share));
    device_upload(dev, shares_device, shares.data(), shares.size() * sizeof(logit_share));
    t.step.shares = shares_device, t.step.n_shares = SHARES;
    uint32_t *counts = (uint32_t *)take(sizeof(uint32_t));
    device_clear(dev, counts, sizeof *counts);
    if (idle) t.step.ready = t.step.done = counts, t.step.idle = idle;
    float *log_p = (float *)take((size_t)vocab * sizeof(float));
    double *g = (double *)take((1 + MEMORY_SIDES) * sizeof(double));
    snprintf(name, sizeof name, "next_token.mix %d slots of %d, own past of %d, d %lld%s, %lld ids%s", k, SPAN, limit,
             (long long)d, raw_d ? " projected" : "", (long long)vocab, idle ? ", read by few" : "");
    report(name, b.bytes + 40.0 * (double)vocab, 0, [&] { dev->ops->next_token->mix(dev, log_p, g, &t); });
    drop();
}

int main(int argc, char **argv) {
    result_begin("bench_memory", &argc, argv);
    bool short_run = argc > 1 && strcmp(argv[1], "--short") == 0;
    must(device_open(&dev, "cuda", 1));
    cudaDeviceProp card;
    cudaGetDeviceProperties(&card, 0);
    result_gpu(card.name);
    printf("%s, %d multiprocessors\n", card.name, card.multiProcessorCount);
    ceilings();
    for (int64_t d : {384, 768, 1024}) {
        train("4096 rows by 64, 64 slots of 127", {4096, d, 64, 64, 2048, 0, 0});
        train("4 x 2048 rows, own past", {8192, d, 0, 0, 0, 2048, 2048});
        if (short_run) break;
        train("4096 rows by 16, 64 slots of 127", {4096, d, 16, 64, 2048, 0, 0});
        train("16384 rows by 64, 8 slots of 127", {16384, d, 64, 8, 2048, 0, 0});
        train("4 x 2048 rows by 64, 64 slots, own past", {8192, d, 64, 64, 2048, 2048, 2048});
        decode({1, d, 1, 64, 2048, 2049, 2048});
    }
    for (int k : {8, 64, 256}) {
        next_token(384, 0, 16384, k, 2048, 0);
        next_token(768, 0, 50265, k, 2048, 0);
        for (int idle : {0, 12}) {
            next_token(64, 768, 50265, k, 2048, idle);
            next_token(128, 768, 50265, k, 2048, idle);
        }
    }
    must(device_sync(dev));
    device_close(dev);
    result_end();
    return 0;
}
