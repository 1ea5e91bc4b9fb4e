/* test_train_neighbours.c -- the chunks that the queries of a training step may select, and the targets of the
 * contrastive loss. */
#include "tests/corpus_fixture.h"

/* ---- what may be selected */

static void check_choices(enum pool_kind pool, bool gumbel, bool same_document) {
    const struct variant v = {"choices", "[1,1,1]", "tokens", 1, 63, 70, 6, false, false, false, pool};
    struct model m;
    struct text t;
    make_model(&m, &v, 3);
    make_text(&t, &v, 0, SEQUENCES);
    for (int64_t i = 0; same_document && i < SEQUENCES * v.chunks; i++)
        t.documents[i][0] = t.documents[i][1] = 7;
    struct device *dev = open_device(2);
    struct step_config config = config_of(&v, SEQUENCES);
    struct step_now now = now_of(&v);
    config.gumbel = gumbel;
    struct step *s = make_step(dev, &m, &config);
    struct step_report report;
    CHECK_OK(step_run(s, &report, &t.batch, 1, &now));
    int64_t others = 0, full = 0;
    for (int g = 0; g < m.config.groups; g++)
        for (int64_t r = 0; r < SEQUENCES * v.chunks; r++) {
            const struct step_neighbours *c = &s->neighbours[g];
            int64_t first = r / v.chunks * v.chunks, chosen = 0;
            double sum = 0;
            for (int64_t j = r * TOPK; j < (r + 1) * TOPK; j++) {
                int64_t e = c->index[j];
                CHECK_EQ(c->slot[TOPK + j], e);
                if (e < 0) CHECK(c->weight[TOPK + j] == 0.0F);
                if (e < 0) continue;
                bool own = e >= first && e < first + v.chunks;
                CHECK(own ? e < r : pool == POOL_BATCH && !same_document);
                chosen++, others += !own;
                sum += (double)c->weight[TOPK + j];
            }
            bool last = r == first + v.chunks - 1;
            CHECK(!last || chosen == 0);
            CHECK(chosen == 0 || fabs(sum - 1) < 1e-5);
            full += chosen == TOPK;
        }
    CHECK((others > 0) == (pool == POOL_BATCH && !same_document));
    CHECK(full > 0);
    for (int64_t j = 0; j < TOPK; j++)
        CHECK_EQ(s->neighbours[0].slot[j], -1);
    step_free(s), free_text(&t), params_free(m.params), device_close(dev);
}
/* ---- positives of the contrastive loss: a chunk after the query's, of the document in which the query's chunk ends.
 */
static void check_contrast(int64_t reach) {
    const struct variant v = {"contrast", "[1,1]", "tokens", 1, 63, 70, 12, false, false, true, POOL_OWN_PAST};
    /* Of one sequence: chunk 3 has the end of one document and the start of the next; chunk 7 begins another one. */
    static const int32_t documents[12][2] = {{1, 1}, {1, 1}, {1, 1}, {1, 2}, {2, 2}, {2, 2},
                                             {2, 2}, {3, 3}, {3, 3}, {3, 3}, {3, 3}, {3, 3}};
    static const int begins_in_document_of_end[12] = {3, 2, 1, 3, 2, 1,
                                                      0, 4, 3, 2, 1, 0}; /* following chunks of the document */
    struct model m;
    struct text t;
    struct step_report report;
    int64_t pairs = 0, far = 0;
    make_model(&m, &v, 8);
    make_text(&t, &v, 0, SEQUENCES);
    for (int64_t i = 0; i < SEQUENCES * v.chunks; i++)
        for (int j = 0; j < 2; j++)
            t.documents[i][j] = documents[i % v.chunks][j] + (i < v.chunks ? 0 : 10);
    struct device *dev = open_device(2);
    struct step_config config = config_of(&v, SEQUENCES);
    struct step_now now = now_of(&v);
    now.contrastive_reach = reach;
    struct step *s = make_step(dev, &m, &config);
    for (now.seed = 1; now.seed <= 6; now.seed++) {
        double sum = 0;
        CHECK_OK(step_run(s, &report, &t.batch, 1, &now));
        pairs = 0;
        for (int64_t r = 0; r < SEQUENCES * v.chunks; r++) {
            int64_t most = begins_in_document_of_end[r % v.chunks], by = s->contrast_targets[r] - r;
            if (most == 0) CHECK_EQ(s->contrast_targets[r], -1);
            if (most == 0) continue;
            CHECK(by >= 1 && by <= most && by <= (reach > 1 ? reach : 1));
            pairs++, far += by > 1, sum += (double)s->neighbours[0].contrast_nll[r];
        }
        CHECK(fabs(report.contrastive_loss - sum / (double)pairs) < 1e-5);
    }
    CHECK_EQ(pairs, 20);
    CHECK((far > 0) == (reach > 1));
    step_free(s), free_text(&t), params_free(m.params), device_close(dev);
}

/* ---- some sequences retrieve from the corpus alone: other ones in each step, and none in validation. */
static void check_corpus_alone(void) {
    const struct variant v = {"corpus alone", "[1,1]", "tokens", 1, 63, 80, 3, true, false, false, POOL_CORPUS};
    struct corpus_scene scene;
    struct step_report report;
    double sums[SEQUENCES];
    make_scene(&scene, &v, 6);
    struct step *s = scene.s;
    struct step_now now = now_of(&v);
    int blind[3] = {0};
    for (int part = 0; part <= 2; part++) {
        now.corpus_alone = 0.5F * (float)part;
        for (now.seed = 1; now.seed <= 16; now.seed++) {
            CHECK_OK(step_run(s, &report, &scene.t.batch, 1, &now));
            for (int64_t q = 0; q < SEQUENCES; q++) {
                int64_t r = q * v.chunks + 1; /* a query that one chunk follows */
                bool own = false;
                for (int64_t j = r * TOPK; j < (r + 1) * TOPK; j++)
                    own = own || s->neighbours[0].index[j] == r - 1;
                blind[part] += !own;
            }
            CHECK(part < 2 ? report.corpus_weight > 0 : report.corpus_weight == 1);
        }
    }
    CHECK(blind[0] == 0 && blind[1] > 4 && blind[1] < 28 && blind[2] == 32);
    CHECK_OK(step_evaluate(s, sums, NULL, &scene.t.batch, POOL_CORPUS));
    CHECK_EQ(s->visible.own_end[1], 1);
    free_scene(&scene);
}

/* The longest run of ids that both contain. */
static int64_t longest_run(const int32_t *a, int64_t na, const int32_t *b, int64_t nb) {
    int64_t best = 0;
    for (int64_t shift = 1 - na; shift < nb; shift++)
        for (int64_t i = 0, run = 0; i < na; i++) {
            bool same = i + shift >= 0 && i + shift < nb && a[i] == b[i + shift];
            run = same ? run + 1 : 0;
            if (run > best) best = run;
        }
    return best;
}

/* ---- some queries get a single neighbour, which repeats ids of the next chunk. */
static void check_copies(void) {
    const struct variant v = {"copies", "[1,1,1]", "tokens", 1, 63, 80, 4, true, false, false, POOL_CORPUS};
    struct corpus_scene scene;
    struct step_report report;
    double sums[SEQUENCES];
    make_scene(&scene, &v, 9);
    struct step *s = scene.s;
    struct step_now now = now_of(&v);
    int64_t copies[3] = {0}, queries = 0, k = s->config.candidates, real = v.chunk;
    for (int part = 0; part <= 2; part++) {
        now.copy_rate = 0.5F * (float)part;
        for (now.seed = 1; now.seed <= 8; now.seed++) {
            CHECK_OK(step_run(s, &report, &scene.t.batch, 1, &now));
            queries = 0;
            for (int64_t r = 0; r < SEQUENCES * v.chunks; r++) {
                int32_t sequence[4 * 63];
                for (int64_t i = 0; i < v.chunks * real; i++)
                    sequence[i] = scene.t.batch.ids[(r / v.chunks * v.chunks + i / real) * s->positions + i % real];
                if (r % v.chunks == v.chunks - 1) continue;
                queries++;
                for (int g = 0; g < scene.m.config.groups; g++) {
                    int64_t last = step_candidates_begin(s, g) + r * k + k - 1;
                    const struct step_neighbours *c = &s->neighbours[g];
                    int64_t begin = (r % v.chunks + 1) * real, from = begin - real / 2, to = begin + real + real / 2;
                    if (to > v.chunks * real) to = v.chunks * real;
                    bool copy =
                        longest_run(s->encoder_ids + last * s->positions, real, sequence + from, to - from) >= 8;
                    bool alone = c->index[r * TOPK] == last && c->index[r * TOPK + 1] < 0;
                    CHECK_EQ(copy, alone);
                    if (alone) CHECK(c->weight[(r + 1) * TOPK] == 1.0F);
                    CHECK_EQ(s->encoder_ids[last * s->positions + real], scene.m.config.landmark_id);
                    copies[part] += copy;
                }
            }
        }
    }
    queries *= 8 * scene.m.config.groups;
    CHECK(copies[0] == 0 && copies[1] > queries / 4 && copies[1] < queries * 3 / 4 && copies[2] == queries);
    CHECK_OK(step_evaluate(s, sums, NULL, &scene.t.batch, POOL_CORPUS));
    CHECK(s->visible.own_end[1] == 1 && s->visible.candidates_begin[0] == step_candidates_begin(s, 0));
    free_scene(&scene);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 11);
    for (int i = 0; i < 8; i++)
        check_choices(i & 1 ? POOL_BATCH : POOL_OWN_PAST, i & 2, i & 4);
    check_corpus_alone();
    check_copies();
    check_contrast(0);
    check_contrast(4);
    return test_done();
}
