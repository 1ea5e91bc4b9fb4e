/* test_candidates_on_device.c -- the order of the chunks that a search found on a GPU: chunks and scores of the CPU
 * twin, equal bit for bit, for the cases of tests/ref/search/ref_candidates.h. */
#include "tests/device/on_device.h"
#include "tests/ref/search/ref_candidates.h"

static struct device *cpu;

static void compare(int rows, int n, int k, int vocab, int query_ids) {
    for (int landmark = 0; landmark < 2; landmark++) {
        struct candidates_case made = candidates_case_make(&on_rng, rows, n, vocab, query_ids, landmark);
        const size_t found = (size_t)n, all = (size_t)(made.of.chunks * rows), chunks = (size_t)made.of.chunks;
        int64_t *right = zeros(k, sizeof *right), *chunk = zeros(k, sizeof *chunk);
        float *right_score = zeros(k, sizeof *right_score);
        struct candidates c = made.c;
        struct packed_chunks of = made.of;
        c.terms.weights = made.weights, c.of = &made.of;
        candidates_cpu.order(cpu, right, right_score, &c, k);
        of.value = put_bytes(made.value, all * sizeof *made.value);
        of.first_id = put_bytes(made.first_id, chunks * sizeof *made.first_id);
        c.of = &of;
        c.chunk = put_bytes(made.chunk, found * sizeof *made.chunk);
        c.score = put_bytes(made.score, found * sizeof *made.score);
        c.landmark = landmark ? put_bytes(made.landmark, found * sizeof *made.landmark) : NULL;
        c.terms.idf = put_bytes(made.idf, (size_t)vocab * sizeof *made.idf);
        struct mat score = put_plain(NULL, DTYPE_F32, 1, k);
        memset(chunk, 255, (size_t)k * sizeof *chunk);
        int64_t *chunk_device = put_bytes(chunk, (size_t)k * sizeof *chunk);
        gpu->ops->candidates->order(gpu, chunk_device, score.data, &c, k);
        device_download(gpu, chunk, chunk_device, (size_t)k * sizeof *chunk);
        float *score_host = take(score);
        drop_all();
        CHECK_SAME(chunk, right, k);
        CHECK_SAME(score_host, right_score, k);
        candidates_case_free(&made);
        free(right), free(right_score), free(chunk), free(score_host);
    }
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    CHECK_OK(device_open(&cpu, "cpu", 1));
    for (int i = 0; i < (on_short ? 2 : 20); i++) {
        compare(5, 30, 1 + i, 12, 20 + i);
        compare(63, 40, 40, 30, 128);
        compare(64, 24, 1 + i, 100, 300);
        compare(1, 9, 4, 3, 5);
        compare(63, 65 + 7 * i, 65, 30, 128);
    }
    compare(63, 1, 1, 300, 128);
    compare(63, 1, 1, 300, 0);
    compare(63, 224, 50, 400, 128);
    compare(64, CANDIDATES_MAX, 256, 2000, 128);
    compare(63, CANDIDATES_MAX, CANDIDATES_MAX, 60, 128);
    compare(63, CANDIDATES_MAX - 1, 1, 60, 128);
    device_close(cpu);
    return on_device_close();
}
