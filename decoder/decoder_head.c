/* decoder_head.c -- the last norm and the tied head, for the rows that are asked for and no others.
 *
 * Vocabulary x hidden is the largest matrix of a small model: a prefill that wants one row of logits must not pay for
 * a thousand. Landmark rows never reach the head (model.md §6.4). */
#include "decoder/decoder_internal.h"
#include <string.h>

/* Norms the wanted ids' rows of x into the first rows of h, run by run. */
static void norm_rows(struct decoder *d, const struct decoder_pass *p, struct mat x, const int64_t *wanted, int64_t n) {
    struct mat h = d->scratch.h;
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t row = decoder_pass_row(d, p, wanted[i]);
        for (run = 1; i + run < n && decoder_pass_row(d, p, wanted[i + run]) == row + run;)
            run++;
        d->dev->ops->norm->forward(d->dev, mat_rows(h, i, run), decoder_no_rstd(run), mat_rows(x, row, run),
                                   d->weights.final_norm, d->config.rms_eps);
    }
}

static void losses(struct decoder *d, const struct decoder_output *out, const int64_t *wanted, int64_t n,
                   int64_t offset, int64_t pass) {
    memset(out->nll + offset, 0, (size_t)pass * sizeof *out->nll);
    if (n == 0) return;
    int32_t *targets = d->scratch.ids;       /* the pass has embedded its ids: the room is free */
    float *nll = mat_row(d->scratch.sum, 0); /* and so is this; max_positions * hidden >= n */
    for (int64_t i = 0; i < n; i++)
        targets[i] = out->targets[offset + wanted[i]];
    d->dev->ops->loss->forward(d->dev, nll, mat_rows(d->scratch.h, 0, n), d->weights.embed, targets);
    for (int64_t i = 0; i < n; i++)
        out->nll[offset + wanted[i]] = nll[i];
}

void decoder_head(struct decoder_state *s, const struct decoder_output *out, const struct decoder_pass *p, struct mat x,
                  int64_t offset, int64_t total) {
    struct decoder *d = s->decoder;
    int64_t *wanted = d->scratch.wanted, n = 0;
    if (s->watch.rows) {
        struct mat all = mat_rows(d->scratch.q, 0, p->positions);
        d->dev->ops->norm->forward(d->dev, all, decoder_no_rstd(all.rows), x, d->weights.final_norm, d->config.rms_eps);
        s->watch.rows(s->watch.context, "final", 0, p->first, mat_row(all, 0), p->positions, all.cols);
    }
    bool last = out->logits && !out->logits_all && offset + p->n == total;
    if (out->nll) {
        for (int64_t j = 0; j < p->n; j++)
            if (out->targets[offset + j] >= 0) wanted[n++] = j;
        norm_rows(d, p, x, wanted, n);
        losses(d, out, wanted, n, offset, p->n);
    }
    if (!last && !(out->logits && out->logits_all)) return;
    n = 0;
    for (int64_t j = last ? p->n - 1 : 0; j < p->n; j++)
        wanted[n++] = j;
    norm_rows(d, p, x, wanted, n);
    float *logits = out->logits + (last ? 0 : offset * d->config.vocab_size);
    d->dev->ops->matmul->forward(d->dev, mat_f32(logits, n, d->config.vocab_size), mat_rows(d->scratch.h, 0, n),
                                 d->weights.embed, false);
}
