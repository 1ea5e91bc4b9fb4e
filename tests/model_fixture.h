/* model_fixture.h -- a tiny random model as a folder, for tests that open one: tests/cli/tiny with weights. */
#pragma once
#include "model/model_config.h"
#include "model/params.h"
#include "tests/test.h"

static inline void model_fixture_copy(const char *folder, const char *name) {
    char command[2048];
    const char *source = getenv("DRT_SOURCE");
    snprintf(command, sizeof command, "cp '%s/tests/cli/tiny/%s' '%s/%s'", source ? source : ".", name, folder, name);
    CHECK_EQ(system(command), 0);
}

/* Matrices are enlarged, so that the distributions of tokens are not flat. */
static inline void model_fixture(const char *folder, uint64_t seed) {
    struct model_config config;
    struct params *params;
    char path[1024];
    CHECK(mkdir(folder, 0777) == 0);
    model_fixture_copy(folder, "config.json");
    model_fixture_copy(folder, "tokenizer.json");
    CHECK_OK(model_config_load(&config, folder));
    CHECK_OK(params_init(&params, &config, seed));
    for (int i = 0; i < params_count(params); i++) {
        const struct param *p = params_at(params, i);
        for (int64_t j = 0; p->rows > 1 && j < p->rows * p->cols; j++)
            ((float *)p->data)[j] *= p->rows == config.vocab_size ? 20 : 5;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK_OK(params_save(params, path, SAFETENSORS_F32, "{\"format\":\"pt\"}"));
    params_free(params);
}
