/* drt_eval.h -- the parts of drt-eval ppl: which windows are scored, and what the sums say. */
#pragma once
#include "base/progress.h"
#include "tools/shared/args.h"
#include "tools/shared/engine.h"
#include "tools/shared/exclude.h"
#include "tools/shared/ratio.h"
#include <stdio.h>

enum eval_mode { EVAL_NONE, EVAL_SELF, EVAL_CORPUS, EVAL_BOTH, EVAL_RANDOM, EVAL_MODES };
extern const char *const eval_mode_names[EVAL_MODES];

struct eval_options {
    struct device_choice where;
    const char *model, *store, *modes, *text_field, *format, *exclude;
    int64_t rule;                        /* what `exclude` says */
    struct arg_strings data;
    bool corpus, self, random, exact, exact_fallback, json, skip_bad_lines, no_follow;
    int64_t context, skip, max_documents, max_tokens, seed, nprobe, threads, eod_id;
};

/* One scored document: sums over its scored tokens. */
struct eval_document { int file; int64_t tokens, bytes; double nll[EVAL_MODES]; };
struct eval_file {
    const char *path;
    int64_t documents, short_documents, skipped_lines, tokens, bytes;
    int64_t stored_documents;            /* that are also in the store */
};
struct eval_result {
    bool mode[EVAL_MODES];
    struct eval_document *documents; size_t n_documents, capacity;
    struct eval_file files[64]; int n_files;
    double seconds[EVAL_MODES];
    bool partial;                        /* stopped by a signal: what was scored until then */
};
void eval_result_free(struct eval_result *r);

/* ---- drt_eval_run.c ---- */
/* Reads every file, scores its documents in every mode of result->mode at the same positions. */
enum status eval_run(struct eval_result *result, struct engine *e, const struct eval_options *o,
                     const struct progress *progress);

/* ---- drt_eval_figures.c ---- */
enum eval_per { EVAL_PER_TOKEN, EVAL_PER_BYTE };
/* Over the documents of one file (-1: all): mode a minus mode b (-1: a itself), in nats. */
enum status eval_figure(struct ratio *out, const struct eval_result *r, int file, int a, int b, enum eval_per per);
struct ratio eval_map(struct ratio r, double (*f)(double));   /* f rises; the ends of the interval go with it */
double eval_to_perplexity(double nats);
double eval_to_percent(double nats);
double eval_to_bits(double nats);
/* The differences that are shown, where both modes were run. */
enum { EVAL_PAIRS = 7 };
struct eval_pair { enum eval_mode a, b; };
extern const struct eval_pair eval_pairs[EVAL_PAIRS];
bool eval_uses_store(const struct eval_result *r);         /* some mode retrieves from it */
bool eval_has_pair(const struct eval_result *r, size_t i);

/* ---- drt_eval_report.c, drt_eval_json.c: to standard output ---- */
enum status eval_print_text(const struct eval_result *r, const struct engine *e, const struct eval_options *o);
enum status eval_print_json(const struct eval_result *r, const struct engine *e, const struct eval_options *o);
