/* ablation_scored.h -- reads from the JSON of drt-eval ppl and drt-eval fit-memory what the table needs. */
#pragma once
#include "tools/ablation/ablation_table.h"

struct ablation_scored {
    struct ablation_document *documents; size_t n, capacity;
    double *nll[ABLATION_MODES];         /* [n] of each wanted mode */
    size_t nll_capacity[ABLATION_MODES];
    struct ablation_overlap *overlap;    /* [n]; NULL: the result has none */
};
/* `modes`: the modes to read. STATUS_CORRUPT: the file is not a complete result, or lacks a mode. Free *out also after
 * a failure. */
enum status ablation_scored_read(struct ablation_scored *out, const char *path, const char *const *modes, int n_modes);
enum status ablation_scored_parse(struct ablation_scored *out, const char *name, const char *text, size_t bytes,
                                  const char *const *modes, int n_modes);
void ablation_scored_free(struct ablation_scored *s);     /* a zeroed struct is fine */
