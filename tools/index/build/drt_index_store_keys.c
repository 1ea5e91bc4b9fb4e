/* drt_index_store_keys.c -- see drt_index_store_keys.h. */
#include "tools/index/build/drt_index_store_keys.h"
#include "indexer/build/key_windows.h"
#include "tools/index/drt_index.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include <string.h>

enum status keys_job_layer(int *out, const struct keys_job *job, const struct model_config *model) {
    const int layers = model_config_layers(model);
    *out = job->layer > 0 ? job->layer : model->memory_size > 0 ? model->memory_layer : layers;
    if (*out <= layers) return STATUS_OK;
    return fail(STATUS_INVALID, "--layer %d: the model has %d layers", *out, layers);
}

/* Keys of a large store take hours on a CPU: another model's are not replaced unasked. */
static enum status others_refused(const char *store) {
    return fail(STATUS_MISMATCH,
                "%s: it has keys of another model, layer or step: to replace them, run drt-index keys --store %s "
                "--remove first",
                store, store);
}

static enum status refuse_others(const char *store, struct store_view *view, const struct store_keys_spec *spec) {
    struct store_keys_state state;
    TRY(store_keys_state(&state, view));
    return state.chunks == 0 || memcmp(&state.spec, spec, sizeof *spec) == 0 ? STATUS_OK : others_refused(store);
}

static enum status job_make(struct stored_keys_report *report, struct store_keys_spec *spec, const struct keys_job *job,
                            const struct engine *e) {
    const struct model_config *model = &e->model.config;
    struct key_windows_config config = {.device = e->device,
                                        .decoder = e->decoder,
                                        .model = model,
                                        .view = e->view,
                                        .name = e->model.path,
                                        .step = job->step,
                                        .rounded = e->rounded,
                                        .progress = job->progress};
    uint8_t weights[16];
    TRY(keys_job_layer(&config.key_layer, job, model));
    params_fingerprint(e->model.params, weights);
    *spec = stored_keys_spec(model, weights, config.key_layer, job->step);
    if (job->keep_others) TRY(refuse_others(job->store, e->view, spec));
    return stored_keys_make(report, &config, weights, job->part, job->parts);
}

enum status keys_job_run(struct stored_keys_report *report, struct store_keys_spec *spec, const struct keys_job *job) {
    struct engine e;
    const struct engine_config config = {
        .model = job->model, .store = job->store, .where = job->where, .threads = job->threads, .memory = true};
    TRY(engine_open(&e, &config));
    const enum status s = job_make(report, spec, job, &e);
    engine_close(&e);
    return s;
}

void keys_job_print(const char *store, const struct stored_keys_report *r, const struct store_keys_spec *spec) {
    char size[32], time[32];
    const double tokens = (double)(r->chunks * spec->chunk_tokens);
    streams_printf(stdout,
                   "%s: keys of layer %d, %d numbers: %lld of %lld files made (%lld chunks, %.0f tokens/s, %s), %s\n",
                   store, spec->layer, spec->size, (long long)r->made, (long long)r->files, (long long)r->chunks,
                   r->seconds > 0 ? tokens / r->seconds : 0, progress_time_text(time, r->seconds),
                   progress_bytes_text(size, r->bytes));
}

/* ---- after a build or an addition ---- */

/* Whether the model is that of the store's keys. */
static enum status is_model_of(bool *out, const struct store_keys_state *state, const char *path) {
    struct model_folder model;
    uint8_t weights[16];
    *out = false;
    if (state->chunks == 0 || state->spec.window != KEY_WINDOW) return STATUS_OK;
    TRY(model_folder_open(&model, path));
    params_fingerprint(model.params, weights);
    *out = memcmp(weights, state->spec.model, sizeof weights) == 0 &&
           state->spec.layer <= model_config_layers(&model.config);
    model_folder_close(&model);
    return STATUS_OK;
}

/* The keys that the job's store has, and whether they are of its model. STATUS_NOT_FOUND: there is no store. */
static enum status keys_job_state(struct store_keys_state *out, bool *same, const struct keys_job *job) {
    struct opened_store store;
    TRY(opened_store_open(&store, job->store));
    const enum status s = store_keys_state(out, store.view);
    opened_store_close(&store);
    TRY(s);
    return is_model_of(same, out, job->model);
}

enum status keys_job_check(const struct keys_job *job) {
    struct store_keys_state state;
    bool same;
    const enum status s = keys_job_state(&state, &same, job);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    return state.chunks == 0 || same ? STATUS_OK : others_refused(job->store);
}

/* Says that the keys do not have the new chunks. */
static enum status note_left_out(const struct keys_job *job, const struct store_keys_state *state) {
    struct store_keys_usage usage;
    TRY(store_keys_usage(&usage, job->store));
    if (usage.files == 0 || state->chunks == state->all) return STATUS_OK;
    progress_note(job->progress,
                  "%s: its keys are %s and do not have the new chunks: run drt-index keys --store %s with their model",
                  job->store, state->chunks == 0 ? "damaged" : "of another model", job->store);
    return STATUS_OK;
}

enum status keys_job_follow(struct stored_keys_report *report, struct store_keys_spec *spec, struct keys_job *job,
                            bool wanted) {
    struct store_keys_state state;
    bool same;
    *report = (struct stored_keys_report){0};
    *spec = (struct store_keys_spec){0};
    const enum status s = keys_job_state(&state, &same, job);
    if (s == STATUS_NOT_FOUND) return STATUS_OK; /* a part without documents */
    TRY(s);
    if (same) job->layer = state.spec.layer, job->step = state.spec.step;
    if (!wanted && !same) return note_left_out(job, &state);
    if (!wanted && state.chunks == state.all) return STATUS_OK;
    return keys_job_run(report, spec, job);
}
