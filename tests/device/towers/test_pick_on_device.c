/* test_pick_on_device.c -- picks on a GPU against the CPU twin: the same id and the same list of seen ids for random
 * settings and logits, 1 to 64 rows with settings of their own, vocabularies that fit into shared memory and that do
 * not; log-probabilities; every case twice. */
#include "tests/device/on_device.h"
#include "tests/ref/pick_case.h"

enum { ROWS = PICK_ROWS_MAX };

static struct device *cpu;
static int64_t finite_picks, odd_scores;

static void compare_scores(const struct pick_result *got, const struct pick_result *want, const struct pick_row *row) {
    CHECK_EQ(got->n_best, want->n_best);
    odd_scores += want->n_best < 0;
    if (want->n_best < 0) return;
    finite_picks++;
    CHECK(fabsf(got->logprob - want->logprob) <= 1e-6F * (1 + fabsf(want->logprob)) || got->logprob == want->logprob ||
          (isnan(got->logprob) && isnan(want->logprob)));
    for (int i = 0; i < row->n_best; i++) {
        CHECK_EQ(got->best[i].id, want->best[i].id);
        CHECK(fabsf(got->best[i].logprob - want->best[i].logprob) <= 1e-6F * (1 + fabsf(want->best[i].logprob)) ||
              got->best[i].logprob == want->best[i].logprob);
    }
}

struct row_device {
    float *logits;
    uint32_t *banned;
    int32_t *seen, *id;
};

static void compare(int64_t vocab, int n) {
    struct pick_case cases[ROWS];
    struct pick_row host_rows[ROWS], device_rows[ROWS];
    struct row_device at[ROWS];
    struct pick_result *results, *want;
    int32_t ids[ROWS];
    CHECK_OK(device_allocate_host(gpu, &results, ROWS));
    CHECK((want = calloc(ROWS, sizeof *want)));
    for (int i = 0; i < n; i++) {
        struct pick_case *c = &cases[i];
        *c = pick_case_make(&on_rng, vocab);
        const size_t words = (size_t)(vocab + 31) / 32;
        CHECK_OK(device_allocate(gpu, &at[i].logits, (size_t)vocab));
        CHECK_OK(device_allocate(gpu, &at[i].banned, words));
        CHECK_OK(device_allocate(gpu, &at[i].seen, PICK_CASE_SEEN));
        CHECK_OK(device_allocate(gpu, &at[i].id, 1));
        device_upload(gpu, at[i].logits, c->logits, (size_t)vocab * sizeof *c->logits);
        device_upload(gpu, at[i].banned, c->banned, words * sizeof *c->banned);
        host_rows[i] = device_rows[i] = c->row;
        host_rows[i].logits = c->logits, host_rows[i].banned = c->banned, host_rows[i].id = &ids[i],
        host_rows[i].result = &want[i];
        device_rows[i].logits = at[i].logits, device_rows[i].banned = at[i].banned, device_rows[i].id = at[i].id;
        device_rows[i].seen = at[i].seen, device_rows[i].result = device_reach(gpu, &results[i]);
        device_upload(gpu, at[i].seen, c->seen, sizeof c->seen);
        host_rows[i].seen = c->seen;
    }
    for (int run = 0; run < 2; run++) { /* the second time with the same lists of seen ids again */
        memset(results, 0xEE, ROWS * sizeof *results);
        for (int i = 0; i < n; i++)
            results[i].id = -1, results[i].n_best = 0;
        gpu->ops->pick->rows(gpu, device_rows, n, vocab);
        CHECK_OK(device_sync(gpu));
        if (run == 0) cpu->ops->pick->rows(cpu, host_rows, n, vocab);
        for (int i = 0; i < n; i++) {
            int32_t seen[PICK_CASE_SEEN], id;
            device_download(gpu, seen, at[i].seen, sizeof seen);
            device_download(gpu, &id, at[i].id, sizeof id);
            if (id != ids[i]) {
                const struct pick_rule *r = &cases[i].row.rule;
                fprintf(
                    stderr,
                    "row %d of %d, %lld ids: picked %d, CPU %d: scale %g, top-k %lld, share %g, least %u, penalty %g "
                    "of %lld\n",
                    i, n, (long long)vocab, id, ids[i], (double)r->scale, (long long)r->top_k,
                    (double)r->share * 0x1p-32, r->least, (double)r->penalty, (long long)r->repeat_last);
            }
            CHECK_EQ(id, ids[i]);
            CHECK_EQ(results[i].id, device_rows[i].logprob ? id : -1);
            CHECK(results[i].ticket == (device_rows[i].ticket | (uint32_t)id));
            CHECK(memcmp(seen, cases[i].seen, sizeof seen) == 0);
            if (device_rows[i].logprob) compare_scores(&results[i], &want[i], &device_rows[i]);
        }
        /* the pick is number n_seen of the list: it may be what the first run read least recently, but never within
         * repeat_last */
    }
    for (int i = 0; i < n; i++) {
        device_release(gpu, at[i].logits), device_release(gpu, at[i].banned);
        device_release(gpu, at[i].seen), device_release(gpu, at[i].id);
        pick_case_free(&cases[i]);
    }
    free(want);
    device_release_host(gpu, results);
}

int main(int argc, char **argv) {
    static const int vocabs[] = {1, 2, 15, 31, 32, 33, 64, 65, 300, 511, 512, 513, 4095, 4096, 4097, 9000};
    static const int rows[] = {1, 1, 2, 3, 16, 17, 33, 64};
    on_device_open(argc, argv);
    CHECK_OK(device_open(&cpu, "cpu", 1));
    const int cases = on_short ? 20 : 250;
    for (int i = 0; i < cases; i++)
        compare(vocabs[rng_below(&on_rng, ARRAY_LEN(vocabs))],
                i < 10 && !on_short ? 64 : rows[rng_below(&on_rng, ARRAY_LEN(rows) - (i % 20 ? 4 : 0))]);
    compare(50265, 2);
    if (on_short) return on_device_close();
    for (int i = 0; i < 16; i++)
        compare(50265, i < 14 ? 1 + i % 3 : 20);
    compare(128256, 2);
    for (int i = 0; i < 4; i++)
        compare(300001, 1); /* more than shared memory holds */
    CHECK(finite_picks > 20 && odd_scores > 3);
    device_close(cpu);
    return on_device_close();
}
