/* memory_mixture.h -- p = (1 - g) p_LM + g p_mem of single tokens, its gate, and the derivatives, in double precision.
 * Host code without state but sums. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { MEMORY_MIXTURE_FEATURES = 5 };
struct memory_loss_mixture {
    double gate[MEMORY_MIXTURE_FEATURES], tau;            /* parameters */
    double dgate[MEMORY_MIXTURE_FEATURES];                /* sum of weight * d(-log p)/d gate */
    double nll, opened, share;                            /* sums: -log p, g, the memory's part of p */
};
/* Of one token: log p_LM, and token_memory_stats. */
struct memory_mixture_row { double log_lm, log_p, lse, nearest, squares, largest; };
/* -log p; its derivatives by log p_LM (always share - 1), log_p and lse. */
struct memory_mixture_result { double nll, share, dlog_p, dlse; };

/* -log p alone. */
double memory_mixture_nll(const struct memory_loss_mixture *m, const struct memory_mixture_row *row);
/* `weight`: of this row in dgate. A memory without entries (lse -infinity) has g = 0. */
struct memory_mixture_result memory_mixture_row(struct memory_loss_mixture *m, const struct memory_mixture_row *row,
                                                double weight);
