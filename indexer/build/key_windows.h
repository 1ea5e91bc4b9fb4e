/* key_windows.h -- key states of a store's chunks, each computed with the text before it in its document
 * (docs/token-memory.md, "Stored keys").
 *
 * The model reads a document in windows of KEY_WINDOW chunks, each `step` chunks after the one before. Of the first
 * window the keys of all chunks are kept, of the others those of the last `step` chunks. So a key depends on at least
 * the KEY_WINDOW - step chunks before its own, or on all the text before it, and every id is read KEY_WINDOW / step
 * times. Windows wait until a batch is full. For one thread at a time. */
#pragma once
#include "base/progress.h"
#include "decoder/decoder.h"
#include "store/keys/store_keys.h"

enum { KEY_WINDOW = 8, KEY_STEP = 6 /* the default */ };
struct key_windows_config {
    struct device *device;
    struct decoder *decoder;
    const struct model_config *model;
    struct store_view *view;
    const char *name;                    /* of the model, for messages */
    int key_layer, step;                 /* step: 1 to KEY_WINDOW; 0: KEY_STEP */
    bool rounded;                        /* as in decoder/decoder_passages.h */
    const struct progress *progress;
};
/* Of the window's chunks, `keep` from number `skip` on are kept. count: number of ids of each chunk. ids [KEY_WINDOW *
 * chunk_tokens]: borrowed; -1 after the last id of a chunk. */
struct key_window { int skip, keep, count[KEY_WINDOW]; const int32_t *ids; };
/* Takes the keys [n * KEY_WINDOW * chunk_tokens, cols] of n windows in the order in which they were added; device
 * memory, borrowed for the call. */
typedef enum status key_windows_take(void *context, struct mat keys, const struct key_window *windows, int64_t n);

struct key_windows;
/* cols: hidden for states, or memory_size for projected keys. Everything in config is borrowed until
 * key_windows_free. */
enum status key_windows_create(struct key_windows **out, const struct key_windows_config *config, int cols,
                               key_windows_take *take, void *context);
void key_windows_free(struct key_windows *w);             /* NULL is fine */
int64_t key_windows_rows(const struct key_windows *w);    /* rows of a whole batch */
/* Adds the windows whose kept chunks are begin .. end-1, all of which must exist. Calls `take` for each full batch.
 * STATUS_INTERRUPTED: a stop was requested. */
enum status key_windows_add(struct key_windows *w, int64_t begin, int64_t end);
enum status key_windows_flush(struct key_windows *w);     /* takes the windows that wait */
