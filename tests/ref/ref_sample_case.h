/* ref_sample_case.h -- inputs of training's sampling (topk.h) for the tests of both twins. */
#pragma once
#include "base/rng.h"
#include "kernels/search/topk.h"
#include <stdlib.h>

/* Ranges and documents of every kind for n rows and e landmarks: `kind` 0: own past alone, 1: also other sequences, 2:
 * with documents. */
struct sample_case {
    int32_t *own_begin, *own_end, *sequence_end, *other_begin, *other_end, (*document_of)[2], (*document_barred)[2];
};
static inline struct sample_case sample_case_make(int64_t n, int64_t e, int kind, struct rng *rng) {
    struct sample_case c = {0};
    int32_t **ranges[] = {&c.own_begin, &c.own_end, &c.sequence_end, &c.other_begin, &c.other_end};
    for (int i = 0; i < (kind ? 5 : 3); i++) *ranges[i] = calloc((size_t)n + 1, sizeof(int32_t));
    for (int64_t r = 0; r < n; r++) {
        int32_t begin = (int32_t)rng_below(rng, (uint64_t)e),
                length = (int32_t)rng_below(rng, (uint64_t)(e - begin) + 1);
        c.own_begin[r] = begin;
        c.sequence_end[r] = begin + length;
        c.own_end[r] = r == 1 ? begin : begin + (int32_t)rng_below(rng, (uint64_t)length + 1);
        if (!kind) continue;
        c.other_begin[r] = r % 3 == 0 ? 0 : (int32_t)rng_below(rng, (uint64_t)e);
        c.other_end[r] =
            r % 3 == 0 ? (int32_t)e : c.other_begin[r] + (int32_t)rng_below(rng, (uint64_t)(e - c.other_begin[r]) + 1);
        if (r == 2) c.other_end[r] = c.other_begin[r], c.own_end[r] = c.own_begin[r];      /* an empty range */
    }
    if (kind < 2) return c;
    c.document_of = calloc((size_t)e + 1, sizeof *c.document_of);
    c.document_barred = calloc((size_t)n + 1, sizeof *c.document_barred);
    for (int64_t i = 0; i < e; i++) {
        c.document_of[i][0] = i % 11 == 5 ? -1 : (int32_t)rng_below(rng, 40);
        c.document_of[i][1] = c.document_of[i][0] + (i % 11 == 5 ? 0 : (int32_t)rng_below(rng, 3));
    }
    for (int64_t r = 0; r < n; r++) {
        c.document_barred[r][0] = (int32_t)rng_below(rng, 40);
        c.document_barred[r][1] = c.document_barred[r][0] + (int32_t)rng_below(rng, 4);
    }
    return c;
}
static inline struct topk_rows sample_case_rows(const struct sample_case *c) {
    return (struct topk_rows){c->own_begin, c->own_end, c->sequence_end, c->other_begin, c->other_end,
                              (const int32_t (*)[2])c->document_of, (const int32_t (*)[2])c->document_barred};
}
static inline void sample_case_free(struct sample_case *c) {
    free(c->own_begin), free(c->own_end), free(c->sequence_end), free(c->other_begin), free(c->other_end);
    free(c->document_of), free(c->document_barred);
}
