/* validation.c -- see validation.h. */
#include "train/validation.h"
#include "base/memory.h"
#include <math.h>

struct validation {
    struct batches *batches;
    int sequences;
    int64_t bytes; /* of the scored ids' text */
};

/* The first id of a window is given, not guessed. */
static enum status count_bytes(struct validation *v, const struct tokenizer *tokenizer) {
    struct tokenizer_scratch *scratch = NULL;
    int64_t length = batches_length(v->batches);
    int32_t *ids = NULL;
    enum status s = tokenizer_scratch_create(&scratch, tokenizer);
    if (s == STATUS_OK) s = memory_allocate((void **)&ids, (size_t)length, sizeof *ids);
    for (int64_t i = 0; i < batches_windows(v->batches) && s == STATUS_OK; i++) {
        const char *text;
        size_t bytes;
        batches_window(v->batches, ids, i);
        s = tokenizer_decode(tokenizer, scratch, ids + 1, (size_t)length - 1, true, &text, &bytes);
        if (s == STATUS_OK) v->bytes += (int64_t)bytes;
    }
    memory_free(ids);
    tokenizer_scratch_free(scratch);
    return s;
}

enum status validation_open(struct validation **out, const struct train_config *config,
                            const struct tokenizer *tokenizer, int64_t first_document) {
    *out = NULL;
    if (config->valid.count == 0) return STATUS_OK;
    struct validation *v;
    TRY(memory_allocate_zero((void **)&v, 1, sizeof *v));
    v->sequences = (int)config->sequences;
    struct batches_config how = {.files = (const char *const *)config->valid.items,
                                 .n_files = (int)config->valid.count,
                                 .end_id = config->end_id,
                                 .model = &config->model,
                                 .sampling = SAMPLING_ONCE,
                                 .sequences = v->sequences,
                                 .chunks = config_chunks(config),
                                 .held = 1,
                                 .first_document = (int32_t)first_document,
                                 .max_windows = config->eval_windows};
    enum status s = batches_open(&v->batches, &how);
    if (s == STATUS_OK) s = count_bytes(v, tokenizer);
    if (s == STATUS_OK)
        *out = v;
    else
        validation_close(v);
    return s;
}

void validation_close(struct validation *v) {
    if (!v) return;
    batches_close(v->batches);
    memory_free(v);
}

int64_t validation_windows(const struct validation *v) {
    return batches_windows(v->batches);
}

enum status validation_run(double *loss, double *bits_per_byte, struct validation *v, struct step *step,
                           enum pool_kind pool) {
    double sum = 0.0;
    int64_t scored = 0, windows = batches_windows(v->batches);
    for (int64_t i = 0; i * v->sequences < windows; i++) {
        struct batch batch;
        double part;
        batches_get(v->batches, &batch, 0, i);
        TRY(step_evaluate(step, &part, &batch, pool));
        sum += part;
        scored += batch.scored;
    }
    *loss = scored ? sum / (double)scored : NAN;
    *bits_per_byte = v->bytes ? sum / M_LN2 / (double)v->bytes : NAN;
    return STATUS_OK;
}
