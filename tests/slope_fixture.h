/* slope_fixture.h -- the slope of a training step's loss along a direction of one tensor, by finite differences. */
#pragma once
#include "tests/teach_fixture.h"

/* The inputs of the differences of a step. */
struct subject {
    const char *name;
    const struct model *m;
    struct step *s;
    const struct batch *batch;
    struct step_now now;
    int32_t *chosen; /* the encoder's input, also of the corpus, with the original weights */
    bool taught;     /* only tensors that the teacher does not depend on, because the teacher has no gradient */
    int every;       /* one of so many tensors, besides the memory's own */
};

static double total(const struct step_report *r, const struct step_now *now) {
    double sum = r->loss;
    if (!isnan(r->mlm_loss)) sum += (double)now->mlm_weight * r->mlm_loss;
    if (!isnan(r->contrastive_loss)) sum += (double)now->contrastive_weight * r->contrastive_loss;
    if (!isnan(r->teach_loss)) sum += (double)now->teach_weight * r->teach_loss;
    if (!isnan(r->memory_loss)) sum += (double)now->memory_weight * (r->memory_loss - r->loss);
    return sum;
}

static size_t chosen_bytes(const struct step *s) {
    return s->encoder_ids ? (size_t)(s->max_chunks * s->positions) * sizeof(int32_t) : 0;
}

/* Moves one tensor's weights along `direction` in both senses: the slope of the loss. NaN if other candidates of the
 * corpus are found there, because that is not a derivative. */
static double slope_of(const struct subject *of, float *weights, const float *direction, int64_t n, double by) {
    struct step_report report;
    double values[2];
    bool same = true;
    float *old = malloc((size_t)n * sizeof *old);
    CHECK(old);
    memcpy(old, weights, (size_t)n * sizeof *old);
    for (int side = 0; side < 2; side++) {
        for (int64_t j = 0; j < n; j++)
            weights[j] = (float)((double)old[j] + (side ? -by : by) * (double)direction[j]);
        CHECK_OK(step_run(of->s, &report, of->batch, 1, &of->now));
        values[side] = total(&report, &of->now);
        same = same && (!of->chosen || memcmp(of->chosen, of->s->encoder_ids, chosen_bytes(of->s)) == 0);
    }
    memcpy(weights, old, (size_t)n * sizeof *old);
    free(old);
    return same ? (values[0] - values[1]) / (2 * by) : (double)NAN;
}

/* A slope, and its possible error.
 *
 * No single step is right for all tensors. A difference over `by` has an error of about c by^2 (several percent if a
 * small model is strongly curved) and the loss' float32 noise divided by `by`. So the step is halved repeatedly. Two
 * differences are combined into one without the term c by^2, and their distance estimates this term (so does a quarter
 * of the distance before, in case the curve crosses itself). The best estimate counts. */
struct estimate {
    double slope, error;
};

static struct estimate estimate_slope(const struct subject *of, float *weights, const float *direction, int64_t n,
                                      double by, double enough) {
    enum { HALVINGS = 10 };
    const double noise = 2e-7; /* noise of a loss: measured, four times the usual value */
    struct estimate best = {0, INFINITY};
    double wide = slope_of(of, weights, direction, n, by), before = INFINITY;
    for (int i = 0; i < HALVINGS && best.error > enough; i++) {
        by /= 2;
        double narrow = slope_of(of, weights, direction, n, by), distance = fabs(wide - narrow);
        double error = fmax(distance, before / 4) / 3 + noise / by;
        if (!isnan(distance) && error < best.error) best = (struct estimate){(4 * narrow - wide) / 3, error};
        wide = narrow, before = isnan(distance) ? INFINITY : distance;
    }
    return best;
}
