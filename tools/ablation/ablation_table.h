/* ablation_table.h -- the figures of a run: every row on the same positions, compared with the Base LM.
 *
 * A change is (perplexity of the row / perplexity of the Base LM - 1) in per cent. It is computed from mean losses over
 * texts, each counted once, with a paired bootstrap over documents (tools/shared/ratio.h), as in drt-eval ppl --base.
 * Perplexities are those of all tokens. A table does not depend on time, on paths of the run, or on the order of
 * parts. */
#pragma once
#include "tools/ablation/ablation_plan.h"
#include "tools/shared/ratio.h"
#include <stdio.h>

enum { ABLATION_CLASSES = 3 };           /* of documents, by how much of a document the store has */
extern const char *const ablation_class_names[ABLATION_CLASSES];

struct ablation_document { int file; int64_t number, tokens, bytes; };
struct ablation_overlap { double shared, covered; int64_t longest; };   /* as in docs/contamination.md */
struct ablation_figure { struct ratio perplexity, change; bool there; };
struct ablation_table_row {
    double *nll;                         /* of each document; NULL: not computed yet */
    struct ablation_figure all, domain[ABLATION_FILES_MAX], overlap[ABLATION_CLASSES];
    struct ratio bits_per_byte;
};
struct ablation_table {
    const struct ablation_plan *plan;
    struct ablation_document *documents; size_t n_documents;
    struct ablation_overlap *overlap, *other;             /* with the store; with the store of other text; NULL: none */
    struct ablation_table_row rows[ABLATION_ROWS];
    int n_rows, n_selected;              /* rows with figures; rows that the config selects */
    int64_t class_documents[ABLATION_CLASSES], class_tokens[ABLATION_CLASSES];
};
/* Makes the table from the results in `folder`. STATUS_MISMATCH: two results have different positions. n_rows 0: the
 * Base LM is not scored yet, so there is no table. Free with ablation_table_free, also after a failure. */
enum status ablation_table_make(struct ablation_table *out, const struct ablation_plan *plan, const char *folder);
void ablation_table_free(struct ablation_table *t);       /* a zeroed table is fine */
/* Writes table.txt, table.json and table.html. Each is written under a temporary name and renamed. */
enum status ablation_table_write(const struct ablation_table *t, const char *folder);

/* ---- ablation_text.c, ablation_page.c ---- */
void ablation_text_write(FILE *f, const struct ablation_table *t);
void ablation_json_write(FILE *f, const struct ablation_table *t);
void ablation_page_write(FILE *f, const struct ablation_table *t);
/* Returns the class of a document. Sums overlap over the documents of a file (-1: all). */
int ablation_class(const struct ablation_overlap *o);
struct ablation_overlap_sum { double covered; int64_t documents, touched, longest; };
struct ablation_overlap_sum ablation_overlap_sum(const struct ablation_table *t, const struct ablation_overlap *o,
                                                 int file);
