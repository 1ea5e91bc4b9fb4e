/* drt_index_lanes.h -- a model on every GPU of a group, for a build. */
#pragma once
#include "indexer/build/encode_pool.h"
#include "session/device_choice.h"

struct index_lanes {
    struct device_group group;
    struct encode_lane *lanes;           /* [n]: of the devices after the first */
    struct weights *weights;             /* [n] */
    struct chunk_tower *towers;          /* [n] */
    int n;
};
/* Opens the devices of the choice after `first`, and on each the weights and the tower. Without devices in the choice
 * there are none. Call index_lanes_close after a failure, too. */
enum status index_lanes_open(struct index_lanes *out, struct device *first, const struct device_choice *choice,
                             const struct model_config *model, const struct params *params, enum dtype type);
void index_lanes_close(struct index_lanes *l);            /* a zeroed struct is fine */
