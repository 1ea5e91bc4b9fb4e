/* drt_index_lanes.c -- see drt_index_lanes.h. */
#include "tools/index/build/drt_index_lanes.h"
#include "base/memory.h"

static enum status lanes_fill(struct index_lanes *l, const struct model_config *model, const struct params *params,
                              enum dtype type) {
    const size_t n = (size_t)l->n;
    TRY(memory_allocate_zero(&l->lanes, n));
    TRY(memory_allocate_zero(&l->weights, n));
    TRY(memory_allocate_zero(&l->towers, n));
    for (int i = 0; i < l->n; i++) {
        struct device *device = l->group.devices[i + 1];
        device_enter(device);
        TRY(weights_open(&l->weights[i], device, params, type));
        TRY(chunk_tower_open(&l->towers[i], device, model, &l->weights[i]));
        l->lanes[i] =
            (struct encode_lane){.device = device, .encoder = l->towers[i].encoder, .states = l->towers[i].states};
    }
    return STATUS_OK;
}

enum status index_lanes_open(struct index_lanes *out, struct device *first, const struct device_choice *choice,
                             const struct model_config *model, const struct params *params, enum dtype type) {
    *out = (struct index_lanes){0};
    TRY(device_choose_group(&out->group, first, choice));
    if (out->group.n < 2) return STATUS_OK;
    out->n = out->group.n - 1;
    const enum status status = lanes_fill(out, model, params, type);
    device_enter(first);
    return status;
}

void index_lanes_close(struct index_lanes *l) {
    for (int i = 0; i < l->n; i++) {
        device_enter(l->group.devices[i + 1]);
        if (l->towers) chunk_tower_close(&l->towers[i]);
        if (l->weights) weights_release(&l->weights[i], l->group.devices[i + 1]);
    }
    memory_free(l->lanes);
    memory_free(l->weights);
    memory_free(l->towers);
    device_group_close(&l->group);
    *l = (struct index_lanes){0};
}
