/* drt_model_copy.h -- what drt-model project and drt-model sketch share: a copy of a model with more members in
 * config.json and one more tensor, whose values are made from a store. */
#pragma once
#include "session/engine.h"
#include "tools/model/drt_model.h"

struct model_copy_options {
    const char *model, *store, *out, *dtype;              /* dtype NULL: the model's */
    struct device_choice where;
    int64_t size, threads;
    bool force;
};
/* Rows of a program's options. `purpose` continues "a store with text that". */
#define MODEL_COPY_OPTIONS(o, purpose)                                                                                 \
    {"model", ARG_PATH, &(o).model, "DIR", "the model (required)", 0, 0},                                              \
    {"store", ARG_PATH, &(o).store, "STORE", "a store with text that " purpose " (required)", 0, 0},                   \
    {"out", ARG_PATH, &(o).out, "DIR", "the model folder to make (required)", 0, 0}
#define MODEL_COPY_WEIGHTS(o)                                                                                          \
    {"weights", ARG_CHOICE, &(o).dtype, "f32|bf16|f16", "type of the stored weights (default: the model's)", 0, 0}

struct model_copy {
    const struct model_copy_options *options;
    struct engine engine;                                 /* the model with its store */
    struct new_folder folder;
    const struct progress *progress;
    char *json;                                           /* of the copy's config.json */
};
struct model_member { const char *key; int64_t value; };
/* Makes the config of the copy, which has these members, and begins its folder. */
enum status model_copy_begin(struct model_copy *c, const struct model_member *members, int n);
/* Writes the copy, in which the tensor has these values, and publishes its folder. */
enum status model_copy_publish(struct model_copy *c, const char *tensor, const float *values);

/* Checks that the required options are given, opens model and store, calls `make`, and closes all. After a failure no
 * folder is left. `name` is for messages: "drt-model project". Returns the program's exit code. */
int model_copy_run(const char *name, const struct model_copy_options *options,
                   enum status (*make)(struct model_copy *c, const void *context), const void *context);
