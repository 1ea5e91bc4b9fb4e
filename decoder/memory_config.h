/* memory_config.h -- the configuration of a token memory (docs/token-memory.md): which states and chunks it reads, and
 * for each kind a temperature for each memory and one gate (kernels/memory/memory_gate.h). It is memory.json of a
 * model's folder; drt-eval fit-memory writes it. */
#pragma once
#include "base/status.h"
#include "kernels/lexical/candidate_features.h"
#include "kernels/memory/memory_gate.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The memories that are read: the text's own past, the corpus, or both. */
enum memory_kind { MEMORY_OWN_PAST, MEMORY_CORPUS, MEMORY_BOTH, MEMORY_KINDS };
extern const char *const memory_kind_names[MEMORY_KINDS];
bool memory_kind_reads(enum memory_kind kind, int side);   /* side: MEMORY_OWN_PAST or MEMORY_CORPUS */
/* Makes a gate that gives the memories of a kind this weight (0 < weight < 1) at every position. */
struct memory_gate memory_gate_fixed(enum memory_kind kind, double weight);

/* How chunks are found: by words (BM25), by landmarks, or by both. A gate reads the BM25 scores of the chunks, or with
 * LANDMARK the scores of their landmarks. */
enum memory_searcher { MEMORY_LEXICAL, MEMORY_LANDMARK, MEMORY_HYBRID, MEMORY_SEARCHERS };
extern const char *const memory_searcher_names[MEMORY_SEARCHERS];
/* Where the keys of chunks come from: the store has them (docs/token-memory.md, "Stored keys"), or the decoder computes
 * them when a search finds them. DEVICE: the store's, which are copied into a GPU's memory at the start; on a CPU as
 * STORED. AUTO: the store's, if it has keys of this model. */
enum memory_keys { MEMORY_KEYS_AUTO, MEMORY_KEYS_STORED, MEMORY_KEYS_DEVICE, MEMORY_KEYS_ENCODED, MEMORY_KEYS };
extern const char *const memory_keys_names[MEMORY_KEYS];
/* STATUS_INVALID: the gate of `file` was fitted with one kind of scores and would read the other. */
enum status memory_searcher_agrees(const char *file, enum memory_searcher fitted, enum memory_searcher wanted);

/* PAST: tokens of the text's own past that programs read, unless an option gives another number. K: chunks that a
 * search finds. EVERY: tokens between two searches. */
enum { MEMORY_PAST = 2048, MEMORY_PAST_MAX = 1 << 20, MEMORY_K_MAX = 1024, MEMORY_EVERY_MAX = 1024,
       MEMORY_CANDIDATES_MAX = 4096 };
/* A trained order of the chunks that a search finds: it finds `candidates`, and the k of the greatest sums of weighted
 * features are read (kernels/lexical/candidate_features.h). candidates 0: as found. */
struct order_weights { int candidates; double weights[CANDIDATE_FEATURES]; };
/* tau: of the sides that are read */
struct memory_mixture { bool given; double tau[MEMORY_SIDES]; struct memory_gate gate; };
struct memory_config {
    int key_layer;                       /* from 1 */
    /* number of chunks; tokens between two searches; chunks of a passage before and after the one found */
    int k, every, before, after;
    enum memory_searcher searcher;       /* LEXICAL if the file does not name it */
    enum memory_keys keys;               /* a program's choice, not a member of the file: AUTO */
    uint8_t tokenizer[16], weights[16];  /* fingerprints of the model that it was fitted for */
    struct order_weights order;          /* drt-eval fit-order writes it; the file need not have it */
    struct memory_mixture mixture[MEMORY_KINDS];
};
enum { MEMORY_CONFIG_VERSION = 2 };
/* Reads a file. Messages name missing and impossible values. Unknown keys and other versions are refused. */
enum status memory_config_load(struct memory_config *out, const char *path);
enum status memory_config_parse(struct memory_config *out, const char *name, const void *json, size_t bytes);
enum status memory_config_save(const struct memory_config *c, const char *path);
