/* drt_model_project.c -- drt-model project: a copy of a model that has short keys for a token memory. */
#include "base/memory.h"
#include "indexer/build/key_projection.h"
#include "tools/model/drt_model_copy.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"

struct options {
    struct model_copy_options copy;
    int64_t layer;
};

static enum status project_make(struct model_copy *c, const void *context) {
    const struct options *o = context;
    const struct engine *e = &c->engine;
    const struct model_config *model = &e->model.config;
    const int layers = model_config_layers(model), layer = o->layer ? (int)o->layer : layers;
    const int64_t size = o->copy.size;
    const struct model_member members[] = {{"memory_layer", layer}, {"memory_size", size}};
    struct key_projection_report report;
    float *projection = NULL;
    if (model->memory_size > 0)
        return fail(STATUS_INVALID, "%s: has a projection already (memory_size %d): take the model without one",
                    e->model.path, model->memory_size);
    if (layer > layers) return fail(STATUS_INVALID, "--layer %d: the model has %d layers", layer, layers);
    if (size > model->hidden)
        return fail(STATUS_INVALID, "--size %lld: must be at most the hidden size, %d", (long long)size, model->hidden);
    const struct key_windows_config config = {.device = e->device,
                                              .decoder = e->decoder,
                                              .model = model,
                                              .view = e->view,
                                              .name = e->model.path,
                                              .key_layer = layer,
                                              .rounded = e->rounded,
                                              .progress = c->progress};
    enum status s;
    TRY(model_copy_begin(c, members, ARRAY_LEN(members)));
    TRY_GOTO(s, memory_allocate(&projection, (size_t)(size * model->hidden)), out);
    TRY_GOTO(s, key_projection_fit(projection, (int)size, &report, &config), out);
    TRY_GOTO(s, model_copy_publish(c, "memory.key_proj.weight", projection), out);
    streams_printf(stdout,
                   "%s: keys of layer %d in %lld numbers, fitted from %lld states (principal components of so many "
                   "numbers have %.1f %% of their variance)\n",
                   c->folder.path, layer, (long long)size, (long long)report.states, 100 * report.kept);
out:
    memory_free(projection);
    return s;
}

int model_project(int argc, char **argv, const char **operands) {
    struct options o = {.copy = {.where = DEVICE_CHOICE_DEFAULT, .size = 128}};
    const struct arg_option options[] = {
        MODEL_COPY_OPTIONS(o.copy, "the projection is fitted to"),
        {"size", ARG_INT, &o.copy.size, "N", "dimensions of a key", 2, 1 << 16},
        {"layer", ARG_INT, &o.layer, "N", "layer whose states are keys; 0: the last", 0, 1024},
        MODEL_COPY_WEIGHTS(o.copy),
        OPTION_DEVICE(o.copy.where.device, "where the model reads the store"),
        OPTION_THREADS(o.copy.threads),
        OPTION_FORCE(o.copy.force),
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
    return model_copy_run(program.name, &o.copy, project_make, &o);
}
