/* corpus_fixture.h -- a small corpus for the tests of training steps, and a step over it. */
#pragma once
#include "tests/train_fixture.h"

enum { CORPUS = 3, CANDIDATES = 2 };

/* Chunk 2 belongs to documents of both sequences, so no query may select it. Only two chunks remain, so that the
 * candidates do not depend on the weights. */
[[maybe_unused]] static struct corpus_pool *make_corpus(struct device *dev, const struct variant *v,
                                                        const struct model *m) {
    struct corpus_pool *p;
    static const int32_t documents[CORPUS][2] = {{40, 40}, {41, 41}, {0, 1}};
    int32_t ids[CORPUS * 63];
    struct rng rng = rng_make(test_seed(), 21);
    for (int i = 0; i < CORPUS * 63; i++) ids[i] = i == CORPUS * 63 - 1 ? -1 : (int32_t)rng_below(&rng, 90);
    const struct corpus_pool_config config = {.type = DTYPE_F32, .ids = ids, .documents = documents, .chunks = CORPUS,
                                              .max_queries = SEQUENCES * v->chunks, .candidates = CANDIDATES};
    CHECK_OK(corpus_pool_create(&p, dev, &m->config, &config));
    return p;
}

[[maybe_unused]] static struct step *corpus_step(struct device *dev, const struct variant *v, const struct model *m,
                                struct corpus_pool *corpus, bool recompute) {
    struct step *s;
    struct step_config config = config_of(v, SEQUENCES);
    config.candidates = CANDIDATES, config.recompute = recompute;
    CHECK_OK(step_create(&s, dev, &m->config, &config, m->params, corpus));
    step_refresh_corpus(s);
    return s;
}

/* All that a step over the corpus needs. */
struct corpus_scene { struct model m; struct text t; struct device *dev; struct corpus_pool *corpus; struct step *s; };

[[maybe_unused]] static void make_scene(struct corpus_scene *c, const struct variant *v, int stream) {
    make_model(&c->m, v, stream);
    make_text(&c->t, v, 0, SEQUENCES);
    c->dev = open_device(2);
    c->corpus = make_corpus(c->dev, v, &c->m);
    c->s = corpus_step(c->dev, v, &c->m, c->corpus, false);
}

[[maybe_unused]] static void free_scene(struct corpus_scene *c) {
    step_free(c->s), corpus_pool_free(c->corpus), free_text(&c->t), params_free(c->m.params), device_close(c->dev);
}
