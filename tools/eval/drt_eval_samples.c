/* drt_eval_samples.c -- arrays that grow together. Memories that were not read keep none. */
#include "tools/eval/drt_eval_samples.h"
#include "base/memory.h"
#include <string.h>

enum { ARRAYS = 4 + EVAL_MEMORY_MODES * (1 + 3 * MEMORY_TAUS) };

/* Every array of floats; the first three are the model's. */
static int samples_arrays(struct eval_samples *s, float **all[ARRAYS]) {
    int n = 0;
    all[n++] = &s->log_lm;
    all[n++] = &s->entropy;
    all[n++] = &s->largest;
    for (int m = 0; m < EVAL_MEMORY_MODES; m++) {
        all[n++] = &s->memory[m].nearest;
        for (int t = 0; t < MEMORY_TAUS; t++) {
            all[n++] = &s->memory[m].log_p[t];
            all[n++] = &s->memory[m].lse[t];
            all[n++] = &s->memory[m].squares[t];
        }
    }
    return n;
}

void eval_samples_free(struct eval_samples *s) {
    float **all[ARRAYS];
    int n = samples_arrays(s, all);
    for (int i = 0; i < n; i++)
        memory_free(*all[i]);
    memory_free(s->document);
    *s = (struct eval_samples){0};
}

/* The tokens that were added last. */
static void put(float *to, const struct eval_samples *s, const float *from) {
    memcpy(to + s->first, from, (size_t)(s->n - s->first) * sizeof *to);
}

/* All arrays, also of memories that are not read: half a kilobyte a token, so that they have one capacity. */
static enum status samples_grow(struct eval_samples *s, int64_t n) {
    float **all[ARRAYS];
    int arrays = samples_arrays(s, all);
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

enum status eval_samples_lm(struct eval_samples *s, const struct memory_lm *lm, int64_t n, int32_t document) {
    TRY(samples_grow(s, s->n + n));
    s->first = s->n;
    s->n += n;
    for (int64_t i = s->first; i < s->n; i++)
        s->document[i] = document;
    put(s->log_lm, s, lm->log_p);
    put(s->entropy, s, lm->entropy);
    put(s->largest, s, lm->largest);
    return STATUS_OK;
}

void eval_samples_memory(struct eval_samples *s, int mode, const struct memory_read reads[MEMORY_TAUS]) {
    int m = mode - EVAL_MEMORY_OWN;
    put(s->memory[m].nearest, s, reads[0].nearest);
    for (int t = 0; t < MEMORY_TAUS; t++) {
        put(s->memory[m].log_p[t], s, reads[t].log_p);
        put(s->memory[m].lse[t], s, reads[t].lse);
        put(s->memory[m].squares[t], s, reads[t].squares);
    }
}

struct memory_samples eval_samples_of(const struct eval_samples *s, int mode) {
    int m = mode - EVAL_MEMORY_OWN;
    struct memory_samples out = {.n = s->n,
                                 .document = s->document,
                                 .log_lm = s->log_lm,
                                 .entropy = s->entropy,
                                 .largest = s->largest,
                                 .nearest = s->memory[m].nearest};
    for (int t = 0; t < MEMORY_TAUS; t++) {
        out.log_p[t] = s->memory[m].log_p[t];
        out.lse[t] = s->memory[m].lse[t];
        out.squares[t] = s->memory[m].squares[t];
    }
    return out;
}
