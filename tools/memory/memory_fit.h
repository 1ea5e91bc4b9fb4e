/* memory_fit.h -- temperature and gate of a memory, from what the model and the memory gave to tokens of known text.
 *
 * First the temperature, by the best of some fixed weights; then the gate with that temperature: the mean over files
 * of the loss (each file counts the same), Adam over all tokens at once; a penalty on its weights' squares, which
 * fades as tokens grow in number, keeps a gate of few tokens from opening by chance. The same bits whatever the
 * number of threads. */
#pragma once
#include "base/system/threads.h"
#include "decoder/memory_config.h"

enum { MEMORY_TAUS = 6 };
extern const double memory_taus[MEMORY_TAUS];

/* n tokens; arrays may be longer. Entries of a temperature: index t of memory_taus. */
struct memory_samples {
    int64_t n;
    const int32_t *document;             /* rises from token to token */
    const float *log_lm, *entropy, *largest, *nearest;
    const float *log_p[MEMORY_TAUS], *lse[MEMORY_TAUS], *squares[MEMORY_TAUS];
};
/* Which tokens: those of documents d with use[d]; file[d] is their file. */
struct memory_part { const bool *use; const int *file; int n_documents, n_files; };

/* STATUS_INVALID: no token is used. */
enum status memory_fit(struct memory_mixture *out, const struct memory_samples *s, const struct memory_part *part,
                       struct threads *threads);
/* log of the mixed probability of token i. */
double memory_fit_mixed(const struct memory_mixture *m, const struct memory_samples *s, int64_t i);
