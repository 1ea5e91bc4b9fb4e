/* drt_eval_tokens.h -- the loss of each scored token in each mode, and figures over tokens: by the longest run around a
 * token that the store also has, and how many tokens a mode improves and worsens. */
#pragma once
#include "indexer/overlap.h"
#include "tools/eval/drt_eval.h"
#include <math.h>

/* Rows of a table of options that select the scored tokens, as in tools/shared/option_rows.h; o:
 * struct eval_options. */
#define OPTIONS_OF_WINDOWS(o)                                                                                          \
    {"context", ARG_INT, &(o).context, "N", "tokens of a window; documents are cut into windows", 2, 1 << 28},         \
    {"skip", ARG_INT, &(o).skip, "N", "first tokens of each window that are read but not scored", 0, 1 << 28},         \
    {"max-documents", ARG_INT, &(o).max_documents, "N", "scored documents of each file at most; 0: all", 0, INFINITY}, \
    {"max-tokens", ARG_INT, &(o).max_tokens, "N", "scored tokens of each file at most; 0: all", 0, INFINITY},          \
    {"document-tokens", ARG_INT, &(o).document_tokens, "N", "scored tokens of each document at most; 0: all", 0,       \
     INFINITY}

/* Adds n tokens of a document. *first is the number of the first. Losses are 0 at first, and runs are unknown. */
enum status eval_tokens_add(struct eval_tokens *t, const bool mode[EVAL_MODES], int64_t n, int32_t document,
                            int64_t *first);
void eval_tokens_free(struct eval_tokens *t);

/* A token's class is the number of these lengths that its run reaches. Its run is the longest one around it that both
 * the window and the store have. */
enum { EVAL_RUN_CLASSES = 5 };
extern const int eval_run_lengths[EVAL_RUN_CLASSES - 1];  /* 9, 13, 17, 33 */
/* A row of the report has the classes `first` to `last`. */
enum { EVAL_RUNS = 4 };
struct eval_run_row { const char *name; int first, last; };
extern const struct eval_run_row eval_run_rows[EVAL_RUNS];
/* Computes the change of a mode against the reference over the tokens of a row (of all documents), with a bootstrap
 * over documents. *tokens: their number. value NaN: there are none. */
enum status eval_run_change(struct ratio *out, int64_t *tokens, const struct eval_result *r, int mode, int run);
/* Computes eval_change over the documents without a scored token in a shared run of 13 or more.
 * *documents: their number. */
enum status eval_clean_change(struct ratio *out, int64_t *documents, const struct eval_result *r, int mode);
/* The shares of all tokens whose loss is lower, or higher, than the reference's by more than 0.01 nats. */
struct eval_helped { double helped, hurt; };
struct eval_helped eval_helped(const struct eval_result *r, int mode);
bool eval_has_runs(const struct eval_result *r);

/* ---- drt_eval_overlap.c: these do nothing if r->overlap is NULL ---- */
/* Adds the part of the last scored document that was read. stored: its id in the store if it must not match itself,
 * otherwise -1. The second function reads the store. If a stop request ends it, r->overlap becomes NULL. */
enum status eval_add_overlap(struct eval_result *r, const int32_t *ids, int64_t n, int64_t stored);
enum status eval_find_overlap(struct eval_result *r, struct store_view *view, const struct progress *progress);
/* Finds the class of each token. Windows begin `first` tokens before their first scored token. */
enum status eval_find_runs(struct eval_result *r, int64_t first);
void eval_print_overlap(const struct eval_result *r);
struct json_writer;
void eval_write_overlap(struct json_writer *w, const struct eval_result *r);   /* writes a member "overlap" */
