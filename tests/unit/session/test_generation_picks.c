/* test_generation_picks.c -- tests/ref/generation_picks.inc without a GPU: a CPU device that acts as if its memory were
 * its own, with the decoding kernels as plain loops and the CPU twin of the pick. What this process does between passes
 * is the same as with a GPU. */
enum { HIDDEN = 64, FFN = 96, TOKENS = 90, KEYS = 80, LAYERS = 8 };
#include "tests/ref/generation_picks.inc"
#include "tests/ref/plain_decode.inc"

static void open_engine(bool base) {
    const struct engine_config config = {.model = make_model(base),
                                         .where = {.device = "cpu", .dtype = "f32"},
                                         .threads = 2,
                                         .retrieval = !base,
                                         .decoding = true};
    CHECK_OK(engine_open(&engine, &config));
    decoder_free(engine.decoder);
    encoder_free(engine.encoder);
    engine.encoder = NULL;
    engine.device->shares_memory = false;
    CHECK_OK(decoder_create(&engine.decoder, engine.device, &engine.model.config, &engine.weights, 0));
    if (!base) CHECK_OK(encoder_create(&engine.encoder, engine.device, &engine.model.config, &engine.weights, 8));
}

/* Four texts take one pass a round, and one more when they begin; one text a step a token, and one more at its end. */
static void counts(void) {
    enum { ROUNDS = 50, N = 4 };
    struct generation *g[N];
    struct generation_token token;
    int computed;
    for (int t = 0; t < N; t++) {
        g[t] = make(&samplers[1], false, 0, -1, true);
        CHECK_OK(generation_feed(g[t], ids, 10 + t, NULL));
        CHECK_OK(generation_next(g[t], &token));
    }
    const int64_t passes = plain_passes, steps = plain_steps;
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(generation_batch(g, N, &computed));
        CHECK_EQ(computed, N);
        for (int t = 0; t < N; t++) {
            CHECK(generation_has_next(g[t]));
            CHECK_OK(generation_next(g[t], &token));
        }
    }
    CHECK_EQ(plain_passes - passes, ROUNDS + 1);
    CHECK_EQ(plain_steps, steps);
    for (int round = 0; round < ROUNDS; round++)
        CHECK_OK(generation_next(g[0], &token));
    CHECK_EQ(plain_steps - steps, ROUNDS); /* the pass that was queued ahead gives the first */
    for (int t = 0; t < N; t++)
        generation_free(g[t]);
}

/* Two texts run; others are fed and join the next round: neither takes a pass beside the round's own, and their first
 * ids are those that they get alone. */
static void joins(void) {
    enum { N = 5, ROUNDS = 12 };
    struct generation *g[N];
    struct generation_token token;
    int computed, n = 0;
    for (; n < 2; n++) {
        g[n] = make(&samplers[n], false, 0, -1, true);
        CHECK_OK(generation_feed(g[n], ids, 10 + n, NULL));
    }
    const int64_t passes = plain_passes, steps = plain_steps;
    for (int round = 0; round < ROUNDS; round++) {
        if (round >= 3 && n < N) {
            g[n] = make(&samplers[n], false, 0, -1, true);
            CHECK_OK(generation_feed(g[n], ids, 10 + n, NULL));
            n++;
        }
        CHECK_OK(generation_batch(g, n, &computed));
        for (int t = 0; t < n; t++) {
            CHECK(generation_has_next(g[t]) && picker_queued(g[t]->picker) == 2);
            CHECK_OK(generation_next(g[t], &token));
            if (t < 2 || round != t + 1) continue; /* not its first id */
            struct generation *alone = make(&samplers[t], false, 0, -1, false);
            const int32_t id = token.id;
            CHECK_OK(generation_feed(alone, ids, 10 + t, NULL));
            CHECK_OK(generation_next(alone, &token));
            CHECK_EQ(token.id, id);
            generation_free(alone);
        }
    }
    CHECK(n == N && plain_passes - passes == ROUNDS && plain_steps == steps);
    for (int t = 0; t < N; t++)
        generation_free(g[t]);
}

/* Prompts that batches read, one id in each: the passes of a running text, and none of their own. */
static void later(void) {
    struct generation *g[3];
    struct generation_token token, expected;
    int computed;
    for (int t = 0; t < 3; t++)
        g[t] = make(&samplers[t], false, 0, -1, true);
    CHECK_OK(generation_feed(g[0], ids, 20, NULL));
    CHECK_OK(generation_batch(g, 1, &computed));
    CHECK_OK(generation_next(g[0], &token));
    for (int t = 1; t < 3; t++) {
        CHECK_OK(generation_feed_later(g[t], ids, 10 * t));
        CHECK(generation_later(g[t]) == 10 * t && generation_tokens(g[t]) == 10 * t && !generation_has_next(g[t]));
    }
    const int64_t passes = plain_passes, steps = plain_steps;
    for (int round = 0; round < 25; round++) {
        CHECK_OK(generation_batch(g, 3, &computed));
        CHECK_EQ(computed, round < 10 ? 3 : round == 10 ? 2 : round < 20 ? 3 : round == 20 ? 2 : 3);
        CHECK_OK(generation_next(g[0], &token));
        for (int t = 1; t < 3; t++) {
            CHECK_EQ(generation_later(g[t]), round < 10 * t ? 10 * t - round - 1 : 0);
            CHECK_EQ(generation_has_next(g[t]), round + 1 >= 10 * t);
            if (round < 10 * t) continue;
            CHECK_OK(generation_next(g[t], &token));
            if (round > 10 * t) continue;
            struct generation *alone = make(&samplers[t], false, 0, -1, true);
            CHECK_OK(generation_feed(alone, ids, 10 * t, NULL));
            CHECK_OK(generation_next(alone, &expected));
            CHECK(token.id == expected.id && token.position == expected.position);
            generation_free(alone);
        }
    }
    CHECK(plain_passes - passes == 25 && plain_steps == steps);
    for (int t = 0; t < 3; t++)
        generation_free(g[t]);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    for (int base = 1; base >= 0; base--) {
        open_engine(base);
        check_model(base);
        if (base) counts();
        if (base) joins();
        if (base) later();
        engine.device->shares_memory = true; /* as when its weights were opened */
        engine_close(&engine);
    }
    CHECK(steps_ahead > 1000 && plain_step_picks > 100);
    return test_done();
}
