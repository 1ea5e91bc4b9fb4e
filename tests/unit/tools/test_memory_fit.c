/* test_memory_fit.c -- a gate is fitted where the answer is known; files count the same; the file is read back as
 * written. */
#include "base/file.h"
#include "base/rng.h"
#include "tests/test.h"
#include "tools/memory/memory_fit.h"
#include <unistd.h>

enum { N = 6000, FILES = 2, DOCUMENTS = 12 };

struct data {
    float log_lm[N], entropy[N], largest[N], nearest[N], log_p[MEMORY_TAUS][N], lse[N], squares[N];
    int32_t document[N];
    bool use[DOCUMENTS];
    int file[DOCUMENTS];
};

/* The memory knows the token (0.9 against 0.1) where its nearest entry is near, and is wrong elsewhere. Temperature 16
 * is best by construction. Documents of odd number have noise. */
static struct memory_samples make_data(struct data *d) {
    struct rng rng = rng_make(4, 0);
    struct memory_samples s = {.n = N,
                               .document = d->document,
                               .log_lm = d->log_lm,
                               .entropy = d->entropy,
                               .largest = d->largest,
                               .nearest = d->nearest};
    for (int i = 0; i < N; i++) {
        bool near = rng_below(&rng, 2) == 0;
        d->document[i] = i * DOCUMENTS / N;
        d->log_lm[i] = logf(0.1F);
        d->entropy[i] = rng_uniform(&rng);
        d->largest[i] = -1 - rng_uniform(&rng);
        d->nearest[i] = (near ? 1.0F : 5.0F) + rng_uniform(&rng);
        d->lse[i] = -d->nearest[i] / 16;
        d->squares[i] = rng_uniform(&rng);
        for (int t = 0; t < MEMORY_TAUS; t++)
            d->log_p[t][i] = near ? logf(0.9F - 0.1F * fabsf((float)t - 2)) : -INFINITY;
    }
    for (int i = 0; i < DOCUMENTS; i++) {
        d->use[i] = i % 2 == 0;
        d->file[i] = i < 2 ? 0 : 1;
    }
    for (int t = 0; t < MEMORY_TAUS; t++) {
        s.log_p[t] = d->log_p[t];
        s.lse[t] = d->lse;
        s.squares[t] = d->squares;
    }
    return s;
}

static double loss_of_others(const struct memory_mixture *m, const struct memory_samples *s, const struct data *d) {
    double loss = 0;
    for (int64_t i = 0; i < N; i++)
        if (!d->use[d->document[i]]) loss -= memory_fit_mixed(m, s, i);
    return loss / (N / 2);
}

static void test_fit(void) {
    static struct data d;
    struct memory_samples s = make_data(&d);
    const struct memory_part part = {d.use, d.file, DOCUMENTS, FILES};
    struct memory_mixture alone, threaded, fixed = {.tau = 16};
    struct threads *threads;
    CHECK_OK(threads_create(&threads, 3));
    CHECK_OK(memory_fit(&alone, &s, &part, NULL));
    CHECK_OK(memory_fit(&threaded, &s, &part, threads));
    CHECK(memcmp(&alone, &threaded, sizeof alone) == 0);
    CHECK_EQ(alone.tau, 16);
    double least = INFINITY, best = -0.5 * log(0.9) - 0.5 * log(0.1); /* the gate open where it helps, else shut */
    for (double weight = 0.05; weight < 1; weight += 0.05) {
        fixed.gate = memory_gate_fixed(weight);
        least = fmin(least, loss_of_others(&fixed, &s, &d));
    }
    double fitted = loss_of_others(&alone, &s, &d);
    CHECK(fitted < best + 0.03);
    CHECK(least > best + 0.1);
    threads_free(threads);
}

/* In file 0, one document of the part, the memory is always wrong; in file 1, five documents, it is always right. A fit
 * that counts tokens would open the gate five times as far as one that counts files. */
static void test_files_count_the_same(void) {
    static struct data d;
    struct memory_samples s = make_data(&d);
    const struct memory_part part = {d.use, d.file, DOCUMENTS, FILES};
    struct memory_mixture m;
    for (int i = 0; i < N; i++) {
        bool right = d.file[d.document[i]] == 1;
        d.entropy[i] = d.largest[i] = d.nearest[i] = d.lse[i] = d.squares[i] = 1;
        for (int t = 0; t < MEMORY_TAUS; t++)
            d.log_p[t][i] = right ? logf(0.3F) : -INFINITY;
    }
    CHECK_OK(memory_fit(&m, &s, &part, NULL));
    double mixed = exp(memory_fit_mixed(&m, &s, N - 1)), g = (mixed - 0.1) / 0.2;
    CHECK(fabs(g - (0.25)) <= 0.02); /* the best of 0.5 log(1-g) + 0.5 log(0.1 + 0.2 g); by tokens: 0.75 */
}

static void test_empty(void) {
    static struct data d;
    struct memory_samples s = make_data(&d);
    const struct memory_part part = {d.use, d.file, DOCUMENTS, FILES};
    struct memory_mixture m;
    for (int i = 0; i < DOCUMENTS; i++)
        d.use[i] = false;
    CHECK_FAILS(memory_fit(&m, &s, &part, NULL), STATUS_INVALID, "no token to fit");
    const float features[MEMORY_FEATURES] = {1, -1, INFINITY, -INFINITY, 0};
    m.gate = memory_gate_fixed(0.4);
    CHECK_EQ(memory_gate_open(&m.gate, features), 0);
    CHECK(fabs(memory_gate_open(&m.gate, (float[]){1, -1, 2, -3, 0}) - (0.4)) <= 1e-12);
    CHECK_EQ(memory_mixed(-2, -INFINITY, 0), -2);
    CHECK(fabs(memory_mixed(-2, -INFINITY, 0.25) - (-2 + log(0.75))) <= 1e-12);
}

static void write_text(const char *path, const char *text) {
    struct file_writer *f;
    CHECK_OK(file_create(&f, path));
    CHECK_OK(file_write(f, text, strlen(text)));
    CHECK_OK(file_publish(f));
}

static void test_file(void) {
    static struct data d;
    char path[600];
    struct memory_samples s = make_data(&d);
    const struct memory_part part = {d.use, d.file, DOCUMENTS, FILES};
    struct memory_config c = {.key_layer = 3, .k = 8, .every = 16, .before = 1, .after = 2}, back;
    CHECK_OK(memory_fit(&c.mixture[MEMORY_BOTH], &s, &part, NULL));
    snprintf(path, sizeof path, "%s/memory.json", test_folder());
    CHECK_OK(memory_config_save(&c, path));
    CHECK_OK(memory_config_load(&back, path));
    CHECK(memcmp(&c, &back, sizeof c) == 0);
    write_text(path, "{\"key_layer\": 3, \"k\": 8, \"every\": 16, \"before\": 1}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "after is missing");
    write_text(path, "{\"key_layer\": 3, \"k\": 8000, \"every\": 16}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "k is 8000");
    write_text(path, "{\"key_layer\": 3, \"own\": {\"tau\": 4}}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "mean of \"own\" is missing");
    write_text(path, "{\"colour\": 3}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "memory.json");
}

int main(void) {
    test_fit();
    test_files_count_the_same();
    test_empty();
    test_file();
    return 0;
}
