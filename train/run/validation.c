/* validation.c -- see validation.h. */
#include "train/run/validation.h"
#include "base/memory.h"
#include <math.h>

struct validation_part {
    double sum, mixed;
    int64_t scored, bytes; /* bytes: of the scored ids' text */
};

struct validation {
    struct batches *batches;
    int sequences, n_files;
    struct validation_part *parts; /* of each file; validation_run sets all but bytes */
    struct validation_figure *figures;
    double *sums, *mixed; /* [sequences] */
};

/* The first id of a window is not predicted, so its bytes do not count. */
static enum status validation_count_bytes(struct validation *v, const struct tokenizer *tokenizer) {
    struct tokenizer_scratch *scratch = NULL;
    int64_t length = batches_length(v->batches);
    int32_t *ids = NULL;
    enum status s = tokenizer_scratch_create(&scratch, tokenizer);
    if (s == STATUS_OK) s = memory_allocate(&ids, (size_t)length);
    for (int64_t i = 0; i < batches_windows(v->batches) && s == STATUS_OK; i++) {
        const char *text;
        size_t bytes;
        batches_window(v->batches, ids, i);
        s = tokenizer_decode(tokenizer, scratch, ids + 1, (size_t)length - 1, true, &text, &bytes);
        if (s == STATUS_OK) v->parts[batches_window_file(v->batches, i)].bytes += (int64_t)bytes;
    }
    memory_free(ids);
    tokenizer_scratch_free(scratch);
    return s;
}

static enum status validation_allocate(struct validation *v) {
    TRY(memory_allocate_zero(&v->parts, (size_t)v->n_files));
    TRY(memory_allocate_zero(&v->figures, (size_t)v->n_files));
    TRY(memory_allocate_zero(&v->mixed, (size_t)v->sequences));
    return memory_allocate_zero(&v->sums, (size_t)v->sequences);
}

enum status validation_open(struct validation **out, const struct train_config *config,
                            const struct tokenizer *tokenizer, int64_t first_document) {
    *out = NULL;
    if (config->valid.count == 0) return STATUS_OK;
    struct validation *v;
    TRY(memory_allocate_zero(&v, 1));
    v->sequences = (int)config->sequences;
    v->n_files = (int)config->valid.count;
    struct batches_config how = {.files = (const char *const *)config->valid.items,
                                 .n_files = v->n_files,
                                 .end_id = config->end_id,
                                 .model = &config->model,
                                 .sampling = SAMPLING_ONCE,
                                 .sequences = v->sequences,
                                 .chunks = config_chunks(config),
                                 .held = 1,
                                 .documents = config->schedule.memory_weight > 0,
                                 .first_document = (int32_t)first_document,
                                 .max_windows = config->eval_windows};
    enum status s = batches_open(&v->batches, &how);
    if (s == STATUS_OK) s = validation_allocate(v);
    if (s == STATUS_OK) s = validation_count_bytes(v, tokenizer);
    if (s == STATUS_OK)
        *out = v;
    else
        validation_close(v);
    return s;
}

void validation_close(struct validation *v) {
    if (!v) return;
    batches_close(v->batches);
    memory_free(v->parts);
    memory_free(v->figures);
    memory_free(v->sums);
    memory_free(v->mixed);
    memory_free(v);
}

const struct batches *validation_batches(const struct validation *v) {
    return v->batches;
}

static void validation_add(struct validation_part *to, const struct validation_part *more) {
    to->sum += more->sum;
    to->mixed += more->mixed;
    to->scored += more->scored;
    to->bytes += more->bytes;
}

static struct validation_figure validation_figure(const struct validation_part *p, bool mixed) {
    double scored = p->scored ? (double)p->scored : (double)NAN, bytes = p->bytes ? (double)p->bytes : (double)NAN;
    double mixture = mixed ? p->mixed : (double)NAN;
    return (struct validation_figure){.loss = p->sum / scored,
                                      .bits_per_byte = p->sum / M_LN2 / bytes,
                                      .memory_loss = mixture / scored,
                                      .memory_bits_per_byte = mixture / M_LN2 / bytes};
}

enum status validation_run(struct validation_figure *all, const struct validation_figure **files, struct validation *v,
                           struct step *step, const struct validation_reads *reads) {
    int64_t windows = batches_windows(v->batches);
    struct validation_part whole = {0};
    for (int i = 0; i < v->n_files; i++)
        v->parts[i].sum = v->parts[i].mixed = 0.0, v->parts[i].scored = 0;
    for (int64_t first = 0; first < windows; first += v->sequences) {
        struct batch batch;
        batches_get(v->batches, &batch, 0, first / v->sequences);
        run_memory_prepare_valid(reads->memory, &batch);
        TRY(step_evaluate(step, v->sums, reads->mixed ? v->mixed : NULL, &batch, reads->pool));
        for (int64_t i = 0; i < v->sequences && first + i < windows; i++)
            validation_add(&v->parts[batches_window_file(v->batches, first + i)],
                           &(struct validation_part){v->sums[i], v->mixed[i], batches_length(v->batches) - 1, 0});
    }
    for (int i = 0; i < v->n_files; i++) {
        v->figures[i] = validation_figure(&v->parts[i], reads->mixed);
        validation_add(&whole, &v->parts[i]);
    }
    *all = validation_figure(&whole, reads->mixed);
    *files = v->figures;
    return STATUS_OK;
}
