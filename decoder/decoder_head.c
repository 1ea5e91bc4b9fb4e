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
    struct decoder_scratch *s = &d->scratch;
    int32_t *targets = s->ids; /* the pass has embedded its ids: both sides of them are free */
    for (int64_t i = 0; i < n; i++)
        targets[i] = out->targets[offset + wanted[i]];
    int32_t *targets_there = device_side(d->dev, targets, s->ids_room);
    float *nll_there = device_side(d->dev, s->nll, s->nll_room);
    device_upload(d->dev, targets_there, targets, (size_t)n * sizeof *targets);
    d->dev->ops->loss->forward(d->dev, nll_there, mat_rows(s->h, 0, n), d->weights.embed, targets_there);
    device_download(d->dev, s->nll, nll_there, (size_t)n * sizeof *s->nll);
    for (int64_t i = 0; i < n; i++)
        out->nll[offset + wanted[i]] = s->nll[i];
}

/* Of the first n rows of h, as many at once as there is room for. */
static void logits(struct decoder *d, float *out, int64_t n) {
    int64_t vocab = d->config.vocab_size;
    for (int64_t done = 0, part; done < n; done += part) {
        part = n - done < d->logit_rows ? n - done : d->logit_rows;
        bool narrow = d->weights.narrow && part <= MATMUL_FEW_ROWS;
        float *here = out + done * vocab, *there = device_side(d->dev, here, d->scratch.logits_room);
        d->dev->ops->matmul->forward(d->dev, mat_f32(there, part, vocab), mat_rows(d->scratch.h, done, part),
                                     narrow ? d->weights.narrow_embed : d->weights.embed, false);
        device_download(d->dev, here, there, (size_t)(part * vocab) * sizeof *here);
    }
}

void decoder_head(struct decoder_state *s, const struct decoder_output *out, const struct decoder_pass *p, struct mat x,
                  int64_t offset, int64_t total) {
    struct decoder *d = s->decoder;
    int64_t *wanted = d->scratch.wanted, n = 0;
    if (s->watch.rows) {
        struct mat all = mat_rows(d->scratch.q, 0, p->positions);
        d->dev->ops->norm->forward(d->dev, all, decoder_no_rstd(all.rows), x, d->weights.final_norm, d->config.rms_eps);
        decoder_watch_rows(s, "final", 0, p->first, all);
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
    logits(d, out->logits + (last ? 0 : offset * d->config.vocab_size), n);
}
