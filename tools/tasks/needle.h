/* needle.h -- needle samples: a text of a given number of ids that hides statements, and a question about one of them.
 *
 * NEEDLE_PAPERS words them as the papers' code does (docs/tasks.md): keys and values are five random ids each, so
 * that nothing but the text can give the answer, and the question ends one id into the last chunk, so that a model
 * retrieves with the question whole. NEEDLE_RULER words them as RULER does: keys are words, values numbers of seven
 * digits. A sample depends on the configuration and its number alone. */
#pragma once
#include "base/rng.h"
#include "data/tokenizer/tokenizer.h"

/* Single: one statement. Multi-key: six statements of different keys, one of them requested. Multi-value: four of one
 * key; all are requested, in the order of the text. Two-hop: two chains a -> b -> c; b and c are requested. */
enum needle_task { NEEDLE_SINGLE, NEEDLE_MULTI_KEY, NEEDLE_MULTI_VALUE, NEEDLE_TWO_HOP, NEEDLE_TASKS };
extern const char *const needle_task_names[NEEDLE_TASKS]; /* "single", "multi-key", ... */
enum needle_wording { NEEDLE_PAPERS, NEEDLE_RULER };

struct needle_config {
    const struct tokenizer *tokenizer;   /* borrowed, as is the haystack */
    const int32_t *haystack; int64_t n_haystack;          /* ids of running text, read in a circle */
    enum needle_task task;
    enum needle_wording wording;
    int64_t context;                     /* ids of the prompt, at most; cut to whole chunks and one id */
    int chunk;                           /* ids a chunk, landmark not counted */
    bool elsewhere;                      /* the statements are in a document of their own, not in the prompt */
    int value_ids;                       /* NEEDLE_PAPERS: random ids of a value; 0: five, as in the papers */
    uint64_t seed;
};

enum { NEEDLE_STATEMENTS = 6, NEEDLE_ANSWER_MAX = 64 };
struct needle_span { int64_t from, to; };                 /* ids from .. to-1 */
/* Owned by the maker, until the next call. */
struct needle_sample {
    const int32_t *prompt; int64_t n_prompt;
    const int32_t *document; int64_t n_document;          /* with `elsewhere`; else NULL */
    int32_t answer[NEEDLE_ANSWER_MAX]; int n_answer;
    /* RULER's wording: the strings of the answer */
    const char *outputs[NEEDLE_STATEMENTS]; int n_outputs;
    int scored;                          /* the one id of the answer that the papers' code scores */
    /* where the values of the answer stand: in the document with `elsewhere`, else in the prompt */
    struct needle_span value[NEEDLE_STATEMENTS]; int n_values;
    double depth;                        /* position in the text of the first statement that the answer needs: 0 .. 1 */
};

struct needle_maker;
/* STATUS_INVALID: the context is too short for the statements and two chunks, the haystack is empty, or the tokenizer
 * has fewer than 100 ordinary ids. */
enum status needle_maker_create(struct needle_maker **out, const struct needle_config *config);
void needle_maker_free(struct needle_maker *m);           /* NULL is fine */
enum status needle_make(struct needle_maker *m, int64_t number, struct needle_sample *out);
