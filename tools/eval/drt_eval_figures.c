/* drt_eval_figures.c -- computes the reported figures from sums over documents. */
#include "base/memory.h"
#include "tools/eval/drt_eval.h"

#include <math.h>

/* Computes mode a minus mode b (b < 0: a itself), in nats, over the documents of one file (-1: all). */
enum status eval_figure(struct ratio *out, const struct eval_result *r, int file, int a, int b, enum eval_per per) {
    double *above = NULL, *below = NULL;
    size_t n = 0;
    enum status status = memory_allocate(&above, r->n_documents);
    if (status == STATUS_OK) status = memory_allocate(&below, r->n_documents);
    for (size_t i = 0; status == STATUS_OK && i < r->n_documents; i++) {
        const struct eval_document *d = &r->documents[i];
        if (file >= 0 && d->file != file) continue;
        above[n] = d->nll[a] - (b >= 0 ? d->nll[b] : 0);
        below[n++] = (double)(per == EVAL_PER_TOKEN ? d->tokens : d->bytes);
    }
    if (status == STATUS_OK) *out = ratio_of(above, below, n);
    /* A loss is never negative, but Student's interval over few documents may be. */
    if (status == STATUS_OK && b < 0 && out->low <= out->high) out->low = fmax(out->low, 0);
    memory_free(above);
    memory_free(below);
    return status;
}

struct ratio eval_map(struct ratio r, double (*f)(double)) {
    bool interval = r.low <= r.high;
    return (struct ratio){f(r.value), interval ? f(r.low) : 1, interval ? f(r.high) : 0};
}
double eval_to_perplexity(double nats) {
    return exp(nats);
}
double eval_to_percent(double nats) {
    return 100 * expm1(nats);
}
double eval_to_bits(double nats) {
    return nats / M_LN2;
}

/* The pairs of modes whose differences are printed. */
const struct eval_pair eval_pairs[EVAL_PAIRS] = {
    {EVAL_NONE, EVAL_BASE},
    {EVAL_OWN_PAST, EVAL_BASE},
    {EVAL_CORPUS, EVAL_BASE},
    {EVAL_BOTH, EVAL_BASE},
    {EVAL_MEMORY_OWN_PAST, EVAL_BASE},
    {EVAL_MEMORY_CORPUS, EVAL_BASE},
    {EVAL_MEMORY_BOTH, EVAL_BASE},
    {EVAL_OWN_PAST, EVAL_NONE},
    {EVAL_CORPUS, EVAL_NONE},
    {EVAL_BOTH, EVAL_NONE},
    {EVAL_RANDOM, EVAL_NONE},
    {EVAL_CORPUS, EVAL_RANDOM},
    {EVAL_BOTH, EVAL_OWN_PAST},
    {EVAL_BOTH, EVAL_CORPUS},
    {EVAL_MEMORY_RANDOM, EVAL_NONE},
    {EVAL_MEMORY_CORPUS, EVAL_MEMORY_RANDOM},
    {EVAL_MEMORY_BOTH, EVAL_MEMORY_OWN_PAST},
    {EVAL_MEMORY_BOTH, EVAL_MEMORY_CORPUS},
    {EVAL_MEMORY_OWN_PAST, EVAL_NONE},
    {EVAL_MEMORY_BOTH, EVAL_NONE},
};

bool eval_uses_store(const struct eval_result *r) {
    bool uses = r->mode[EVAL_CORPUS] || r->mode[EVAL_BOTH] || r->mode[EVAL_RANDOM];
    for (int mode = EVAL_MEMORY_CORPUS; mode < EVAL_MODES; mode++)
        uses = uses || r->mode[mode];
    return uses;
}

bool eval_is_memory(const struct eval_result *r, int mode) {
    return r->mode[mode] && mode >= EVAL_MEMORY_OWN_PAST;
}

bool eval_has_memory(const struct eval_result *r) {
    bool has = false;
    for (int mode = 0; mode < EVAL_MODES; mode++)
        has = has || eval_is_memory(r, mode);
    return has;
}

int eval_reference(const struct eval_result *r) {
    return r->mode[EVAL_BASE] ? EVAL_BASE : r->mode[EVAL_NONE] ? EVAL_NONE : -1;
}

bool eval_has_pair(const struct eval_result *r, size_t i) {
    return r->mode[eval_pairs[i].a] && r->mode[eval_pairs[i].b];
}

enum status eval_change(struct ratio *out, const struct eval_result *r, int a, int b) {
    struct group_sample *samples = NULL;
    *out = (struct ratio){NAN, 1, 0};
    if (b < 0) return STATUS_OK;
    TRY(memory_allocate(&samples, r->n_documents));
    for (size_t i = 0; i < r->n_documents; i++) {
        const struct eval_document *d = &r->documents[i];
        samples[i] = (struct group_sample){d->file, d->nll[a] - d->nll[b], (double)d->tokens};
    }
    enum status s = ratio_mean_of_groups(out, samples, r->n_documents, r->n_files);
    memory_free(samples);
    return s;
}
