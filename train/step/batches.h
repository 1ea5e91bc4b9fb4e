/* batches.h -- token files cut into the batches of a training run (model.md §1.3, §1.4, §1.6).
 *
 * The files are mapped, and concatenated to one text. Documents end at the end-of-document id, and at a file's end.
 * Sequences are windows of L ids (C chunks of real ids), not aligned to documents. A batch depends only on its
 * number, so a resumed run sees the same batches. One thread at a time.
 *
 * With `samples` each window is one document, a sample of a task (answers.h): it begins with the sequence, only its
 * answer is predicted, and ids of -1 follow it. */
#pragma once
#include "base/status.h"
#include "model/model_config.h"
#include "train/step/batch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sampling {
    /* Adjacent windows from a random start, in random order: each token at most once an epoch; up to two windows'
     * worth at the edges is left out. */
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
    int sequences;                       /* N */
    int64_t chunks;                      /* C; Base LM: positions */
    int held;                            /* batches that are valid at a time */
    /* Whether a Base LM's batches have documents, of each enc_chunk_size ids (others always have). */
    bool documents;
    uint64_t seed;
    /* number of the first document: data sets with disjoint numbers share no document */
    int32_t first_document;
    int64_t max_windows;                 /* SAMPLING_ONCE: so many, spread evenly; 0: all */
};

struct batches;
/* Reads every id once: one that the model does not have, or that is its landmark, is an error that names file and
 * byte. */
enum status batches_open(struct batches **out, const struct batches_config *config);
void batches_close(struct batches *b);                    /* NULL is fine */

int64_t batches_tokens(const struct batches *b);          /* in all files */
int64_t batches_documents(const struct batches *b);
/* files whose last id is not end_id: truncated, or end_id is wrong */
int batches_unended(const struct batches *b);
int64_t batches_length(const struct batches *b);          /* L: real ids of a sequence */
/* Windows of an epoch, or of SAMPLING_ONCE in all; SAMPLING_RANDOM: how many fit. */
int64_t batches_windows(const struct batches *b);
/* A hash of all ids, and of where answers begin: it differs when a run is resumed with other data. */
uint64_t batches_fingerprint(const struct batches *b);

/* Documents are numbered from config.first_document; positions count ids of all files. */
int32_t batches_document_of(const struct batches *b, int64_t position);
int64_t batches_document_start(const struct batches *b, int32_t document);

/* SAMPLING_EPOCHS: changes the random order of an epoch's windows, which begin at start + order[i] * length. Window i
 * of the order is number phase + i of a batch's sequences, modulo `sequences`. Depends on its arguments alone; so a
 * resumed run has the same order. Set before the first batches_get; context borrowed. */
typedef void batches_arrange(void *context, int64_t *order, int64_t windows, int64_t start, int64_t phase);
void batches_set_order(struct batches *b, batches_arrange *arrange, void *context);

/* Batch `number` (from 0) in buffer `held`; valid until that buffer is used again. After the last window of
 * SAMPLING_ONCE windows are repeated with all targets -1, so that every batch has its full size. */
void batches_get(struct batches *b, struct batch *out, int held, int64_t number);
/* The ids of a window of SAMPLING_ONCE that are predicted, in order: out [L], or NULL. Returns their number. */
int64_t batches_predicted(const struct batches *b, int32_t *out, int64_t window);
/* Number of the file (from 0) in which a window of SAMPLING_ONCE begins. */
int batches_window_file(const struct batches *b, int64_t window);

/* All files as chunks to retrieve from: no chunk crosses a document; end-of-document ids are left out; -1 after the
 * end of a short chunk. Document numbers are those of the batches. */
struct batches_corpus { int32_t *ids; int32_t (*documents)[2]; int64_t chunks; };
enum status batches_corpus_make(struct batches_corpus *out, const struct batches *b);
/* Adds the chunks of another text. On failure *c is freed. */
enum status batches_corpus_append(struct batches_corpus *c, const struct batches *b);
void batches_corpus_free(struct batches_corpus *c);       /* a zeroed struct is fine */
