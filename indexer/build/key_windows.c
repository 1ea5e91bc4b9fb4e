/* key_windows.c -- see key_windows.h. */
#include "indexer/build/key_windows.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "decoder/decoder_passages.h"

enum { BATCH = 16, BATCH_GPU = 128 };

struct key_windows {
    struct key_windows_config config;
    struct decoder_passages *passages;
    key_windows_take *take;
    void *context;
    int64_t length, batch, n;   /* ids of a window; windows of a batch, and those that wait */
    struct key_window *windows; /* [batch] */
    int32_t *ids;               /* [batch*length] */
    struct mat keys;            /* [batch*length, cols] */
};

enum status key_windows_create(struct key_windows **out, const struct key_windows_config *config, int cols,
                               key_windows_take *take, void *context) {
    struct key_windows *w;
    struct device *dev = config->device;
    enum status s;
    if (config->step < 0 || config->step > KEY_WINDOW)
        return fail(STATUS_INVALID, "%s: %d chunks of a window are kept, of 1 to %d", config->name, config->step,
                    (int)KEY_WINDOW);
    TRY(memory_allocate_zero(&w, 1));
    *w = (struct key_windows){.config = *config, .take = take, .context = context};
    if (w->config.step == 0) w->config.step = KEY_STEP;
    w->length = (int64_t)KEY_WINDOW * config->model->chunk;
    w->batch = dev->shares_memory ? BATCH : BATCH_GPU;
    w->keys = mat_dense(NULL, decoder_type(config->decoder), w->batch * w->length, cols);
    TRY_GOTO(s,
             decoder_passages_create(&w->passages, config->decoder, w->length,
                                     config->rounded ? PASSAGES_BF16 : PASSAGES_EXACT),
             failed);
    TRY_GOTO(s, device_allocate(dev, &w->keys.data, mat_bytes(w->keys)), failed);
    TRY_GOTO(s, memory_allocate(&w->windows, (size_t)w->batch), failed);
    TRY_GOTO(s, memory_allocate(&w->ids, (size_t)(w->batch * w->length)), failed);
    *out = w;
    return STATUS_OK;
failed:
    key_windows_free(w);
    return s;
}

void key_windows_free(struct key_windows *w) {
    if (!w) return;
    decoder_passages_free(w->passages);
    device_release(w->config.device, w->keys.data);
    memory_free(w->windows);
    memory_free(w->ids);
    memory_free(w);
}

int64_t key_windows_rows(const struct key_windows *w) {
    return w->keys.rows;
}

enum status key_windows_flush(struct key_windows *w) {
    const int64_t n = w->n;
    struct mat keys = mat_rows(w->keys, 0, n * w->length);
    if (n == 0) return STATUS_OK;
    decoder_passages_encode(w->passages, keys, w->config.key_layer, w->ids, n);
    w->n = 0;
    return w->take(w->context, keys, w->windows, n);
}

/* Adds the window whose kept chunks begin at chunk number `at` of a document; chunks from `end` on are left out. *kept:
 * number of chunks that are kept. */
static enum status windows_add_one(struct key_windows *w, int64_t *kept, const struct store_document *d, int64_t at,
                                   int64_t end) {
    const int64_t step = w->config.step;
    const int64_t begin = at < KEY_WINDOW ? 0 : (at - KEY_WINDOW) / step * step + step;
    const int64_t last = min_i64(begin + KEY_WINDOW, end), chunk = w->config.model->chunk;
    struct key_window *window = &w->windows[w->n];
    int32_t *ids = w->ids + w->n * w->length;
    *window = (struct key_window){.skip = (int)(at - begin), .keep = (int)(last - at), .ids = ids};
    for (int64_t i = 0; i < w->length; i++)
        ids[i] = -1;
    for (int64_t i = begin; i < last; i++) {
        struct store_chunk c;
        TRY(store_view_chunk(w->config.view, &c, ids + (i - begin) * chunk, d->first_chunk + i));
        window->count[i - begin] = c.n_tokens;
    }
    w->n++;
    *kept = window->keep;
    return w->n == w->batch ? key_windows_flush(w) : STATUS_OK;
}

enum status key_windows_add(struct key_windows *w, int64_t begin, int64_t end) {
    for (int64_t at = begin, kept; at < end; at += kept) {
        struct store_chunk c;
        struct store_document d;
        TRY(store_view_chunk(w->config.view, &c, w->ids + w->n * w->length, at));
        TRY(store_view_document(w->config.view, &d, c.document));
        const int64_t last = min_i64(d.first_chunk + d.chunks, end);
        TRY(windows_add_one(w, &kept, &d, at - d.first_chunk, last - d.first_chunk));
        if (progress_stop_requested(w->config.progress))
            return fail(STATUS_INTERRUPTED, "stopped while keys were computed: run the same command again");
    }
    return STATUS_OK;
}
