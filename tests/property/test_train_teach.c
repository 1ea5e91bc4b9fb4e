/* test_train_teach.c -- the taught retriever: gains and loss against plain loops in double precision over the keys,
 * losses, queries and landmarks of a step; which tensors learn; the same bits in a second run, with recomputed
 * activations, and in micro-batches; a student learns a teacher's order. (test_train_gradients.c tests the
 * gradients.) */
#include "tests/teach_fixture.h"

static int each_of(const struct memory_case *c) {
    return c->reads.passages + c->reads.unread;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Nats that the rows of a block save by reading one passage alone; its features are computed by plain loops. */
static double gain_of(const struct step *s, const struct memory_case *c, const struct memory_text *t, int64_t block,
                      int p, const float *gate) {
    const struct memory_loss *m = s->mixture;
    int64_t S = MEMORY_CHUNK + 1, size = m->keys.cols, entries = MEMORY_SPAN * S;
    int64_t first = m->rows + (block * each_of(c) + p) * entries;
    double tau = m->mixture.tau, gain = 0;
    for (int64_t row = block * S; row < (block + 1) * S; row++) {
        double all = 0, hit = 0, nearest = INFINITY, squares = 0, largest = 0;
        if (t->t.targets[row] < 0) continue;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t e = first; e < first + entries; e++) {
                double d = 0;
                const float *a = (const float *)m->keys.data + row * size, *k = (const float *)m->keys.data + e * size;
                if (m->value[e] < 0) continue;
                for (int64_t i = 0; i < size; i++)
                    d += ((double)a[i] - (double)k[i]) * ((double)a[i] - (double)k[i]);
                double w = exp(-d / tau);
                if (pass == 0) {
                    all += w, hit += m->value[e] == t->t.targets[row] ? w : 0, nearest = fmin(nearest, d);
                    continue;
                }
                squares += w * w / all / all, largest = fmax(largest, w / all);
            }
        if (all <= 0) continue;
        double f = (double)gate[0] + (double)gate[1] * fmax(-30, fmin(30, log(all))) / 10 +
                   (double)gate[2] * fmin(30, nearest / tau) / 10 + (double)gate[3] * squares +
                   (double)gate[4] * largest;
        double g = sigmoid(10 * f), nll = (double)s->nll[row];
        gain += nll + log((1 - g) * exp(-nll) + g * hit / all);
    }
    return gain;
}

struct expected {
    double loss, hits, gain, best;
    int64_t taught;
};

/* One query: candidates are the passages of the next chunk and those of the query half a batch away. */
static void expect_query(struct expected *out, const struct step *s, const struct memory_case *c,
                         const struct memory_text *t, int64_t r, int group, const float *gate, double temperature) {
    int64_t Q = s->queries, C = s->config.chunks, d = s->model.hidden, other = (r + (Q + 1) / 2) % Q;
    int each = each_of(c), n = 0, top_score = 0;
    double gains[64], scores[64], best = -INFINITY, sum = 0, sums = 0, top = -INFINITY;
    const float *q = (const float *)s->neighbours[group].query.data + r * s->neighbours[group].query.stride;
    if (r % C == C - 1) return;
    for (int part = 0; part < 2; part++) {
        int64_t of = part ? other : r, slot = 0;
        for (int p = 0; p < each && of % C != C - 1; p++) {
            int32_t document = t->passage_documents[(of + 1) * each + p];
            if (document < 0) continue;
            /* the encoder's input: compacted, after the chunks of the batch */
            int64_t landmark = s->queries + of * each + slot++;
            const int32_t *from = t->t.documents[r], *to = t->t.documents[r + 1];
            if (part && document >= from[0] && document <= to[1]) continue;
            const int32_t *ids = t->passages + ((of + 1) * each + p) * MEMORY_NUMBERS;
            for (int i = 0; i < MEMORY_CHUNK; i++)
                CHECK(s->encoder_ids[landmark * s->positions + i] == ids[i]);
            struct mat l = encoder_train_landmarks(s->encoder);
            double dot = 0;
            for (int64_t i = 0; i < d; i++)
                dot += (double)q[i] * (double)((const float *)l.data)[landmark * l.stride + i];
            scores[n] = dot / sqrt((double)d);
            gains[n] = part ? 0 : gain_of(s, c, t, r + 1, p, gate);
            n++;
        }
        if (!part && n == 0) return;
    }
    for (int i = 0; i < n; i++) {
        best = fmax(best, gains[i]), sums += exp(scores[i]);
        if (scores[i] > top) top = scores[i], top_score = i;
    }
    for (int i = 0; i < n; i++)
        sum += exp((gains[i] - best) / temperature);
    for (int i = 0; i < n; i++) {
        double p = exp((gains[i] - best) / temperature) / sum;
        out->loss += p * log(p / (exp(scores[i]) / sums));
    }
    out->hits += gains[top_score] >= best - 1e-5, out->gain += gains[top_score], out->best += best, out->taught++;
}

static void close_to(const char *name, const char *what, double found, double expected) {
    if (!(fabs(found - expected) < 2e-4 * (1 + fabs(expected))))
        fprintf(stderr, "%s: %s is %g, not %g\n", name, what, found, expected);
    CHECK(fabs(found - expected) < 2e-4 * (1 + fabs(expected)));
}

static void check_value(const struct memory_case *c, uint64_t seed) {
    struct model m;
    struct memory_text t;
    struct step_report report;
    struct expected sums = {0};
    make_memory_model(&m, c, seed);
    make_memory_text(&t, c, 0, c->sequences);
    struct device *dev = open_device(2);
    struct step *s = make_memory_step(dev, &m, c, c->sequences);
    struct step_now now = teach_now(c, 0.4F);
    const float gate[] = {0.05F, 0.07F, -0.03F, 0.04F, 0.02F};
    memcpy(weights_tensor(optimizer_master(step_optimizer(s)), "memory.gate.weight").data, gate, sizeof gate);
    CHECK_OK(step_run(s, &report, &t.t.batch, 1, &now));
    /* If only projections learn, the encoder has not kept the candidates for backward: they are computed again. */
    int64_t chunks = s->queries * (1 + each_of(c));
    encoder_train_forward(s->encoder, s->encoder_ids, (struct mat){0}, chunks);
    for (int g = 0; g < m.config.groups; g++)
        for (int64_t r = 0; r < s->queries; r++)
            expect_query(&sums, s, c, &t, r, g, gate, (double)now.teach_temperature);
    double n = (double)sums.taught;
    CHECK(sums.taught > m.config.groups && sums.taught == m.config.groups * step_teach_count(s, &t.t.batch));
    close_to(c->name, "loss", report.teach_loss, sums.loss / n);
    close_to(c->name, "gain", report.teach_gain, sums.gain / n);
    close_to(c->name, "best gain", report.teach_best_gain, sums.best / n);
    close_to(c->name, "accuracy", report.teach_accuracy, sums.hits / n);
    CHECK(report.teach_loss > 0.01);
    step_free(s), free_memory_text(&t), params_free(m.params), device_close(dev);
}

/* ---- what learns */

static float *gradients(const struct model *m, const struct memory_case *c, float weight, int cut) {
    struct memory_text t[2];
    struct batch batches[2];
    struct step_report report;
    struct step_now now = teach_now(c, weight);
    struct device *dev = open_device(1);
    struct step *s = make_memory_step(dev, m, c, c->sequences / cut);
    for (int i = 0; i < cut; i++) {
        make_memory_text(&t[i], c, i * c->sequences / cut, c->sequences / cut);
        batches[i] = t[i].t.batch;
    }
    float *g = train_fixture_run(s, m, batches, cut, &now, &report);
    CHECK((weight > 0) == !isnan(report.teach_loss));
    for (int i = 0; i < cut; i++)
        free_memory_text(&t[i]);
    step_free(s), device_close(dev);
    return g;
}

static bool may_learn(const char *name, int teach) {
    bool projections = strstr(name, "lmk_q_proj") || strstr(name, "lmk_k_proj");
    bool encoder = strstr(name, "encoder.") || strstr(name, "enc_prenorm") || strstr(name, "lmk_norms");
    if (teach == 1 + TEACH_PROJECTIONS) return projections;
    /* the encoder embeds ids with the decoder's table */
    return teach == 1 + TEACH_ALL || projections || encoder || strstr(name, "embed_tokens");
}

static void check_reach(const struct memory_case *c, uint64_t seed) {
    struct model m;
    make_memory_model(&m, c, seed);
    float *with = gradients(&m, c, 0.4F, 1), *without = gradients(&m, c, 0.0F, 1), *again = gradients(&m, c, 0.4F, 1);
    size_t bytes = (size_t)params_elements(m.params) * sizeof(float);
    CHECK(memcmp(with, again, bytes) == 0);
    free(again);
    struct memory_case other = *c;
    other.recompute = !c->recompute;
    again = gradients(&m, &other, 0.4F, 1);
    CHECK(memcmp(with, again, bytes) == 0);
    int64_t at = 0;
    bool queries = false, landmarks = false, trunk = false;
    for (int i = 0; i < params_count(m.params); i++) {
        const struct param *p = params_at(m.params, i);
        int64_t n = p->rows * p->cols;
        bool changed = memcmp(with + at, without + at, (size_t)n * sizeof *with) != 0;
        if (changed && !may_learn(p->name, c->teach)) fprintf(stderr, "%s: %s learns\n", c->name, p->name);
        CHECK(!changed || may_learn(p->name, c->teach));
        queries = queries || (changed && (strstr(p->name, "lmk_q_proj") || strstr(p->name, "lmk_norms")));
        landmarks = landmarks || (changed && (strstr(p->name, "lmk_k_proj") || strstr(p->name, "encoder.")));
        trunk = trunk || (changed && strstr(p->name, "lower_layers"));
        at += n;
    }
    CHECK(queries && landmarks && trunk == (c->teach == 1 + TEACH_ALL));
    free(with), free(without), free(again), params_free(m.params);
}

/* All weights but the retriever's projections are unchanged. */
static void restore_reader(const struct step *s, const struct model *m) {
    float *now = optimizer_master(s->optimizer)->data;
    for (int i = 0; i < params_count(m->params); i++) {
        const struct param *p = params_at(m->params, i);
        int64_t n = p->rows * p->cols;
        if (!strstr(p->name, "lmk_q_proj") && !strstr(p->name, "lmk_k_proj"))
            memcpy(now, p->data, (size_t)n * sizeof *now);
        now += n;
    }
}

/* Projections learn to rank first what gains most. */
static void check_learning(const struct memory_case *c, uint64_t seed) {
    struct model m;
    struct memory_text t;
    struct step_report first, report;
    make_memory_model(&m, c, seed);
    make_memory_text(&t, c, 0, c->sequences);
    struct device *dev = open_device(2);
    struct step *s = make_memory_step(dev, &m, c, c->sequences);
    struct step_now now = teach_now(c, 1.0F);
    CHECK_OK(step_run(s, &first, &t.t.batch, 1, &now));
    for (int i = 1; i <= 60; i++) {
        now.optimizer.lr = 0.02F, now.optimizer.step = i;
        CHECK_OK(step_run(s, &report, &t.t.batch, 1, &now));
        restore_reader(s, &m);
    }
    double missed = first.teach_best_gain - first.teach_gain, misses = report.teach_best_gain - report.teach_gain;
    bool good = report.teach_loss < 0.3 * first.teach_loss && misses < 0.3 * missed;
    if (!good)
        fprintf(stderr, "%s: loss %g to %g, gain %g to %g of %g\n", c->name, first.teach_loss, report.teach_loss,
                first.teach_gain, report.teach_gain, report.teach_best_gain);
    CHECK(good);
    step_free(s), free_memory_text(&t), params_free(m.params), device_close(dev);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 29);
    for (size_t i = 0; i < ARRAY_LEN(teach_cases); i++) {
        check_value(&teach_cases[i], test_seed() + i);
        check_reach(&teach_cases[i], test_seed() + i);
    }
    check_learning(&teach_cases[0], test_seed());
    return test_done();
}
