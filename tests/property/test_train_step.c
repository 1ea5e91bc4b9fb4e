/* test_train_step.c -- a training step of small random models of every variant: its losses are those of inference, and
 * neither recomputation, threads nor the division into micro-batches changes its gradients. (test_train_gradients.c
 * tests that they are right.) */
#include "decoder/decoder.h"
#include "encoder/encoder.h"
#include "indexer/retrieve/retriever.h"
#include "tests/corpus_fixture.h"

/* Largest difference of a tensor's gradients, divided by its largest element; gives the name of the worst tensor. */
static double worst_difference(const struct model *m, const float *a, const float *b, const char **name) {
    double worst = 0;
    for (int i = 0; i < params_count(m->params); i++) {
        const struct param *p = params_at(m->params, i);
        double largest = 1e-12, difference = 0;
        for (int64_t j = 0; j < p->rows * p->cols; j++, a++, b++) {
            largest = fmax(largest, fabs((double)*a));
            difference = fmax(difference, fabs((double)*a - (double)*b));
        }
        if (difference / largest <= worst) continue;
        worst = difference / largest;
        *name = p->name;
    }
    return worst;
}

static void check_same(const struct model *m, const float *a, const float *b, double tolerance, const char *what) {
    const char *name = "";
    double worst = worst_difference(m, a, b, &name);
    if (!(worst <= tolerance)) fprintf(stderr, "%s: %s differs by %g of its largest element\n", what, name, worst);
    CHECK(worst <= tolerance);
}

/* ---- the same numbers by other methods */

static void check_methods(const struct variant *v, const struct model *m) {
    struct text both, one[SEQUENCES];
    struct step_report report, other;
    struct step_config config = config_of(v, SEQUENCES);
    struct step_now now = now_of(v);
    make_text(&both, v, 0, SEQUENCES);
    struct device *dev = open_device(1), *two = open_device(2);
    struct step *s = make_step(dev, m, &config);
    float *plain = train_fixture_run(s, m, &both.batch, 1, &now, &report),
          *again = train_fixture_run(s, m, &both.batch, 1, &now, &other);
    CHECK(memcmp(plain, again, (size_t)params_elements(m->params) * sizeof *plain) == 0);
    CHECK(memcmp(&report, &other, sizeof report) == 0);
    free(again);

    config.recompute = true;
    struct step *recomputing = make_step(dev, m, &config);
    again = train_fixture_run(recomputing, m, &both.batch, 1, &now, &other);
    CHECK(memcmp(plain, again, (size_t)params_elements(m->params) * sizeof *plain) == 0);
    CHECK(step_bytes(recomputing) < step_bytes(s));
    free(again), step_free(recomputing);

    config.recompute = false;
    struct step *threaded = make_step(two, m, &config);
    again = train_fixture_run(threaded, m, &both.batch, 1, &now, &other);
    check_same(m, plain, again, 2e-5, "two threads");
    free(again), step_free(threaded);

    /* The contrastive loss and the pool "batch" use one micro-batch only, so they have other results with smaller
     * ones. */
    if (!v->contrastive && v->pool != POOL_BATCH) {
        struct batch batches[SEQUENCES];
        config.sequences = 1;
        struct step *small = make_step(dev, m, &config);
        for (int i = 0; i < SEQUENCES; i++) {
            make_text(&one[i], v, i, 1);
            batches[i] = one[i].batch;
        }
        again = train_fixture_run(small, m, batches, SEQUENCES, &now, &other);
        check_same(m, plain, again, 2e-5, "micro-batches");
        CHECK(fabs(report.loss - other.loss) < 1e-6 && report.scored == other.scored);
        CHECK(!v->mlm || fabs(report.mlm_loss - other.mlm_loss) < 1e-6);
        free(again), step_free(small);
        for (int i = 0; i < SEQUENCES; i++)
            free_text(&one[i]);
    }
    free(plain), step_free(s), free_text(&both);
    device_close(dev), device_close(two);
}

/* ---- inference */

/* Sum of the losses of one sequence, computed by the decoder. */
static double inferred(struct device *dev, const struct variant *v, const struct model *m, const int32_t *ids,
                       const int32_t *targets, int64_t rows, int64_t positions) {
    struct weights weights = weights_of_params(m->params);
    struct decoder *decoder;
    struct decoder_state *state;
    struct encoder *encoder = NULL;
    struct retriever *retriever = NULL;
    int64_t n = 0;
    int32_t *real = calloc((size_t)rows, sizeof *real), *wanted = calloc((size_t)rows, sizeof *wanted);
    float *nll = calloc((size_t)rows, sizeof *nll);
    CHECK(real && wanted && nll);
    for (int64_t r = 0; r < rows; r++) {
        if (positions > 1 && r % positions == positions - 1) continue;
        real[n] = ids[r];
        wanted[n++] = targets[r];
    }
    CHECK_OK(decoder_create(&decoder, dev, &m->config, &weights, 0));
    if (v->pool == POOL_OWN_PAST) {
        CHECK_OK(encoder_create(&encoder, dev, &m->config, &weights, 3));
        struct chunk_retriever_config how = {
            .device = dev, .model = &m->config, .encoder = encoder, .own_past = true, .exclude_document = -1};
        CHECK_OK(chunk_retriever_create(&retriever, &how));
    }
    CHECK_OK(decoder_state_create(&state, decoder, retriever));
    struct decoder_output out = {.targets = wanted, .nll = nll};
    CHECK_OK(decoder_forward(state, &out, real, n));
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)nll[i];
    decoder_state_free(state);
    if (retriever) retriever->free(retriever);
    decoder_free(decoder), encoder_free(encoder);
    free(real), free(wanted), free(nll);
    return sum;
}

static void check_inference(const struct variant *v, const struct model *m) {
    if (v->pool == POOL_BATCH) return;
    struct text t;
    struct step_config config = config_of(v, SEQUENCES);
    make_text(&t, v, 0, SEQUENCES);
    struct device *dev = open_device(1);
    struct step *s = make_step(dev, m, &config);
    struct step_report report;
    struct step_now now = now_of(v);
    double sums[SEQUENCES], sum = 0, reference = 0;
    float *before = train_fixture_run(s, m, &t.batch, 1, &now, &report);
    CHECK_OK(step_evaluate(s, sums, NULL, &t.batch, v->pool));
    float *after = gradients_of(s, m);
    CHECK(memcmp(before, after, (size_t)params_elements(m->params) * sizeof *before) == 0);
    int64_t length = t.rows / SEQUENCES;
    for (int i = 0; i < SEQUENCES; i++) {
        double one = inferred(dev, v, m, t.ids + i * length, t.targets + i * length, length, t.positions);
        CHECK(fabs(sums[i] - one) / (double)t.batch.scored < 1e-5);
        sum += sums[i], reference += one;
    }
    CHECK(fabs(sum - reference) / (double)t.batch.scored < 1e-5);
    if (!v->mlm) CHECK(fabs(sum / (double)t.batch.scored - report.loss) < 1e-6);
    free(before), free(after), step_free(s), free_text(&t), device_close(dev);
}

/* ---- a corpus: gradients reach the candidates; a query does not get what it may not read. */

static void check_corpus_choices(const struct variant *v, const struct step *s) {
    int64_t Q = SEQUENCES * v->chunks, found = 0;
    for (int64_t row = 0; row < Q * s->model.groups; row++) {
        int64_t group = row / Q, r = row % Q;
        for (int64_t j = r * TOPK; j < (r + 1) * TOPK; j++) {
            int64_t e = s->neighbours[group].index[j];
            if (e < Q) continue;
            CHECK_EQ((e - Q) / CANDIDATES, group * Q + r); /* its own candidates */
            int32_t document = s->visible.document_of[e][0];
            CHECK(document == 40 || document == 41);
            CHECK_EQ(s->encoder_ids[e * 64 + 63], 96);
            found++;
        }
    }
    CHECK_EQ(found, s->model.groups * SEQUENCES * (v->chunks - 1) * CANDIDATES);
}

static void check_corpus(void) {
    const struct variant v = {"corpus", "[1,1,1]", "tokens", 1, 63, 80, 3, true, true, true, POOL_CORPUS};
    struct corpus_scene scene;
    struct step_report report;
    double sums[SEQUENCES];
    make_scene(&scene, &v, 6);
    const struct model *m = &scene.m;
    const struct batch *batch = &scene.t.batch;
    struct corpus_pool *again = make_corpus(scene.dev, &v, m);
    struct step *s = scene.s, *other = corpus_step(scene.dev, &v, m, again, true);
    struct step_now now = now_of(&v);
    float *a = train_fixture_run(s, m, batch, 1, &now, &report),
          *b = train_fixture_run(other, m, batch, 1, &now, &report);
    check_corpus_choices(&v, s);
    CHECK(memcmp(a, b, (size_t)params_elements(m->params) * sizeof *a) == 0);
    CHECK_OK(step_evaluate(s, sums, NULL, batch, POOL_CORPUS));
    CHECK(isfinite(sums[0]) && isfinite(sums[1]));
    free(a), free(b), step_free(other), corpus_pool_free(again), free_scene(&scene);
}
/* ---- a cut query: the contrastive loss has gradients for the encoder and the query's projection, and for no layer of
 * the decoder. */
static void check_cut(void) {
    const struct variant v = {"cut", "[1,1]", "tokens", 1, 63, 70, 4, true, false, true, POOL_OWN_PAST};
    struct model m;
    struct text t;
    make_model(&m, &v, 4);
    make_text(&t, &v, 0, SEQUENCES);
    struct device *dev = open_device(2);
    struct step_config config = config_of(&v, SEQUENCES);
    struct step_now now = now_of(&v), off = now;
    off.contrastive_weight = 0.0F;
    struct step_report report;
    config.cut_query = true;
    struct step *s = make_step(dev, &m, &config);
    float *with = train_fixture_run(s, &m, &t.batch, 1, &now, &report),
          *without = train_fixture_run(s, &m, &t.batch, 1, &off, &report);
    CHECK(isnan(report.contrastive_loss));
    int64_t at = 0;
    for (int i = 0; i < params_count(m.params); i++) {
        const struct param *p = params_at(m.params, i);
        size_t bytes = (size_t)(p->rows * p->cols) * sizeof(float);
        bool layer = strstr(p->name, "_layers.") != NULL || strcmp(p->name, "model.norm.weight") == 0 ||
                     strstr(p->name, "lmk_norms") != NULL;
        bool moved = strstr(p->name, "lmk_q_proj") != NULL || strstr(p->name, "model.encoder.") != NULL ||
                     strstr(p->name, "lmk_k_proj") != NULL;
        bool same = memcmp(with + at, without + at, bytes) == 0;
        if (layer) CHECK(same);
        if (moved) CHECK(!same);
        at += p->rows * p->cols;
    }
    free(with), free(without), step_free(s), free_text(&t), params_free(m.params), device_close(dev);
}

/* ---- learning: the optimizer gets the gradients, and the loss of one batch falls. */
static void check_learning(void) {
    const struct variant v = variants[1];
    struct model m;
    struct text t;
    make_model(&m, &v, 5);
    make_text(&t, &v, 0, SEQUENCES);
    struct device *dev = open_device(2);
    struct step_config config = config_of(&v, SEQUENCES);
    struct step_now now = now_of(&v);
    struct step *s = make_step(dev, &m, &config);
    struct step_report first, report;
    for (int i = 1; i <= 12; i++) {
        now.optimizer = (struct optimizer_now){.lr = 5e-3F, .step = i};
        CHECK_OK(step_run(s, i == 1 ? &first : &report, &t.batch, 1, &now));
    }
    CHECK(first.gradient_norm > 0 && report.loss < first.loss - 0.2 && report.mlm_loss < first.mlm_loss);
    struct params *weights;
    CHECK_OK(params_init(&weights, &m.config, 1));
    CHECK_OK(step_weights(s, weights));
    CHECK(memcmp(params_at(weights, 0)->data, optimizer_master(step_optimizer(s))->data,
                 (size_t)params_elements(weights) * sizeof(float)) == 0);
    params_free(weights), step_free(s), free_text(&t), params_free(m.params), device_close(dev);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 11);
    for (size_t i = 0; i < ARRAY_LEN(variants); i++) {
        struct model m;
        make_model(&m, &variants[i], test_seed() + i);
        check_methods(&variants[i], &m);
        check_inference(&variants[i], &m);
        params_free(m.params);
    }
    check_corpus();
    check_cut();
    check_learning();
    return test_done();
}
