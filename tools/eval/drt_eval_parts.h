/* drt_eval_parts.h -- the gain of token memories by part of the store (--store-parts): the change of each part against
 * the reference, and the paired change against the previous part. A part that was not read has no row. */
#pragma once
#include "tools/eval/drt_eval.h"

/* A row: one memory with a part of the store. */
struct eval_part_row {
    const char *part;          /* "1/8", "1" */
    int mode, shift;           /* shift: the part has chunks >> shift */
    /* in percent: against the reference; against the next smaller part (NaN for the smallest part) */
    struct ratio change, step;
};
enum { EVAL_PART_SERIES = 2, EVAL_PART_ROWS = EVAL_PARTS + 1 };
struct eval_part_series {
    int whole;                           /* the mode with the whole store */
    int n;
    struct eval_part_row rows[EVAL_PART_ROWS]; /* the smallest part first */
};
/* Makes the rows of corpus (which 0) or both (1). eval_reference must be a mode. n is 0 if no part was read. */
enum status eval_part_series(struct eval_part_series *out, const struct eval_result *r, int which);

/* drt_eval_parts.c: a table; a member "store_parts". drt_eval_parts_plot.c: an SVG picture. */
struct json_writer;
enum status eval_print_parts(const struct eval_result *r);
enum status eval_write_parts(struct json_writer *w, const struct eval_result *r);
enum status eval_plot_parts(const struct eval_result *r, const char *path);
