/* memory_config.h -- how token memories are read and mixed in (docs/token-memory.md): which states, which chunks, and
 * for each choice of memories a temperature for each and one gate (kernels/memory/memory_gate.h). In a model's folder
 * it is memory.json; drt-eval fit-memory writes it. */
#pragma once
#include "base/status.h"
#include "kernels/memory/memory_gate.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which memories a row of the report or a program reads. */
enum memory_kind { MEMORY_OWN, MEMORY_CORPUS, MEMORY_BOTH, MEMORY_KINDS };
extern const char *const memory_kind_names[MEMORY_KINDS];
bool memory_kind_reads(enum memory_kind kind, int side);   /* side: MEMORY_OWN or MEMORY_CORPUS */
/* The memories of a kind share this weight (0 < weight < 1) at every position. */
struct memory_gate memory_gate_fixed(enum memory_kind kind, double weight);

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
