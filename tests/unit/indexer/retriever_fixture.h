/* retriever_fixture.h -- a small model with an encoder that reads token ids, for tests of the retriever. */
#pragma once
#include "encoder/encoder.h"
#include "tests/model_fixture.h"

enum { RETRIEVER_D = 64, RETRIEVER_CHUNK = 63, RETRIEVER_VOCAB = 500 };

/* topk: chunks of a row. */
static inline void retriever_fixture(struct model_config *config, struct params **params, struct encoder **encoder,
                                     struct device *dev, int topk) {
    char json[512];
    int n = snprintf(json, sizeof json,
                     "{\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":96,\"num_attention_heads\":2,"
                     "\"decoder_layers\":[1,1,1],"
                     "\"encoder_layers\":1,\"enc_chunk_size\":%d,\"chunk_topk\":%d,\"slide_window\":64,\"chunk_id\":"
                     "499,\"mask_id\":498,"
                     "\"pad_id\":497,\"rms_norm_eps\":1e-5,\"encoder_input\":\"tokens\",\"tie_word_embeddings\":true}",
                     RETRIEVER_VOCAB, RETRIEVER_D, RETRIEVER_CHUNK, topk);
    CHECK_OK(model_config_parse(config, "test", json, (size_t)n));
    CHECK_OK(params_init(params, config, 3));
    model_fixture_enlarge(*params, RETRIEVER_VOCAB, 20);
    struct weights weights = weights_of_params(*params);
    CHECK_OK(encoder_create(encoder, dev, config, &weights, 8));
}
