/* test_memory_order_fit.c -- the loss of an order and its gradient against plain loops in double precision with finite
 * differences, a planted order, held-out searches, files of unequal size, the same bits with any number of threads. */
#include "base/half.h"
#include "base/rng.h"
#include "tests/test.h"
#include "tools/memory/memory_order_fit.h"
#include <string.h>

enum { F = CANDIDATE_FEATURES, T = MEMORY_ORDER_TOKENS, C = 61, SEARCHES = 40, STEPS = TEST_SANITIZED ? 1000 : 1500 };

static double draw(struct rng *rng) {
    return 2 * (double)rng_uniform(rng) - 1;
}

/* Of every kind: few tokens, no candidates, fewer candidates than are read, tokens that no candidate has. */
static void make_samples(struct memory_order_samples *s, uint64_t seed) {
    struct rng rng = rng_make(seed, 0);
    CHECK_OK(memory_order_samples_create(s, SEARCHES, C));
    for (int64_t p = s->n = 0; p < SEARCHES; p++, s->n++) {
        s->search[p] = (struct memory_order_search){.found = p == 3   ? 0
                                                             : p == 5 ? 7
                                                                      : C - (int)(p % 4),
                                                    .tokens = p % 6 == 1 ? 9 : T,
                                                    .file = (int)(p % 3),
                                                    .held_out = p % 7 == 2};
        for (int64_t i = p * C; i < (p + 1) * C; i++) {
            for (int f = 0; f < F; f++)
                s->features[i * F + f] = f == 21 ? 0.5F : (float)(draw(&rng) * (f == 2 ? 20 : 1));
            for (int t = 0; t < T; t++) {
                const bool there = t < s->search[p].tokens;
                const float z = there ? rng_uniform(&rng) * (t % 5 == 0 ? 1e-6F : 1) : 0;
                s->z[i * T + t] = half_to_bf16(z);
                s->right[i * T + t] = half_to_bf16(t % 9 == 4 || rng_below(&rng, 3) > 0 ? 0 : z * rng_uniform(&rng));
            }
        }
        for (int t = 0; t < T; t++) {
            s->lm[p * T + t] = rng_uniform(&rng);
            s->gate[p * T + t] = p == 3 ? 0 : rng_uniform(&rng);
        }
    }
}

/* ---- plain loops ---- */

static int descending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static double plain_sum(const struct memory_order_samples *s, int64_t p, int i, const double *weights) {
    double sum = 0;
    for (int f = 0; f < F; f++)
        sum += weights[f] * (double)s->features[(p * C + i) * F + f];
    return sum;
}

/* Writes the sums of a search, and their n-th greatest ones for n = each of ranks. */
static void plain_sums(double sums[C], double *nth, const int *ranks, int n_ranks, const struct memory_order_samples *s,
                       int64_t p, const double *weights) {
    double sorted[C];
    const int n = s->search[p].found;
    for (int i = 0; i < n; i++)
        sorted[i] = sums[i] = plain_sum(s, p, i, weights);
    qsort(sorted, (size_t)n, sizeof *sorted, descending);
    for (int r = 0; r < n_ranks; r++)
        nth[r] = n > 0 ? sorted[(ranks[r] < n ? ranks[r] : n) - 1] : 0;
}

/* The sum over the tokens of a search. a: what each candidate counts. */
static double plain_tokens(const struct memory_order_samples *s, int64_t p, const double *a) {
    double loss = 0;
    for (int t = 0; t < s->search[p].tokens; t++) {
        double z = 0, right = 0;
        for (int i = 0; i < s->search[p].found; i++) {
            z += a[i] * (double)half_from_bf16(s->z[(p * C + i) * T + t]);
            right += a[i] * (double)half_from_bf16(s->right[(p * C + i) * T + t]);
        }
        const double g = (double)s->gate[p * T + t], memory = z > 0 ? right / z : 0;
        loss -= log((1 - g) * (double)s->lm[p * T + t] + g * memory + 1e-12);
    }
    return loss;
}

/* The loss over all searches, and its gradient: u from finite differences. */
static double plain_loss(double gradient[F], const struct memory_order_loss *of) {
    const struct memory_order_samples *s = of->samples;
    double loss = 0, tokens = 0;
    memset(gradient, 0, F * sizeof *gradient);
    for (int64_t p = 0; p < SEARCHES; p++) {
        const int n = s->search[p].found;
        tokens += s->search[p].tokens;
        for (int q = 0; q < of->reads.ks; q++) {
            const int k = of->reads.k[q];
            double sums[C], nth[3], a[C], near[C], u[C], m[3] = {0}, b[2] = {0};
            plain_sums(sums, nth, (const int[]){k, (k + 1) / 2, 2 * k}, 3, s, p, of->weights);
            for (int i = 0; i < n; i++)
                a[i] = n <= k || sums[i] >= nth[0];
            loss += plain_tokens(s, p, a) / of->reads.ks;
            for (int i = 0; i < n && n > k; i++) {
                const double above = 1 / (1 + exp((nth[0] - sums[i]) * 4 / (nth[1] - nth[2]))), was = a[i];
                near[i] = above * (1 - above);
                a[i] = was + 1e-6, u[i] = plain_tokens(s, p, a);
                a[i] = was - 1e-6, u[i] = (u[i] - plain_tokens(s, p, a)) / 2e-6 / of->reads.ks;
                a[i] = was;
                m[0] += near[i], m[1] += near[i] * sums[i], m[2] += near[i] * sums[i] * sums[i];
                b[0] += near[i] * u[i], b[1] += near[i] * sums[i] * u[i];
            }
            /* the line's normal equations */
            const double rise = (m[0] * b[1] - m[1] * b[0]) / (m[0] * m[2] - m[1] * m[1]),
                         at0 = (b[0] - rise * m[1]) / m[0];
            for (int i = 0; i < n && n > k; i++)
                for (int f = 0; f < F; f++)
                    gradient[f] += near[i] * (u[i] - at0 - rise * sums[i]) * (double)s->features[(p * C + i) * F + f];
        }
    }
    for (int f = 0; f < F; f++)
        gradient[f] /= tokens;
    return loss / tokens;
}

/* ---- the tests ---- */

static void test_reads(void) {
    const struct memory_order_reads many = memory_order_reads_of(256), some = memory_order_reads_of(64),
                                    few = memory_order_reads_of(31), least = memory_order_reads_of(4);
    CHECK(many.ks == 3 && many.k[0] == 256 && many.k[1] == 64 && many.k[2] == 16);
    CHECK(some.ks == 2 && some.k[0] == 64 && some.k[1] == 16);
    CHECK(few.ks == 1 && few.k[0] == 31 && least.ks == 1 && least.k[0] == 4);
}

static void test_loss(int ks) {
    struct memory_order_samples s;
    struct rng rng = rng_make(test_seed(), 1);
    struct threads *threads;
    double weights[F], gradient[F], plain[F], threaded[F], loss, other, largest = 0;
    int64_t searches[SEARCHES];
    make_samples(&s, test_seed());
    for (int f = 0; f < F; f++)
        weights[f] = draw(&rng) * (f == 2 ? 0.05 : 1);
    for (int64_t p = 0; p < SEARCHES; p++)
        searches[p] = p;
    const struct memory_order_loss of = {.samples = &s, .reads = {ks, {32, 11, 2}}, .weights = weights};
    CHECK_OK(memory_order_loss(&loss, gradient, &of, searches, SEARCHES, NULL));
    CHECK(fabs(loss - plain_loss(plain, &of)) < 1e-5 * loss);
    CHECK_OK(memory_order_loss(&other, NULL, &of, searches, SEARCHES, NULL));
    CHECK(memcmp(&loss, &other, sizeof loss) == 0);
    CHECK_OK(threads_create(&threads, 3));
    CHECK_OK(memory_order_loss(&other, threaded, &of, searches, SEARCHES, threads));
    CHECK(memcmp(&loss, &other, sizeof loss) == 0 && memcmp(gradient, threaded, sizeof gradient) == 0);
    threads_free(threads);
    for (int f = 0; f < F; f++)
        largest = fmax(largest, fabs(plain[f]));
    for (int f = 0; f < F; f++)
        CHECK(fabs(gradient[f] - plain[f]) < 1e-3 * largest);
    CHECK(largest > 1e-4);
    memory_order_samples_free(&s);
}

/* The reported loss reads whole candidates: the first as found, or those of the greatest sums. */
static void test_read_loss(void) {
    enum { K = 12, FILES = 3 };
    struct memory_order_samples s;
    struct rng rng = rng_make(test_seed(), 2);
    double weights[F], found, ordered;
    make_samples(&s, test_seed());
    for (int f = 0; f < F; f++)
        weights[f] = f == 20 ? 1 : 0.1 * draw(&rng);
    for (int64_t i = 0; i < SEARCHES * C; i += 2) /* equal sums: those found first are read */
        memcpy(s.features + (i + 1) * F, s.features + i * F, i + 1 < SEARCHES * C ? F * sizeof(float) : 0);
    for (int held = 0; held < 2; held++) {
        double loss[2][FILES] = {0}, tokens[FILES] = {0}, mean[2] = {0};
        for (int64_t p = 0; p < SEARCHES; p++) {
            const int n = s.search[p].found;
            if (s.search[p].held_out != held) continue;
            tokens[s.search[p].file] += s.search[p].tokens;
            for (int in_order = 0; in_order < 2; in_order++) {
                double a[C];
                for (int i = 0; i < n; i++) {
                    int before = 0;
                    for (int j = 0; j < n; j++) {
                        const float x = (float)plain_sum(&s, p, i, weights), y = (float)plain_sum(&s, p, j, weights);
                        before += in_order ? y > x || (y == x && j < i) : j < i;
                    }
                    a[i] = before < K ? 1 : 0;
                }
                loss[in_order][s.search[p].file] += plain_tokens(&s, p, a);
            }
        }
        for (int in_order = 0; in_order < 2; in_order++)
            for (int file = 0; file < FILES; file++)
                mean[in_order] += loss[in_order][file] / tokens[file] / FILES;
        CHECK_OK(memory_order_read_loss(&found, &s, NULL, K, held, NULL));
        CHECK_OK(memory_order_read_loss(&ordered, &s, weights, K, held, NULL));
        CHECK(fabs(found - mean[0]) < 1e-5 * mean[0] && fabs(ordered - mean[1]) < 1e-5 * mean[1]);
        CHECK(fabs(found - ordered) > 1e-6);
    }
    for (int64_t p = 0; p < SEARCHES; p++)
        s.search[p].held_out = false;
    CHECK_OK(memory_order_read_loss(&found, &s, NULL, K, true, NULL));
    CHECK(isnan(found));
    memory_order_samples_free(&s);
}

/* Candidates are as useful as a sum of five features says, which the search's score does not know. One of them is less
 * useful the greater it is, which only the length may be for the trained weights. In searches that are held out, and in
 * most of a file that has few tokens to train on, the sum has the other sign. */
enum { OPPOSED = 12 };
static void plant(struct memory_order_samples *s) {
    make_samples(s, 77);
    for (int64_t p = 0; p < SEARCHES; p++) {
        s->search[p] = (struct memory_order_search){.found = C, .tokens = T, .held_out = p % 4 == 3};
        for (int64_t i = p * C; i < (p + 1) * C; i++) {
            const float *x = s->features + i * F;
            const double sum = (double)(x[0] + 0.1F * x[2] + 2 * x[7] - x[CANDIDATE_LENGTH] - 0.3F * x[OPPOSED]) *
                               (s->search[p].held_out ? -1 : 1);
            for (int t = 0; t < T; t++) {
                s->z[i * T + t] = half_to_bf16(1);
                s->right[i * T + t] = half_to_bf16((float)(1 / (1 + exp(-sum))));
            }
        }
        for (int t = 0; t < T; t++)
            s->gate[p * T + t] = 0.5F, s->lm[p * T + t] = 0.01F;
    }
}

static void test_planted(void) {
    struct memory_order_samples s;
    struct memory_order_fit_config config = {.reads = {2, {16, 8}}, .start = {[CANDIDATE_SCORE] = 1}, .steps = STEPS};
    struct threads *threads;
    double weights[F], found, ordered, held_found, held_ordered,
        ideal[F] = {[0] = 1, [2] = 0.1, [7] = 2, [CANDIDATE_LENGTH] = -1};
    plant(&s);
    CHECK_OK(threads_create(&threads, 3));
    CHECK_OK(memory_order_fit(weights, &s, &config, threads));
    CHECK(weights[21] == 0 && weights[OPPOSED] == 0); /* the first has one value */
    for (int f = 0; f < CANDIDATE_LENGTH; f++)
        CHECK(weights[f] >= 0);
    CHECK_OK(memory_order_read_loss(&found, &s, NULL, 16, false, NULL));
    CHECK_OK(memory_order_read_loss(&ordered, &s, weights, 16, false, NULL));
    double least;
    CHECK_OK(memory_order_read_loss(&least, &s, ideal, 16, false, NULL));
    CHECK(found - ordered > 0.95 * (found - least));
    CHECK_OK(memory_order_read_loss(&held_found, &s, NULL, 16, true, NULL));
    CHECK_OK(memory_order_read_loss(&held_ordered, &s, weights, 16, true, NULL));
    CHECK(held_ordered > held_found); /* nothing was learnt from them */
    for (int f = 0; f < F; f++) {     /* signs and sizes of the planted weights */
        const double scale = f == 2 ? 20 : 1, of_7 = weights[f] * scale / weights[7];
        if (f == 7 || f == 21) continue;
        CHECK(fabs(of_7 - (f == 0 ? 0.5 : f == 2 ? 1 : f == CANDIDATE_LENGTH ? -0.5 : 0)) < 0.15);
    }
    threads_free(threads);
    memory_order_samples_free(&s);
}

static void test_same_bits(void) {
    struct memory_order_samples s;
    struct memory_order_fit_config config = {.reads = {2, {16, 8}}, .start = {[CANDIDATE_SCORE] = 1}, .steps = 60};
    struct threads *threads;
    double weights[F], again[F];
    make_samples(&s, test_seed());
    CHECK_OK(threads_create(&threads, 3));
    CHECK_OK(memory_order_fit(weights, &s, &config, threads));
    CHECK_OK(memory_order_fit(again, &s, &config, NULL));
    CHECK(memcmp(weights, again, sizeof weights) == 0);
    config.seed = 1;
    CHECK_OK(memory_order_fit(again, &s, &config, threads));
    CHECK(memcmp(weights, again, sizeof weights) != 0);
    threads_free(threads);
    memory_order_samples_free(&s);
}

/* Each file counts the same: two searches of another sign count more as a file than among many. */
static void test_files(void) {
    struct memory_order_samples s;
    const struct memory_order_fit_config config = {
        .reads = {1, {16}}, .start = {[CANDIDATE_SCORE] = 1}, .steps = STEPS / 2};
    struct threads *threads;
    double weights[F], loss[2];
    CHECK_OK(threads_create(&threads, 3));
    for (int alone = 0; alone < 2; alone++) {
        plant(&s);
        for (int64_t p = 3; p <= 7; p += 4)
            s.search[p].held_out = false, s.search[p].file = alone;
        CHECK_OK(memory_order_fit(weights, &s, &config, threads));
        for (int64_t p = 0; p < SEARCHES; p++)
            s.search[p].held_out = p == 3 || p == 7;
        CHECK_OK(memory_order_read_loss(&loss[alone], &s, weights, 16, true, threads));
        memory_order_samples_free(&s);
    }
    threads_free(threads);
    CHECK(loss[1] < loss[0] - 0.1);
}

static bool stops(void *context) {
    int *steps = context;
    return ++*steps > 5;
}

static void test_failures(void) {
    struct memory_order_samples s;
    int steps = 0;
    const struct progress progress = {.stop_requested = stops, .context = &steps};
    struct memory_order_fit_config config = {
        .reads = {1, {16}}, .start = {[CANDIDATE_SCORE] = 1}, .steps = STEPS, .progress = &progress};
    double weights[F];
    make_samples(&s, 5);
    CHECK(memory_order_fit(weights, &s, &config, NULL) == STATUS_INTERRUPTED);
    config.progress = NULL;
    s.features[2] = NAN;
    CHECK(memory_order_fit(weights, &s, &config, NULL) == STATUS_INVALID);
    CHECK(strstr(status_message(), "is not a number"));
    for (int64_t p = 0; p < SEARCHES; p++)
        s.search[p].held_out = true;
    CHECK(memory_order_fit(weights, &s, &config, NULL) == STATUS_INVALID);
    CHECK(strstr(status_message(), "no search to train an order on"));
    memory_order_samples_free(&s);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 3);
    test_reads();
    for (int ks = 1; ks <= MEMORY_ORDER_KS; ks++)
        test_loss(ks);
    test_read_loss();
    test_same_bits();
    test_planted();
    test_files();
    test_failures();
    return test_done();
}
