/* library_build.c -- stores from files, or from documents that the caller gives. */
#include "indexer/build/indexer.h"
#include "library/library_keys_internal.h"
#include <string.h>

struct library_documents {
    drt_next_text *next;
    void *context;
};

static enum status library_next_document(void *context, struct source_document *out, bool *more) {
    const struct library_documents *d = context;
    struct drt_text text = {.size = sizeof text};
    int answer = d->next(d->context, &text);
    if (answer < 0) return fail(STATUS_INTERRUPTED, "stopped by the caller's documents");
    *more = answer > 0;
    if (answer == 0) return STATUS_OK;
    if (!text.text && text.bytes > 0) return fail(STATUS_INVALID, "a document has %zu bytes and no text", text.bytes);
    out->text = text.text ? text.text : "";
    out->bytes = text.bytes;
    if (text.source) out->source = text.source;
    if (text.key) out->key = text.key;
    return STATUS_OK;
}

/* With a tower of its own, whose batches fill the device and whose memory is free afterwards. */
static enum status library_build_landmarks(struct indexer_report *report, struct indexer_config *config,
                                           struct drt_model *m) {
    const struct engine *e = &m->engine;
    struct chunk_tower tower = {0};
    if (!e->model.config.base_lm) TRY(library_model_encodes(m));
    enum status status = chunk_tower_open(&tower, e->device, &e->model.config, &e->weights);
    config->encoder = tower.encoder;
    config->states = tower.states;
    if (status == STATUS_OK) status = indexer_run(report, config);
    chunk_tower_close(&tower);
    return status;
}

static enum status library_build_chunks(struct indexer_report *report, const char *path, struct drt_model *m,
                                        const struct drt_build_config *c) {
    const struct engine *e = &m->engine;
    struct library_documents documents = {.next = c->next, .context = c->next_context};
    const struct progress progress = library_progress(&c->progress);
    struct indexer_config config = {.reader = {.inputs = c->inputs,
                                               .n_inputs = c->n_inputs,
                                               .text_field = c->text_field,
                                               .eod_id = c->eod_id ? *c->eod_id : e->model.config.eos_id,
                                               .skip_bad_lines = c->skip_bad_lines,
                                               .no_follow = c->no_follow,
                                               .part = c->part,
                                               .parts = c->parts},
                                    .tokenizer = e->model.tokenizer,
                                    .model = &e->model.config,
                                    .params = e->model.params,
                                    .device = e->device,
                                    .store = path,
                                    .index = c->index ? c->index : "auto",
                                    .max_ram = c->max_ram,
                                    .shard_chunks = c->shard_chunks,
                                    .append = c->append,
                                    .restart = c->restart,
                                    .progress = &progress};
    if (c->parts) config.index = "exact", config.lexical = STORE_LEXICAL_OFF; /* the joined store gets its own */
    if (c->next)
        config.reader =
            (struct reader_config){.source = {.next = library_next_document, .context = &documents}, .eod_id = -1};
    TRY(reader_format_parse(&config.reader.format, c->format ? c->format : "auto"));
    TRY(store_landmarks_parse(&config.type, c->landmarks));
    bool none = config.type == STORE_LANDMARKS_NONE;
    if (c->append) TRY(indexer_store_without_landmarks(&none, path));
    if (!none) return library_build_landmarks(report, &config, m);
    const struct indexer_landmarks landmarks = indexer_no_landmarks(&e->model.config, e->model.tokenizer);
    config.landmarks = &landmarks;
    return indexer_run(report, &config);
}

/* Keys are made when the chunks are published. */
static enum status library_build(struct indexer_report *report, struct library_keys *keys, const char *path,
                                 struct drt_model *m, const struct drt_build_config *c) {
    const struct progress progress = library_progress(&c->progress);
    *keys = (struct library_keys){.wanted = c->keys};
    char absolute[FILE_PATH_MAX];
    TRY(library_store_path(absolute, path));
    if (c->keys) TRY(library_keys_check(absolute, m));
    TRY(library_build_chunks(report, absolute, m, c));
    return c->keys || c->append ? library_keys_follow(keys, absolute, m, &progress) : STATUS_OK;
}

static struct drt_report library_build_report(const struct indexer_report *r, const struct library_keys *keys) {
    return (struct drt_report){.documents = r->documents,
                               .duplicates = r->duplicates,
                               .empty = r->empty,
                               .chunks = r->chunks,
                               .tokens = r->tokens,
                               .skipped_lines = r->skipped_lines,
                               .passed_over = r->passed_over,
                               .resumed_documents = r->resumed_documents,
                               .resumed_chunks = r->resumed_chunks,
                               .generation = r->generation,
                               .already_built = r->already_built,
                               .seconds = r->seconds,
                               .encode_seconds = r->encode_seconds,
                               .tokenize_seconds = r->tokenize_seconds,
                               .publish_seconds = r->publish_seconds,
                               .keys_files = keys->made.files,
                               .keys_made = keys->made.made,
                               .keys_chunks = keys->made.chunks,
                               .keys_lacking = keys->lacking,
                               .keys_bytes = keys->made.bytes,
                               .keys_seconds = keys->made.seconds};
}

enum drt_status drt_store_build(const char *path, struct drt_model *model, const struct drt_build_config *config,
                                struct drt_report *report) {
    struct drt_build_config c;
    struct indexer_report built;
    struct library_keys keys;
    LIBRARY_NEEDS(path);
    LIBRARY_NEEDS(model);
    LIBRARY_NEEDS(config);
    LIBRARY_TRY(library_take(&c, sizeof c, config, "struct drt_build_config"));
    LIBRARY_CHECK(!c.next != !c.inputs, "%s: give either inputs or next", __func__);
    LIBRARY_CHECK(!c.inputs || c.n_inputs > 0, "%s: n_inputs is %d", __func__, c.n_inputs);
    for (int i = 0; c.inputs && i < c.n_inputs; i++)
        LIBRARY_CHECK(c.inputs[i], "%s: inputs[%d] is NULL", __func__, i);
    LIBRARY_CHECK(c.parts == 0 ? c.part == 0 : c.part >= 1 && c.part <= c.parts, "%s: part is %d of %d", __func__,
                  c.part, c.parts);
    LIBRARY_CHECK(!c.parts || !c.next, "%s: documents of a callback have no parts: give inputs", __func__);
    LIBRARY_CHECK(!c.parts || !c.append, "%s: a part is built, not appended to", __func__);
    LIBRARY_CHECK(!c.parts || !c.index || strcmp(c.index, "exact") == 0, "%s: a part has no index: index is %s",
                  __func__, c.index);
    LIBRARY_CHECK(c.shard_chunks >= 0, "%s: shard_chunks is %lld", __func__, (long long)c.shard_chunks);
    library_lock(&model->lock);
    enum status status = library_build(&built, &keys, path, model, &c);
    library_unlock(&model->lock);
    LIBRARY_TRY(status);
    if (!report) return DRT_OK;
    const struct drt_report filled = library_build_report(&built, &keys);
    return (enum drt_status)library_fill(report, &filled, sizeof filled, "struct drt_report");
}
