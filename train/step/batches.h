/* batches.h -- cuts token files into the batches of a training run (model.md §1.3, §1.4, §1.6).
 *
 * The files are mapped and read as one concatenated text. A document ends at the end-of-document id or at the end of a
 * file. Sequences are windows of L ids (C chunks of real ids); they do not follow document boundaries. A batch depends
 * only on its number, so a resumed run sees the same batches. One thread at a time.
 *
 * With `samples` each window is one document, a sample of a task (answers.h). The sample is at the start of the
 * sequence (with `align` after pads) and ids of -1 fill the rest. Only the sample's answer is predicted. */
#pragma once
#include "base/status.h"
#include "model/model_config.h"
#include "train/step/batch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sampling {
    /* Adjacent windows from a random start, in random order. Each token occurs at most once an epoch; up to two
     * windows' worth of ids at the edges is left out. */
    SAMPLING_EPOCHS,
    SAMPLING_RANDOM,                     /* every window starts at a random position, as in the papers */
    SAMPLING_ONCE,                       /* adjacent windows from the start, once: for validation */
};
const char *sampling_name(enum sampling sampling);        /* "epochs", "random" */
int sampling_find(const char *name);                      /* -1: no such name ("once" is not a config value) */

struct batches_config {
    const char *const *files;            /* .u16, .u32 */
    int n_files;
    int64_t end_id;                      /* of a document; < 0: only files end documents */
    const struct model_config *model;    /* copied */
    enum sampling sampling;
    bool samples;                        /* not with SAMPLING_RANDOM; each file needs its file of answers */
    /* samples of a model with chunks: pads precede each, so that its prompt ends with the first id of a chunk */
    bool align;
    int sequences;                       /* N */
    int64_t chunks;                      /* C; Base LM: positions */
    int held;                            /* number of batches that are valid at the same time */
    /* Whether the batches of a Base LM have documents for each run of enc_chunk_size ids. Batches of other models
     * always have. */
    bool documents;
    uint64_t seed;
    /* Number of the first document. Data sets with disjoint numbers share no document. */
    int32_t first_document;
    int64_t max_windows;                 /* SAMPLING_ONCE: at most this many, evenly spread; 0: all */
};

struct batches;
/* Reads every id once. STATUS_MISMATCH, naming file and byte: an id that the model does not have, or its landmark. */
enum status batches_open(struct batches **out, const struct batches_config *config);
void batches_close(struct batches *b);                    /* NULL is fine */

int64_t batches_tokens(const struct batches *b);          /* in all files */
int64_t batches_documents(const struct batches *b);
/* Number of files whose last id is not end_id: they are truncated, or end_id is wrong. */
int batches_unended(const struct batches *b);
int64_t batches_length(const struct batches *b);          /* L: real ids of a sequence */
/* Windows of an epoch; SAMPLING_ONCE: of the whole text; SAMPLING_RANDOM: how many fit without overlap. */
int64_t batches_windows(const struct batches *b);
/* Hash of all ids and of the prompts' lengths. A resumed run compares it to detect other data. */
uint64_t batches_fingerprint(const struct batches *b);

/* Documents are numbered from config.first_document; positions count ids of all files. */
int32_t batches_document_of(const struct batches *b, int64_t position);
int64_t batches_document_start(const struct batches *b, int32_t document);

/* SAMPLING_EPOCHS: changes the random order of an epoch's windows. Window order[i] begins at start + order[i] * length
 * and becomes sequence (phase + i) modulo `sequences` of a batch. The result must depend on the arguments alone, so
 * that a resumed run has the same order. Call batches_set_order before the first batches_get; `context` is borrowed. */
typedef void batches_arrange(void *context, int64_t *order, int64_t windows, int64_t start, int64_t phase);
void batches_set_order(struct batches *b, batches_arrange *arrange, void *context);

/* Makes batch `number` (from 0) in buffer `held`; it is valid until that buffer is used again. Beyond the last window
 * of SAMPLING_ONCE the batch is filled with repeated windows whose targets are all -1. */
void batches_get(struct batches *b, struct batch *out, int held, int64_t number);
/* Copies the ids of a window of SAMPLING_ONCE that are predicted, in order, to out [L] (NULL: not wanted). Returns
 * their number. */
int64_t batches_predicted(const struct batches *b, int32_t *out, int64_t window);
/* Number of the file (from 0) in which a window of SAMPLING_ONCE begins. */
int batches_window_file(const struct batches *b, int64_t window);

/* The text of all files as chunks to retrieve from. No chunk crosses a document; end-of-document ids are left out; -1
 * follows the last id of a short chunk. Documents have the numbers of the batches. */
struct batches_corpus { int32_t *ids; int32_t (*documents)[2]; int64_t chunks; };
enum status batches_corpus_make(struct batches_corpus *out, const struct batches *b);
/* Adds the chunks of another text. On failure *c is freed. */
enum status batches_corpus_append(struct batches_corpus *c, const struct batches *b);
void batches_corpus_free(struct batches_corpus *c);       /* a zeroed struct is fine */
