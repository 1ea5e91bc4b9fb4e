/* decoder_keys.c -- key states of a pass: what a token memory compares (docs/token-memory.md). */
#include "decoder/decoder_keys_internal.h"

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

void decoder_keys_keep(struct decoder *d, const struct decoder_pass *p, int layer, struct mat h, int64_t begin) {
    if (!p->keys.data || layer + 1 != p->key_layer) return;
    int64_t end = begin + h.rows;
    /* Runs of ids without a landmark between them are neighbouring rows. */
    for (int64_t j = 0, run; j < p->n; j += run) {
        int64_t row = decoder_pass_row(d, p, j);
        for (run = 1; j + run < p->n && decoder_pass_row(d, p, j + run) == row + run;)
            run++;
        int64_t from = row > begin ? row : begin, n = smaller(row + run, end) - from;
        if (n <= 0) continue;
        d->dev->ops->norm->forward(d->dev, mat_rows(p->keys, j + from - row, n), decoder_no_rstd(n),
                                   mat_rows(h, from - begin, n), d->weights.layers[layer].post_norm, d->config.rms_eps);
    }
}
