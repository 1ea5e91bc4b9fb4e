/* indexer_model.c -- what a build takes from its model: fingerprint, rules for ids, memory. */
#include "indexer/build/indexer.h"
#include "indexer/build/indexer_internal.h"
#include <string.h>

enum status indexer_fingerprint(struct store_fingerprint *out, const struct model_config *model,
                                const struct params *params, const struct tokenizer *tokenizer) {
    memset(out, 0, sizeof *out);
    if (!model->base_lm && model->encoder_input != ENCODER_INPUT_TOKENS)
        return fail(
            STATUS_UNSUPPORTED,
            "this model's encoder reads hidden states (encoder_input \"hidden\"): its chunks depend on the text "
            "before them, so a corpus cannot be stored; a model with encoder_input \"tokens\" can");
    params_landmark_fingerprint(params, out->encoder);
    if (tokenizer) tokenizer_fingerprint(tokenizer, out->tokenizer);
    out->chunk_tokens = model->chunk;
    out->dim = model_config_landmark_size(model);
    out->vocab_size = model->vocab_size;
    return STATUS_OK;
}

struct ids_rules indexer_ids_rules(const struct model_config *model, const struct tokenizer *tokenizer) {
    struct ids_rules rules = {.vocab_size = model->vocab_size,
                              .reserved = {model->landmark_id, model->mask_id, model->pad_id},
                              .names = {"landmark (chunk_id)", "mask_id", "pad_id"}};
    for (int i = 0; i < IDS_RESERVED; i++) {
        int32_t id = rules.reserved[i];
        bool text = tokenizer && tokenizer_token(tokenizer, id) && !tokenizer_is_special(tokenizer, id);
        if (text || id == model->eos_id) rules.reserved[i] = -1;
    }
    return rules;
}

enum status indexer_free_ram(uint64_t *out, uint64_t max_ram, const struct params *params, const struct device *device,
                             const struct encoder *e) {
    if (max_ram == 0) max_ram = (uint64_t)4096 * INDEXER_MIB;
    uint64_t weights = (uint64_t)params_elements(params) * sizeof(float),
             encoder = e && device->shares_memory ? encoder_bytes(e) : 0;
    uint64_t held = weights + encoder + INDEXER_OVERHEAD_BYTES;
    if (max_ram < held + INDEXER_WORKING_BYTES)
        return fail(
            STATUS_INVALID,
            "--max-ram: %llu MiB cannot hold this model: at least %llu MiB are needed (weights %llu, encoder %llu, "
            "the rest %llu)",
            (unsigned long long)(max_ram / INDEXER_MIB),
            (unsigned long long)((held + INDEXER_WORKING_BYTES + INDEXER_MIB - 1) / INDEXER_MIB),
            (unsigned long long)(weights / INDEXER_MIB), (unsigned long long)(encoder / INDEXER_MIB),
            (unsigned long long)((INDEXER_OVERHEAD_BYTES + INDEXER_WORKING_BYTES) / INDEXER_MIB));
    *out = max_ram - held;
    return STATUS_OK;
}

struct indexer_landmarks indexer_no_landmarks(const struct model_config *model, const struct tokenizer *tokenizer) {
    struct indexer_landmarks out = {
        .encoder = {.fingerprint = {.chunk_tokens = model->chunk, .vocab_size = model->vocab_size},
                    .encode = store_encode_nothing},
        .batch = INDEXER_BATCH};
    tokenizer_fingerprint(tokenizer, out.encoder.fingerprint.tokenizer);
    return out;
}
