/* drt_model_convert.c -- drt-model convert: makes a model folder from a checkpoint with the published tensor names.
 *
 * The tensors are first written to a temporary safetensors file in the new folder, so that the reader of all programs
 * checks them against the config. */
#include "model/params.h"
#include "tools/model/drt_model.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/streams.h"

#include <stdlib.h>
#include <string.h>

struct options {
    const char *input, *out, *config, *tokenizer, *dtype;
    const char *folder; /* of the input; NULL: the input is a file */
    bool force;
};

static enum status read_config(struct model_config *config, const struct new_folder *folder, const struct options *o,
                               const struct model_source *s) {
    struct file_map map = {0};
    char *json = NULL;
    size_t bytes = 0;
    enum status status;
    if (o->config) {
        TRY_GOTO(status, file_map(&map, o->config), out);
    } else {
        TRY_GOTO(status, model_guess_config(&json, &bytes, s->tensors, s->count, o->input, stderr), out);
    }
    const char *text = o->config ? (const char *)map.data : json;
    size_t n = o->config ? map.size : bytes;
    TRY_GOTO(status, model_config_parse(config, o->config ? o->config : "the inferred config.json", text, n), out);
    status = new_folder_write(folder, "config.json", text, n);
out:
    file_unmap(&map);
    free(json);
    return status;
}

/* Returns the type in which all tensors are stored. If they have several types (a BF16 embedding beside F32 norms),
 * that is F32, which represents all exactly. */
static enum safetensors_dtype stored_type(const struct model_source *s) {
    for (int i = 1; i < s->count; i++)
        if (s->tensors[i].dtype != s->tensors[0].dtype) return SAFETENSORS_F32;
    return s->tensors[0].dtype;
}

static enum safetensors_dtype new_type(const struct options *o, const struct model_source *s) {
    return strcmp(o->dtype, "keep") == 0 ? stored_type(s) : model_dtype(o->dtype);
}

/* Copies the gates of token memories, which fit these weights only. */
static enum status copy_gates(const struct new_folder *folder, const struct options *o, bool rounded) {
    static const char *const names[] = {"memory.json", "memory-cpu.json"};
    char path[FILE_PATH_MAX];
    for (size_t i = 0; i < ARRAY_LEN(names) && o->folder; i++) {
        struct file_map map;
        TRY(file_join(path, o->folder, names[i]));
        if (!file_exists(path)) continue;
        if (rounded) {
            fprintf(stderr,
                    "drt-model: note: %s was fitted to the weights before their rounding, and is not copied: fit it "
                    "again with drt-eval fit-memory\n",
                    path);
            continue;
        }
        TRY(file_map(&map, path));
        const enum status status = new_folder_write(folder, names[i], map.data, map.size);
        file_unmap(&map);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status write_weights(const struct new_folder *folder, const struct options *o, const struct model_source *s,
                                 const struct model_config *config, int64_t *elements) {
    char passing[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct safetensors *file = NULL;
    struct params *params = NULL;
    const enum safetensors_dtype dtype = new_type(o, s);
    TRY(file_join(passing, folder->temporary, "source.safetensors"));
    TRY(file_join(path, folder->temporary, "model.safetensors"));
    TRY(safetensors_write(passing, s->tensors, s->count, NULL));
    TRY(safetensors_open(&file, passing));
    enum status status = params_load(&params, config, file);
    if (status == STATUS_OK) {
        status = params_save(params, path, dtype, "{\"format\":\"pt\"}");
        *elements = params_elements(params);
    }
    safetensors_close(file);
    params_free(params);
    TRY(status);
    return file_remove(passing);
}

static enum status model_convert_folder(struct new_folder *folder, const struct options *o) {
    struct model_source s = {0};
    struct model_config config;
    int64_t elements = 0;
    enum status status;
    TRY(model_source_open(&s, o->input));
    if (s.left_out) fprintf(stderr, "drt-model: note: %d tensors outside of the model were left out\n", s.left_out);
    TRY_GOTO(status, new_folder_begin(folder, o->out, o->force), out);
    TRY_GOTO(status, read_config(&config, folder, o, &s), out);
    TRY_GOTO(status, new_folder_tokenizer(folder, o->tokenizer, &config), out);
    status = write_weights(folder, o, &s, &config, &elements);
    if (status != STATUS_OK) status = fail_context(status, "%s", o->input);
    TRY_GOTO(status, status, out);
    const enum safetensors_dtype type = new_type(o, &s);
    TRY_GOTO(status, copy_gates(folder, o, type != stored_type(&s) && type != SAFETENSORS_F32), out);
    TRY_GOTO(status, new_folder_publish(folder), out);
    streams_printf(stdout, "%s: %lld parameters from %s\n", folder->path, (long long)elements, o->input);
out:
    model_source_close(&s);
    return status;
}

/* Finds the checkpoint file in a folder that was given as input. */
struct folder_input {
    char weights[FILE_PATH_MAX], config[FILE_PATH_MAX], tokenizer[FILE_PATH_MAX];
};

static enum status use_folder(struct folder_input *in, struct options *o) {
    static const char *const WEIGHTS[] = {"model.safetensors", "model.bin", "pytorch_model.bin", "model_best.bin"};
    const char *folder = o->folder = o->input;
    o->input = NULL;
    for (size_t i = 0; i < ARRAY_LEN(WEIGHTS) && !o->input; i++) {
        TRY(file_join(in->weights, folder, WEIGHTS[i]));
        if (file_exists(in->weights)) o->input = in->weights;
    }
    if (!o->input) TRY(safetensors_check_folder(folder));
    if (!o->input)
        return fail(STATUS_NOT_FOUND,
                    "%s: holds no model.safetensors, model.bin, pytorch_model.bin or model_best.bin: name "
                    "the checkpoint file itself",
                    folder);
    TRY(file_join(in->config, folder, "config.json"));
    TRY(file_join(in->tokenizer, folder, "tokenizer.json"));
    if (!o->config && file_exists(in->config)) o->config = in->config;
    if (!o->tokenizer && file_exists(in->tokenizer)) o->tokenizer = in->tokenizer;
    return STATUS_OK;
}

int model_convert(int argc, char **argv, const char **operands) {
    struct options o = {.dtype = "keep"};
    const struct arg_option options[] = {
        {"out", ARG_PATH, &o.out, "DIR", "the model folder to make (required)", 0, 0},
        {"config", ARG_PATH, &o.config, "FILE",
         "the model's config.json; without it, sizes come from the tensors' shapes, and the other values are assumed "
         "to be those of the released models and printed",
         0, 0},
        {"tokenizer", ARG_PATH, &o.tokenizer, "FILE", "a tokenizer.json to put into the folder", 0, 0},
        {"dtype", ARG_CHOICE, &o.dtype, "keep|f32|bf16|f16",
         "type of the stored weights; keep: the checkpoint's own, or f32 if it has several", 0, 0},
        OPTION_FORCE(o.force),
    };
    const struct arg_program program = {
        .name = "drt-model convert",
        .synopsis = "INPUT --out DIR [options]",
        .about = "Makes a model folder from a checkpoint: a state_dict saved by torch.save (the official trainer's "
                 "model*.bin), a safetensors file, or a folder that holds one of these. Torch files are read by a "
                 "restricted reader that can only build tensors: no code in them runs.",
        .examples = "  drt-model convert model_best.bin --tokenizer tokenizer.json --out models/pg19\n"
                    "  drt-model convert models/pg19 --dtype bf16 --out models/pg19-bf16\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = 1};
    int n_operands = 0;
    int code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code >= 0) return code;
    o.input = operands[0];
    if (!o.out) {
        fprintf(stderr, "drt-model convert: --out is missing; see drt-model convert --help\n");
        return 2;
    }
    struct folder_input in;
    struct new_folder folder = {0};
    if (file_is_directory(o.input) && use_folder(&in, &o) != STATUS_OK) return model_failed();
    if (model_convert_folder(&folder, &o) == STATUS_OK) return 0;
    code = model_failed();
    if (folder.temporary[0]) new_folder_discard(&folder);
    return code;
}
