/* ablation_plan.h -- what a config's rows need: models, stores, evaluations, and the commands that make them.
 *
 * Each part is one command of a sibling program, which runs in the folder of the run. A part comes after all parts that
 * it needs. Making a plan reads configs and folders of models, and writes nothing. It makes every check that is
 * possible before the first training. A failure names file, key and remedy. */
#pragma once
#include "base/file.h"
#include "model/model_config.h"
#include "tools/ablation/ablation_config.h"

enum { ABLATION_NAME = 48, ABLATION_MODELS = 24, ABLATION_STORES = 24, ABLATION_SCORES = 48, ABLATION_MODES = 8,
       ABLATION_AFTER = 6 };

struct ablation_model {
    char name[ABLATION_NAME];
    enum ablation_model_kind kind;
    char folder[FILE_PATH_MAX]; /* of the finished model, relative to the run; absolute for a model that is taken */
    char *json, *training;               /* config.json; the config of drt-train. NULL: the model is taken */
    int view_of;                         /* the model whose weights these are, with another chunk_topk; -1: none */
    struct model_config config;
    int64_t parameters, encoder_parameters, steps, step_tokens, length;
    int64_t corpus_steps, candidates, refreshes;          /* of its training with pool corpus; otherwise 0 */
    int64_t passages, passage_chunks;                     /* that its training reads for each chunk; otherwise 0 */
    bool taken, own_past;                /* own_past: training retrieves only from the text's own past */
};
struct ablation_store_use { char name[ABLATION_NAME]; int model; enum ablation_store what; };
/* One run of drt-eval, with the modes that rows use. */
struct ablation_score {
    char name[ABLATION_NAME];
    int model, store;                    /* store -1: none */
    enum ablation_how how;
    enum ablation_store what;
    int every;
    const char *modes[ABLATION_MODES]; int n_modes;
};

/* ABLATION_MEMORY: an evaluation that fits a gate */
enum ablation_kind { ABLATION_PREPARE, ABLATION_TRAIN, ABLATION_VIEW, ABLATION_BUILD, ABLATION_SCORE, ABLATION_MEMORY,
                     ABLATION_KINDS };
struct ablation_part {
    char name[ABLATION_NAME];            /* as a file's name: "train-drt" */
    enum ablation_kind kind;
    struct object_list command;          /* the program's name comes first; empty for ABLATION_VIEW */
    char *spec;                          /* everything that its result depends on */
    int after[ABLATION_AFTER], n_after;  /* parts that must be done */
    int of;                              /* model, store or score; -1: none */
    double work, host; /* floating-point operations; additional seconds, which are the same on every device */
    bool done;
    double seconds;                      /* that it took; used only for estimates */
};

struct ablation_plan {
    const struct ablation_config *config;
    struct ablation_model models[ABLATION_MODELS]; int n_models;
    struct ablation_store_use stores[ABLATION_STORES]; int n_stores;
    struct ablation_score scores[ABLATION_SCORES]; int n_scores;
    struct ablation_part *parts; size_t n_parts, capacity;
    struct { int score; const char *mode; } rows[ABLATION_ROWS];       /* score -1: not selected */
    int64_t train_bytes, other_bytes, valid_bytes;                     /* bytes of text, roughly */
};
/* Free *out also after a failure. Borrows config. */
enum status ablation_plan_make(struct ablation_plan *out, const struct ablation_config *config);
void ablation_plan_free(struct ablation_plan *plan);      /* a zeroed plan is fine */

/* Estimates the bytes of text in a file or a folder. Compressed files count with more than their size.
 * 0: it is missing. */
int64_t ablation_text_bytes(const char *path);

/* ---- ablation_models.c, ablation_parts.c: steps of ablation_plan_make ---- */
/* Finds the model that a row scores. It is added if the plan lacks it. */
enum status ablation_model_of(int *out, struct ablation_plan *plan, enum ablation_model_kind kind, int value);
enum status ablation_parts_make(struct ablation_plan *plan);

/* ---- ablation_work.c: estimates a part's work and host; a token of text counts as 4 bytes ---- */
void ablation_prepare_work(struct ablation_part *p, int64_t bytes, bool tokenizer);
void ablation_train_work(struct ablation_part *p, const struct ablation_plan *plan, const struct ablation_model *m);
void ablation_build_work(struct ablation_part *p, const struct ablation_plan *plan, const struct ablation_store_use *s,
                         bool lexical);
void ablation_score_work(struct ablation_part *p, const struct ablation_plan *plan, const struct ablation_score *s,
                         bool overlap);
