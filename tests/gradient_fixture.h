/* gradient_fixture.h -- a training step's gradients against finite differences of its losses, tensor by tensor. */
#pragma once
#include "tests/slope_fixture.h"
#include <limits.h>

/* Of each model: a sanitizer sees the same steps whatever tensor they vary. */
enum { TENSORS_MAX = TEST_SANITIZED ? 2 : INT_MAX };

/* The embedding's row that negative ids read: by definition it learns from the head alone, so its gradient is not the
 * derivative. */
static int64_t pad_row(const struct model_config *c) {
    return c->base_lm ? 0 : c->pad_id;
}

static void check_slope(const struct subject *of, const struct param *p, float *weights, const float *gradient,
                        float *direction, double norm, double most) {
    int64_t n = p->rows * p->cols;
    double slope = 0;
    if (norm <= 0) { /* the loss does not depend on it */
        CHECK(fabs(slope_of(of, weights, direction, n, most)) <= 0);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        if (p->rows == VOCAB && j / p->cols == pad_row(&of->m->config)) direction[j] = 0.0F;
        slope += (double)direction[j] * (double)gradient[j];
    }
    struct estimate e = estimate_slope(of, weights, direction, n, fmin(most, 0.03 / norm), 2e-3 * norm);
    bool good = fabs(e.slope - slope) <= 3e-3 * norm + 2 * e.error && e.error <= 0.02 * norm + 5e-5;
    if (!good)
        fprintf(stderr, "%s: %s: slope %g by differences (+- %g), %g by the gradient (norm %g)\n", of->name, p->name,
                e.slope, e.error, slope, norm);
    CHECK(good);
}

/* Compares slopes along the tensor's gradient, which is far above the noise and shows a wrong scale, and along a random
 * corner of a cube, which shows a wrong part of the gradient in proportion to its length, in any direction. */
static void check_tensor(const struct subject *of, const struct param *p, float *weights, const float *gradient,
                         struct rng *rng) {
    int64_t n = p->rows * p->cols;
    double norm = 0, size = 0;
    for (int64_t j = 0; j < n; j++) {
        norm += (double)gradient[j] * (double)gradient[j];
        size += (double)weights[j] * (double)weights[j];
    }
    norm = sqrt(norm), size = sqrt(size);
    float *direction = malloc((size_t)n * sizeof *direction);
    CHECK(direction);
    for (int64_t j = 0; j < n; j++)
        direction[j] = norm > 0 ? (float)((double)gradient[j] / norm) : 0.0F;
    check_slope(of, p, weights, gradient, direction, norm, 0.1 * size);
    for (int64_t j = 0; j < n; j++)
        direction[j] = rng_below(rng, 2) ? 1.0F : -1.0F;
    check_slope(of, p, weights, gradient, direction, norm, 0.1 * size / sqrt((double)n));
    free(direction);
}

static void differences(struct subject *of) {
    struct step_report report;
    float *gradient = train_fixture_run(of->s, of->m, of->batch, 1, &of->now, &report);
    float *weights = optimizer_master(step_optimizer(of->s))->data;
    struct rng rng = rng_make(test_seed(), 9);
    if (of->s->encoder_ids) {
        CHECK(of->chosen = malloc(chosen_bytes(of->s)));
        memcpy(of->chosen, of->s->encoder_ids, chosen_bytes(of->s)); /* the CPU's memory */
    }
    int64_t at = 0;
    int tested = 0;
    for (int i = 0; i < params_count(of->m->params); i++) {
        const struct param *p = params_at(of->m->params, i);
        bool all = strncmp(p->name, "memory.", 7) == 0 || i % of->every == 0;
        if ((of->taught ? teach_student(of->m, p->name) : all) && tested < TENSORS_MAX) {
            check_tensor(of, p, weights + at, gradient + at, &rng);
            tested++;
        }
        at += p->rows * p->cols;
    }
    free(of->chosen), of->chosen = NULL;
    free(gradient);
}
