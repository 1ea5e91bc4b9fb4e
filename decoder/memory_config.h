/* memory_config.h -- how token memories are read and mixed in (docs/token-memory.md): which states, which chunks, and
 * for each choice of memories a temperature for each and one gate. In a model's folder it is memory.json; drt-eval
 * fit-memory writes it.
 *
 *   p = g_0 p_lm + g_1 p_own + g_2 p_corpus     g = softmax(0, a_1, a_2) over the memories that have entries
 *   a = W2 tanh(W1 f + b1) + b2                 f: features, standardised; 0 for a memory without entries */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The two memories, and which of them a row of the report or a program reads. */
enum { MEMORY_SIDES = 2 };
enum memory_kind { MEMORY_OWN, MEMORY_CORPUS, MEMORY_BOTH, MEMORY_KINDS };
extern const char *const memory_kind_names[MEMORY_KINDS];
bool memory_kind_reads(enum memory_kind kind, int side);   /* side: MEMORY_OWN or MEMORY_CORPUS */

/* What a gate sees of one memory before a token; nothing of the token to come. Logarithms are natural; one of 0 is
 * -infinity. BM25 scores are divided by the number of the query's tokens; the own past has none (0). */
struct memory_evidence {
    float entries;                       /* of the own past: positions; of the corpus: chunks. 0: nothing is read */
    float nearest, lse, squares;         /* as in struct token_memory_stats */
    float top, of_top, lm_of_top;        /* log p_mem of its own top token and of the model's; log p_lm of the former */
    float token;                         /* the memory's top token, -1: none */
    float best, kth, mean;               /* BM25 of the chunks: the first, the k-th (0 where fewer are found), mean */
};
struct memory_lm_evidence { float entropy, largest; };     /* of p_lm, in nats; log of the largest p_lm */

enum { MEMORY_GATE_HIDDEN = 16, MEMORY_SIDE_FEATURES = 11, MEMORY_FEATURES = 3 + MEMORY_SIDES * MEMORY_SIDE_FEATURES };
/* The parameters from w1 on have the order of the members, so that they can be fitted as one array. */
struct memory_gate {
    double mean[MEMORY_FEATURES], deviation[MEMORY_FEATURES];
    double w1[MEMORY_GATE_HIDDEN][MEMORY_FEATURES], b1[MEMORY_GATE_HIDDEN];
    double w2[MEMORY_SIDES][MEMORY_GATE_HIDDEN], b2[MEMORY_SIDES];
};
/* Inputs of the gate before they are standardised, and where each comes from: -1 of the model or of both memories, else
 * the side whose memory it describes. */
void memory_gate_features(double f[MEMORY_FEATURES], const struct memory_lm_evidence *lm,
                          const struct memory_evidence of[MEMORY_SIDES]);
int memory_feature_side(int feature);
/* A feature as the gate reads it: standardised, -5 to 5; 0 where its memory is not there. */
double memory_gate_standard(const struct memory_gate *gate, int feature, double value, bool there);
/* Weights of the model and of each side: they sum to 1, and that of a side without entries is 0. */
void memory_gate_weights(double g[1 + MEMORY_SIDES], const struct memory_gate *gate,
                         const struct memory_lm_evidence *lm, const struct memory_evidence of[MEMORY_SIDES]);
/* The memories of a kind share this weight (0 < weight < 1) at every position. */
struct memory_gate memory_gate_fixed(enum memory_kind kind, double weight);

/* log of the mixed probability of a token, from its log-probabilities (those of sides may be -infinity). */
double memory_mixed(const double g[1 + MEMORY_SIDES], double log_lm, const double log_p[MEMORY_SIDES]);

/* How chunks are found: by words (BM25), by landmarks, or by both. What a gate sees of the chunks are BM25 scores, or
 * the scores of landmarks with LANDMARK. */
enum memory_searcher { MEMORY_LEXICAL, MEMORY_LANDMARK, MEMORY_HYBRID, MEMORY_SEARCHERS };
extern const char *const memory_searcher_names[MEMORY_SEARCHERS];
/* STATUS_INVALID: a gate of `file` that was fitted with one kind does not know the scores of the other. */
enum status memory_searcher_agrees(const char *file, enum memory_searcher fitted, enum memory_searcher wanted);

struct memory_mixture { bool given; double tau[MEMORY_SIDES]; struct memory_gate gate; };   /* tau of a side read */
struct memory_config {
    int key_layer;                       /* from 1 */
    /* chunks; tokens between two searches; chunks of a passage around the one found */
    int k, every, before, after;
    enum memory_searcher searcher;       /* in a file that does not name it: LEXICAL */
    uint8_t tokenizer[16], weights[16];  /* fingerprints of the model that it was fitted for */
    struct memory_mixture mixture[MEMORY_KINDS];
};
enum { MEMORY_CONFIG_VERSION = 2 };
/* Of a file. Missing or impossible values are named; unknown keys and other versions are refused. */
enum status memory_config_load(struct memory_config *out, const char *path);
enum status memory_config_parse(struct memory_config *out, const char *name, const void *json, size_t bytes);
enum status memory_config_save(const struct memory_config *c, const char *path);
