/* memory_options.h -- options and configuration of a token memory, for all programs that read one. */
#pragma once
#include "decoder/memory_config.h"
#include "tools/shared/args.h"
#include "session/corpus_search.h"
#include "session/engine.h"

struct memory_options {
    /* --memory-config FILE, --memory-span BEFORE,AFTER, --memory-searcher KIND, --memory-keys KIND; NULL: not given */
    const char *config, *span, *searcher, *keys;
    const char *order;                   /* --memory-order FILE; NULL: not given */
    int64_t k, every, layer, past;       /* 0: not given */
    double tau, weight;                  /* for all kinds, without a configuration; 0: not given */
    bool unfitted;                       /* ignores the model's memory.json */
};
/* The rows of a program's table of options; `o` is a struct memory_options. */
#define MEMORY_SEARCH_OPTIONS(o)                                                                                    \
    {"lexical", ARG_REMOVED, NULL, NULL,                                                                               \
     "the lexical index is part of the store now: leave --lexical DIR out, and make it with drt-index lexical",        \
     0, 0},                                                                                                            \
    {"memory-searcher", ARG_CHOICE, &(o).searcher, CORPUS_SEARCH_KINDS,                                                \
     "find chunks by landmarks, which must be the model's own, by words, or by both (default: as configured, or "      \
     "lexical)",                                                                                                       \
     0, 0},                                                                                                            \
    {"memory-k", ARG_INT, &(o).k, "N", "chunks that a search finds; 0: as configured, or 32", 0,                       \
     MEMORY_K_MAX},                                                                                                    \
    {"memory-every", ARG_INT, &(o).every, "N", "tokens between two searches; 0: as configured, or 16", 0,              \
     MEMORY_EVERY_MAX},                                                                                                \
    {"memory-span", ARG_STRING, &(o).span, "BEFORE,AFTER",                                                             \
     "chunks of the document that are read with each chunk found (default: as configured, or 0,1)", 0, 0},             \
    {"memory-keys", ARG_CHOICE, &(o).keys, "auto|stored|device|encoded",                                               \
     "keys of chunks: stored by drt-index keys, or computed when a search finds them; auto: stored, if the store has " \
     "keys of this model; device: stored, and all copied into the GPU's memory at the start, which makes searches "    \
     "faster (on a CPU: as stored)",                                                                                   \
     0, 0},                                                                                                            \
    {"memory-layer", ARG_INT, &(o).layer, "N", "layer whose MLP inputs are the keys; 0: as configured, or the last",   \
     0, 1024}
#define OPTION_MEMORY_CONFIG(o)                                                                                      \
    {"memory-config", ARG_PATH, &(o).config, "FILE",                                                                   \
     "configuration written by drt-eval fit-memory (default: memory.json in the model's folder; on a CPU "             \
     "memory-cpu.json, if the store has no keys of the model)",                                                        \
     0, 0}
#define MEMORY_MIX_OPTIONS(o)                                                                                       \
    OPTION_MEMORY_CONFIG(o),                                                                                           \
    {"memory-past", ARG_INT, &(o).past, "N", "tokens of the text's own past that are read; 0: 2048", 0,                \
     MEMORY_PAST_MAX},                                                                                                 \
    {"memory-tau", ARG_DOUBLE, &(o).tau, "T", "without a configuration: temperature of distances; 0: 32", 0, 1e9},     \
    {"memory-weight", ARG_DOUBLE, &(o).weight, "G", "without a configuration: the memory's weight; 0: 0.1", 0, 0.999}

/* Gets the configuration that the options name or make, or the model's own (session/memory_folder.h), and the path of
 * its file, "" if there is none. STATUS_INVALID: an option contradicts the file or the model. */
enum status memory_options_config(struct memory_config *out, char file[FILE_PATH_MAX], const struct memory_options *o,
                                  const struct model_folder *model, bool small);
/* STATUS_INVALID: the configuration has no fit for the kind. */
enum status memory_options_fitted(const struct memory_config *c, const char *file, enum memory_kind kind);
/* The number of tokens of the own past that are read. */
int64_t memory_options_past(const struct memory_options *o);
/* Whether an option of the memory was given. */
bool memory_options_given(const struct memory_options *o);
