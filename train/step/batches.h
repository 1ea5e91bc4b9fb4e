/* batches.h -- token files cut into the batches of a training run (model.md §1.3, §1.4, §1.6).
 *
 * The files are mapped, and taken as one text behind one another; documents end at the end-of-document id, and at a file's
 * end. Sequences are windows of L ids (C chunks of real ids), not aligned to documents. Any batch is computed from its
 * number alone, so a resumed run sees what the run before would have seen. */
#pragma once
#include "base/status.h"
#include "model/model_config.h"
#include "train/step/batch.h"
#include <stddef.h>
#include <stdint.h>

enum sampling {
    SAMPLING_EPOCHS,                     /* an epoch: windows beside one another from a random start, in random order. Each
                                            token at most once an epoch, all but up to two windows at the edges */
    SAMPLING_RANDOM,                     /* every window starts anywhere, on its own: the papers' way */
    SAMPLING_ONCE,                       /* windows beside one another from the start, once: for validation */
};
const char *sampling_name(enum sampling sampling);        /* "epochs", "random" */
int sampling_find(const char *name);                      /* -1: no such name (nor "once": a program's own) */

struct batches_config {
    const char *const *files;            /* .u16, .u32 */
    int n_files;
    int64_t end_id;                      /* of a document; < 0: only files end documents */
    const struct model_config *model;    /* copied */
    enum sampling sampling;
    int sequences;                       /* N */
    int64_t chunks;                      /* C; Base LM: positions */
    int held;                            /* batches that are valid at a time */
    uint64_t seed;
    int32_t first_document;              /* number of the first one: other data's documents are not these */
    int64_t max_windows;                 /* SAMPLING_ONCE: so many, spread evenly; 0: all there are */
};

struct batches;
/* Reads every id once: one that the model does not have, or that is its landmark, is refused with file and place. */
enum status batches_open(struct batches **out, const struct batches_config *config);
void batches_close(struct batches *b);                    /* NULL is fine */

int64_t batches_tokens(const struct batches *b);          /* in all files */
int64_t batches_documents(const struct batches *b);
int batches_unended(const struct batches *b);             /* files whose last id is not end_id: cut short, or another id ends theirs */
int64_t batches_length(const struct batches *b);          /* L: real ids of a sequence */
/* Windows of an epoch, or of SAMPLING_ONCE in all; SAMPLING_RANDOM: how many would fit. */
int64_t batches_windows(const struct batches *b);
/* Of all ids: another number says that a run goes on with other data. */
uint64_t batches_fingerprint(const struct batches *b);

/* Batch `number` (from 0) in place `held`; valid until that place is used again. Behind the last window of SAMPLING_ONCE
 * windows are repeated with all targets -1, so that a batch is always whole. */
void batches_get(struct batches *b, struct batch *out, int held, int64_t number);
/* The real ids of a window of SAMPLING_ONCE: out [L]. */
void batches_window(const struct batches *b, int32_t *out, int64_t window);
/* Number of the file (from 0) in which a window of SAMPLING_ONCE begins. */
int batches_window_file(const struct batches *b, int64_t window);

/* All files as chunks to retrieve from: no chunk crosses a document, ends of documents left out, -1 behind the end of a
 * short chunk. Document numbers are those of the batches. */
struct batches_corpus { int32_t *ids; int32_t (*documents)[2]; int64_t chunks; };
enum status batches_corpus_make(struct batches_corpus *out, const struct batches *b);
void batches_corpus_free(struct batches_corpus *c);       /* a zeroed struct is fine */
