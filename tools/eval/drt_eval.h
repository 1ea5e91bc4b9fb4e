/* drt_eval.h -- the parts of drt-eval ppl: options, scoring, figures and reports. */
#pragma once
#include "base/progress.h"
#include "tools/shared/args.h"
#include "session/engine.h"
#include "session/memory_search.h"
#include "tools/shared/exclude.h"
#include "tools/eval/drt_eval_result.h"
#include "tools/memory/memory_options.h"
#include "tools/shared/network.h"
#include "tools/shared/ratio.h"
#include <stdio.h>

struct eval_processes;                   /* tools/eval/fit/drt_eval_processes.h */
struct eval_searches;                    /* tools/eval/fit/drt_eval_searches.h */
struct eval_options {
    struct device_choice where;
    /* encoder: that of an external encoder */
    const char *model, *store, *encoder, *modes, *text_field, *format, *exclude;
    const char *memory, *documents, *searcher;            /* --memory LIST; all, even or odd; as in drt-index search */
    struct arg_strings base;             /* folders of Base LMs, at most EVAL_BASES */
    const char *gca, *oracle, *keep, *other, *apply;   /* --gca; --oracle; files of fit-memory; NULL: not given */
    const char *devices;                 /* GPUs that search together; NULL: one */
    const char *store_parts, *plot;      /* --store-parts LIST; --plot FILE; NULL: not given */
    struct arg_strings samples, data;
    struct memory_options memory_options;
    struct worker_options workers;
    int64_t rule;                        /* the value of `exclude` */
    bool knn_lm, corpus, own_past, random, exact, exact_fallback, json, skip_bad_lines, no_follow, no_overlap;
    int64_t context, skip, max_documents, max_tokens, document_tokens, seed, nprobe, threads, eod_id;
    int64_t continuation, overlap, query_ids, knn_entries;
    struct eval_processes *processes;    /* the processes that share the documents; NULL: this one scores all */
};

/* Initialisers that ppl and fit-memory share; DEVICE_CHOICE_DEFAULT is in tools/shared/report.h. */
#define EVAL_OPTIONS_DEFAULT                                                                                           \
    .where = DEVICE_CHOICE_DEFAULT, .searcher = "landmark", .format = "auto", .exclude = "doc", .documents = "all",    \
    .text_field = "text", .oracle = "none", .gca = "none", .skip = 256, .eod_id = -1

/* ---- drt_eval.c, and a drt_eval_<name>.c for each command ---- */
int eval_ppl(int argc, char **argv, const char **operands), eval_niah(int argc, char **argv, const char **operands);
int eval_fit_memory(int argc, char **argv, const char **operands);
int eval_fit_order(int argc, char **argv, const char **operands);
int eval_tasks(int argc, char **argv, const char **operands), eval_ablation(int argc, char **argv,
               const char **operands);
int eval_usage(const char *command, const char *what);    /* exit code 2 */
int eval_failed(enum status status);                      /* exit code 1, with the status' message */

/* ---- drt_eval_modes.c: -1 to continue, else the exit code ---- */
enum eval_mode eval_gca_mode(const struct eval_options *o);   /* the mode of --gca: none, self, corpus or both */
int eval_modes(const char *command, bool mode[EVAL_MODES], const struct eval_options *o);
int eval_check(const char *command, struct eval_options *o, const bool mode[EVAL_MODES]);

/* ---- drt_eval_machine.c ---- */
struct memory_samples;                   /* tools/memory/memory_samples.h */
/* base[i]: of mode EVAL_BASE + i; NULL: none */
struct eval_engines {
    struct engine *model, *base[EVAL_BASES]; struct memory_search *search; struct memory_config memory;
    char memory_file[FILE_PATH_MAX];     /* of the configuration; "": none */
    struct memory_knn *knn;              /* for mode memory-knn-lm (tools/memory/memory_knn.h) */
    struct eval_searches *searches;      /* of fit-order, which scores no tokens; NULL: none */
};
struct eval_machine { struct engine model, base[EVAL_BASES]; struct eval_engines engines; };
/* Allocated on the heap, because several engines are too large for a small stack. */
enum status eval_machine_open(struct eval_machine **out, const struct engine_config *c, const struct eval_options *o);
void eval_machine_close(struct eval_machine *m);         /* NULL is fine */

/* ---- drt_eval_run.c ---- */
/* Reads every file and scores its documents in every mode of result->mode, at the same positions. With `samples`,
 * memories are not mixed. Instead their results at each temperature are collected in `samples`. */
enum status eval_run(struct eval_result *result, const struct eval_engines *engines, const struct eval_options *o,
                     struct memory_samples *samples, const struct progress *progress);

/* ---- drt_eval_figures.c ---- */
enum eval_per { EVAL_PER_TOKEN, EVAL_PER_BYTE };
/* Computes mode a minus mode b (-1: a itself), in nats, over the documents of one file (-1: all). */
enum status eval_figure(struct ratio *out, const struct eval_result *r, int file, int a, int b, enum eval_per per);
/* maps the value and the ends of the interval by f, which must be increasing */
struct ratio eval_map(struct ratio r, double (*f)(double));
double eval_to_perplexity(double nats);
double eval_to_percent(double nats);
double eval_to_bits(double nats);
/* The differences to report if both modes were run. */
enum { EVAL_PAIRS = 20 }; struct eval_pair { enum eval_mode a, b; };
extern const struct eval_pair eval_pairs[EVAL_PAIRS];
bool eval_uses_store(const struct eval_result *r);         /* whether some mode retrieves from a store */
bool eval_has_pair(const struct eval_result *r, size_t i);
bool eval_has_memory(const struct eval_result *r);         /* whether some mode mixes a token memory */
bool eval_is_memory(const struct eval_result *r, int mode); /* whether the mode was run and mixes a token memory */
/* Computes mode a minus mode b: the mean over files of the change in nats per token, each file counted once, with a
 * bootstrap over documents. Without b (b < 0) or without tokens the value is NaN. */
enum status eval_change(struct ratio *out, const struct eval_result *r, int a, int b);
/* Returns the reference of gains: the mode of the first Base LM, otherwise mode none; -1: neither was run. */
int eval_reference(const struct eval_result *r);

/* ---- drt_eval_report.c, drt_eval_memory_report.c, drt_eval_json.c, drt_eval_memory_json.c: to standard output ---- */
void eval_print_interval(struct ratio r, const char *number);
enum status eval_print_memory(const struct eval_result *r);   /* prints nothing without a memory or a Base LM */
struct json_writer;
enum status eval_write_memory(struct json_writer *w, const struct eval_result *r);
/* Pairs of memory modes whose paired change is reported (mean over files). */
enum { EVAL_MEMORY_PAIRS = 12 };
extern const struct eval_pair eval_memory_pairs[EVAL_MEMORY_PAIRS];
/* Prints the report as text or as JSON, and draws the plot of --plot. */
enum status eval_report(const struct eval_result *r, const struct engine *e, const struct eval_options *o);
enum status eval_print_json(const struct eval_result *r, const struct engine *e, const struct eval_options *o);
