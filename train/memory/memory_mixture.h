/* memory_mixture.h -- the mixture p = (1 - g) p_LM + g p_mem of one token, its gate g and its derivatives, in double
 * precision. Host code; its only state are the sums in the struct. One thread at a time for each struct. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { MEMORY_MIXTURE_FEATURES = 5 };
struct memory_loss_mixture {
    double gate[MEMORY_MIXTURE_FEATURES], tau;            /* parameters */
    double dgate[MEMORY_MIXTURE_FEATURES];                /* sum of weight * d(-log p)/d gate */
    double nll, opened, share;                            /* sums over the rows: -log p, g, the memory's part of p */
};
/* Input of one token: log p_LM, and its token_memory_stats. */
struct memory_mixture_row { double log_lm, log_p, lse, nearest, squares, largest; };
/* Result of one token: -log p, and its derivatives by log p_LM (always share - 1), by log_p and by lse. */
struct memory_mixture_result { double nll, share, dlog_p, dlse; };

/* Returns -log p alone. */
double memory_mixture_nll(const struct memory_loss_mixture *m, const struct memory_mixture_row *row);
/* Adds to the sums and to dgate. `weight`: the factor of this row in dgate. A memory without entries (lse -infinity)
 * has g = 0. */
struct memory_mixture_result memory_mixture_row(struct memory_loss_mixture *m, const struct memory_mixture_row *row,
                                                double weight);
