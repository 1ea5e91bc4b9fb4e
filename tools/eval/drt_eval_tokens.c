/* drt_eval_tokens.c -- see drt_eval_tokens.h. */
#include "tools/eval/drt_eval_tokens.h"
#include "base/memory.h"
#include <math.h>

const int eval_run_lengths[EVAL_RUN_CLASSES - 1] = {9, 13, 17, 33};
const struct eval_run_row eval_run_rows[EVAL_RUNS] = {{"0-8", 0, 0}, {"9-16", 1, 2}, {"17-32", 3, 3}, {"33+", 4, 4}};
static const double noticed = 0.01;
enum { RUN_13 = 2 }; /* class of runs of 13 tokens and more */

enum status eval_tokens_add(struct eval_tokens *t, const bool mode[EVAL_MODES], int64_t n, int32_t document,
                            int64_t *first) {
    int64_t capacity = t->capacity > 0 ? t->capacity : 4096;
    while (capacity < t->n + n)
        capacity *= 2;
    for (int i = 0; i < EVAL_MODES && capacity > t->capacity; i++) {
        size_t have = (size_t)t->capacity;
        if (mode[i]) TRY(memory_grow(&t->nll[i], &have, (size_t)capacity));
    }
    if (capacity > t->capacity) {
        size_t documents = (size_t)t->capacity, runs = documents, at = documents;
        TRY(memory_grow(&t->document, &documents, (size_t)capacity));
        TRY(memory_grow(&t->run_at, &at, (size_t)capacity));
        TRY(memory_grow(&t->run, &runs, (size_t)capacity));
        t->capacity = capacity;
    }
    *first = t->n;
    for (int64_t i = t->n; i < t->n + n; i++) {
        t->document[i] = document;
        t->run[i] = 0;
        t->run_at[i] = -1;
        for (int m = 0; m < EVAL_MODES; m++)
            if (t->nll[m]) t->nll[m][i] = 0;
    }
    t->n += n;
    return STATUS_OK;
}

void eval_tokens_free(struct eval_tokens *t) {
    for (int i = 0; i < EVAL_MODES; i++)
        memory_free(t->nll[i]);
    memory_free(t->document);
    memory_free(t->run);
    memory_free(t->run_at);
    *t = (struct eval_tokens){0};
}

bool eval_has_runs(const struct eval_result *r) {
    return r->tokens.runs_known && eval_has_memory(r) && eval_reference(r) >= 0;
}

/* Computes for each document the sum of a mode's differences over the tokens of a row (NULL: all), and their number. */
static enum status by_document(struct group_sample **out, const struct eval_result *r, int mode,
                               const struct eval_run_row *row, bool files) {
    const struct eval_tokens *t = &r->tokens;
    int reference = eval_reference(r);
    TRY(memory_allocate(out, r->n_documents));
    for (size_t i = 0; i < r->n_documents; i++)
        (*out)[i] = (struct group_sample){files ? r->documents[i].file : 0, 0, 0};
    for (int64_t i = 0; i < t->n; i++) {
        struct group_sample *s = &(*out)[t->document[i]];
        if (row && (t->run[i] < row->first || t->run[i] > row->last)) continue;
        s->numerator += (double)t->nll[mode][i] - (double)t->nll[reference][i];
        s->denominator++;
    }
    return STATUS_OK;
}

enum status eval_run_change(struct ratio *out, int64_t *tokens, const struct eval_result *r, int mode, int run) {
    struct group_sample *samples = NULL;
    size_t n = 0;
    *tokens = 0;
    TRY(by_document(&samples, r, mode, &eval_run_rows[run], false));
    for (size_t i = 0; i < r->n_documents; i++) {
        *tokens += (int64_t)samples[i].denominator;
        if (samples[i].denominator > 0) samples[n++] = samples[i];
    }
    enum status s = ratio_mean_of_groups(out, samples, n, 1);
    memory_free(samples);
    return s;
}

enum status eval_clean_change(struct ratio *out, int64_t *documents, const struct eval_result *r, int mode) {
    const struct eval_tokens *t = &r->tokens;
    struct group_sample *samples = NULL;
    bool *shares = NULL;
    size_t n = 0;
    enum status s = by_document(&samples, r, mode, NULL, true);
    if (s == STATUS_OK) s = memory_allocate_zero(&shares, r->n_documents);
    for (int64_t i = 0; i < t->n && s == STATUS_OK; i++)
        shares[t->document[i]] = shares[t->document[i]] || t->run[i] >= RUN_13;
    for (size_t i = 0; i < r->n_documents && s == STATUS_OK; i++)
        if (!shares[i]) samples[n++] = samples[i];
    *documents = (int64_t)n;
    if (s == STATUS_OK) s = ratio_mean_of_groups(out, samples, n, r->n_files);
    memory_free(samples);
    memory_free(shares);
    return s;
}

struct eval_helped eval_helped(const struct eval_result *r, int mode) {
    const struct eval_tokens *t = &r->tokens;
    int64_t helped = 0, hurt = 0;
    const float *reference = t->nll[eval_reference(r)];
    for (int64_t i = 0; i < t->n; i++) {
        double change = (double)t->nll[mode][i] - (double)reference[i];
        helped += change < -noticed;
        hurt += change > noticed;
    }
    return (struct eval_helped){(double)helped / (double)t->n, (double)hurt / (double)t->n};
}
