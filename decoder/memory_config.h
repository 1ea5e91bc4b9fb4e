/* memory_config.h -- how a token memory is read and mixed in (docs/token-memory.md): which states, which chunks, and
 * for each kind of memory a temperature and a gate. In a model's folder it is memory.json; drt-eval fit-memory writes
 * it.
 *
 *   p = (1 - g) p_lm + g p_mem     g = sigmoid(w2 . tanh(w1 f + b1) + b2)     f: features, standardised */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum memory_kind { MEMORY_OWN, MEMORY_CORPUS, MEMORY_BOTH, MEMORY_KINDS };
extern const char *const memory_kind_names[MEMORY_KINDS];

/* What the gate sees of a position, in this order; nothing of the token to come. */
enum memory_feature {
    MEMORY_ENTROPY,                      /* of p_lm, in nats */
    MEMORY_LARGEST,                      /* log of the largest p_lm */
    MEMORY_NEAREST,                      /* as in struct token_memory_stats, all three */
    MEMORY_LSE,
    MEMORY_SQUARES,
    MEMORY_FEATURES
};
enum { MEMORY_GATE_HIDDEN = 16 };
/* The first part of the parameters has the order of the members, so that they can be fitted as one array. */
struct memory_gate {
    double mean[MEMORY_FEATURES], deviation[MEMORY_FEATURES];
    double w1[MEMORY_GATE_HIDDEN][MEMORY_FEATURES], b1[MEMORY_GATE_HIDDEN], w2[MEMORY_GATE_HIDDEN], b2;
};
/* The same weight (0 < weight < 1) at every position. */
struct memory_gate memory_gate_fixed(double weight);
/* g of a position. A memory without entries (lse -infinity) has g 0. */
double memory_gate_open(const struct memory_gate *gate, const float features[MEMORY_FEATURES]);

/* log of the mixed probability of a token, from both its log-probabilities (log_p may be -infinity). */
double memory_mixed(double log_lm, double log_p, double g);

struct memory_mixture { bool given; double tau; struct memory_gate gate; };
struct memory_config {
    int key_layer;                       /* from 1 */
    /* chunks; tokens between two searches; chunks of a passage around the one found */
    int k, every, before, after;
    struct memory_mixture mixture[MEMORY_KINDS];
};
/* Of a file. Missing or impossible values are named; unknown keys are refused. */
enum status memory_config_load(struct memory_config *out, const char *path);
enum status memory_config_save(const struct memory_config *c, const char *path);
