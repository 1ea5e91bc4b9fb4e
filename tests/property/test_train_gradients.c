/* test_train_gradients.c -- a training step's gradients equal finite differences of its losses: for every tensor of
 * every variant, every pool, with Gumbel noise, with candidates of a corpus. */
#include "tests/corpus_fixture.h"
#include "tests/gradient_fixture.h"

/* With Gumbel noise, distant contrastive targets, and recomputed activations. */
static void check_variant(const struct variant *v, uint64_t seed) {
    struct model m;
    struct text t;
    make_model(&m, v, seed);
    make_text(&t, v, 0, SEQUENCES);
    struct device *dev = open_device(1);
    struct step_config config = config_of(v, SEQUENCES);
    config.gumbel = v->pool != POOL_NONE, config.recompute = true;
    struct subject of = {v->name, &m, make_step(dev, &m, &config), &t.batch, now_of(v), NULL, false, 1};
    of.now.contrastive_reach = 3;
    differences(&of);
    step_free(of.s), free_text(&t), params_free(m.params), device_close(dev);
}

static void check_corpus(void) {
    const struct variant v = {"corpus", "[1,1,1]", "tokens", 1, 63, 80, 3, true, true, true, POOL_CORPUS};
    struct corpus_scene scene;
    make_scene(&scene, &v, 6);
    struct subject of = {"corpus, copies", &scene.m, scene.s, &scene.t.batch, now_of(&v), NULL, false, 1};
    of.now.corpus_alone = 0.5F, of.now.copy_rate = 0.5F;
    differences(&of);
    of.name = "corpus, not asked yet";
    of.now = now_of(&v), of.now.pool = POOL_BATCH;
    differences(&of);
    free_scene(&scene);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 11);
    for (size_t i = 0; i < ARRAY_LEN(variants); i++)
        check_variant(&variants[i], test_seed() + i);
    check_corpus();
    return test_done();
}
