/* ablation_rows.h -- the rows that a table of drt-eval ablation may have: their names in a config, and their titles.
 *
 * A row is one figure, of a model, a store and a mode of an evaluation. Rows that need the same model, store or
 * evaluation share it (ablation_plan.h). */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* The model that a row scores; `value` is K or the number of groups. */
enum ablation_model_kind {
    ABLATION_BASE,                       /* all layers of DRT's decoder, and no other part */
    ABLATION_BASE_DEEP,                  /* as many layers as give DRT's number of parameters */
    ABLATION_BASE_FULL,                  /* attention over the whole evaluated context */
    ABLATION_BLOCK_RECURRENT,            /* the Base LM with a recurrent layer (model.md §10.1) */
    ABLATION_LANDMARK,                   /* the Base LM with Landmark Attention (model.md §10.2) */
    ABLATION_DRT, ABLATION_NO_GUMBEL, ABLATION_NO_MLM, ABLATION_NO_CONTRASTIVE,
    ABLATION_OWN_PAST,                   /* trained to retrieve only from its own past */
    ABLATION_OWN_PAST_TAUGHT, /* the same, but gains of a token memory teach the retriever instead of InfoNCE */
    ABLATION_K, ABLATION_GROUPS,
};
enum ablation_store { ABLATION_NO_STORE, ABLATION_STORE, ABLATION_STORE_OTHER, ABLATION_STORE_EXTERNAL };
enum ablation_how {
    ABLATION_PPL,                        /* drt-eval ppl */
    ABLATION_LEXICAL,                    /* drt-eval ppl with BM25 as the search of the store */
    ABLATION_FIT, ABLATION_FIT_GCA,      /* drt-eval fit-memory, without and with GCA */
};
struct ablation_row {
    const char *name, *title, *part;     /* part: of the table */
    enum ablation_model_kind model; int value;
    enum ablation_store store;           /* ABLATION_STORE only if the mode reads a store */
    enum ablation_how how;
    const char *mode;                    /* drt-eval's name; NULL: the config's variant_mode */
    int every;                           /* tokens between two searches of a token memory; 0: the config's */
    bool always;                         /* it is in every table */
};
enum { ABLATION_ROWS = 40 };
extern const struct ablation_row ablation_rows[ABLATION_ROWS];
extern const char *const ablation_model_names[ABLATION_K];   /* names of the kinds below ABLATION_K */

int ablation_row_find(const char *name);                  /* -1: none */
/* Whether a mode retrieves from a store. */
bool ablation_mode_reads_store(const char *mode);
