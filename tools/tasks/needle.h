/* needle.h -- makes needle samples. A sample is a text with a given number of ids, in which statements are inserted,
 * and a question about one of them.
 *
 * NEEDLE_PAPERS uses the wording of the papers' code (docs/tasks.md). Keys and values are five random ids each, so that
 * only the text can give the answer. The question ends with the first id of the last chunk, so that the query of a
 * retrieval has read the whole question except this id. NEEDLE_RULER uses RULER's wording: keys are words, and values
 * are numbers of seven digits. A sample depends only on the configuration and on its number. */
#pragma once
#include "base/rng.h"
#include "data/tokenizer/tokenizer.h"

/* Single: one statement. Multi-key: statements with different keys, one of which is requested. Multi-value: four
 * statements with the same key; all values are requested, in the order of the text. Two-hop: two chains a -> b -> c; b
 * and c of one chain are requested. */
enum needle_task { NEEDLE_SINGLE, NEEDLE_MULTI_KEY, NEEDLE_MULTI_VALUE, NEEDLE_TWO_HOP, NEEDLE_TASKS };
extern const char *const needle_task_names[NEEDLE_TASKS]; /* "single", "multi-key", ... */
enum needle_wording { NEEDLE_PAPERS, NEEDLE_RULER };

struct needle_config {
    const struct tokenizer *tokenizer;   /* borrowed, as is the haystack */
    const int32_t *haystack; int64_t n_haystack; /* ids of running text, which is repeated if it is too short */
    enum needle_task task;
    enum needle_wording wording;
    int64_t context;                     /* the most ids of the prompt; reduced to whole chunks and one id */
    int chunk;                           /* ids of a chunk, without its landmark */
    bool elsewhere;                      /* the statements are in a separate document, not in the prompt */
    int value_ids;                       /* NEEDLE_PAPERS: number of random ids of a value; 0: five, as in the papers */
    int keys;                            /* statements of multi-key, at most NEEDLE_STATEMENTS; 0: NEEDLE_KEYS */
    uint64_t seed;
};

enum { NEEDLE_KEYS = 6, NEEDLE_STATEMENTS = 256, NEEDLE_ANSWER_MAX = 64 };
struct needle_span { int64_t from, to; };                 /* ids from .. to-1 */
/* Owned by the maker, and valid until the next call. */
struct needle_sample {
    const int32_t *prompt; int64_t n_prompt;
    const int32_t *document; int64_t n_document;          /* with `elsewhere`; otherwise NULL */
    int32_t answer[NEEDLE_ANSWER_MAX]; int n_answer;
    /* RULER's wording: the strings of the answer */
    const char *outputs[NEEDLE_KEYS]; int n_outputs;
    int scored;                          /* index of the id of the answer that the papers' code scores */
    /* where the values of the answer are: with `elsewhere` in the document, otherwise in the prompt */
    struct needle_span value[NEEDLE_KEYS]; int n_values;
    double depth; /* position in the text, 0 .. 1, of the first statement that the answer needs */
};

struct needle_maker;
/* STATUS_INVALID: the context is too short for the statements and two chunks, the haystack is empty, or the tokenizer
 * has fewer than 100 ordinary ids. */
enum status needle_maker_create(struct needle_maker **out, const struct needle_config *config);
void needle_maker_free(struct needle_maker *m);           /* NULL is fine */
enum status needle_make(struct needle_maker *m, int64_t number, struct needle_sample *out);
