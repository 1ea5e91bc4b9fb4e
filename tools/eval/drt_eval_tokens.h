/* drt_eval_tokens.h -- the loss of each scored token in each mode, and the figures by token: the longest run around it
 * that the store has too, and how many tokens a mode helps and hurts. */
#pragma once
#include "indexer/overlap.h"
#include "tools/eval/drt_eval.h"
#include <math.h>

/* The rows of a table of options that say which tokens are scored, as in tools/shared/option_rows.h; o: struct
 * eval_options. */
#define OPTIONS_OF_WINDOWS(o)                                                                                          \
    {"context", ARG_INT, &(o).context, "N", "tokens of a window; documents are cut into windows", 2, 1 << 28},         \
    {"skip", ARG_INT, &(o).skip, "N", "first tokens of each window that are read but not scored", 0, 1 << 28},         \
    {"max-documents", ARG_INT, &(o).max_documents, "N", "scored documents of each file at most; 0: all", 0, INFINITY}, \
    {"max-tokens", ARG_INT, &(o).max_tokens, "N", "scored tokens of each file at most; 0: all", 0, INFINITY},          \
    {"document-tokens", ARG_INT, &(o).document_tokens, "N", "scored tokens of each document at most; 0: all", 0,       \
     INFINITY}

/* Adds n tokens of a document; *first is the number of the first. Losses begin at 0, and runs are unknown. */
enum status eval_tokens_add(struct eval_tokens *t, const bool mode[EVAL_MODES], int64_t n, int32_t document,
                            int64_t *first);
void eval_tokens_free(struct eval_tokens *t);

/* A token's class: how many of these lengths its run reaches, the longest one around it that window and store share. */
enum { EVAL_RUN_CLASSES = 5 };
extern const int eval_run_lengths[EVAL_RUN_CLASSES - 1];  /* 9, 13, 17, 33 */
/* A row of the report has the classes `first` to `last`. */
enum { EVAL_RUNS = 4 };
struct eval_run_row { const char *name; int first, last; };
extern const struct eval_run_row eval_run_rows[EVAL_RUNS];
/* Change of a mode against the reference over the tokens of a row (all documents together), with a bootstrap over
 * documents; *tokens of it. value NaN: none. */
enum status eval_run_change(struct ratio *out, int64_t *tokens, const struct eval_result *r, int mode, int run);
/* eval_change over the documents without a scored token in a shared run of 13 or more; *documents: their number. */
enum status eval_clean_change(struct ratio *out, int64_t *documents, const struct eval_result *r, int mode);
/* Shares of all tokens whose loss falls, or rises, by more than 0.01 nats against the reference. */
struct eval_helped { double helped, hurt; };
struct eval_helped eval_helped(const struct eval_result *r, int mode);
bool eval_has_runs(const struct eval_result *r);

/* ---- drt_eval_overlap.c: these do nothing if r->overlap is NULL ---- */
/* Adds the read part of the document that was scored last. stored: its id in the store if it cannot find itself, else
 * -1. The second function reads the store; if a stop request ends that, r->overlap becomes NULL. */
enum status eval_add_overlap(struct eval_result *r, const int32_t *ids, int64_t n, int64_t stored);
enum status eval_find_overlap(struct eval_result *r, struct store_view *view, const struct progress *progress);
/* The class of each token. Windows begin `first` tokens before the first one that was scored. */
enum status eval_find_runs(struct eval_result *r, int64_t first);
void eval_print_overlap(const struct eval_result *r);
struct json_writer;
void eval_write_overlap(struct json_writer *w, const struct eval_result *r);   /* a member "overlap" */
