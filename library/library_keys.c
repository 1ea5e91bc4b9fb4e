/* library_keys.c -- see library_keys_internal.h. */
#include "decoder/decoder_passages.h"
#include "library/library_keys_internal.h"

/* The store at `path`, which this process does not have open. */
struct library_opened {
    struct store *store;
    struct store_view *view;
    struct store_keys_state keys;
};

static void library_opened_close(struct library_opened *o) {
    store_view_close(o->view);
    store_close(o->store);
}

/* STATUS_NOT_FOUND: there is no store. */
static enum status library_opened_open(struct library_opened *out, const char *path) {
    *out = (struct library_opened){0};
    TRY(store_open(&out->store, path));
    enum status s = store_view_open(&out->view, out->store);
    if (s == STATUS_OK) s = store_keys_state(&out->keys, out->view);
    if (s != STATUS_OK) library_opened_close(out);
    return s;
}

static struct keys_maker library_keys_maker(const struct engine *e) {
    return keys_maker_of(&e->model.config, e->model.params,
                         stored_keys_rounding(e->device, e->weights.type, e->rounded));
}

enum status library_keys_check(const char *path, const struct drt_model *m) {
    struct library_opened o;
    TRY(decoder_passages_check(&m->engine.model.config));
    const enum status s = library_opened_open(&o, path);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    const struct keys_maker maker = library_keys_maker(&m->engine);
    const enum status checked = keys_follow_check(path, &o.keys, &maker);
    library_opened_close(&o);
    return checked;
}

static enum status library_keys_make(struct library_keys *out, const struct library_opened *o, const char *path,
                                     struct drt_model *m, const struct progress *progress) {
    const struct engine *e = &m->engine;
    const struct keys_maker maker = library_keys_maker(e);
    struct keys_follow follow;
    keys_follow_decide(&follow, path, &o->keys, &maker, out->wanted, progress);
    out->lacking = follow.make ? 0 : follow.lacking;
    if (!follow.make) return STATUS_OK;
    const struct stored_keys_job job = {
        .config = {.device = e->device,
                   .decoder = e->decoder,
                   .model = &e->model.config,
                   .view = o->view,
                   .name = e->model.path,
                   .key_layer = follow.layer > 0 ? follow.layer : model_config_key_layer(&e->model.config),
                   .step = follow.step,
                   .rounded = e->rounded,
                   .progress = progress},
        .weights = maker.weights};
    return keys_follow_make(&out->made, path, &job);
}

enum status library_keys_follow(struct library_keys *out, const char *path, struct drt_model *m,
                                const struct progress *progress) {
    struct library_opened o;
    struct store_keys_usage usage;
    TRY(store_keys_usage(&usage, path));
    if (usage.files == 0 && !out->wanted) return STATUS_OK;
    const enum status s = library_opened_open(&o, path);
    if (s == STATUS_NOT_FOUND) return STATUS_OK; /* a part without documents */
    TRY(s);
    const enum status made = library_keys_make(out, &o, path, m, progress);
    library_opened_close(&o);
    return made;
}
