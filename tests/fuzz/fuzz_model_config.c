/* fuzz_model_config.c -- any bytes as config.json: refused, or a consistent config. */
#include "model/model_config.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_config c;
    if (model_config_parse(&c, "fuzz", data, size) != STATUS_OK) return 0;
    if (c.hidden != c.heads * c.head_dim || c.head_dim % 2 || c.groups > MODEL_GROUPS_MAX ||
        model_config_layers(&c) < 1)
        abort();
    if (!c.base_lm && (c.landmark_id < 0 || c.landmark_id >= c.vocab_size || c.pad_id < 0 || c.pad_id >= c.vocab_size))
        abort();
    if (!c.base_lm && (c.groups < 1 || c.topk < 1 || c.encoder_layers < 1)) abort();
    if (c.landmark_sketch != 0 && (c.landmark_sketch < 8 || !c.base_lm)) abort();
    return 0;
}
