/* text_query.h -- the query vector of a text: the query that the model makes after that text. */
#pragma once
#include "decoder/decoder.h"
#include "indexer/landmarks/state_landmarks.h"

enum { TEXT_QUERY_CHUNKS = 8 };          /* about the decoder's window; more context changes little */
struct text_query_model {
    struct device *device;
    struct decoder *decoder;
    const struct model_config *config;
    struct state_landmarks *states;      /* of a Base LM; other models: NULL */
};

/* Writes out [model_config_landmark_size] in memory of this process: the normalised landmark state after the last chunk
 * of n >= 1 ids. Only the last TEXT_QUERY_CHUNKS chunks are used. For a Base LM: the landmark of the last chunk of ids,
 * with the sketch of the last STATE_LANDMARKS_WORDS ids (indexer/landmarks/state_landmarks.h). For one thread at a time
 * per decoder. */
enum status text_query(float *out, const struct text_query_model *model, const int32_t *ids, int64_t n);
