/* drt_index_models.h -- for a build: a model on every GPU of a group. */
#pragma once
#include "indexer/build/encode_pool.h"
#include "session/device_choice.h"

struct index_models {
    struct device_group group;
    struct encode_device *devices;       /* [n]: one for each device after the first */
    struct weights *weights;             /* [n] */
    struct chunk_tower *towers;          /* [n] */
    int n;
};
/* Opens the devices of `choice` after `first`, and the weights and the tower on each. If `choice` has no group of
 * devices, n is 0. Call index_models_close after a failure, too. */
enum status index_models_open(struct index_models *out, struct device *first, const struct device_choice *choice,
                              const struct model_config *model, const struct params *params, enum dtype type);
void index_models_close(struct index_models *m);         /* a zeroed struct is fine */
