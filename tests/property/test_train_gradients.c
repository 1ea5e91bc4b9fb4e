/* test_train_gradients.c -- a training step's gradients are those of differences of its own losses: every tensor of
 * every variant, every pool, with noise on the choice, with what a corpus adds. */
#include "tests/corpus_fixture.h"
#include "tests/memory_fixture.h"

/* Sanitizers look for other faults, and take ten times as long: a part of the tensors will do. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVERY = 6 };
#else
enum { EVERY = 1 };
#endif

/* What a step is differenced with. */
struct subject {
    const char *name;
    const struct model *m;
    struct step *s;
    const struct batch *batch;
    struct step_now now;
    int32_t *chosen; /* what the encoder was given, of the corpus too, with the weights as they are */
};

static double total(const struct step_report *r, const struct step_now *now) {
    double sum = r->loss;
    if (!isnan(r->mlm_loss)) sum += (double)now->mlm_weight * r->mlm_loss;
    if (!isnan(r->contrastive_loss)) sum += (double)now->contrastive_weight * r->contrastive_loss;
    if (!isnan(r->memory_loss)) sum += (double)now->memory_weight * (r->memory_loss - r->loss);
    return sum;
}

static size_t chosen_bytes(const struct step *s) {
    return s->encoder_ids ? (size_t)(s->max_chunks * s->positions) * sizeof(int32_t) : 0;
}

/* The loss with one tensor's weights moved along `direction`, there and back: its slope. NaN where something else is
 * found there in the corpus: that is no derivative. */
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

/* A slope, and what it may be wrong by.
 *
 * No one step serves all tensors. A difference over `by` is wrong by about c by^2 (several percent where a small model
 * bends sharply) and by the loss' float32 noise over `by`. So the step is halved, two differences become one without
 * the c by^2, and their distance says how much of it there was (so does a quarter of the distance before, in case the
 * curve crosses itself); the best of them counts. */
struct estimate {
    double slope, error;
};

static struct estimate estimate_slope(const struct subject *of, float *weights, const float *direction, int64_t n,
                                      double by, double enough) {
    enum { HALVINGS = 10 };
    const double noise = 2e-7; /* of a loss: measured, four times what is usual */
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

/* Row of the embedding that ids of no token read: it learns from the head alone, by rule, which is no derivative. */
static int64_t pad_row(const struct model_config *c) {
    return c->base_lm ? 0 : c->pad_id;
}

static void check_slope(const struct subject *of, const struct param *p, float *weights, const float *gradient,
                        float *direction, double norm, double most) {
    int64_t n = p->rows * p->cols;
    double slope = 0;
    if (norm <= 0) { /* nothing hangs on it */
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

/* Along the tensor's gradient (a slope far above the noise, so a wrong scale shows) and along a random corner of a
 * cube, where a part of the gradient that is wrong shows as much as it is long, wherever it points. */
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
    for (int i = 0; i < params_count(of->m->params); i++) {
        const struct param *p = params_at(of->m->params, i);
        if (i % EVERY == 0) check_tensor(of, p, weights + at, gradient + at, &rng);
        at += p->rows * p->cols;
    }
    free(of->chosen), of->chosen = NULL;
    free(gradient);
}

/* With noise on the choice and far contrastive targets; activations are made again. */
static void check_variant(const struct variant *v, uint64_t seed) {
    struct model m;
    struct text t;
    make_model(&m, v, seed);
    make_text(&t, v, 0, SEQUENCES);
    struct device *dev = open_device(1);
    struct step_config config = config_of(v, SEQUENCES);
    config.gumbel = v->pool != POOL_NONE, config.recompute = true;
    struct subject of = {v->name, &m, make_step(dev, &m, &config), &t.batch, now_of(v), NULL};
    of.now.contrastive_reach = 3;
    differences(&of);
    step_free(of.s), free_text(&t), params_free(m.params), device_close(dev);
}

static void check_corpus(void) {
    const struct variant v = {"corpus", "[1,1,1]", "tokens", 1, 63, 80, 3, true, true, true, POOL_CORPUS};
    struct corpus_scene scene;
    make_scene(&scene, &v, 6);
    struct subject of = {"corpus, copies", &scene.m, scene.s, &scene.t.batch, now_of(&v), NULL};
    of.now.corpus_alone = 0.5F, of.now.copy_rate = 0.5F;
    differences(&of);
    of.name = "corpus, not asked yet";
    of.now = now_of(&v), of.now.pool = POOL_BATCH;
    differences(&of);
    free_scene(&scene);
}

static void check_memory(const struct memory_case *c, uint64_t seed) {
    struct model m;
    struct memory_text t;
    make_memory_model(&m, c, seed);
    make_memory_text(&t, c, 0, c->sequences);
    struct device *dev = open_device(1);
    struct subject of = {c->name, &m, make_memory_step(dev, &m, c, c->sequences), &t.t.batch, memory_now(c, 0.6F),
                         NULL};
    differences(&of);
    step_free(of.s), free_memory_text(&t), params_free(m.params), device_close(dev);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 11);
    for (size_t i = 0; i < ARRAY_LEN(variants); i++)
        check_variant(&variants[i], test_seed() + i);
    for (size_t i = 0; i < ARRAY_LEN(memory_cases); i++)
        check_memory(&memory_cases[i], test_seed() + i);
    check_corpus();
    return test_done();
}
