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
    const struct progress *progress;
};
/* The layer that a job takes of a model. STATUS_INVALID: the model has fewer layers. */
enum status keys_job_layer(int *out, const struct keys_job *job, const struct model_config *model);
/* STATUS_MISMATCH: the store has keys of another model, layer, step or rounding. */
enum status keys_job_run(struct stored_keys_report *report, const struct keys_job *job);
/* STATUS_MISMATCH: the store, if there is one, has keys of another model or rounding. */
enum status keys_job_check(const struct keys_job *job);
/* Prints what was made as a line of text. */
void keys_job_print(const char *store, const struct stored_keys_report *r);

/* After a build or an addition: makes the keys of the chunks that lack them, if `wanted` is true or the store has keys
 * of this model already (indexer/build/keys_follow.h). report->spec.size 0: nothing was to do. */
enum status keys_job_follow(struct stored_keys_report *report, struct keys_job *job, bool wanted);
