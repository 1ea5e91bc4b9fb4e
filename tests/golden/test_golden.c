/* test_golden.c -- runs golden files (the format of golden/README.md) through the product.
 *
 *   test_golden FILE...      drt_*.safetensors  gca_op_*.safetensors  lm_base.safetensors  tokenizer_*cases.jsonl
 *
 * One line for each tensor: FILE TENSOR max_abs_diff tolerance ok|FAIL. Exit 0 only when all are ok. */
#include "tests/golden/golden.h"

static int refuse(const char *path, const char *why) {
    fprintf(stderr, "%s: %s\n", path, why);
    return 1;
}

static int run_gca(struct golden *g) {
    golden_gca(g);
    golden_finish(g);
    return g->failures;
}

static int run_model(struct golden *g) {
    const char *config = safetensors_metadata(g->file, "config");
    if (!config) return refuse(g->path, "has no config in its metadata");
    if (model_config_parse(&g->config, g->name, config, strlen(config)) != STATUS_OK ||
        params_load(&g->params, &g->config, g->file) != STATUS_OK)
        return refuse(g->path, status_message());
    if (!g->config.base_lm) CHECK_OK(encoder_create(&g->encoder, g->dev, &g->config, g->params, 5));
    CHECK_OK(decoder_create(&g->decoder, g->dev, &g->config, g->params, 0));
    if (golden_has(g, "in.next_ids"))
        golden_decode(g);
    else if (golden_has(g, "in.corpus_ids"))
        golden_corpus(g);
    else
        golden_forward(g);
    golden_finish(g);
    decoder_free(g->decoder);
    encoder_free(g->encoder);
    params_free(g->params);
    return g->failures;
}

static bool starts(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static int run_file(struct device *dev, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (starts(name, "tokenizer_") && strstr(name, ".jsonl")) return golden_tokenizer(path, name);
    bool model = starts(name, "drt_") || starts(name, "lm_base"), gca = starts(name, "gca_op_");
    if (!model && !gca)
        return refuse(path, "not a case of this program: drt_*, gca_op_*, lm_base* (safetensors), tokenizer_*.jsonl");
    struct golden g = {.path = path, .name = name, .dev = dev};
    if (safetensors_open(&g.file, path) != STATUS_OK) return refuse(path, status_message());
    g.seen = golden_zeroed(safetensors_count(g.file), sizeof *g.seen);
    int failures = gca ? run_gca(&g) : run_model(&g);
    free(g.seen);
    safetensors_close(g.file);
    return failures;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: test_golden FILE...\n");
        return 2;
    }
    struct device *dev;
    CHECK_OK(device_open(&dev, "cpu", 0));
    int failures = 0;
    for (int i = 1; i < argc; i++)
        failures += run_file(dev, argv[i]);
    device_close(dev);
    return failures > 0;
}
