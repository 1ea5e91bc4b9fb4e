/* decoder_head.c -- the final norm and the tied head, for the requested rows only.
 *
 * Vocabulary x hidden is the largest matrix of a small model, so a prefill that needs one row of logits must not
 * compute a thousand. The head is never computed for landmark rows (model.md §6.4). */
#include "decoder/decoder_internal.h"
#include <assert.h>
#include <string.h>

/* Writes the norms of the selected ids' rows of x into the first rows of h; one call for consecutive rows. */
static void decoder_head_norm_rows(struct decoder *d, const struct decoder_pass *p, struct mat x,
                                   const int64_t *selected, int64_t n) {
    struct mat h = d->scratch.h;
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t row = decoder_pass_row(d, p, selected[i]);
        for (run = 1; i + run < n && decoder_pass_row(d, p, selected[i + run]) == row + run;)
            run++;
        d->dev->ops->norm->forward(d->dev, mat_rows(h, i, run), decoder_no_rstd(run), mat_rows(x, row, run),
                                   d->weights.final_norm, d->config.rms_eps);
    }
}

static void decoder_head_losses(struct decoder *d, const struct decoder_output *out, const int64_t *selected, int64_t n,
                                int64_t offset, int64_t pass) {
    memset(out->nll + offset, 0, (size_t)pass * sizeof *out->nll);
    if (n == 0) return;
    struct decoder_scratch *s = &d->scratch;
    int32_t *targets = s->ids; /* the pass has embedded its ids, so both of their buffers are free */
    for (int64_t i = 0; i < n; i++)
        targets[i] = out->targets[offset + selected[i]];
    int32_t *targets_device = device_side(d->dev, targets, s->ids_device);
    const float *nll = s->nll.host;
    device_upload(d->dev, targets_device, targets, (size_t)n * sizeof *targets);
    const bool rounded = d->weights.narrow && d->weights.narrow_rows > MATMUL_FEW_ROWS; /* one of 8-bit weights */
    d->dev->ops->loss->forward(d->dev, s->nll.device, mat_rows(s->h, 0, n),
                               rounded ? d->weights.narrow_embed : d->weights.embed, targets_device);
    device_pair_download(d->dev, &s->nll, (size_t)n * sizeof *nll);
    for (int64_t i = 0; i < n; i++)
        out->nll[offset + selected[i]] = nll[i];
}

/* Computes logits of n rows of h into device memory. */
static void decoder_head_product(struct decoder *d, float *logits_device, int64_t first, int64_t n) {
    bool narrow = d->weights.narrow && n <= d->weights.narrow_rows;
    d->dev->ops->matmul->forward(d->dev, mat_f32(logits_device, n, d->config.vocab_size),
                                 mat_rows(d->scratch.h, first, n), narrow ? d->weights.narrow_embed : d->weights.embed,
                                 false);
}

/* Computes logits of the first n rows of h, logit_rows at a time. */
static void decoder_head_logits(struct decoder *d, float *out, int64_t n) {
    int64_t vocab = d->config.vocab_size;
    for (int64_t done = 0, part; done < n; done += part) {
        part = n - done < d->logit_rows ? n - done : d->logit_rows;
        float *part_out = out + done * vocab, *out_device = device_side(d->dev, part_out, d->scratch.logits_device);
        decoder_head_product(d, out_device, done, part);
        device_download(d->dev, part_out, out_device, (size_t)(part * vocab) * sizeof *part_out);
    }
}

void decoder_head(struct decoder_state *s, const struct decoder_output *out, const struct decoder_pass *p, struct mat x,
                  int64_t offset, int64_t total) {
    struct decoder *d = s->decoder;
    int64_t *selected = d->scratch.selected, n = 0;
    if (s->watch.rows) {
        struct mat all = mat_rows(d->scratch.q, 0, p->positions);
        d->dev->ops->norm->forward(d->dev, all, decoder_no_rstd(all.rows), x, d->weights.final_norm, d->config.rms_eps);
        decoder_watch_rows(s, "final", 0, p->first, all);
    }
    bool last = (out->logits || out->logits_device) && !out->logits_all && offset + p->n == total;
    assert(!out->logits || !out->logits_device);
    if (out->nll) {
        for (int64_t j = 0; j < p->n; j++)
            if (out->targets[offset + j] >= 0) selected[n++] = j;
        decoder_head_norm_rows(d, p, x, selected, n);
        decoder_head_losses(d, out, selected, n, offset, p->n);
    }
    if (!last && !(out->logits && out->logits_all)) return;
    n = 0;
    for (int64_t j = last ? p->n - 1 : 0; j < p->n; j++)
        selected[n++] = j;
    decoder_head_norm_rows(d, p, x, selected, n);
    if (out->logits_device)
        decoder_head_product(d, out->logits_device, 0, n);
    else
        decoder_head_logits(d, out->logits + (last ? 0 : offset * d->config.vocab_size), n);
}

void decoder_queue_ops(const struct decoder *d, const struct decoder_output *out) {
    if (out->pick) d->dev->ops->pick->rows(d->dev, out->pick, 1, d->config.vocab_size);
    if (out->then) out->then(out->context, d->dev);
}
