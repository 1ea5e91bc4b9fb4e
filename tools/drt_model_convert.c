/* drt_model_convert.c -- drt-model convert: a model folder out of a checkpoint with the published tensor names.
 *
 * Names are cleaned first ("module." of data-parallel training, a wrapper such as "state_dict."), then everything is
 * checked against the config by the same reader that every program uses: the tensors go through a safetensors file in
 * the new folder, which is removed again. */
#include "base/memory.h"
#include "base/torch_checkpoint.h"
#include "kernels/params.h"
#include "tools/args.h"
#include "tools/drt_model.h"

#include <stdlib.h>
#include <string.h>

struct options {
    const char *input, *out, *config, *tokenizer, *dtype;
    bool force;
};
struct source {
    struct torch_checkpoint *torch;
    struct safetensors *safetensors;
    struct tensor_view *tensors; /* with cleaned, owned names */
    int count, left_out;
};

static enum status open_input(struct source *s, const char *path) {
    struct file_map map = {0};
    TRY(file_map(&map, path));
    bool torch = torch_checkpoint_looks_like(map.data, map.size);
    file_unmap(&map);
    if (torch) return torch_checkpoint_open(&s->torch, path);
    return safetensors_open(&s->safetensors, path);
}

static int input_count(const struct source *s) {
    return s->torch ? torch_checkpoint_count(s->torch) : safetensors_count(s->safetensors);
}
static const struct tensor_view *input_at(const struct source *s, int i) {
    return s->torch ? torch_checkpoint_at(s->torch, i) : safetensors_at(s->safetensors, i);
}

/* Removes every "module.", as the trainer's own loader does. */
static void strip_module(char *name) {
    for (char *found; (found = strstr(name, "module."));)
        memmove(found, found + 7, strlen(found + 7) + 1);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The wrapper in front of all names ("state_dict."), found by the embedding's name: its length, or -1 without one. */
static int64_t wrapper_length(const struct source *s) {
    static const char *const ROOTS[] = {"language_model.model.embed_tokens.weight", "model.embed_tokens.weight"};
    for (size_t r = 0; r < ARRAY_LEN(ROOTS); r++)
        for (int i = 0; i < s->count; i++)
            if (ends_with(s->tensors[i].name, ROOTS[r]))
                return (int64_t)(strlen(s->tensors[i].name) - strlen(ROOTS[r]));
    return -1;
}

/* Takes the input's tensors under their cleaned names, without ALiBi slopes (they follow from the head count) and
 * without what lies outside of the wrapper (optimiser state). */
static enum status clean(struct source *s, const char *path) {
    TRY(memory_allocate_zero((void **)&s->tensors, (size_t)input_count(s), sizeof *s->tensors));
    for (int i = 0; i < input_count(s); i++) {
        char *name = NULL;
        TRY(memory_copy_string(&name, input_at(s, i)->name));
        strip_module(name);
        s->tensors[s->count] = *input_at(s, i);
        s->tensors[s->count++].name = name;
    }
    int64_t wrapper = wrapper_length(s);
    if (wrapper < 0)
        return fail(STATUS_NOT_FOUND,
                    "%s: no tensor is called model.embed_tokens.weight: not a DRT checkpoint "
                    "(first tensor: %s)",
                    path, s->tensors[0].name);
    char *prefix = NULL;
    for (int i = 0; i < s->count && !prefix; i++)
        if (ends_with(s->tensors[i].name, "model.embed_tokens.weight"))
            TRY(memory_copy_string(&prefix, s->tensors[i].name));
    int kept = 0;
    for (int i = 0; i < s->count; i++) {
        char *name = (char *)s->tensors[i].name;
        bool mine = prefix && strncmp(name, prefix, (size_t)wrapper) == 0;
        if (mine) memmove(name, name + wrapper, strlen(name + wrapper) + 1);
        if (mine && !ends_with(name, ".self_attn.m")) {
            s->tensors[kept++] = s->tensors[i];
            continue;
        }
        s->left_out += !mine;
        memory_free(name);
    }
    s->count = kept;
    memory_free(prefix);
    return STATUS_OK;
}

static void source_close(struct source *s) {
    for (int i = 0; i < s->count; i++)
        memory_free((void *)s->tensors[i].name);
    memory_free(s->tensors);
    torch_checkpoint_close(s->torch);
    safetensors_close(s->safetensors);
}

static struct tensor_view *find(const struct source *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0) return &s->tensors[i];
    return NULL;
}

/* The head must be the embedding; it is dropped when it is, byte by byte. */
static enum status drop_head(struct source *s, const char *path) {
    static const char *const PAIRS[][2] = {
        {"lm_head.weight", "model.embed_tokens.weight"},
        {"language_model.lm_head.weight", "language_model.model.embed_tokens.weight"}};
    for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
        struct tensor_view *head = find(s, PAIRS[i][0]), *embedding = find(s, PAIRS[i][1]);
        if (!head || !embedding) continue;
        if (head->dtype != embedding->dtype || head->count != embedding->count ||
            memcmp(head->data, embedding->data, (size_t)head->count * safetensors_dtype_bytes(head->dtype)) != 0)
            return fail(STATUS_UNSUPPORTED, "%s: %s differs from the embedding: only models with a tied head are read",
                        path, PAIRS[i][0]);
        memory_free((void *)head->name);
        *head = s->tensors[--s->count];
    }
    return STATUS_OK;
}

/* ---- out ------------------------------------------------------------------------------------------------ */

static enum status read_config(struct model_config *config, const struct new_folder *folder, const struct options *o,
                               const struct source *s) {
    if (o->config) {
        struct file_map map = {0};
        TRY(file_map(&map, o->config));
        enum status status = model_config_parse(config, o->config, map.data, map.size);
        if (status == STATUS_OK) status = new_folder_write(folder, "config.json", map.data, map.size);
        file_unmap(&map);
        return status;
    }
    char *json = NULL;
    size_t bytes = 0;
    TRY(model_guess_config(&json, &bytes, s->tensors, s->count, o->input, stderr));
    enum status status = model_config_parse(config, "the inferred config.json", json, bytes);
    if (status == STATUS_OK) status = new_folder_write(folder, "config.json", json, bytes);
    free(json);
    return status;
}

static enum status write_weights(const struct new_folder *folder, const struct options *o, const struct source *s,
                                 const struct model_config *config, int64_t *elements) {
    char passing[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct safetensors *file = NULL;
    struct params *params = NULL;
    enum safetensors_dtype dtype = s->tensors[0].dtype;
    if (strcmp(o->dtype, "keep") != 0) TRY(model_dtype_parse(&dtype, o->dtype));
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

static enum status convert(struct new_folder *folder, const struct options *o) {
    struct source s = {0};
    struct model_config config;
    enum safetensors_dtype dtype = SAFETENSORS_F32;
    int64_t elements = 0;
    enum status status;
    if (strcmp(o->dtype, "keep") != 0) TRY(model_dtype_parse(&dtype, o->dtype));
    TRY_GOTO(status, open_input(&s, o->input), out);
    TRY_GOTO(status, clean(&s, o->input), out);
    TRY_GOTO(status, drop_head(&s, o->input), out);
    if (s.left_out) fprintf(stderr, "drt-model: note: %d tensors outside of the model were left out\n", s.left_out);
    TRY_GOTO(status, new_folder_begin(folder, o->out, o->force), out);
    TRY_GOTO(status, read_config(&config, folder, o, &s), out);
    TRY_GOTO(status, new_folder_tokenizer(folder, o->tokenizer, &config), out);
    TRY_GOTO(status, write_weights(folder, o, &s, &config, &elements), out);
    TRY_GOTO(status, new_folder_publish(folder), out);
    printf("%s: %lld parameters from %s\n", folder->path, (long long)elements, o->input);
out:
    source_close(&s);
    return status;
}

/* A folder as input stands for the files in it. */
struct folder_input {
    char weights[FILE_PATH_MAX], config[FILE_PATH_MAX], tokenizer[FILE_PATH_MAX];
};

static enum status use_folder(struct folder_input *in, struct options *o) {
    static const char *const WEIGHTS[] = {"model.safetensors", "model.bin", "pytorch_model.bin", "model_best.bin"};
    const char *folder = o->input;
    o->input = NULL;
    for (size_t i = 0; i < ARRAY_LEN(WEIGHTS) && !o->input; i++) {
        TRY(file_join(in->weights, folder, WEIGHTS[i]));
        if (file_exists(in->weights)) o->input = in->weights;
    }
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

int model_convert(int argc, char **argv) {
    struct options o = {.dtype = "keep"};
    const struct arg_option options[] = {
        {"out", ARG_STRING, &o.out, "DIR", "the model folder to make (required)", 0, 0},
        {"config", ARG_STRING, &o.config, "FILE",
         "the model's config.json; without it sizes are taken from the tensors' shapes, and what shapes cannot tell is "
         "assumed as released and said",
         0, 0},
        {"tokenizer", ARG_STRING, &o.tokenizer, "FILE", "a tokenizer.json to put into the folder", 0, 0},
        {"dtype", ARG_STRING, &o.dtype, "keep|f32|bf16|f16", "type of the stored weights", 0, 0},
        {"force", ARG_FLAG, &o.force, NULL, "replace an existing model folder", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-model convert",
        .synopsis = "INPUT --out DIR [options]",
        .about =
            "Makes a model folder from a checkpoint: a state_dict saved by torch.save (the official trainer's "
            "model*.bin) or a safetensors file, or a folder with one of these. Torch files are read by a restricted "
            "reader that can only build tensors: no code in them is run.",
        .examples = "  drt-model convert model_best.bin --tokenizer tokenizer.json --out models/pg19\n"
                    "  drt-model convert models/pg19 --dtype bf16 --out models/pg19-bf16\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = 1};
    int n_operands = 0;
    int code = args_parse(&program, argc, argv, &o.input, &n_operands);
    if (code >= 0) return code;
    if (!o.out) {
        fprintf(stderr, "drt-model convert: --out is missing; see drt-model convert --help\n");
        return 2;
    }
    struct folder_input in;
    struct new_folder folder = {0};
    if (file_is_directory(o.input) && use_folder(&in, &o) != STATUS_OK) return model_failed();
    if (convert(&folder, &o) == STATUS_OK) return 0;
    code = model_failed();
    if (folder.temporary[0]) new_folder_discard(&folder);
    return code;
}
