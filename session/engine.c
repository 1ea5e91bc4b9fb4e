/* engine.c -- see engine.h. */
#include "session/engine.h"
#include "indexer/build/indexer.h"
#include "session/corpus_search.h"
#include <stdio.h>
#include <string.h>

/* A pass retrieves a few hundred chunks at most, so memory for a larger batch would be unused. */
enum { PASS_CHUNKS = 16, GPU_CHUNKS = 256 };

enum status engine_check_store(const struct engine *e, const char *path, const struct store_info *info,
                               bool tokens_alone) {
    const struct model_config *model = &e->model.config;
    struct store_fingerprint fingerprint = info->fingerprint;
    if (!tokens_alone && !model->base_lm && model->encoder_input != ENCODER_INPUT_TOKENS)
        return fail(STATUS_UNSUPPORTED,
                    "%s: is the decoder variant, whose chunks depend on the text around them: it can "
                    "retrieve from its own past only (--self-retrieval), not from a store",
                    e->model.path);
    if (tokens_alone) {
        tokenizer_fingerprint(e->model.tokenizer, fingerprint.tokenizer);
        fingerprint.chunk_tokens = model->chunk;
        fingerprint.vocab_size = model->vocab_size;
    } else {
        TRY(indexer_fingerprint(&fingerprint, model, e->model.params, e->model.tokenizer));
    }
    enum status s = store_check_fingerprint(path, &info->fingerprint, e->model.path, &fingerprint);
    bool same_text = memcmp(fingerprint.tokenizer, info->fingerprint.tokenizer, sizeof fingerprint.tokenizer) == 0;
    if (s != STATUS_MISMATCH || !same_text || tokens_alone) return s;
    char why[600];
    snprintf(why, sizeof why, "%s", status_message());
    return fail(s, "%s, or name the external encoder that made it (--encoder)", why);
}

/* If an external encoder made the store, engine_open checks the fingerprint after it has loaded that encoder. */
static enum status open_store(struct engine *e, const char *path, const struct engine_config *config) {
    TRY(store_open(&e->store, path));
    TRY(store_view_open(&e->view, e->store));
    store_view_info(e->view, &e->info);
    if (config->workers.addresses) TRY(slices_connect(&e->slices, e->view, &config->workers));
    return config->encoder ? STATUS_OK : engine_check_store(e, path, &e->info, config->memory && !config->retrieval);
}

static enum status open_external(struct engine *e, const struct engine_config *config, enum dtype type) {
    const struct external_encoder_config external = {.folder = config->encoder,
                                                     .device = e->device,
                                                     .type = type,
                                                     .tokenizer = e->model.tokenizer,
                                                     .model = &e->model.config};
    TRY(external_encoder_open(&e->external, &external));
    return external_encoder_check(e->external, config->store, &e->info.fingerprint);
}

static enum status open_towers(struct engine *e) {
    const struct model_config *model = &e->model.config;
    if (!e->device->shares_memory)
        TRY(device_keys_create(&e->device_keys, e->device, e->report, CORPUS_SEARCH_RESERVE));
    int chunks = e->device->shares_memory ? 0 : GPU_CHUNKS;
    if (!model->base_lm) TRY(encoder_create(&e->encoder, e->device, model, &e->weights, chunks));
    return decoder_create(&e->decoder, e->device, model, &e->weights, 0);
}

static bool is_i8(const struct device_choice *where) {
    return strcmp(where->dtype, "i8") == 0;
}

static enum status open_weights(struct engine *e, enum dtype type, bool decoding, bool i8) {
    TRY(weights_open(&e->weights, e->device, e->model.params, type));
    if (i8) return weights_round(&e->weights, e->device, decoder_rounds);
    bool narrow = decoding && e->device->shares_memory && e->rounded;
    return narrow ? weights_narrow(&e->weights, e->device, decoder_reads) : STATUS_OK;
}

static enum status open_parts(struct engine *e, const struct engine_config *config) {
    enum dtype type;
    TRY(model_folder_open(&e->model, config->model));
    if (config->retrieval && e->model.config.base_lm)
        return fail(
            STATUS_UNSUPPORTED,
            "%s: is a Base LM, which has no retrieval: leave the retrieval options out (a Base LM reads a store "
            "by a token memory: --memory), or take another model",
            e->model.path);
    if (config->encoder && !config->store)
        return fail(STATUS_INVALID, "%s: an external encoder searches a store: name it with --store", config->encoder);
    if (config->store) TRY(open_store(e, config->store, config));
    TRY(device_choose(&e->device, &type, &config->where, config->threads));
    if (config->encoder) TRY(open_external(e, config, type));
    TRY(open_weights(e, type, config->decoding, is_i8(&config->where)));
    return open_towers(e);
}

bool engine_rounds(const struct device_choice *where) {
    return strcmp(where->dtype, "f32") != 0;
}

enum status engine_open(struct engine *out, const struct engine_config *config) {
    memset(out, 0, sizeof *out);
    out->report = config->where.report;
    out->devices = config->where.devices;
    out->rounded = engine_rounds(&config->where);
    enum status status = open_parts(out, config);
    if (status != STATUS_OK) engine_close(out);
    return status;
}

void engine_close(struct engine *e) {
    searcher_close(e->searcher);
    device_group_close(&e->group);
    slices_close(e->slices);
    if (!e->of) external_encoder_close(e->external);
    decoder_free(e->decoder);
    encoder_free(e->encoder);
    const struct weights *w = &e->weights, *of = e->of ? &e->of->weights : NULL;
    bool shared = of && w->data == of->data && w->narrow == of->narrow && w->i8 == of->i8;
    if (e->device && !shared) weights_release(&e->weights, e->device);
    store_view_close(e->view);
    store_close(e->store);
    if (!e->of) model_folder_close(&e->model);
    device_keys_free(e->device_keys);
    device_close(e->device);
    memset(e, 0, sizeof *e);
}

static enum status share_parts(struct engine *e, const struct device_choice *where, int threads) {
    enum dtype type;
    TRY(device_choose(&e->device, &type, where, threads));
    bool shared = e->device->shares_memory && e->of->device->shares_memory && type == e->of->weights.type &&
                  is_i8(where) == (e->of->weights.i8 != NULL);
    if (shared)
        e->weights = e->of->weights;
    else
        TRY(open_weights(e, type, true, is_i8(where)));
    return open_towers(e);
}

enum status engine_share(struct engine *out, const struct engine *of, const struct device_choice *where, int threads) {
    *out = (struct engine){.model = of->model, .report = where->report, .of = of, .rounded = engine_rounds(where)};
    enum status status = share_parts(out, where, threads);
    if (status != STATUS_OK) engine_close(out);
    return status;
}

void engine_text_open(struct engine *out, const struct engine *of, struct store_view *view, struct searcher *searcher) {
    *out = *of;
    out->of = of;
    out->store = NULL;
    out->view = view;
    out->searcher = searcher;
    out->slices = NULL; /* the slices are of the other view */
    memset(&out->info, 0, sizeof out->info);
    memset(&out->searched_by, 0, sizeof out->searched_by);
    if (view) store_view_info(view, &out->info);
    if (searcher) out->searched_by = searcher_describe(searcher, of->model.config.topk, 0);
}

void engine_text_close(struct engine *e, const struct searcher *searcher) {
    if (e->searcher != searcher) searcher_close(e->searcher);
    if (e->of && e->group.devices != e->of->group.devices) device_group_close(&e->group);
    memset(e, 0, sizeof *e);
}

static enum status open_searcher(struct engine *e, const struct engine_retrieval *how) {
    if (e->searcher) return STATUS_OK;
    const struct device_choice where = {.devices = e->devices};
    if (e->group.n == 0) TRY(device_choose_group(&e->group, e->device, &where));
    const struct searcher_config config = {.kind = how->searcher,
                                           .device = e->device,
                                           .view = e->view,
                                           .exact = how->exact,
                                           .exact_fallback = how->exact_fallback,
                                           .nprobe = how->nprobe,
                                           .slices = e->slices,
                                           .group = e->group.n > 1 ? &e->group : NULL};
    TRY(corpus_search_open(&e->searcher, &config, e->report));
    e->searched_by = searcher_describe(e->searcher, e->model.config.topk, 0);
    return STATUS_OK;
}

enum status engine_retriever(struct retriever **out, struct engine *e, const struct engine_retrieval *how) {
    *out = NULL;
    if (!how->own_past && !how->corpus) return STATUS_OK;
    bool search = how->corpus && !how->random;
    if (search) TRY(open_searcher(e, how));
    const struct chunk_retriever_config config = {.device = e->device,
                                                  .model = &e->model.config,
                                                  .encoder = e->encoder,
                                                  .own_past = how->own_past,
                                                  .corpus = how->corpus ? e->view : NULL,
                                                  .searcher = search ? e->searcher : NULL,
                                                  .continuation = how->continuation,
                                                  .overlap = how->overlap,
                                                  .query_ids = how->query_ids,
                                                  .external = how->corpus ? e->external : NULL,
                                                  .random = how->random,
                                                  .seed = how->seed,
                                                  .max_queries = PASS_CHUNKS,
                                                  .exclude_document = -1,
                                                  .exclude_window = how->exclude_window};
    return chunk_retriever_create(out, &config);
}

void engine_retriever_free(struct retriever *r) {
    if (r) r->free(r);
}

int64_t engine_pass(const struct engine *e) {
    return PASS_CHUNKS * (int64_t)(e->model.config.chunk > 0 ? e->model.config.chunk : 64);
}
