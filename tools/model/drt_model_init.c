/* drt_model_init.c -- drt-model init: a model with random weights, for tests and as the beginning of a training. */
#include "model/params.h"
#include "tools/model/drt_model.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/streams.h"

#include <math.h>
#include <string.h>

struct options {
    const char *config, *out, *tokenizer, *dtype;
    int64_t seed;
    bool force;
};

static enum status model_init_save(const struct new_folder *folder, const struct params *params,
                                   enum safetensors_dtype dtype) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder->temporary, "model.safetensors"));
    return params_save(params, path, dtype, "{\"format\":\"pt\"}");
}

static enum status model_init_make(struct new_folder *folder, const struct options *o, const struct file_map *json) {
    struct model_config config;
    struct params *params = NULL;
    TRY(model_config_parse(&config, o->config, json->data, json->size));
    if (config.unread[0])
        streams_printf(stderr, "drt-model: %s: keys that nothing reads: %s\n", o->config, config.unread);
    TRY(new_folder_begin(folder, o->out, o->force));
    TRY(new_folder_tokenizer(folder, o->tokenizer, &config));
    TRY(new_folder_write(folder, "config.json", json->data, json->size));
    TRY(params_init(&params, &config, (uint64_t)o->seed));
    enum status status = model_init_save(folder, params, model_dtype(o->dtype));
    int64_t elements = params_elements(params);
    params_free(params);
    TRY(status);
    TRY(new_folder_publish(folder));
    streams_printf(stdout, "%s: %lld parameters, %s, seed %lld\n", folder->path, (long long)elements, o->dtype,
                   (long long)o->seed);
    return STATUS_OK;
}

int model_init(int argc, char **argv, const char **operands) {
    struct options o = {.dtype = "f32", .seed = 1};
    const struct arg_option options[] = {
        {"config", ARG_PATH, &o.config, "FILE", "the model's config.json (required)", 0, 0},
        {"out", ARG_PATH, &o.out, "DIR", "the model folder to make (required)", 0, 0},
        {"tokenizer", ARG_PATH, &o.tokenizer, "FILE", "a tokenizer.json to put into the folder", 0, 0},
        {"dtype", ARG_CHOICE, &o.dtype, "f32|bf16|f16", "type of the stored weights", 0, 0},
        {"seed", ARG_INT, &o.seed, "N", "seed of the random weights; the same seed gives the same model", 0, INFINITY},
        OPTION_FORCE(o.force),
    };
    const struct arg_program program = {
        .name = "drt-model init",
        .synopsis = "--config FILE --out DIR [options]",
        .about = "Makes a model with random weights: N(0, 0.02^2) for matrices and the embedding, 1 for norms.",
        .examples = "  drt-model init --config config.json --tokenizer tokenizer.json --out models/random\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands = 0;
    int code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code >= 0) return code;
    if (!o.config || !o.out) {
        fprintf(stderr, "drt-model init: --%s is missing; see drt-model init --help\n", o.config ? "out" : "config");
        return 2;
    }
    struct file_map json = {0};
    struct new_folder folder = {0};
    if (file_map(&json, o.config) != STATUS_OK) return model_failed();
    enum status status = model_init_make(&folder, &o, &json);
    file_unmap(&json);
    if (status == STATUS_OK) return 0;
    code = model_failed();
    if (folder.temporary[0]) new_folder_discard(&folder);
    return code;
}
