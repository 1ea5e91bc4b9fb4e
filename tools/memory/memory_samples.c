/* memory_samples.c -- arrays of equal length that grow together. */
#include "tools/memory/memory_samples.h"
#include "base/memory.h"
#include <assert.h>
#include <string.h>

const double memory_taus[MEMORY_TAUS] = {4, 8, 16, 23, 32, 45, 64, 128};
const char *const memory_read_names[MEMORY_READS] = {"own",        "corpus",      "random",      "oracle",
                                                     "other",      "knn-lm",      "corpus-1/2",  "corpus-1/4",
                                                     "corpus-1/8", "corpus-1/16", "corpus-1/32", "corpus-1/64"};

/* The first three are the model's. */
int memory_samples_arrays(struct memory_samples *s, float **all[MEMORY_SAMPLE_ARRAYS]) {
    int n = 0;
    all[n++] = &s->log_lm;
    all[n++] = &s->entropy;
    all[n++] = &s->largest;
    for (int r = 0; r < MEMORY_READS; r++) {
        if (!s->has[r]) continue;
        for (int i = 0; i < MEMORY_MARKS; i++)
            all[n++] = &s->of[r].mark[i];
        for (int t = 0; t < MEMORY_TAUS; t++)
            for (int i = 0; i < MEMORY_COLUMNS; i++)
                all[n++] = &s->of[r].column[t][i];
    }
    return n;
}

void memory_samples_free(struct memory_samples *s) {
    float **all[MEMORY_SAMPLE_ARRAYS];
    int n = memory_samples_arrays(s, all);
    for (int i = 0; i < n; i++)
        memory_free(*all[i]);
    memory_free(s->document);
    *s = (struct memory_samples){0};
}

enum status memory_samples_reserve(struct memory_samples *s, int64_t n) {
    float **all[MEMORY_SAMPLE_ARRAYS];
    int arrays = memory_samples_arrays(s, all);
    int64_t capacity = s->capacity > 0 ? s->capacity : 4096;
    if (n <= s->capacity) return STATUS_OK;
    while (capacity < n)
        capacity *= 2;
    for (int i = 0; i < arrays; i++) {
        size_t have = (size_t)s->capacity;
        TRY(memory_grow(all[i], &have, (size_t)capacity));
    }
    size_t have = (size_t)s->capacity;
    TRY(memory_grow(&s->document, &have, (size_t)capacity));
    s->capacity = capacity;
    return STATUS_OK;
}

/* Copies values for the tokens that were added last. */
static void memory_samples_put(float *to, const struct memory_samples *s, const float *from) {
    memcpy(to + s->first, from, (size_t)(s->n - s->first) * sizeof *to);
}

enum status memory_samples_lm(struct memory_samples *s, const struct memory_lm *lm, int64_t n, int32_t document) {
    TRY(memory_samples_reserve(s, s->n + n));
    s->first = s->n;
    s->n += n;
    for (int64_t i = s->first; i < s->n; i++)
        s->document[i] = document;
    memory_samples_put(s->log_lm, s, lm->log_p);
    memory_samples_put(s->entropy, s, lm->entropy);
    memory_samples_put(s->largest, s, lm->largest);
    return STATUS_OK;
}

void memory_samples_read(struct memory_samples *s, const struct memory_read *read) {
    struct memory_sample_columns *of = &s->of[read->what];
    for (int i = 0; i < MEMORY_MARKS; i++)
        memory_samples_put(of->mark[i], s, read->mark[i]);
    for (int t = 0; t < MEMORY_TAUS; t++)
        for (int i = 0; i < MEMORY_COLUMNS; i++)
            memory_samples_put(of->column[t][i], s, read->column[t][i]);
}

struct memory_evidence memory_samples_evidence(const struct memory_samples *s, enum memory_reads what, int t,
                                               int64_t i) {
    const struct memory_sample_columns *of = &s->of[what];
    return memory_evidence_of(of->mark, of->column[t], i);
}

enum status memory_samples_other(struct memory_samples *to, struct memory_samples *from, const char *path) {
    bool same = to->n == from->n;
    for (int64_t i = 0; same && i < to->n; i++)
        same = to->document[i] == from->document[i] && to->log_lm[i] == from->log_lm[i];
    if (!same) return fail(STATUS_MISMATCH, "%s: is of other texts, other positions or another model", path);
    if (!from->has[MEMORY_READ_FOUND]) return fail(STATUS_INVALID, "%s: has nothing for memory-corpus", path);
    assert(!to->has[MEMORY_READ_OTHER]);
    to->of[MEMORY_READ_OTHER] = from->of[MEMORY_READ_FOUND];
    to->has[MEMORY_READ_OTHER] = true;
    from->has[MEMORY_READ_FOUND] = false; /* the arrays now belong to `to` */
    return STATUS_OK;
}

/* Adds n tokens, the values of which are those of `from` from token `first` on. */
static enum status memory_samples_add(struct memory_samples *to, struct memory_samples *from, int64_t first,
                                      int64_t n) {
    float **out[MEMORY_SAMPLE_ARRAYS], **in[MEMORY_SAMPLE_ARRAYS];
    if (to->n == 0) memcpy(to->has, from->has, sizeof to->has);
    TRY(memory_samples_reserve(to, to->n + n));
    const int arrays = memory_samples_arrays(to, out), same = memory_samples_arrays(from, in);
    assert(arrays == same && first >= 0 && first + n <= from->n);
    to->first = to->n;
    to->n += n;
    for (int i = 0; i < arrays; i++)
        memory_samples_put(*out[i], to, *in[i] + first);
    return STATUS_OK;
}

enum status memory_samples_append(struct memory_samples *to, struct memory_samples *from, int32_t first_document) {
    TRY(memory_samples_add(to, from, 0, from->n));
    for (int64_t i = 0; i < from->n; i++)
        to->document[to->first + i] = from->document[i] + first_document;
    return STATUS_OK;
}

enum status memory_samples_copy(struct memory_samples *to, struct memory_samples *from, int64_t first, int64_t n,
                                int32_t document) {
    TRY(memory_samples_add(to, from, first, n));
    for (int64_t i = to->first; i < to->n; i++)
        to->document[i] = document;
    return STATUS_OK;
}
