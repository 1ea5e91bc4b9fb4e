/* stored_keys.c -- see stored_keys.h. */
#include "indexer/build/stored_keys.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "kernels/device/device_pair.h"
#include "kernels/ops.h"
#include <string.h>

struct stored_keys {
    struct key_windows_config config;
    struct store_keys_spec spec;
    struct keys_layout layout;
    struct key_windows *windows;
    struct store_keys_file *file;
    int first, step;                /* of the numbers of the part's files */
    struct device_pair code, scale; /* of a batch's keys: int8 [rows, size], float32 [rows] */
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
        TRY(store_keys_append(k->file, kept, windows[i].keep));
    }
    return STATUS_OK;
}

static void stored_free(struct stored_keys *k) {
    struct device *dev = k->config.device;
    store_keys_discard(k->file);
    key_windows_free(k->windows);
    keys_layout_free(&k->layout);
    device_pair_release(dev, &k->code);
    device_pair_release(dev, &k->scale);
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
    const struct keys_range range = keys_layout_range(&k->layout, file);
    int64_t at = 0;
    TRY(store_keys_begin(&k->file, k->config.view, &k->layout, file, &k->spec));
    TRY(store_keys_append_earlier(k->file, &at));
    at += range.begin;
    *computed += range.end - at;
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

static enum status stored_run(struct stored_keys *k, struct stored_keys_report *out) {
    for (int64_t i = k->first; i < k->layout.files; i += k->step) {
        bool complete;
        const struct keys_range range = keys_layout_range(&k->layout, i);
        TRY(store_keys_complete(&complete, k->config.view, &k->layout, i, &k->spec));
        if (!complete) TRY(stored_file(k, i, &out->chunks));
        out->files++;
        out->bytes += store_keys_file_bytes(&k->spec, range.end - range.begin);
        out->made += !complete;
        progress_step(k->config.progress, "keys", "chunks", range.end, k->layout.chunks);
    }
    return STATUS_OK;
}

enum status stored_keys_make(struct stored_keys_report *out, const struct key_windows_config *config,
                             const uint8_t weights[16], int part, int parts) {
    struct stored_keys k = {
        .config = *config,
        .first = parts > 0 ? part - 1 : 0,
        .step = parts > 0 ? parts : 1,
        .spec = stored_keys_spec(config->model, weights, config->key_layer, config->step ? config->step : KEY_STEP)};
    const double start = clock_seconds();
    *out = (struct stored_keys_report){0};
    enum status s = keys_layout_open(&k.layout, config->view);
    if (s == STATUS_OK) s = stored_allocate(&k);
    if (s == STATUS_OK) s = stored_run(&k, out);
    stored_free(&k);
    out->seconds = clock_seconds() - start;
    return s;
}
