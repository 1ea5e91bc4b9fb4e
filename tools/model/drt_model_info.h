/* drt_model_info.h -- the facts that drt-model info prints, collected once. */
#pragma once
#include "base/formats/safetensors.h"
#include "data/tokenizer/tokenizer.h"
#include "model/params.h"
#include "tools/model/drt_model.h"

enum part { PART_EMBEDDING, PART_LOWER, PART_UPPER, PART_ENCODER, PART_GCA, PART_MEMORY, PART_SKETCH, PART_NORM,
            PARTS };
extern const char *const part_names[PARTS];

struct facts {
    char path[FILE_PATH_MAX];
    struct model_config config;
    struct safetensors *file;
    struct params *params;
    struct tokenizer *tokenizer;         /* NULL: the folder has none */
    uint64_t bytes;                      /* of model.safetensors */
    int64_t parts[PARTS];                /* parameters */
    uint8_t landmark[16], tokenizer_hash[16];
};
const char *facts_hex(char out[33], const uint8_t bytes[16]);
void facts_print_json(const struct facts *f);
