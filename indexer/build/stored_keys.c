/* stored_keys.c -- see stored_keys.h. */
#include "indexer/build/stored_keys.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "base/system/threads.h"
#include "decoder/decoder_passages.h"
#include "kernels/device/device_group.h"
#include "kernels/device/device_pair.h"
#include "kernels/linear/matmul.h"
#include "kernels/ops.h"
#include <math.h>
#include <string.h>

/* What the devices of a call share. */
struct stored_work {
    const struct stored_keys_job *job;
    struct keys_layout layout;
    int step;             /* of the numbers of the part's files */
    pthread_mutex_t lock; /* of all below, and of the caller's progress */
    int64_t next;         /* the next file */
    int64_t done, all;    /* chunks of complete files; of all files of the part */
    struct stored_keys_report *report;
    struct threads_failure failure;
};
/* One device. */
struct stored_keys {
    struct stored_work *work;
    struct key_windows_config config;
    struct store_view *own; /* its view; NULL: the caller's */
    struct progress progress;
    struct store_keys_spec spec;
    struct key_windows *windows;
    struct store_keys_file *file;
    struct device_pair code, scale; /* of a batch's keys: int8 [rows, size], float32 [rows] */
    pthread_t thread;
    bool running; /* it has a thread */
};

struct store_keys_spec stored_keys_spec(const struct model_config *config, const uint8_t weights[16], int key_layer,
                                        int step) {
    struct store_keys_spec s = {.layer = key_layer,
                                .size = model_config_key_size(config, key_layer),
                                .chunk_tokens = config->chunk,
                                .window = KEY_WINDOW,
                                .step = step};
    memcpy(s.model, weights, sizeof s.model);
    return s;
}

enum store_keys_rounding stored_keys_rounding(struct device *dev, enum dtype type, bool rounded) {
    const enum passages_rounding wanted = rounded ? PASSAGES_BF16 : PASSAGES_EXACT;
    return decoder_passages_rounding(dev, type, wanted) == PASSAGES_BF16 ? STORE_KEYS_BF16 : STORE_KEYS_F32;
}

bool stored_keys_round_plainly(struct device *dev, enum dtype type, bool rounded, const struct store_keys_state *have) {
    if (have->chunks == 0 || have->spec.rounding != STORE_KEYS_BF16 || !rounded || !dev->shares_memory) return false;
    if (stored_keys_rounding(dev, type, true) == STORE_KEYS_BF16) return false;
    matmul_round_plainly(dev);
    return true;
}

enum status stored_keys_find(struct store_keys **out, struct store_view *view, const struct store_keys_spec *spec,
                             const char *model, bool must) {
    *out = NULL;
    const enum status s = store_keys_open(out, view, spec, model);
    return must || (s != STATUS_NOT_FOUND && s != STATUS_MISMATCH) ? s : STATUS_OK;
}

/* Rows after a chunk's last id are 0 in the file. row: of the window's first chunk. */
static void stored_clear_ends(struct stored_keys *k, const struct key_window *w, int64_t row) {
    const int64_t chunk = k->spec.chunk_tokens, size = k->spec.size;
    int8_t *code = k->code.host;
    float *scale = k->scale.host;
    for (int i = w->skip; i < w->skip + w->keep; i++) {
        const int64_t from = row + i * chunk + w->count[i], n = chunk - w->count[i];
        memset(code + from * size, 0, (size_t)(n * size));
        memset(scale + from, 0, (size_t)n * sizeof *scale);
    }
}

/* Appends the keys of a batch to the file. */
static enum status stored_take(void *context, struct mat keys, const struct key_window *windows, int64_t n) {
    struct stored_keys *k = context;
    struct device *dev = k->config.device;
    const int64_t chunk = k->spec.chunk_tokens, size = k->spec.size;
    const int8_t *code = k->code.host;
    const float *scale = k->scale.host;
    dev->ops->packed_keys->pack(dev, k->code.device, k->scale.device, keys);
    device_pair_download(dev, &k->code, (size_t)(keys.rows * size));
    device_pair_download(dev, &k->scale, (size_t)keys.rows * sizeof *scale);
    TRY(device_sync(dev));
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = i * KEY_WINDOW * chunk, row = first + windows[i].skip * chunk;
        const struct store_key_rows kept = {code + row * size, scale + row};
        stored_clear_ends(k, &windows[i], first);
        for (int64_t j = 0; j < windows[i].keep * chunk; j++)
            if (!isfinite(kept.scale[j]))
                return fail(STATUS_INVALID, "keys of layer %d are not finite numbers: numbers of the model overflow",
                            k->spec.layer);
        TRY(store_keys_append(k->file, kept, windows[i].keep));
    }
    return STATUS_OK;
}

static void stored_free(struct stored_keys *k) {
    struct device *dev = k->config.device;
    store_keys_discard(k->file);
    key_windows_free(k->windows);
    device_pair_release(dev, &k->code);
    device_pair_release(dev, &k->scale);
    store_view_close(k->own);
}

static enum status stored_allocate(struct stored_keys *k) {
    TRY(key_windows_create(&k->windows, &k->config, k->spec.size, stored_take, k));
    const size_t rows = (size_t)key_windows_rows(k->windows);
    TRY(device_pair_allocate(k->config.device, &k->code, rows * (size_t)k->spec.size));
    return device_pair_allocate(k->config.device, &k->scale, rows * sizeof(float));
}

/* Keys that the earlier file has of the same spec are kept; those of the other chunks are computed. */
static enum status stored_file(struct stored_keys *k, int64_t file, int64_t *computed) {
    const struct store_dropped dropped = store_view_dropped(k->config.view);
    const struct keys_layout *layout = &k->work->layout;
    const struct keys_range range = keys_layout_range(layout, file);
    int64_t at = 0;
    TRY(store_keys_begin(&k->file, k->config.view, layout, file, &k->spec));
    TRY(store_keys_append_earlier(k->file, &at));
    at += range.begin;
    *computed = range.end - at;
    while (at < range.end) {
        const struct store_range there = store_dropped_span(dropped, at, range.end);
        TRY(store_keys_append(k->file, (struct store_key_rows){0}, there.begin - at)); /* chunks that do not exist */
        TRY(key_windows_add(k->windows, there.begin, there.end));
        TRY(key_windows_flush(k->windows));
        at = there.end;
    }
    struct store_keys_file *made = k->file;
    k->file = NULL;
    return store_keys_publish(made);
}

/* ---- the files, by one device or several ---- */

/* Returns the number of the next file of the part, or -1 if there is none. */
static int64_t work_take(struct stored_work *w) {
    pthread_mutex_lock(&w->lock);
    const int64_t file = w->next;
    if (file < w->layout.files) w->next += w->step;
    pthread_mutex_unlock(&w->lock);
    return file < w->layout.files ? file : -1;
}

static void work_done(struct stored_work *w, const struct stored_keys *k, int64_t file, int64_t computed, bool made) {
    const struct keys_range range = keys_layout_range(&w->layout, file);
    pthread_mutex_lock(&w->lock);
    w->report->files++;
    w->report->made += made;
    w->report->chunks += computed;
    w->report->bytes += store_keys_file_bytes(&k->spec, range.end - range.begin);
    w->done += range.end - range.begin;
    progress_step(w->job->config.progress, "keys", "chunks", w->done, w->all);
    pthread_mutex_unlock(&w->lock);
}

/* Ends the work of a device after a request to stop, or after the failure of another device. */
static bool work_stop_requested(void *context) {
    struct stored_work *w = context;
    if (threads_any_failed(&w->failure)) return true;
    pthread_mutex_lock(&w->lock);
    const bool stop = progress_stop_requested(w->job->config.progress);
    pthread_mutex_unlock(&w->lock);
    return stop;
}

static enum status stored_run(struct stored_keys *k) {
    struct stored_work *w = k->work;
    TRY(stored_allocate(k));
    for (int64_t i; (i = work_take(w)) >= 0;) {
        int64_t computed = 0;
        bool complete;
        TRY(store_keys_complete(&complete, k->config.view, &w->layout, i, &k->spec));
        if (!complete) TRY(stored_file(k, i, &computed));
        work_done(w, k, i, computed, !complete);
    }
    return STATUS_OK;
}

static void *stored_thread(void *context) {
    struct stored_keys *k = context;
    device_enter(k->config.device);
    threads_failed(&k->work->failure, stored_run(k));
    return NULL;
}

/* A view is for one thread. A device whose view would be of a newer generation than the caller's is left out. */
static enum status stored_start(struct stored_keys *k, const struct stored_keys_device *with) {
    struct store_info info, mine;
    k->config.device = with->device;
    k->config.decoder = with->decoder;
    TRY(store_view_open(&k->own, k->work->job->store));
    store_view_info(k->own, &info);
    store_view_info(k->work->job->config.view, &mine);
    if (info.generation != mine.generation) return STATUS_OK;
    k->config.view = k->own;
    k->running = threads_start(&k->thread, stored_thread, k);
    return STATUS_OK;
}

/* The calling thread uses the first device. */
static void work_run(struct stored_work *w, struct stored_keys *devices, int n) {
    struct device *first = devices[0].config.device;
    for (int i = 1; i < n && !threads_any_failed(&w->failure); i++)
        threads_failed(&w->failure, stored_start(&devices[i], &w->job->more[i - 1]));
    device_enter(first);
    threads_failed(&w->failure, stored_run(&devices[0]));
    for (int i = 1; i < n; i++)
        if (devices[i].running) pthread_join(devices[i].thread, NULL);
    for (int i = 0; i < n; i++) {
        device_enter(devices[i].config.device);
        stored_free(&devices[i]);
    }
    device_enter(first);
}

static enum status work_open(struct stored_work *w, struct stored_keys **devices, int n) {
    const struct stored_keys_job *job = w->job;
    const struct key_windows_config *c = &job->config;
    TRY(keys_layout_open(&w->layout, c->view));
    for (int64_t i = w->next; i < w->layout.files; i += w->step) {
        const struct keys_range range = keys_layout_range(&w->layout, i);
        w->all += range.end - range.begin;
    }
    TRY(memory_allocate_zero(devices, (size_t)n));
    for (int i = 0; i < n; i++) {
        struct stored_keys *k = &(*devices)[i];
        *k = (struct stored_keys){.work = w, .config = *c, .spec = w->report->spec};
        k->progress = (struct progress){.stop_requested = work_stop_requested, .context = w};
        k->config.progress = &k->progress;
    }
    return STATUS_OK;
}

struct store_keys_spec stored_keys_job_spec(const struct stored_keys_job *job) {
    const struct key_windows_config *c = &job->config;
    struct store_keys_spec spec = stored_keys_spec(c->model, job->weights, c->key_layer, c->step ? c->step : KEY_STEP);
    spec.rounding = stored_keys_rounding(c->device, decoder_type(c->decoder), c->rounded);
    return spec;
}

enum status stored_keys_make(struct stored_keys_report *out, const struct stored_keys_job *job) {
    struct stored_work w = {.job = job,
                            .next = job->parts > 0 ? job->part - 1 : 0,
                            .step = job->parts > 0 ? job->parts : 1,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .report = out,
                            .failure = THREADS_FAILURE_NONE};
    struct stored_keys *devices = NULL;
    const double start = clock_seconds();
    *out = (struct stored_keys_report){.spec = stored_keys_job_spec(job)};
    enum status s = work_open(&w, &devices, 1 + job->n_more);
    if (s == STATUS_OK) {
        work_run(&w, devices, 1 + job->n_more);
        s = threads_failure(&w.failure);
    }
    memory_free(devices);
    keys_layout_free(&w.layout);
    pthread_mutex_destroy(&w.lock);
    out->seconds = clock_seconds() - start;
    return s;
}
