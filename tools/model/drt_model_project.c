/* drt_model_project.c -- drt-model project: a copy of a model that has short keys for a token memory. */
#include "base/formats/json_object.h"
#include "base/memory.h"
#include "indexer/build/key_projection.h"
#include "session/engine.h"
#include "tools/model/drt_model.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <string.h>

struct options {
    const char *model, *store, *out, *dtype;
    struct device_choice where;
    int64_t size, layer, threads;
    bool force;
};

/* The model's config.json with the members of the projection. */
static enum status projected_config(char **text, const struct engine *e, const struct options *o, int layer) {
    struct object json = {0};
    struct file_map map;
    char path[FILE_PATH_MAX];
    TRY(file_join(path, e->model.path, "config.json"));
    TRY(file_map(&map, path));
    enum status s = object_read(&json, path, (const char *)map.data, map.size);
    file_unmap(&map);
    if (s == STATUS_OK) s = object_set_int(&json, "memory_layer", layer);
    if (s == STATUS_OK) s = object_set_int(&json, "memory_size", o->size);
    if (s == STATUS_OK) s = object_text(text, &json);
    object_free(&json);
    return s;
}

static enum status write_folder(struct new_folder *folder, const struct engine *e, const struct options *o,
                                const char *json, const float *projection) {
    struct model_config config;
    struct params *params = NULL;
    struct safetensors *file = NULL;
    struct params_grafted counts;
    char path[FILE_PATH_MAX];
    TRY(model_config_parse(&config, o->model, json, strlen(json)));
    TRY(file_join(path, e->model.path, "tokenizer.json"));
    TRY(new_folder_tokenizer(folder, path, &config));
    TRY(new_folder_write(folder, "config.json", json, strlen(json)));
    TRY(file_join(path, e->model.path, "model.safetensors"));
    TRY(safetensors_open(&file, path));
    const enum safetensors_dtype type = safetensors_at(file, 0)->dtype;
    enum status s = params_graft(&params, &config, file, 1, &counts);
    safetensors_close(file);
    if (s == STATUS_OK) {
        params_set(params, "memory.key_proj.weight", projection);
        s = file_join(path, folder->temporary, "model.safetensors");
    }
    if (s == STATUS_OK) s = params_save(params, path, o->dtype ? model_dtype(o->dtype) : type, "{\"format\":\"pt\"}");
    params_free(params);
    TRY(s);
    return new_folder_publish(folder);
}

static enum status model_project_folder(struct new_folder *folder, const struct engine *e, const struct options *o,
                                        const struct progress *progress) {
    const struct model_config *model = &e->model.config;
    const int layers = model_config_layers(model), layer = o->layer ? (int)o->layer : layers;
    struct key_projection_report report;
    float *projection = NULL;
    char *json = NULL;
    if (model->memory_size > 0)
        return fail(STATUS_INVALID, "%s: has a projection already (memory_size %d): take the model without one",
                    e->model.path, model->memory_size);
    if (layer > layers) return fail(STATUS_INVALID, "--layer %d: the model has %d layers", layer, layers);
    if (o->size > model->hidden)
        return fail(STATUS_INVALID, "--size %lld: must be at most the hidden size, %d", (long long)o->size,
                    model->hidden);
    const struct key_windows_config config = {.device = e->device,
                                              .decoder = e->decoder,
                                              .model = model,
                                              .view = e->view,
                                              .name = e->model.path,
                                              .key_layer = layer,
                                              .rounded = e->rounded,
                                              .progress = progress};
    enum status s;
    TRY(new_folder_begin(folder, o->out, o->force));
    TRY_GOTO(s, memory_allocate(&projection, (size_t)(o->size * model->hidden)), out);
    TRY_GOTO(s, key_projection_fit(projection, (int)o->size, &report, &config), out);
    TRY_GOTO(s, projected_config(&json, e, o, layer), out);
    TRY_GOTO(s, write_folder(folder, e, o, json, projection), out);
    streams_printf(stdout,
                   "%s: keys of layer %d in %lld numbers, fitted from %lld states (principal components of so many "
                   "numbers have %.1f %% of their variance)\n",
                   folder->path, layer, (long long)o->size, (long long)report.states, 100 * report.kept);
out:
    memory_free(projection);
    memory_free(json);
    return s;
}

static enum status project_run(const struct options *o) {
    struct progress_line *line = NULL;
    struct new_folder folder = {0};
    struct engine e = {0};
    const struct engine_config config = {
        .model = o->model, .store = o->store, .where = o->where, .threads = (int)o->threads, .memory = true};
    enum status s = progress_line_start(&line, "drt-model");
    if (s == STATUS_OK) s = engine_open(&e, &config);
    if (s == STATUS_OK) s = model_project_folder(&folder, &e, o, progress_line_progress(line));
    progress_line_end(line);
    if (s != STATUS_OK && folder.temporary[0]) {
        char why[1024];
        snprintf(why, sizeof why, "%s", status_message());
        new_folder_discard(&folder);
        s = fail(s, "%s", why);
    }
    engine_close(&e);
    return s;
}

int model_project(int argc, char **argv, const char **operands) {
    struct options o = {.where = DEVICE_CHOICE_DEFAULT, .size = 128};
    o.where.dtype = "auto";
    const struct arg_option options[] = {
        {"model", ARG_PATH, &o.model, "DIR", "the model (required)", 0, 0},
        {"store", ARG_PATH, &o.store, "STORE", "a store with text that the projection is fitted to (required)", 0, 0},
        {"out", ARG_PATH, &o.out, "DIR", "the model folder to make (required)", 0, 0},
        {"size", ARG_INT, &o.size, "N", "dimensions of a key", 2, 1 << 16},
        {"layer", ARG_INT, &o.layer, "N", "layer whose states are keys; 0: the last", 0, 1024},
        {"weights", ARG_CHOICE, &o.dtype, "f32|bf16|f16", "type of the stored weights (default: the model's)", 0, 0},
        OPTION_DEVICE(o.where.device, "where the model reads the store"),
        OPTION_THREADS(o.threads),
        OPTION_FORCE(o.force),
    };
    const struct arg_program program = {
        .name = "drt-model project",
        .synopsis = "--model DIR --store STORE --out DIR [options]",
        .about =
            "Makes a copy of a model whose token memory has short keys: a state of the memory's layer is projected "
            "to --size dimensions. The projection is fitted to the states of the store's text: directions in which "
            "states before the same token vary count less. Nothing else of the model changes. Short keys take less "
            "memory and time, and drt-index keys can store them. A gate is fitted for one model: run drt-eval "
            "fit-memory for the copy. The model must not have a projection already, as the bundled base-28m has.",
        .examples = "  drt-model project --model models/base --store store --size 128 --out base-128\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands = 0, code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code >= 0) return code;
    if (!o.model || !o.store || !o.out) {
        fprintf(stderr, "drt-model project: --%s is missing; see drt-model project --help\n",
                !o.model   ? "model"
                : !o.store ? "store"
                           : "out");
        return 2;
    }
    return project_run(&o) == STATUS_OK ? 0 : model_failed();
}
