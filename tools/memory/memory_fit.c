/* memory_fit.c -- see memory_fit.h. */
#include "tools/memory/memory_fit.h"
#include "base/memory.h"
#include "kernels/memory/next_token.h"
#include "tools/memory/memory_gate_fit.h"
#include <math.h>

static const double weights_tried[] = {.02, .05, .1, .15, .2, .25, .3, .4};
/* each is divided by the number of tokens, so that the penalty is negligible with many tokens */
static const double penalties_tried[] = {1, 4, 16, 64};
enum { WEIGHTS = sizeof weights_tried / sizeof weights_tried[0] };
enum { PENALTIES = sizeof penalties_tried / sizeof penalties_tried[0] };
static const double negative_share = 0.5;
/* a feature that is constant in the fit gets a deviation that disables it, because it could vary later */
static const double least_deviation = 1e-3, takes_no_part = 1e30;

struct fit {
    const struct memory_samples *samples;
    const struct memory_part *part;
    const struct memory_fit_config *config;
    int64_t *token;               /* numbers of the part's tokens */
    double *share;                /* weights of the tokens in the mean over files */
    int64_t n, rows_n;            /* n: tokens; rows_n: n, and n for each negative */
    int tau[MEMORY_SIDES];        /* index into memory_taus */
    struct memory_gate_row *rows; /* token i has row i, and row (1 + j) * n + i with negative j */
};

static int tau_index(double tau) {
    int at = 0;
    for (int t = 0; t < MEMORY_TAUS; t++)
        if (memory_taus[t] == tau) at = t;
    return at;
}

/* Gets the gate's evidence for token i, and the log-probabilities that it mixes. corpus: the read of that side. */
static void token_evidence(const struct memory_samples *s, const struct memory_fit_config *config,
                           const int tau[MEMORY_SIDES], enum memory_reads corpus, int64_t i,
                           struct memory_evidence of[MEMORY_SIDES], double log_p[MEMORY_SIDES]) {
    for (int side = 0; side < MEMORY_SIDES; side++) {
        of[side] = (struct memory_evidence){0};
        log_p[side] = -INFINITY;
        if (!memory_kind_reads(config->kind, side)) continue;
        enum memory_reads what = side == MEMORY_CORPUS ? corpus : config->reads[side];
        of[side] = memory_samples_evidence(s, what, tau[side], i);
        log_p[side] = (double)s->of[what].column[tau[side]][MEMORY_LOG_P][i];
    }
}

double memory_fit_mixed(const struct memory_mixture *m, const struct memory_samples *s,
                        const struct memory_fit_config *config, int64_t i) {
    const struct memory_lm_evidence lm = {s->entropy[i], s->largest[i]};
    const int tau[MEMORY_SIDES] = {tau_index(m->tau[0]), tau_index(m->tau[1])};
    struct memory_evidence of[MEMORY_SIDES];
    double g[1 + MEMORY_SIDES], log_p[MEMORY_SIDES];
    token_evidence(s, config, tau, config->reads[MEMORY_CORPUS], i, of, log_p);
    memory_gate_weights(g, &m->gate, &lm, of);
    return memory_mixed(g, (double)s->log_lm[i], log_p);
}

/* ---- the part's tokens ---- */

static enum status fit_select(struct fit *f) {
    const struct memory_samples *s = f->samples;
    const struct memory_part *part = f->part;
    double *tokens = NULL;
    int files = 0;
    TRY(memory_allocate_zero(&tokens, (size_t)part->n_files));
    for (int64_t i = 0; i < s->n; i++)
        if (part->use[s->document[i]]) f->n++, tokens[part->file[s->document[i]]]++;
    for (int i = 0; i < part->n_files; i++)
        files += tokens[i] > 0;
    f->rows_n = (1 + f->config->negatives) * f->n;
    enum status status = f->n > 0 ? STATUS_OK
                                  : fail(STATUS_INVALID, "there is no token to fit a gate on: give more documents, so "
                                                         "that both halves (even, odd) have some");
    if (status == STATUS_OK) status = memory_allocate(&f->token, (size_t)f->n);
    if (status == STATUS_OK) status = memory_allocate(&f->share, (size_t)f->n);
    if (status == STATUS_OK) status = memory_allocate_zero(&f->rows, (size_t)f->rows_n);
    for (int64_t i = 0, at = 0; i < s->n && status == STATUS_OK; i++) {
        if (!part->use[s->document[i]]) continue;
        f->token[at] = i;
        f->share[at++] = 1 / (tokens[part->file[s->document[i]]] * files);
    }
    memory_free(tokens);
    return status;
}

/* ---- the temperatures ---- */

/* Finds the best temperature of a single side, mixed with one weight for all tokens. */
static int fit_tau(const struct fit *f, int side) {
    const struct memory_samples *s = f->samples;
    int best = 0;
    double least = INFINITY;
    for (int t = 0; t < MEMORY_TAUS; t++) {
        const float *log_p = s->of[f->config->reads[side]].column[t][MEMORY_LOG_P];
        double loss[WEIGHTS] = {0};
        for (int64_t i = 0; i < f->n; i++) {
            double lm = exp((double)s->log_lm[f->token[i]]), p = exp((double)log_p[f->token[i]]);
            for (int w = 0; w < WEIGHTS; w++)
                loss[w] -= f->share[i] * log((1 - weights_tried[w]) * lm + weights_tried[w] * p);
        }
        for (int w = 0; w < WEIGHTS; w++)
            if (loss[w] < least) least = loss[w], best = t;
    }
    return best;
}

/* ---- the gate ---- */

static void row_fill(const struct fit *f, struct memory_gate_row *row, int64_t token, double share,
                     enum memory_reads corpus) {
    const struct memory_samples *s = f->samples;
    const struct memory_lm_evidence lm = {s->entropy[token], s->largest[token]};
    struct memory_evidence of[MEMORY_SIDES];
    double log_p[MEMORY_SIDES], top = (double)s->log_lm[token];
    token_evidence(s, f->config, f->tau, corpus, token, of, log_p);
    memory_gate_features(row->x, &lm, of);
    row->share = share;
    for (int side = 0; side < MEMORY_SIDES; side++) {
        row->there[side] = of[side].entries > 0;
        top = row->there[side] ? fmax(top, log_p[side]) : top;
    }
    row->p[0] = exp((double)s->log_lm[token] - top);
    for (int side = 0; side < MEMORY_SIDES; side++)
        row->p[1 + side] = row->there[side] ? exp(log_p[side] - top) : 0;
}

/* Computes mean and deviation of each feature over the rows that have it, then standardises the
 * features of all rows. */
static void fit_standardise(struct fit *f, struct memory_gate *gate) {
    for (int j = 0; j < MEMORY_FEATURES; j++) {
        int side = memory_feature_side(j);
        double total = 0, mean = 0, square = 0;
        for (int64_t i = 0; i < f->rows_n; i++)
            if (side < 0 || f->rows[i].there[side])
                total += f->rows[i].share, mean += f->rows[i].share * f->rows[i].x[j];
        mean = total > 0 ? mean / total : 0;
        for (int64_t i = 0; i < f->rows_n; i++)
            if (side < 0 || f->rows[i].there[side])
                square += f->rows[i].share * (f->rows[i].x[j] - mean) * (f->rows[i].x[j] - mean);
        gate->mean[j] = mean;
        gate->deviation[j] = total > 0 ? sqrt(square / total) : 0;
        if (!(gate->deviation[j] > least_deviation)) gate->deviation[j] = takes_no_part;
        for (int64_t i = 0; i < f->rows_n; i++)
            f->rows[i].x[j] = memory_gate_standard(gate, j, f->rows[i].x[j], side < 0 || f->rows[i].there[side]);
    }
}

/* Numbers each document among the part's documents of its file. */
static enum status fit_ranks(const struct fit *f, int **out) {
    int *seen = NULL;
    TRY(memory_allocate_zero(&seen, (size_t)f->part->n_files));
    enum status s = memory_allocate_zero(out, (size_t)f->part->n_documents);
    for (int d = 0; d < f->part->n_documents && s == STATUS_OK; d++)
        if (f->part->use[d]) (*out)[d] = seen[f->part->file[d]]++;
    memory_free(seen);
    return s;
}

/* Adds to `loss`, for each penalty, the loss of documents of one parity with a gate that was fitted on the others. */
static enum status fit_fold(struct fit *f, double loss[PENALTIES], const int *rank, int parity, double *share,
                            struct threads *threads) {
    int64_t train = 0;
    for (int64_t i = 0; i < f->rows_n; i++)
        share[i] = f->rows[i].share;
    for (int penalty = 0; penalty < PENALTIES; penalty++) {
        struct memory_gate gate;
        double held;
        train = 0;
        for (int64_t i = 0; i < f->rows_n; i++) {
            bool held_out = rank[f->samples->document[f->token[i % f->n]]] % 2 == parity;
            f->rows[i].share = held_out ? 0 : share[i];
            train += !held_out && i < f->n;
        }
        enum status s =
            train > 0 ? memory_gate_fit(&gate, f->rows, f->rows_n, penalties_tried[penalty] / (double)train, threads)
                      : STATUS_OK;
        for (int64_t i = 0; i < f->rows_n; i++)
            f->rows[i].share = share[i] - f->rows[i].share;
        if (s == STATUS_OK && train > 0) s = memory_gate_loss(&held, NULL, &gate.w1[0][0], f->rows, f->rows_n, threads);
        for (int64_t i = 0; i < f->rows_n; i++)
            f->rows[i].share = share[i];
        TRY(s);
        if (train > 0) loss[penalty] += held;
    }
    return STATUS_OK;
}

static enum status fit_penalty(struct fit *f, double *out, struct threads *threads) {
    double loss[PENALTIES] = {0}, *share = NULL;
    int *rank = NULL, best = 0;
    enum status s = fit_ranks(f, &rank);
    if (s == STATUS_OK) s = memory_allocate(&share, (size_t)f->rows_n);
    for (int parity = 0; parity < 2 && s == STATUS_OK; parity++)
        s = fit_fold(f, loss, rank, parity, share, threads);
    for (int i = 1; i < PENALTIES; i++)
        if (loss[i] < loss[best]) best = i;
    *out = penalties_tried[best];
    memory_free(rank);
    memory_free(share);
    return s;
}

static enum status fit_all(struct fit *f, struct memory_mixture *out, struct memory_fit_report *report,
                           struct threads *threads) {
    double penalty;
    *out = (struct memory_mixture){.given = true};
    TRY(fit_select(f));
    for (int side = 0; side < MEMORY_SIDES; side++) {
        if (!memory_kind_reads(f->config->kind, side)) continue;
        f->tau[side] = fit_tau(f, side);
        out->tau[side] = memory_taus[f->tau[side]];
    }
    const struct memory_fit_config *c = f->config;
    const double found = c->negatives > 0 ? 1 - negative_share : 1;
    for (int64_t i = 0; i < f->n; i++) {
        row_fill(f, &f->rows[i], f->token[i], found * f->share[i], c->reads[MEMORY_CORPUS]);
        for (int j = 0; j < c->negatives; j++)
            row_fill(f, &f->rows[(1 + j) * f->n + i], f->token[i], negative_share / c->negatives * f->share[i],
                     c->negative[j]);
    }
    fit_standardise(f, &out->gate);
    TRY(fit_penalty(f, &penalty, threads));
    if (report) *report = (struct memory_fit_report){.penalty = penalty, .tokens = f->n};
    return memory_gate_fit(&out->gate, f->rows, f->rows_n, penalty / (double)f->n, threads);
}

enum status memory_fit(struct memory_mixture *out, struct memory_fit_report *report, const struct memory_samples *s,
                       const struct memory_part *part, const struct memory_fit_config *config,
                       struct threads *threads) {
    struct fit f = {.samples = s, .part = part, .config = config};
    enum status status = fit_all(&f, out, report, threads);
    memory_free(f.token);
    memory_free(f.share);
    memory_free(f.rows);
    return status;
}
