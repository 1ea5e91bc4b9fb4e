/* model_fixture.h -- random weights of a small model; and tests/cli/tiny with weights, for tests that open a folder. */
#pragma once
#include "base/rng.h"
#include "model/model_config.h"
#include "model/params.h"
#include "tests/test.h"

/* Weights of a small model with visible effects: norms from 0.5 to 1.5, matrices larger than at the start of a
 * training, unchanged tensors of the token memory. */
static inline void model_fixture_params(struct params **out, const struct model_config *config, uint64_t seed,
                                        float embedding, float others) {
    CHECK_OK(params_init(out, config, seed));
    struct rng rng = rng_make(seed, 77);
    for (int i = 0; i < params_count(*out); i++) {
        const struct param *p = params_at(*out, i);
        float *data = (float *)p->data; /* no thread reads the test's model yet */
        for (int64_t j = 0; j < p->rows * p->cols && strncmp(p->name, "memory.", 7) != 0; j++)
            data[j] = p->rows == 1                    ? 0.5F + rng_uniform(&rng)
                      : p->rows == config->vocab_size ? data[j] * embedding
                                                      : data[j] * others;
    }
}

/* Enlarges the matrices, so that the distributions of tokens are not flat. */
static inline void model_fixture_enlarge(struct params *params, int vocab_size, float embedding) {
    for (int i = 0; i < params_count(params); i++) {
        const struct param *p = params_at(params, i);
        for (int64_t j = 0; p->rows > 1 && j < p->rows * p->cols; j++)
            ((float *)p->data)[j] *= p->rows == vocab_size ? embedding : 5;
    }
}

static inline void model_fixture_copy(const char *folder, const char *name) {
    char command[2048];
    const char *source = getenv("DRT_SOURCE");
    snprintf(command, sizeof command, "cp '%s/tests/cli/tiny/%s' '%s/%s'", source ? source : ".", name, folder, name);
    CHECK_EQ(system(command), 0);
}

/* Of the folder's config.json; enlarged. */
static inline void model_fixture_weights(const char *folder, uint64_t seed) {
    struct model_config config;
    struct params *params;
    char path[1024];
    CHECK_OK(model_config_load(&config, folder));
    CHECK_OK(params_init(&params, &config, seed));
    model_fixture_enlarge(params, config.vocab_size, 20);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK_OK(params_save(params, path, SAFETENSORS_F32, "{\"format\":\"pt\"}"));
    params_free(params);
}

static inline void model_fixture(const char *folder, uint64_t seed) {
    CHECK(mkdir(folder, 0777) == 0);
    model_fixture_copy(folder, "config.json");
    model_fixture_copy(folder, "tokenizer.json");
    model_fixture_weights(folder, seed);
}
