/* test_golden.c -- runs golden files (the format: tests/golden/README.md) through the product.
 *
 *   test_golden [--device cpu|cuda] [--dtype f32|bf16] [--amx on|off] FILE...
 *                            drt_*.safetensors  gca_op_*.safetensors  lm_base.safetensors  tokenizer_*cases.jsonl
 *
 * One line for each tensor: FILE TENSOR max_abs_diff tolerance ok|FAIL. Exit 0 only when all are ok. */
#include "kernels/device/device_internal.h"
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
    CHECK_OK(weights_open(&g->weights, g->dev, g->params, g->type));
    if (!g->config.base_lm) CHECK_OK(encoder_create(&g->encoder, g->dev, &g->config, &g->weights, 5));
    CHECK_OK(decoder_create(&g->decoder, g->dev, &g->config, &g->weights, 0));
    if (golden_has(g, "in.next_ids"))
        golden_decode(g);
    else if (golden_has(g, "in.corpus_ids"))
        golden_corpus(g);
    else
        golden_forward(g), golden_train(g);
    golden_finish(g);
    CHECK_OK(device_sync(g->dev));
    decoder_free(g->decoder);
    encoder_free(g->encoder);
    weights_release(&g->weights, g->dev);
    params_free(g->params);
    return g->failures;
}

static bool starts(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static int run_file(struct device *dev, enum dtype type, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (starts(name, "tokenizer_") && strstr(name, ".jsonl")) return golden_tokenizer(path, name);
    bool model = starts(name, "drt_") || starts(name, "lm_base"), gca = starts(name, "gca_op_");
    if (!model && !gca)
        return refuse(path, "not a case of this program: drt_*, gca_op_*, lm_base* (safetensors), tokenizer_*.jsonl");
    struct golden g = {.path = path, .name = name, .dev = dev, .type = type};
    if (safetensors_open(&g.file, path) != STATUS_OK) return refuse(path, status_message());
    g.seen = golden_zeroed(safetensors_count(g.file), sizeof *g.seen);
    int failures = gca ? run_gca(&g) : run_model(&g);
    golden_drop(&g);
    free(g.seen);
    safetensors_close(g.file);
    return failures;
}

int main(int argc, char **argv) {
    const char *kind = "cpu";
    enum dtype type = DTYPE_F32;
    bool amx = true;
    int first = 1;
    for (; first + 1 < argc && starts(argv[first], "--"); first += 2) {
        const char *value = argv[first + 1];
        if (strcmp(argv[first], "--device") == 0)
            kind = value;
        else if (strcmp(argv[first], "--amx") == 0)
            amx = strcmp(value, "off") != 0;
        else if (strcmp(argv[first], "--dtype") == 0 && strcmp(value, "f32") != 0)
            type = strcmp(value, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F16;
    }
    if (first >= argc || type == DTYPE_F16) {
        fprintf(stderr, "usage: test_golden [--device cpu|cuda] [--dtype f32|bf16] [--amx on|off] FILE...\n");
        return 2;
    }
    struct device *dev;
    enum status status = device_open(&dev, kind, 0);
    if (status == STATUS_UNSUPPORTED) test_skip(status_message());
    CHECK_OK(status);
    if (type == DTYPE_BF16 && dev->shares_memory) test_skip("the CPU computes in float32 alone");
    if (!amx && dev->shares_memory) device_cpu_without_amx(dev);
    int failures = 0;
    for (int i = first; i < argc; i++)
        failures += run_file(dev, type, argv[i]);
    device_close(dev);
    return failures > 0;
}
