/* fuzz_bert_config.c -- any bytes as one of the JSON files of a BERT-type encoder (the first byte selects it): refused,
 * or a consistent config. */
#include "data/wordpiece/wordpiece.h"
#include "encoder/bert/bert_config.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct bert_config *c) {
    if (c->hidden < 1 || c->heads < 1 || c->hidden % c->heads != 0 || c->layers < 1 || c->ffn < 1) abort();
    if (c->vocab_size < 3 || c->types < 1 || !(c->eps > 0)) abort();
    if (c->max_tokens < 3 || c->max_tokens > c->positions) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bert_config c = {8, 4, 8, 2, 1, 100, 1, 1e-12f, 100, false};
    struct wordpiece_options o;
    if (size == 0) return 0;
    switch (data[0] % 5) {
    case 0:
        if (bert_config_parse(&c, "fuzz", data + 1, size - 1) == STATUS_OK) check(&c);
        break;
    case 1:
        if (bert_length_parse(&c, "fuzz", data + 1, size - 1) == STATUS_OK) check(&c);
        break;
    case 2:
        if (bert_pooling_parse("fuzz", data + 1, size - 1) != STATUS_OK) return 0;
        break;
    case 4:
        if (bert_modules_parse("fuzz", data + 1, size - 1) != STATUS_OK) return 0;
        break;
    default:
        if (wordpiece_options_parse(&o, "fuzz", data + 1, size - 1) != STATUS_OK) return 0;
        if (o.strip_accents < -1 || o.strip_accents > 1) abort();
    }
    return 0;
}
