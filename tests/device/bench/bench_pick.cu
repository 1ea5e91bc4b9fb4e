/* bench_pick.cu -- kernels/pick alone: microseconds by events, back to back, of n rows of 50,265 logits in memory of
 * the GPU. Logits: a normal distribution on top of Zipf's law (a nucleus of some hundreds of ids); flat ones (a third
 * of the vocabulary).
 *
 *   bench_pick [RUNS] [--json FILE]
 *
 * RUNS: picks of each (2000). limit: logits read once at the rate of a large copy. */
#include "tests/device/bench/bench_device.cuh"
extern "C" {
#include "kernels/pick/pick.h"
}

enum { WORDS = 50265, STRIDE = 50272, SEEN = 66 }; /* rows begin at multiples of 16 bytes, as a program's do */

__global__ void make_logits(float *to, int64_t n, float deviation, float slope) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        to[i] = deviation * random_of((uint64_t)i) - slope * logf((float)(i % STRIDE) + 50.0f);
}

static const struct setting {
    const char *name;
    float temperature, top_p, penalty;
    int top_k, n_best;
    bool logprob;
} settings[] = {{"greedy", 0, 1, 1, 0, 0, false},
                {"temperature 0.8", 0.8f, 1, 1, 0, 0, false},
                {"top-p 0.95", 0.8f, 0.95f, 1, 0, 0, false},
                {"top-k 40", 0.8f, 1, 1, 40, 0, false},
                {"top-k 40 top-p 0.95", 0.8f, 0.95f, 1, 40, 0, false},
                {"top-p 0.95 repeat-penalty 1.1", 0.8f, 0.95f, 1.1f, 0, 0, false},
                {"greedy, log-probability", 0, 1, 1, 0, 0, true},
                {"top-p 0.95, log-probability, top 5", 0.8f, 0.95f, 1, 0, 5, true}};

/* Several picks in one graph, so that launches take no time of the host. */
enum { EACH = 50 };
struct repeat {
    struct pick_row *rows;
    int n;
};
static void repeat_picks(void *context, struct device *on) {
    struct repeat *r = (struct repeat *)context;
    for (int i = 0; i < EACH; i++) {
        for (int row = 0; row < r->n; row++)
            r->rows[row].rule.number = (uint64_t)i;
        on->ops->pick->rows(on, r->rows, r->n, WORDS);
    }
}

static double mean_us(struct pick_row *rows, int n, int runs) {
    struct repeat r = {rows, n};
    struct device_replay *replay = NULL;
    cudaEvent_t begin, end;
    float ms = 0;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int i = 0; i < 3; i++) /* recorded with the second use */
        device_replay_run(dev, &replay, repeat_picks, &r);
    cudaEventRecord(begin, device_cuda_stream(dev));
    for (int i = 0; i < runs; i += EACH)
        device_replay_run(dev, &replay, repeat_picks, &r);
    cudaEventRecord(end, device_cuda_stream(dev));
    must(device_sync(dev));
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    device_replay_free(dev, replay);
    return ms * 1e3 / ((runs + EACH - 1) / EACH * EACH);
}

static void bench_rows(int n, const float *logits, const char *shape, struct pick_result *results, int runs) {
    int32_t *seen = (int32_t *)take((size_t)n * SEEN * sizeof *seen), *ids = (int32_t *)take((size_t)n * sizeof *ids);
    const uint32_t *banned = (const uint32_t *)take((WORDS + 31) / 32 * sizeof *banned);
    printf("pick,%s,%d rows,limit %.2f us", shape, n, 4.0 * (double)(n * WORDS) / copy_rate * 1e6);
    for (const struct setting &s : settings) {
        struct pick_row rows[PICK_ROWS_MAX] = {};
        for (int i = 0; i < n; i++) {
            struct pick_rule rule = {};
            rule.scale = s.temperature > 0 ? 1.442695f / s.temperature : 0, rule.penalty = s.penalty;
            rule.repeat_last = s.penalty == 1 ? 0 : 64, rule.n_seen = 1000, rule.top_k = s.top_k;
            rule.share = (uint64_t)((double)s.top_p * 4294967296.0), rule.least = 1, rule.seed = 5 + i;
            rows[i].logits = logits + (int64_t)i * STRIDE, rows[i].rule = rule, rows[i].banned = banned;
            rows[i].seen = seen + i * SEEN, rows[i].seen_rows = SEEN, rows[i].id = ids + i;
            rows[i].result = results + i, rows[i].ticket = 1ull << 32;
            rows[i].logprob = s.logprob, rows[i].n_best = s.n_best;
        }
        double us = mean_us(rows, n, runs);
        printf(",%s %.2f us", s.name, us);
        result_value("us", us, "%s, %d rows, %s logits", s.name, n, shape);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    result_begin("bench_pick", &argc, argv);
    const int runs = argc > 1 ? atoi(argv[1]) : 2000;
    struct pick_result *results;
    must(device_open(&dev, "cuda", 1));
    ceilings();
    must(device_allocate_host(dev, &results, PICK_ROWS_MAX));
    struct pick_result *results_device = (struct pick_result *)device_reach(dev, results);
    for (int flat = 0; flat < 2; flat++) {
        float *logits = (float *)take((size_t)PICK_ROWS_MAX * STRIDE * sizeof *logits);
        make_logits<<<2048, 256, 0, device_cuda_stream(dev)>>>(logits, (int64_t)PICK_ROWS_MAX * STRIDE,
                                                               flat ? 0.5f : 2.2f, flat ? 0.3f : 1.0f);
        for (int n : {1, 2, 8, 16, 32, 64})
            bench_rows(n, logits, flat ? "flat" : "broad", results_device, runs);
    }
    drop();
    device_release_host(dev, results);
    device_close(dev);
    result_end();
    return 0;
}
