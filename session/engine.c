/* engine.c -- see engine.h. */
#include "session/engine.h"
#include "indexer/indexer.h"
#include "session/corpus_search.h"
#include <stdio.h>
#include <string.h>

/* A pass retrieves a few hundred chunks at most: memory for a larger batch would lie idle. */
enum { PASS_CHUNKS = 16, GPU_CHUNKS = 256 };

/* With tokens_alone, landmarks may be another model's: the decoder encodes what it reads of the store itself. */
static enum status open_store(struct engine *e, const char *path, bool tokens_alone) {
    struct store_fingerprint fingerprint;
    TRY(store_open(&e->store, path));
    TRY(store_view_open(&e->view, e->store));
    store_view_info(e->view, &e->info);
    if (tokens_alone) {
        fingerprint = e->info.fingerprint;
        tokenizer_fingerprint(e->model.tokenizer, fingerprint.tokenizer);
        fingerprint.chunk_tokens = e->model.config.chunk;
        fingerprint.vocab_size = e->model.config.vocab_size;
    } else {
        TRY(indexer_fingerprint(&fingerprint, &e->model.config, e->model.params, e->model.tokenizer));
    }
    return store_check_fingerprint(path, &e->info.fingerprint, e->model.path, &fingerprint);
}

static enum status open_parts(struct engine *e, const struct engine_config *config) {
    TRY(model_folder_open(&e->model, config->model));
    const struct model_config *model = &e->model.config;
    if (config->retrieval && model->base_lm)
        return fail(STATUS_UNSUPPORTED,
                    "%s: is a Base LM, which has no retrieval: leave the retrieval options out, or take "
                    "another model",
                    e->model.path);
    bool tokens_alone = config->memory && !config->retrieval;
    if (config->store && !tokens_alone && model->encoder_input != ENCODER_INPUT_TOKENS)
        return fail(STATUS_UNSUPPORTED,
                    "%s: is the decoder variant, whose chunks depend on the text around them: it can "
                    "retrieve from its own past only (--self-retrieval), not from a store",
                    e->model.path);
    if (config->store) TRY(open_store(e, config->store, tokens_alone));
    enum dtype type;
    TRY(device_choose(&e->device, &type, &config->where, config->threads));
    TRY(weights_open(&e->weights, e->device, e->model.params, type));
    if (config->decoding && e->device->shares_memory && strcmp(config->where.dtype, "f32") != 0)
        TRY(weights_narrow(&e->weights, e->device, decoder_reads));
    int chunks = e->device->shares_memory ? 0 : GPU_CHUNKS;
    if (!model->base_lm) TRY(encoder_create(&e->encoder, e->device, model, &e->weights, chunks));
    return decoder_create(&e->decoder, e->device, model, &e->weights, 0);
}

enum status engine_open(struct engine *out, const struct engine_config *config) {
    memset(out, 0, sizeof *out);
    out->report = config->where.report;
    enum status status = open_parts(out, config);
    if (status != STATUS_OK) engine_close(out);
    return status;
}

void engine_close(struct engine *e) {
    searcher_close(e->searcher);
    decoder_free(e->decoder);
    encoder_free(e->encoder);
    if (e->device) weights_release(&e->weights, e->device);
    store_view_close(e->view);
    store_close(e->store);
    model_folder_close(&e->model);
    device_close(e->device);
    memset(e, 0, sizeof *e);
}

static enum status open_searcher(struct engine *e, const struct engine_retrieval *how) {
    if (e->searcher) return STATUS_OK;
    const struct searcher_config config = {.device = e->device,
                                           .view = e->view,
                                           .exact = how->exact,
                                           .exact_fallback = how->exact_fallback,
                                           .nprobe = how->nprobe};
    TRY(corpus_search_open(&e->searcher, &config, e->report));
    e->searched_by = searcher_describe(e->searcher, e->model.config.topk, 0);
    return STATUS_OK;
}

enum status engine_retriever(struct retriever **out, struct engine *e, const struct engine_retrieval *how) {
    *out = NULL;
    if (!how->self && !how->corpus) return STATUS_OK;
    bool search = how->corpus && !how->random;
    if (search) TRY(open_searcher(e, how));
    const struct chunk_retriever_config config = {.device = e->device,
                                                  .model = &e->model.config,
                                                  .encoder = e->encoder,
                                                  .self = how->self,
                                                  .corpus = how->corpus ? e->view : NULL,
                                                  .searcher = search ? e->searcher : NULL,
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
