/* drt_index_store_keys.c -- see drt_index_store_keys.h. */
#include "tools/index/build/drt_index_store_keys.h"
#include "base/memory.h"
#include "indexer/build/keys_follow.h"
#include "tools/index/drt_index.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"

enum status keys_job_layer(int *out, const struct keys_job *job, const struct model_config *model) {
    const int layers = model_config_layers(model);
    *out = job->layer > 0 ? job->layer : model_config_key_layer(model);
    if (*out <= layers) return STATUS_OK;
    return fail(STATUS_INVALID, "--layer %d: the model has %d layers", *out, layers);
}

/* The model on the devices after the first. */
struct job_devices {
    struct device_group group;
    struct weights *weights;         /* [n] */
    struct stored_keys_device *more; /* [n] */
    int n;
};

static enum status devices_open(struct job_devices *d, const struct keys_job *job, const struct engine *e) {
    TRY(device_choose_group(&d->group, e->device, &job->where));
    if (d->group.n < 2) return STATUS_OK;
    d->n = d->group.n - 1;
    TRY(memory_allocate_zero(&d->weights, (size_t)d->n));
    TRY(memory_allocate_zero(&d->more, (size_t)d->n));
    for (int i = 0; i < d->n; i++) {
        struct device *device = d->group.devices[i + 1];
        device_enter(device);
        TRY(weights_open(&d->weights[i], device, e->model.params, e->weights.type));
        d->more[i].device = device;
        TRY(decoder_create(&d->more[i].decoder, device, &e->model.config, &d->weights[i], 0));
    }
    return STATUS_OK;
}

static void devices_close(struct job_devices *d, struct device *first) {
    for (int i = 0; i < d->n; i++) {
        device_enter(d->group.devices[i + 1]);
        if (d->more) decoder_free(d->more[i].decoder);
        if (d->weights) weights_release(&d->weights[i], d->group.devices[i + 1]);
    }
    device_enter(first);
    memory_free(d->more);
    memory_free(d->weights);
    device_group_close(&d->group);
}

static enum status job_make(struct stored_keys_report *report, const struct keys_job *job, const struct engine *e,
                            const struct job_devices *others) {
    const struct model_config *model = &e->model.config;
    uint8_t weights[16];
    struct stored_keys_job make = {.config = {.device = e->device,
                                              .decoder = e->decoder,
                                              .model = model,
                                              .view = e->view,
                                              .name = e->model.path,
                                              .step = job->step,
                                              .rounded = e->rounded,
                                              .progress = job->progress},
                                   .weights = weights,
                                   .more = others->more,
                                   .n_more = others->n,
                                   .store = e->store,
                                   .part = job->part,
                                   .parts = job->parts};
    TRY(keys_job_layer(&make.config.key_layer, job, model));
    params_fingerprint(e->model.params, weights);
    return keys_follow_make(report, job->store, &make);
}

enum status keys_job_run(struct stored_keys_report *report, const struct keys_job *job) {
    struct engine e;
    struct job_devices others = {0};
    const struct engine_config config = {
        .model = job->model, .store = job->store, .where = job->where, .threads = job->threads, .memory = true};
    TRY(engine_open(&e, &config));
    struct store_keys_state have;
    enum status s = store_keys_state(&have, e.view);
    if (s == STATUS_OK && stored_keys_round_plainly(e.device, e.weights.type, e.rounded, &have))
        progress_note(job->progress,
                      "%s: its keys have bf16 products, and this processor has no instructions for them: they are "
                      "computed without, many times more slowly",
                      job->store);
    if (s == STATUS_OK) s = devices_open(&others, job, &e);
    if (s == STATUS_OK) s = job_make(report, job, &e, &others);
    devices_close(&others, e.device);
    engine_close(&e);
    return s;
}

void keys_job_print(const char *store, const struct stored_keys_report *r) {
    const struct store_keys_spec *spec = &r->spec;
    char size[32], time[32];
    const double tokens = (double)(r->chunks * spec->chunk_tokens);
    streams_printf(stdout,
                   "%s: keys of layer %d, %d numbers: %lld of %lld files made (%lld chunks, %.0f tokens/s, %s), %s\n",
                   store, spec->layer, spec->size, (long long)r->made, (long long)r->files, (long long)r->chunks,
                   r->seconds > 0 ? tokens / r->seconds : 0, progress_time_text(time, r->seconds),
                   progress_bytes_text(size, r->bytes));
}

/* ---- after a build or an addition ---- */

/* What the job's model and device compute keys with. */
static enum status job_maker(struct keys_maker *out, const struct keys_job *job, const struct store_keys_state *have) {
    struct model_folder model;
    struct device *device;
    enum dtype type;
    TRY(model_folder_open(&model, job->model));
    const enum status s = device_choose(&device, &type, &job->where, job->threads);
    if (s == STATUS_OK) {
        const bool rounded = engine_rounds(&job->where);
        (void)stored_keys_round_plainly(device, type, rounded, have);
        *out = keys_maker_of(&model.config, model.params, stored_keys_rounding(device, type, rounded));
        device_close(device);
    }
    model_folder_close(&model);
    return s;
}

/* The keys that the job's store has; maker: only set if it has any. STATUS_NOT_FOUND: there is no store. */
static enum status job_state(struct store_keys_state *out, struct keys_maker *maker, const struct keys_job *job) {
    struct opened_store store;
    TRY(opened_store_open(&store, job->store));
    const enum status s = store_keys_state(out, store.view);
    opened_store_close(&store);
    TRY(s);
    return out->chunks > 0 ? job_maker(maker, job, out) : STATUS_OK;
}

enum status keys_job_check(const struct keys_job *job) {
    struct store_keys_state state;
    struct keys_maker maker;
    const enum status s = job_state(&state, &maker, job);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    return keys_follow_check(job->store, &state, &maker);
}

enum status keys_job_follow(struct stored_keys_report *report, struct keys_job *job, bool wanted) {
    struct store_keys_state state;
    struct keys_maker maker;
    struct keys_follow follow;
    *report = (struct stored_keys_report){0};
    const enum status s = job_state(&state, &maker, job);
    if (s == STATUS_NOT_FOUND) return STATUS_OK; /* a part without documents */
    TRY(s);
    keys_follow_decide(&follow, job->store, &state, &maker, wanted, job->progress);
    if (!follow.make) return STATUS_OK;
    job->layer = follow.layer, job->step = follow.step;
    return keys_job_run(report, job);
}
