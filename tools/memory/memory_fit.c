/* memory_fit.c -- see memory_fit.h. Tokens are cut into blocks of one size; a block has one owner and one order, and
 * the sums of blocks are added in order. */
#include "tools/memory/memory_fit.h"
#include "base/memory.h"
#include "base/rng.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

const double memory_taus[MEMORY_TAUS] = {4, 8, 16, 32, 64, 128};
static const double weights_tried[] = {.02, .05, .1, .15, .2, .25, .3, .4};
enum { WEIGHTS = sizeof weights_tried / sizeof weights_tried[0], BLOCK = 512, STEPS = 300 };
static const double rate = 1e-2, beta1 = 0.9, beta2 = 0.999, tiny = 1e-8, bias_begin = -2, decay = 10;

/* What is fitted: w1, b1, w2 and b2 of struct memory_gate, as one array. */
enum { PARAMETERS = MEMORY_GATE_HIDDEN * (MEMORY_FEATURES + 2) + 1 };
_Static_assert(sizeof(struct memory_gate) == (2 * MEMORY_FEATURES + PARAMETERS) * sizeof(double), "one array");

struct sample {
    double x[MEMORY_FEATURES];   /* standardised */
    double log_lm, log_p, share; /* share: of the mean over files */
    bool empty;
};
struct fit {
    const struct memory_samples *samples;
    struct sample *sample; /* of the part */
    int64_t *token;        /* of each sample */
    int64_t n;
    const double *parameters;
    double (*sums)[PARAMETERS + WEIGHTS]; /* of each block */
    int tau;
};

static int tau_index(double tau) {
    int at = 0;
    for (int t = 0; t < MEMORY_TAUS; t++)
        if (memory_taus[t] == tau) at = t;
    return at;
}

static void token_features(float out[MEMORY_FEATURES], const struct memory_samples *s, int tau, int64_t i) {
    out[MEMORY_ENTROPY] = s->entropy[i];
    out[MEMORY_LARGEST] = s->largest[i];
    out[MEMORY_NEAREST] = s->nearest[i];
    out[MEMORY_LSE] = s->lse[tau][i];
    out[MEMORY_SQUARES] = s->squares[tau][i];
}

double memory_fit_mixed(const struct memory_mixture *m, const struct memory_samples *s, int64_t i) {
    float features[MEMORY_FEATURES];
    int tau = tau_index(m->tau);
    token_features(features, s, tau, i);
    return memory_mixed((double)s->log_lm[i], (double)s->log_p[tau][i], memory_gate_open(&m->gate, features));
}

/* ---- the part's tokens ---- */

static enum status fit_select(struct fit *f, const struct memory_part *part) {
    const struct memory_samples *s = f->samples;
    double *tokens = NULL;
    int files = 0;
    TRY(memory_allocate_zero(&tokens, (size_t)part->n_files));
    for (int64_t i = 0; i < s->n; i++)
        if (part->use[s->document[i]]) f->n++, tokens[part->file[s->document[i]]]++;
    for (int i = 0; i < part->n_files; i++)
        files += tokens[i] > 0;
    enum status status = f->n > 0 ? STATUS_OK
                                  : fail(STATUS_INVALID, "there is no token to fit a gate on: give more documents, so "
                                                         "that both halves (even, odd) have some");
    if (status == STATUS_OK) status = memory_allocate(&f->sample, (size_t)f->n);
    if (status == STATUS_OK) status = memory_allocate(&f->token, (size_t)f->n);
    if (status == STATUS_OK) status = memory_allocate(&f->sums, (size_t)((f->n + BLOCK - 1) / BLOCK));
    for (int64_t i = 0, at = 0; i < s->n && status == STATUS_OK; i++) {
        if (!part->use[s->document[i]]) continue;
        f->token[at] = i;
        f->sample[at] =
            (struct sample){.log_lm = (double)s->log_lm[i], .share = 1 / (tokens[part->file[s->document[i]]] * files)};
        at++;
    }
    memory_free(tokens);
    return status;
}

/* ---- the temperature ---- */

static void tau_block(void *context, int64_t begin, int64_t end, int worker) {
    struct fit *f = context;
    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        double *sum = f->sums[b];
        memset(sum, 0, sizeof f->sums[b]);
        for (int64_t i = b * BLOCK; i < f->n && i < (b + 1) * BLOCK; i++)
            for (int w = 0; w < WEIGHTS; w++)
                sum[w] -=
                    f->sample[i].share *
                    memory_mixed(f->sample[i].log_lm, (double)f->samples->log_p[f->tau][f->token[i]], weights_tried[w]);
    }
}

static int fit_tau(struct fit *f, struct threads *threads) {
    int best = 0;
    double least = INFINITY;
    int64_t blocks = (f->n + BLOCK - 1) / BLOCK;
    for (f->tau = 0; f->tau < MEMORY_TAUS; f->tau++) {
        double loss[WEIGHTS] = {0};
        threads_for(threads, blocks, 1, tau_block, f);
        for (int64_t b = 0; b < blocks; b++)
            for (int w = 0; w < WEIGHTS; w++)
                loss[w] += f->sums[b][w];
        for (int w = 0; w < WEIGHTS; w++)
            if (loss[w] < least) {
                least = loss[w];
                best = f->tau;
            }
    }
    return best;
}

/* ---- the gate ---- */

static void fit_standardise(struct fit *f, struct memory_gate *gate) {
    double mean[MEMORY_FEATURES] = {0}, square[MEMORY_FEATURES] = {0}, total = 0;
    for (int64_t i = 0; i < f->n; i++) {
        float features[MEMORY_FEATURES];
        struct sample *s = &f->sample[i];
        token_features(features, f->samples, f->tau, f->token[i]);
        s->log_p = (double)f->samples->log_p[f->tau][f->token[i]];
        s->empty = features[MEMORY_LSE] == -INFINITY;
        for (int j = 0; j < MEMORY_FEATURES; j++)
            s->x[j] = (double)features[j];
        if (s->empty) continue;
        total += s->share;
        for (int j = 0; j < MEMORY_FEATURES; j++)
            mean[j] += s->share * s->x[j];
    }
    for (int j = 0; j < MEMORY_FEATURES; j++)
        gate->mean[j] = total > 0 ? mean[j] / total : 0;
    for (int64_t i = 0; i < f->n; i++)
        for (int j = 0; j < MEMORY_FEATURES && !f->sample[i].empty; j++)
            square[j] += f->sample[i].share * (f->sample[i].x[j] - gate->mean[j]) * (f->sample[i].x[j] - gate->mean[j]);
    for (int j = 0; j < MEMORY_FEATURES; j++)
        gate->deviation[j] = (total > 0 ? sqrt(square[j] / total) : 0) + 1e-6;
    for (int64_t i = 0; i < f->n; i++)
        for (int j = 0; j < MEMORY_FEATURES; j++)
            f->sample[i].x[j] = (f->sample[i].x[j] - gate->mean[j]) / gate->deviation[j];
}

/* Gradients of the part's loss by the parameters: of one block, into sums. */
static void gate_block(const struct fit *f, int64_t block) {
    const double *w1 = f->parameters, *b1 = w1 + MEMORY_GATE_HIDDEN * MEMORY_FEATURES, *w2 = b1 + MEMORY_GATE_HIDDEN;
    double *d1 = f->sums[block], *db1 = d1 + MEMORY_GATE_HIDDEN * MEMORY_FEATURES, *d2 = db1 + MEMORY_GATE_HIDDEN;
    memset(d1, 0, sizeof f->sums[block]);
    for (int64_t i = block * BLOCK; i < f->n && i < (block + 1) * BLOCK; i++) {
        const struct sample *s = &f->sample[i];
        double hidden[MEMORY_GATE_HIDDEN], sum = w2[MEMORY_GATE_HIDDEN];
        if (s->empty) continue;
        for (int h = 0; h < MEMORY_GATE_HIDDEN; h++) {
            double a = b1[h];
            for (int j = 0; j < MEMORY_FEATURES; j++)
                a += w1[h * MEMORY_FEATURES + j] * s->x[j];
            hidden[h] = tanh(a);
            sum += w2[h] * hidden[h];
        }
        double g = 1 / (1 + exp(-sum)), q = g / (g + (1 - g) * exp(s->log_lm - s->log_p));
        double slope = s->share * (g - (s->log_p == -INFINITY ? 0 : q));
        for (int h = 0; h < MEMORY_GATE_HIDDEN; h++) {
            double back = slope * w2[h] * (1 - hidden[h] * hidden[h]);
            d2[h] += slope * hidden[h];
            db1[h] += back;
            for (int j = 0; j < MEMORY_FEATURES; j++)
                d1[h * MEMORY_FEATURES + j] += back * s->x[j];
        }
        d2[MEMORY_GATE_HIDDEN] += slope;
    }
}
static void gate_blocks(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t b = begin; b < end; b++)
        gate_block(context, b);
}

static void fit_gate(struct fit *f, struct memory_gate *gate, struct threads *threads) {
    double p[PARAMETERS], first[PARAMETERS] = {0}, second[PARAMETERS] = {0};
    int64_t blocks = (f->n + BLOCK - 1) / BLOCK;
    struct rng rng = rng_make(1, 0);
    const int hidden_end = MEMORY_GATE_HIDDEN * (MEMORY_FEATURES + 1);
    for (int i = 0; i < PARAMETERS; i++)
        p[i] = (2 * (double)rng_uniform(&rng) - 1) / sqrt(i < hidden_end ? MEMORY_FEATURES : MEMORY_GATE_HIDDEN);
    p[PARAMETERS - 1] = bias_begin;
    bool bias[PARAMETERS] = {[PARAMETERS - 1] = true};
    for (int i = 0; i < MEMORY_GATE_HIDDEN; i++)
        bias[MEMORY_GATE_HIDDEN * MEMORY_FEATURES + i] = true;
    f->parameters = p;
    for (int step = 1; step <= STEPS; step++) {
        threads_for(threads, blocks, 1, gate_blocks, f);
        for (int i = 0; i < PARAMETERS; i++) {
            double d = 0;
            for (int64_t b = 0; b < blocks; b++)
                d += f->sums[b][i];
            if (!bias[i]) d += decay * p[i] / (double)f->n;
            first[i] += (1 - beta1) * (d - first[i]);
            second[i] += (1 - beta2) * (d * d - second[i]);
            p[i] -= rate * (first[i] / (1 - pow(beta1, step))) / (sqrt(second[i] / (1 - pow(beta2, step))) + tiny);
        }
    }
    memcpy((char *)gate + offsetof(struct memory_gate, w1), p, sizeof p);
}

enum status memory_fit(struct memory_mixture *out, const struct memory_samples *s, const struct memory_part *part,
                       struct threads *threads) {
    struct fit f = {.samples = s};
    enum status status = fit_select(&f, part);
    if (status == STATUS_OK) {
        *out = (struct memory_mixture){.given = true};
        f.tau = fit_tau(&f, threads);
        out->tau = memory_taus[f.tau];
        fit_standardise(&f, &out->gate);
        fit_gate(&f, &out->gate, threads);
    }
    memory_free(f.sample);
    memory_free(f.token);
    memory_free(f.sums);
    return status;
}
