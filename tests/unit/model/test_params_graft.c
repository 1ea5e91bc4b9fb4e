/* test_params_graft.c -- a Base LM with a token memory and a sketch as the start of models without one, with keys of
 * another size, and with the same. */
#include "model/params.h"
#include "tests/test.h"
#include <string.h>

static struct params *graft_params(struct model_config *config, const char *memory, uint64_t seed) {
    struct params *p;
    char json[600];
    snprintf(json, sizeof json,
             "{\"vocab_size\": 97, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_attention_heads\": 2, "
             "\"slide_window\": 64, \"chunk_id\": 96, \"pad_id\": 95, \"rms_norm_eps\": 1e-5, \"enc_chunk_size\": 63, "
             "\"chunk_topk\": 2, \"decoder_layers\": [2], \"encoder_layers\": 0%s}",
             memory);
    CHECK_OK(model_config_parse(config, "config.json", json, strlen(json)));
    CHECK_OK(params_init(&p, config, seed));
    return p;
}

static bool with_sketch(const struct params *p) {
    return strcmp(params_at(p, params_count(p) - 1)->name, "landmark_sketch.idf") == 0;
}

/* Grafts the file into a model with these members; returns whether the projection has the file's values. */
static bool graft(const char *path, const struct params *from, const char *memory, int fresh, int left) {
    struct model_config config;
    struct safetensors *file;
    struct params *p, *wanted = graft_params(&config, memory, 9);
    struct params_grafted counts;
    CHECK_OK(safetensors_open(&file, path));
    CHECK_OK(params_graft(&p, &config, file, 9, &counts));
    CHECK_EQ(counts.fresh, fresh);
    CHECK_EQ(counts.left, left);
    const struct param *embed = params_at(from, 0);
    CHECK_EQ(memcmp(params_get(p, embed->name), embed->data, (size_t)(embed->rows * embed->cols) * sizeof(float)), 0);
    const char *key = "memory.key_proj.weight";
    bool same = false;
    if (config.memory_size > 0) {
        const size_t bytes = (size_t)config.memory_size * 32 * sizeof(float);
        const float *values = params_get(p, key);
        same = config.memory_size == 16 && memcmp(values, params_get(from, key), bytes) == 0;
        CHECK(same || memcmp(values, params_get(wanted, key), bytes) == 0); /* its first values */
    }
    if (config.landmark_sketch > 0) /* the file's, or the first values */
        CHECK(params_get(p, "landmark_sketch.idf")[7] == (with_sketch(from) ? 7.0f : 1.0f));
    safetensors_close(file);
    params_free(p), params_free(wanted);
    return same;
}

int main(void) {
    char path[600];
    struct model_config config;
    struct params *p = graft_params(&config, ", \"memory_layer\": 2, \"memory_size\": 16", 3);
    snprintf(path, sizeof path, "%s/model.safetensors", test_folder());
    CHECK_OK(params_save(p, path, SAFETENSORS_F32, "{}"));
    CHECK(!graft(path, p, "", 0, 3));
    CHECK(!graft(path, p, ", \"memory_layer\": 2", 0, 1));
    CHECK(!graft(path, p, ", \"memory_layer\": 2, \"memory_size\": 8", 1, 1));
    CHECK(graft(path, p, ", \"memory_layer\": 2, \"memory_size\": 16", 0, 0));
    CHECK(graft(path, p, ", \"memory_layer\": 2, \"memory_size\": 16, \"landmark_sketch\": 8", 1, 0));
    params_free(p);

    float idf[97];
    for (int i = 0; i < 97; i++)
        idf[i] = (float)i;
    p = graft_params(&config, ", \"landmark_sketch\": 16", 3);
    params_set(p, "landmark_sketch.idf", idf);
    CHECK_OK(params_save(p, path, SAFETENSORS_F32, "{}"));
    CHECK(!graft(path, p, "", 0, 1));
    CHECK(!graft(path, p, ", \"landmark_sketch\": 16", 0, 0));
    CHECK(!graft(path, p, ", \"landmark_sketch\": 32", 0, 0)); /* idf does not depend on the size */
    CHECK(!graft(path, p, ", \"memory_layer\": 2, \"landmark_sketch\": 32", 2, 0));
    params_free(p);
    return 0;
}
