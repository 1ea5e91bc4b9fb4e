/* bench_attention.cu -- times of the attention kernels at sizes of the models. A row for each case:
 *
 *   case, milliseconds (median), TFLOP/s of the operations that count (4 per query, key and column forward; 2.5 times
 * that backward; masked keys do not count), share of the ceiling given as the argument (TFLOP/s of a large bf16 product
 * on the same card, see bench_ceiling.cu), GB that must move at least (each input read and each output written once),
 * and the GB/s that makes.
 *
 *   bench_attention [CEILING [CASE]] [--json FILE]       CASE: only cases whose name contains it
 *
 * Inputs are random and larger than the cache. */
#include "tests/bench/result.h"
#include "tests/device/bench/attention_device.cuh"
#include <algorithm>
#include <functional>

static double ceiling = 798.0;

static std::vector<double> measured; /* milliseconds of the calls of the last median_ms */

static double median_ms(const std::function<void()> &work, int repeats = 15) {
    std::vector<double> &times = measured;
    times.clear();
    cudaEvent_t begin, end;
    GPU(cudaEventCreate(&begin));
    GPU(cudaEventCreate(&end));
    for (int i = 0; i < repeats + 3; i++) {
        float ms;
        GPU(cudaEventRecord(begin));
        work();
        GPU(cudaEventRecord(end));
        GPU(cudaEventSynchronize(end));
        GPU(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 3) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* calls: of a call of median_ms's work. */
static void report(const char *name, double ms, double operations, double bytes, int calls = 1) {
    struct figure f = {};
    f.unit = calls > 1 ? "us" : "ms", f.values = measured.data(), f.count = (int64_t)measured.size();
    f.scale = (calls > 1 ? 1e3 : 1.0) / calls;
    if (operations > 0.0 && calls == 1) f.peer = "bf16 product", f.ratio = operations / ms / 1e9 / ceiling;
    result_figure(&f, "%s", name);
    printf("%-46s %9.4f ms  %7.1f TFLOP/s  %5.1f %%  %7.3f GB  %7.0f GB/s\n", name, ms, operations / ms / 1e9,
           operations / ms / 1e9 / ceiling * 100.0, bytes / 1e9, bytes / ms / 1e6);
}

static __global__ void randomize(bf16 *p, int64_t n, uint32_t seed) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (int j = 0; j < 4; j++) { /* approximately normal: a sum of four uniform numbers, variance 1 */
            uint32_t x = (uint32_t)i * 4u + (uint32_t)j + seed * 0x9e3779b9u;
            x = (x ^ (x >> 16)) * 0x7feb352du;
            x = (x ^ (x >> 15)) * 0x846ca68bu;
            x ^= x >> 16;
            sum += (float)x * 2.3283064e-10f - 0.5f;
        }
        p[i] = __float2bfloat16_rn(sum * 1.7320508f);
    }
}
static struct mat random_mat(int64_t rows, int64_t cols) {
    static uint32_t seed = 1;
    bf16 *p;
    GPU(cudaMalloc(&p, rows * cols * sizeof *p));
    randomize<<<1024, 256>>>(p, rows * cols, seed++);
    return {p, DTYPE_BF16, rows, cols, cols};
}
static struct mat zero_mat(enum dtype type, int64_t rows, int64_t cols) {
    void *p;
    GPU(cudaMalloc(&p, rows * cols * dtype_bytes(type)));
    GPU(cudaMemset(p, 0, rows * cols * dtype_bytes(type)));
    return {p, type, rows, cols, cols};
}
static void drop(std::initializer_list<struct mat> all) {
    for (struct mat m : all)
        GPU(cudaFree(m.data));
}

/* `sequences` of `chunks` chunks of 64; a chunk reads K different slots of its own sequence. */
static void bench_gca(const char *name, int sequences, int chunks, int k, int heads, int dim) {
    int blocks = sequences * chunks;
    int64_t n = (int64_t)blocks * 64, d = (int64_t)heads * dim;
    std::vector<int64_t> row_begin;
    std::vector<int32_t> slot, begin = {0}, position;
    std::vector<float> weight;
    std::vector<std::vector<int32_t>> readers(blocks);
    for (int b = 0; b <= blocks; b++)
        row_begin.push_back((int64_t)b * 64);
    for (int b = 0; b < blocks; b++)
        for (int i = 0; i < k; i++) {
            int32_t s;
            do
                s = b / chunks * chunks + (int32_t)(random_uniform() * chunks);
            while (std::find(slot.end() - i, slot.end(), s) != slot.end());
            slot.push_back(s);
            weight.push_back((float)random_uniform() / (float)k);
            readers[s].push_back(b * k + i);
        }
    for (auto &list : readers) {
        position.insert(position.end(), list.begin(), list.end());
        begin.push_back((int32_t)position.size());
    }
    struct gca_blocks of = {upload(row_begin), upload(slot), upload(weight), blocks, k};
    struct gca_inverse inverse = {upload(begin), upload(position), blocks};
    struct mat q = random_mat(n, d), keys = random_mat(n, d), values = random_mat(n, d), dout = random_mat(n, d),
               o = zero_mat(DTYPE_BF16, n, d), dq = zero_mat(DTYPE_BF16, n, d), lse = zero_mat(DTYPE_F32, k * heads, n),
               dk = zero_mat(DTYPE_BF16, n, d), dv = zero_mat(DTYPE_BF16, n, d),
               dw = zero_mat(DTYPE_F32, 1, (int64_t)blocks * k);
    struct gca_pool pool = {keys, values, 64, 63, true};
    struct gca_gradients to = {dq, dk, dv, (float *)dw.data};
    double operations = 4.0 * (double)n * k * 64 * (double)d, matrix = (double)n * (double)d * 2.0,
           sums = (double)k * n * heads * 4.0;
    char line[128];
    snprintf(line, sizeof line, "%s forward", name);
    report(line, median_ms([&] { gca_cuda.forward(NULL, o, q, pool, of, heads); }), operations, 4 * matrix);
    snprintf(line, sizeof line, "%s forward_keep", name);
    report(line, median_ms([&] { gca_cuda.forward_keep(NULL, o, lse, q, pool, of, heads); }), operations,
           4 * matrix + sums);
    snprintf(line, sizeof line, "%s backward, bf16 dK dV", name);
    report(line, median_ms([&] {
               gca_cuda.backward(NULL, &to, dout, q, pool, of, inverse, lse);
           }),
           2.5 * operations, 9 * matrix + sums);
    drop({dk, dv});
    dk = zero_mat(DTYPE_F32, n, d), dv = zero_mat(DTYPE_F32, n, d);
    to.dkeys = dk, to.dvalues = dv;
    snprintf(line, sizeof line, "%s backward, float32 dK dV", name);
    report(line, median_ms([&] {
               gca_cuda.backward(NULL, &to, dout, q, pool, of, inverse, lse);
           }),
           2.5 * operations, 13 * matrix + sums);
    drop({q, keys, values, dout, o, dq, lse, dk, dv, dw});
}

static void bench_window(const char *name, int sequences, int64_t length, int heads, int dim, int window) {
    int64_t n = sequences * length, d = (int64_t)heads * dim;
    struct mat q = random_mat(n, d), k = random_mat(n, d), v = random_mat(n, d), dout = random_mat(n, d),
               o = zero_mat(DTYPE_BF16, n, d), lse = zero_mat(DTYPE_F32, n, heads), dq = zero_mat(DTYPE_BF16, n, d),
               dk = zero_mat(DTYPE_BF16, n, d), dv = zero_mat(DTYPE_BF16, n, d);
    struct attention_sequences in = {q, k, v, length, heads, window};
    double pairs = (double)window * (window + 1) / 2 + (double)(length - window) * (window + 1); /* of a sequence */
    double operations = 4.0 * pairs * sequences * (double)d, matrix = (double)n * (double)d * 2.0;
    char line[128];
    snprintf(line, sizeof line, "%s forward", name);
    report(line, median_ms([&] { attention_cuda.forward_sequences(NULL, o, lse, &in); }),
           operations, 4 * matrix);
    snprintf(line, sizeof line, "%s backward", name);
    report(line, median_ms([&] {
               attention_cuda.backward_sequences(NULL, dq, dk, dv, dout, o, lse, &in);
           }),
           2.5 * operations, 8 * matrix);
    drop({q, k, v, dout, o, lse, dq, dk, dv});
}

static void bench_chunks(const char *name, int chunks, int heads, int dim) {
    int64_t n = (int64_t)chunks * 64, d = (int64_t)heads * dim;
    struct mat q = random_mat(n, d), k = random_mat(n, d), v = random_mat(n, d), dout = random_mat(n, d),
               o = zero_mat(DTYPE_BF16, n, d), lse = zero_mat(DTYPE_F32, n, heads), dq = zero_mat(DTYPE_BF16, n, d),
               dk = zero_mat(DTYPE_BF16, n, d), dv = zero_mat(DTYPE_BF16, n, d);
    struct chunk_attention_kept kept = {o, lse, q, k, v, heads, 64};
    double operations = 4.0 * (double)n * 64 * (double)d, matrix = (double)n * (double)d * 2.0;
    char line[128];
    snprintf(line, sizeof line, "%s forward", name);
    report(line, median_ms([&] { chunk_attention_cuda.forward(NULL, o, q, k, v, heads, 64); }), operations, 4 * matrix);
    chunk_attention_cuda.forward_keep(NULL, o, lse, q, k, v, heads, 64);
    snprintf(line, sizeof line, "%s backward", name);
    report(line, median_ms([&] { chunk_attention_cuda.backward(NULL, dq, dk, dv, dout, &kept); }),
           2.5 * operations, 7 * matrix);
    drop({q, k, v, dout, o, lse, dq, dk, dv});
}

/* A replayed graph of the work, so that the host time of a call is not measured. */
static double replay_ms(const std::function<void()> &work) {
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    cudaStream_t stream = device_cuda_stream(NULL);
    GPU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work();
    GPU(cudaStreamEndCapture(stream, &graph));
    GPU(cudaGraphInstantiate(&replay, graph, 0));
    return median_ms([&] { GPU(cudaGraphLaunch(replay, stream)); });
}

/* The time of a call without work: an empty kernel with as many threads. */
static __global__ void nothing(float *p, int64_t n) {
    if (n < 0) p[threadIdx.x] = 0.0f;
}
static void bench_nothing(int heads, int rows) {
    int calls = 100;
    double ms = replay_ms([&] {
        for (int i = 0; i < calls; i++)
            nothing<<<dim3((unsigned)rows, (unsigned)heads), 512, 0, device_cuda_stream(NULL)>>>(NULL, i);
    });
    char line[128];
    snprintf(line, sizeof line, "an empty kernel of %d x %d blocks", rows, heads);
    report(line, ms / calls, 0.0, 0.0, calls);
}

/* Decoding: 100 calls in sequence, like the layers of a token; each call has its pool in another part of memory. */
static void bench_decode(int heads, int dim, int rows) {
    int64_t d = (int64_t)heads * dim;
    int k = 8, layers = 100, slots = 8 * layers;
    std::vector<int64_t> row_begin = {0, rows};
    std::vector<int32_t> slot;
    for (int i = 0; i < slots; i++)
        slot.push_back(i);
    int64_t *begin_device = upload(row_begin);
    int32_t *slot_device = upload(slot);
    float *weight_device = upload(std::vector<float>(k, 0.125f));
    struct mat q = random_mat(rows, d), keys = random_mat((int64_t)slots * 64, d),
               values = random_mat((int64_t)slots * 64, d), o = zero_mat(DTYPE_BF16, rows, d);
    struct gca_pool pool = {keys, values, 64, 63, true};
    char line[128];
    double ms = replay_ms([&] {
        for (int i = 0; i < layers; i++)
            gca_cuda.forward(NULL, o, q, pool, {begin_device, slot_device + i * k, weight_device, 1, k}, heads);
    });
    snprintf(line, sizeof line, "gca decode, %d row(s), %d heads of %d", rows, heads, dim);
    report(line, ms / layers, 4.0 * rows * k * 64 * (double)d, 2.0 * k * 64 * (double)d * 2, layers);
    struct mat ring_k = {keys.data, DTYPE_BF16, 1024, d, d}, ring_v = {values.data, DTYPE_BF16, 1024, d, d};
    ms = replay_ms([&] {
        for (int i = 0; i < layers; i++) {
            ring_k.data = (bf16 *)keys.data + (int64_t)(i % 50) * 1024 * d;
            ring_v.data = (bf16 *)values.data + (int64_t)(i % 50) * 1024 * d;
            attention_cuda.forward(NULL, o, q, ring_k, ring_v, 5000, heads, 512);
        }
    });
    snprintf(line, sizeof line, "window 512 decode, %d row(s), %d heads of %d", rows, heads, dim);
    report(line, ms / layers, 4.0 * rows * 513 * (double)d, 2.0 * 513 * (double)d * 2, layers);
    drop({q, keys, values, o});
}

static const char *wanted_case = ""; /* cases whose name contains this */
static bool wanted(const char *name) {
    return strstr(name, wanted_case) != NULL;
}

int main(int argc, char **argv) {
    result_begin("bench_attention", &argc, argv);
    if (argc > 1) ceiling = strtod(argv[1], NULL);
    if (argc > 2) wanted_case = argv[2];
    cudaDeviceProp p;
    GPU(cudaGetDeviceProperties(&p, 0));
    result_gpu(p.name);
    result_value("TFLOP/s", ceiling, "bf16 product, the limit");
    printf("%s, ceiling %.0f TFLOP/s\n", p.name, ceiling);
    const char *gca[] = {"gca 4 x 16K, 12 heads of 64, K 8", "gca 4 x 16K, 16 heads of 64, K 8",
                         "gca 2 x 16K, 6 heads of 128, K 8"};
    const char *window[] = {"window 512, 4 x 16640, 12 heads of 64", "window 512, 2 x 16640, 6 heads of 128"};
    if (wanted(gca[0])) bench_gca(gca[0], 4, 256, 8, 12, 64);
    if (wanted(gca[1])) bench_gca(gca[1], 4, 256, 8, 16, 64);
    if (wanted(gca[2])) bench_gca(gca[2], 2, 256, 8, 6, 128);
    if (wanted(window[0])) bench_window(window[0], 4, 16640, 12, 64, 512);
    if (wanted(window[1])) bench_window(window[1], 2, 16640, 6, 128, 512);
    if (wanted("chunks")) bench_chunks("chunks of 64, 1040, 12 heads of 64", 1040, 12, 64);
    for (int rows = 1; rows <= 64 && wanted("decode"); rows *= 2) {
        bench_nothing(12, rows);
        bench_decode(12, 64, rows);
    }
    GPU(cudaDeviceSynchronize());
    result_end();
    return 0;
}
