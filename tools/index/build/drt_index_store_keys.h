/* drt_index_store_keys.h -- makes the keys of a store for a token memory: for keys, and for build, add and update. */
#pragma once
#include "indexer/build/stored_keys.h"
#include "session/engine.h"

struct keys_job {
    const char *store, *model;           /* folders; model NULL: the bundled one */
    struct device_choice where;
    int layer, step;                     /* layer 0: the model's memory_layer, or the last; step 0: the default */
    int part, parts;                     /* as in stored_keys_make */
    int threads;
    bool keep_others;                    /* if the store has keys of another model, layer or step: STATUS_MISMATCH */
    const struct progress *progress;
};
/* The layer that a job takes of a model. STATUS_INVALID: the model has fewer layers. */
enum status keys_job_layer(int *out, const struct keys_job *job, const struct model_config *model);
enum status keys_job_run(struct stored_keys_report *report, struct store_keys_spec *spec, const struct keys_job *job);
/* STATUS_MISMATCH: the store, if there is one, has keys of another model. */
enum status keys_job_check(const struct keys_job *job);
/* Prints what was made as a line of text. */
void keys_job_print(const char *store, const struct stored_keys_report *r, const struct store_keys_spec *spec);

/* After a build or an addition: makes the keys of the chunks that lack them, if `wanted` is true or the store has keys
 * of this model already, whose layer and step are then kept. If it has keys of another model, a note says that they do
 * not have the new chunks. spec->size 0: nothing was to do. */
enum status keys_job_follow(struct stored_keys_report *report, struct store_keys_spec *spec, struct keys_job *job,
                            bool wanted);
