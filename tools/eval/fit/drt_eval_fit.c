/* drt_eval_fit.c -- see drt_eval_fit.h. */
#include "tools/eval/fit/drt_eval_fit.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/readers/reader.h"
#include "tools/memory/memory_fit.h"
#include "tools/shared/log.h"

enum status eval_fit_apart(const struct eval_options *o, const char *out) {
    const char *const also_read[] = {o->other, o->apply};
    struct reader_config data = {
        .inputs = o->data.items, .n_inputs = o->data.count, .text_field = o->text_field, .no_follow = o->no_follow};
    TRY(reader_format_parse(&data.format, o->format));
    if (o->data.count > 0) TRY(reader_apart(out, &data));
    TRY(file_apart(out, o->samples.items, o->samples.count));
    return file_apart(out, also_read, ARRAY_LEN(also_read));
}

enum part { PART_EVEN, PART_ODD, PART_ALL };

struct fit_modes {
    struct memory_config *config;
    struct eval_result *result;
    const struct memory_samples *samples;
    struct threads *threads;
    bool *use; /* [documents], as is the next */
    int *file;
};

/* Returns how a mode's mixture is fitted. Those of the oracle and of kNN-LM have no negatives. */
static struct memory_fit_config fit_of(const struct memory_samples *s, int mode) {
    struct memory_fit_config c = {.kind = eval_kind_of(mode)};
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (eval_read_of(mode, side) >= 0) c.reads[side] = (enum memory_reads)eval_read_of(mode, side);
    static const enum memory_reads negatives[MEMORY_NEGATIVES_MAX] = {MEMORY_READ_RANDOM, MEMORY_READ_OTHER};
    const bool closes = c.kind != MEMORY_OWN_PAST && mode != EVAL_MEMORY_ORACLE && mode != EVAL_MEMORY_KNN;
    for (int i = 0; i < MEMORY_NEGATIVES_MAX && closes; i++)
        if (s->has[negatives[i]]) c.negative[c.negatives++] = negatives[i];
    return c;
}

/* Computes the losses with a mixture, for the tokens of documents that are in use, or of the other documents. */
static void eval_fit_score(const struct fit_modes *f, const struct memory_mixture *m, int mode, bool in_use) {
    const struct memory_fit_config c = fit_of(f->samples, mode);
    for (int64_t i = 0; i < f->samples->n; i++) {
        int32_t document = f->samples->document[i];
        if (f->use[document] != in_use) continue;
        double nll = -memory_fit_mixed(m, f->samples, &c, i);
        f->result->documents[document].nll[mode] += nll;
        f->result->tokens.nll[mode][i] = (float)nll;
    }
}

static enum status score_none(const struct fit_modes *f) {
    struct eval_tokens *t = &f->result->tokens;
    TRY(memory_allocate(&t->nll[EVAL_NONE], (size_t)t->capacity));
    f->result->mode[EVAL_NONE] = true;
    for (int64_t i = 0; i < t->n; i++) {
        t->nll[EVAL_NONE][i] = -f->samples->log_lm[i];
        f->result->documents[t->document[i]].nll[EVAL_NONE] -= (double)f->samples->log_lm[i];
    }
    return STATUS_OK;
}

static enum status fit_part(struct fit_modes *f, struct memory_mixture *out, int mode, enum part which) {
    static const char *const names[] = {"even documents", "odd documents", "all documents"};
    const struct eval_result *r = f->result;
    const struct memory_fit_config c = fit_of(f->samples, mode);
    struct memory_fit_report report;
    for (size_t i = 0; i < r->n_documents; i++) {
        f->use[i] = which == PART_ALL || r->documents[i].number % 2 == (which == PART_ODD);
        f->file[i] = r->documents[i].file;
    }
    const struct memory_part part = {f->use, f->file, (int)r->n_documents, r->n_files};
    TRY(memory_fit(out, &report, f->samples, &part, &c, f->threads));
    log_line(LOG_INFO, "note", "drt-eval", "%s, %s (%lld tokens): tau %g %g, penalty %g", eval_mode_names[mode],
             names[which], (long long)report.tokens, out->tau[0], out->tau[1], report.penalty);
    return STATUS_OK;
}

/* Returns the mode whose fit is used to score a mode: its own, unless its chunks are not found in the store. */
static int fitted_as(int mode) {
    switch (mode) {
    case EVAL_MEMORY_RANDOM:
    case EVAL_MEMORY_OTHER:
        return EVAL_MEMORY_CORPUS;
    case EVAL_MEMORY_OTHER_BOTH:
        return EVAL_MEMORY_BOTH;
    default:
        return mode;
    }
}

static enum status fit_mode(struct fit_modes *f, int mode) {
    struct memory_mixture m;
    for (enum part which = PART_EVEN; which <= PART_ODD; which++) {
        TRY(fit_part(f, &m, mode, which));
        for (int scored = 0; scored < EVAL_MODES; scored++)
            if (f->result->mode[scored] && fitted_as(scored) == mode) eval_fit_score(f, &m, scored, false);
    }
    if (mode >= EVAL_MEMORY_ORACLE) return STATUS_OK; /* it is only reported, and no program reads it */
    return fit_part(f, &f->config->mixture[eval_kind_of(mode)], mode, PART_ALL);
}

static enum status check_reads(const struct memory_samples *s, const bool mode[EVAL_MODES]) {
    for (int m = EVAL_MEMORY_OWN_PAST; m < EVAL_MODES; m++)
        for (int side = 0; mode[m] && side < MEMORY_SIDES; side++)
            if (eval_read_of(m, side) >= 0 && !s->has[eval_read_of(m, side)])
                return fail(STATUS_INVALID, "the samples have nothing for %s: leave it out, or collect it too",
                            eval_mode_names[m]);
    return STATUS_OK;
}

static enum status modes_open(struct fit_modes *f) {
    TRY(check_reads(f->samples, f->result->mode));
    TRY(memory_allocate_zero(&f->use, f->result->n_documents));
    TRY(memory_allocate_zero(&f->file, f->result->n_documents));
    return score_none(f);
}
static void modes_close(struct fit_modes *f) {
    memory_free(f->use);
    memory_free(f->file);
}

enum status eval_fit_crossed(struct memory_config *config, struct eval_result *result,
                             const struct memory_samples *samples, struct threads *threads) {
    struct fit_modes f = {.config = config, .result = result, .samples = samples, .threads = threads};
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        config->mixture[kind] = (struct memory_mixture){0};
    enum status s = modes_open(&f);
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_MODES && s == STATUS_OK; mode++)
        if (result->mode[mode] && fitted_as(mode) == mode) s = fit_mode(&f, mode);
    modes_close(&f);
    return s;
}

enum status eval_fit_apply(struct eval_result *result, const struct memory_config *config,
                           const struct memory_samples *samples, const struct eval_options *o) {
    struct fit_modes f = {.result = result, .samples = samples};
    enum status s = modes_open(&f);
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_MODES && s == STATUS_OK; mode++) {
        if (!result->mode[mode]) continue;
        s = memory_options_fitted(config, o->apply, eval_kind_of(mode));
        if (s == STATUS_OK) eval_fit_score(&f, &config->mixture[eval_kind_of(mode)], mode, false);
    }
    modes_close(&f);
    return s;
}
