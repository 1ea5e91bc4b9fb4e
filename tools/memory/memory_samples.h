/* memory_samples.h -- what drt-eval fit-memory collects: of each scored token, what the model and each memory gave to
 * it. Reading the text costs hours, fitting seconds: samples can be written to a file and read again. */
#pragma once
#include "base/formats/safetensors.h"
#include "tools/memory/memory_window.h"

extern const double memory_taus[MEMORY_TAUS];             /* rising */
extern const char *const memory_read_names[MEMORY_READS];

/* n tokens; arrays may be longer. Of memories that were not read the arrays are NULL. */
struct memory_samples {
    int64_t n, first;                    /* those that were added last begin at `first` */
    int32_t *document;                   /* rises from token to token */
    float *log_lm, *entropy, *largest;
    struct memory_sample_columns { float *mark[MEMORY_MARKS], *column[MEMORY_TAUS][MEMORY_COLUMNS]; } of[MEMORY_READS];
    bool has[MEMORY_READS];
    int64_t capacity;                    /* of every array */
};
void memory_samples_free(struct memory_samples *s);       /* what it holds */
enum status memory_samples_reserve(struct memory_samples *s, int64_t n);   /* arrays for n tokens; keeps contents */
/* Adds n tokens of a document. `has` is set. */
enum status memory_samples_lm(struct memory_samples *s, const struct memory_lm *lm, int64_t n, int32_t document);
/* What a memory, read at all memory_taus, gave to the tokens that were added last. */
void memory_samples_read(struct memory_samples *s, const struct memory_read *read);
/* Of token i at memory_taus[t]. */
struct memory_evidence memory_samples_evidence(const struct memory_samples *s, enum memory_reads what, int t,
                                               int64_t i);
/* The tokens of another collection, which has the same memories. */
enum status memory_samples_append(struct memory_samples *to, struct memory_samples *from, int32_t first_document);

/* The chunks that another collection found for the same tokens, in a store of other text, become the read OTHER of
 * `to`: its arrays move. STATUS_MISMATCH: other tokens. Arrays of `to` do not grow any more. path: of the other
 * collection, for messages. */
enum status memory_samples_other(struct memory_samples *to, struct memory_samples *from, const char *path);

/* As a file: a tensor for each array ("corpus.32.log_p", say), then `more`. */
enum status memory_samples_save(const struct memory_samples *s, const char *path, const struct tensor_view *more,
                                int n_more, const char *metadata_json);
/* STATUS_INVALID: an array is missing or has another length than "document". *s is to be freed also then. */
enum status memory_samples_load(struct memory_samples *s, const struct safetensors *file);
