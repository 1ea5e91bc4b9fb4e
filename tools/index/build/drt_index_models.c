/* drt_index_models.c -- see drt_index_models.h. */
#include "tools/index/build/drt_index_models.h"
#include "base/memory.h"

static enum status index_models_fill(struct index_models *m, const struct model_config *model,
                                     const struct params *params, enum dtype type) {
    const size_t n = (size_t)m->n;
    TRY(memory_allocate_zero(&m->devices, n));
    TRY(memory_allocate_zero(&m->weights, n));
    TRY(memory_allocate_zero(&m->towers, n));
    for (int i = 0; i < m->n; i++) {
        struct device *device = m->group.devices[i + 1];
        device_enter(device);
        TRY(weights_open(&m->weights[i], device, params, type));
        TRY(chunk_tower_open(&m->towers[i], device, model, &m->weights[i]));
        m->devices[i] =
            (struct encode_device){.device = device, .encoder = m->towers[i].encoder, .states = m->towers[i].states};
    }
    return STATUS_OK;
}

enum status index_models_open(struct index_models *out, struct device *first, const struct device_choice *choice,
                              const struct model_config *model, const struct params *params, enum dtype type) {
    *out = (struct index_models){0};
    TRY(device_choose_group(&out->group, first, choice));
    if (out->group.n < 2) return STATUS_OK;
    out->n = out->group.n - 1;
    const enum status status = index_models_fill(out, model, params, type);
    device_enter(first);
    return status;
}

void index_models_close(struct index_models *m) {
    for (int i = 0; i < m->n; i++) {
        device_enter(m->group.devices[i + 1]);
        if (m->towers) chunk_tower_close(&m->towers[i]);
        if (m->weights) weights_release(&m->weights[i], m->group.devices[i + 1]);
    }
    memory_free(m->devices);
    memory_free(m->weights);
    memory_free(m->towers);
    device_group_close(&m->group);
    *m = (struct index_models){0};
}
