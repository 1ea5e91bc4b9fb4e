/* memory_samples.h -- the samples of drt-eval fit-memory: for each scored token, the probabilities that the model and
 * each memory give it. Reading the text takes hours and fitting seconds, so samples can be saved to a file and read. */
#pragma once
#include "base/formats/safetensors.h"
#include "tools/memory/memory_window.h"

extern const double memory_taus[MEMORY_TAUS];             /* ascending */
extern const char *const memory_read_names[MEMORY_READS];

/* n tokens; arrays may be longer. The arrays of memories that were not read are NULL. */
struct memory_samples {
    int64_t n, first;                    /* first: the first of the tokens that were added last */
    int32_t *document;                   /* never decreases from token to token */
    float *log_lm, *entropy, *largest;
    struct memory_sample_columns { float *mark[MEMORY_MARKS], *column[MEMORY_TAUS][MEMORY_COLUMNS]; } of[MEMORY_READS];
    bool has[MEMORY_READS];
    int64_t capacity;                    /* of all arrays */
};
/* Lists every array of floats that is kept, in a fixed order, and returns their number. */
enum { MEMORY_SAMPLE_ARRAYS = 3 + MEMORY_READS * (MEMORY_MARKS + MEMORY_TAUS * MEMORY_COLUMNS) };
int memory_samples_arrays(struct memory_samples *s, float **all[MEMORY_SAMPLE_ARRAYS]);
void memory_samples_free(struct memory_samples *s);       /* frees the arrays */
enum status memory_samples_reserve(struct memory_samples *s, int64_t n);   /* arrays for n tokens; keeps contents */
/* Adds n tokens of a document. `has` must be set before the first call. */
enum status memory_samples_lm(struct memory_samples *s, const struct memory_lm *lm, int64_t n, int32_t document);
/* Sets the results of a memory, read at all memory_taus, for the tokens that were added last. */
void memory_samples_read(struct memory_samples *s, const struct memory_read *read);
/* Returns the evidence of token i at memory_taus[t]. */
struct memory_evidence memory_samples_evidence(const struct memory_samples *s, enum memory_reads what, int t,
                                               int64_t i);
/* Appends the tokens of another collection, which has the same memories. */
enum status memory_samples_append(struct memory_samples *to, struct memory_samples *from, int32_t first_document);
/* Appends its tokens first .. first+n-1 as tokens of one document. */
enum status memory_samples_copy(struct memory_samples *to, struct memory_samples *from, int64_t first, int64_t n,
                                int32_t document);

/* Moves the results of another collection, of the same tokens with a store of other text, to the read OTHER of `to`.
 * STATUS_MISMATCH: the tokens differ. Afterwards the arrays of `to` cannot grow. path: of the other collection, for
 * messages. */
enum status memory_samples_other(struct memory_samples *to, struct memory_samples *from, const char *path);

/* Writes a file with a tensor for each array (for example "corpus.32.log_p"), then `more`. */
enum status memory_samples_save(const struct memory_samples *s, const char *path, const struct tensor_view *more,
                                int n_more, const char *metadata_json);
/* STATUS_INVALID: an array is missing or has another length than "document". Free *s also then. */
enum status memory_samples_load(struct memory_samples *s, const struct safetensors *file);
