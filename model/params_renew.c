/* params_renew.c -- new embeddings of ids that hardly occurred in the training text (params.h). */
#include "base/memory.h"
#include "base/rng.h"
#include "model/params.h"
#include <assert.h>
#include <math.h>

enum { RENEW_PARTS = 3 };

static double renew_product(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

struct renew_ids {
    int32_t *renewed, *others;
    int64_t n_renewed, n_others;
    double norm; /* mean length of the other ids' rows */
};

/* Sets a row to the sum of three other ids' rows, scaled to their mean length. */
static void renew_row(float *row, const struct param *table, const struct renew_ids *ids, struct rng *rng) {
    const float *part[RENEW_PARTS];
    for (int p = 0; p < RENEW_PARTS; p++)
        part[p] = table->data + ids->others[rng_below(rng, (uint64_t)ids->n_others)] * table->cols;
    for (int64_t i = 0; i < table->cols; i++)
        row[i] = part[0][i] + part[1][i] + part[2][i];
    const double norm = sqrt(renew_product(row, row, table->cols));
    for (int64_t i = 0; i < table->cols && norm > 0; i++)
        row[i] = (float)((double)row[i] * ids->norm / norm);
}

static bool renew_reserved(const struct model_config *c, int64_t id) {
    return id == c->pad_id || id == c->landmark_id || id == c->mask_id || id == c->eos_id;
}

static void renew_divide(struct renew_ids *out, const struct param *table, const struct model_config *config,
                         double cosine) {
    const float *pad = table->data + (int64_t)config->pad_id * table->cols;
    const double pad_norm = sqrt(renew_product(pad, pad, table->cols));
    for (int64_t id = 0; id < table->rows; id++) {
        const float *row = table->data + id * table->cols;
        const double norm = sqrt(renew_product(row, row, table->cols));
        if (renew_reserved(config, id)) continue;
        if (renew_product(row, pad, table->cols) > cosine * norm * pad_norm) {
            out->renewed[out->n_renewed++] = (int32_t)id;
            continue;
        }
        out->others[out->n_others++] = (int32_t)id;
        out->norm += norm;
    }
    if (out->n_others > 0) out->norm /= (double)out->n_others;
}

enum status params_renew(struct params *p, const struct model_config *config, double cosine, uint64_t seed,
                         int64_t *renewed) {
    const struct param *table = params_at(p, 0);
    struct renew_ids ids = {0};
    struct rng rng = rng_make(seed, 0x72656e6577);
    assert(config->pad_id >= 0 && table->rows == config->vocab_size);
    enum status status = memory_allocate(&ids.renewed, (size_t)table->rows);
    if (status == STATUS_OK) status = memory_allocate(&ids.others, (size_t)table->rows);
    if (status == STATUS_OK) {
        renew_divide(&ids, table, config, cosine);
        for (int64_t i = 0; i < ids.n_renewed && ids.n_others > 0; i++)
            renew_row((float *)table->data + ids.renewed[i] * table->cols, table, &ids, &rng);
        *renewed = ids.n_others > 0 ? ids.n_renewed : 0;
    }
    memory_free(ids.renewed);
    memory_free(ids.others);
    return status;
}
