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
    struct validation_part *parts; /* of each file; validation_run sets all members but bytes */
    struct validation_figure *figures;
    double *sums, *mixed; /* [sequences] */
};

/* Counts the bytes of the predicted ids only. */
static enum status validation_count_bytes(struct validation *v, const struct tokenizer *tokenizer) {
    struct tokenizer_scratch *scratch = NULL;
    int32_t *ids = NULL;
    enum status s;
    TRY_GOTO(s, tokenizer_scratch_create(&scratch, tokenizer), out);
    TRY_GOTO(s, memory_allocate(&ids, (size_t)batches_length(v->batches)), out);
    for (int64_t i = 0; i < batches_windows(v->batches); i++) {
        const char *text;
        size_t bytes, n = (size_t)batches_predicted(v->batches, ids, i);
        TRY_GOTO(s, tokenizer_decode(tokenizer, scratch, ids, n, true, &text, &bytes), out);
        v->parts[batches_window_file(v->batches, i)].bytes += (int64_t)bytes;
    }
out:
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
                                 .samples = config->samples,
                                 .align = config->align,
                                 .sequences = v->sequences,
                                 .chunks = config_chunks(config),
                                 .held = 1,
                                 .documents = config->schedule.memory_weight > 0,
                                 .first_document = (int32_t)first_document,
                                 .max_windows = config->eval_windows};
    enum status s;
    TRY_GOTO(s, batches_open(&v->batches, &how), out);
    TRY_GOTO(s, validation_allocate(v), out);
    TRY_GOTO(s, validation_count_bytes(v, tokenizer), out);
    *out = v;
out:
    if (s != STATUS_OK) validation_close(v);
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

/* Statistics of how much a memory lowers the mean loss of a window. The interval treats windows as independent. */
struct validation_spread {
    int64_t n;
    double sum, squares;
};

static void validation_spread_add(struct validation_spread *s, double fall) {
    s->n++;
    s->sum += fall;
    s->squares += fall * fall;
}

static double validation_half_width(const struct validation_spread *s) {
    if (s->n < 2) return (double)NAN;
    double n = (double)s->n, variance = (s->squares - s->sum * s->sum / n) / (n - 1);
    return 1.96 * sqrt(fmax(variance, 0.0) / n);
}

enum status validation_run(struct validation_figure *all, const struct validation_figure **files, struct validation *v,
                           struct step *step, const struct validation_reads *reads) {
    int64_t windows = batches_windows(v->batches);
    struct validation_part whole = {0};
    struct validation_spread spread = {0};
    for (int i = 0; i < v->n_files; i++)
        v->parts[i].sum = v->parts[i].mixed = 0.0, v->parts[i].scored = 0;
    for (int64_t first = 0; first < windows; first += v->sequences) {
        struct batch batch;
        batches_get(v->batches, &batch, 0, first / v->sequences);
        run_memory_prepare_valid(reads->memory, &batch);
        TRY(step_evaluate(step, v->sums, reads->mixed ? v->mixed : NULL, &batch, reads->pool));
        for (int64_t i = 0; i < v->sequences && first + i < windows; i++) {
            int64_t scored = batches_predicted(v->batches, NULL, first + i);
            if (reads->mixed) validation_spread_add(&spread, (v->sums[i] - v->mixed[i]) / (double)scored);
            validation_add(&v->parts[batches_window_file(v->batches, first + i)],
                           &(struct validation_part){v->sums[i], v->mixed[i], scored, 0});
        }
    }
    for (int i = 0; i < v->n_files; i++) {
        v->figures[i] = validation_figure(&v->parts[i], reads->mixed);
        validation_add(&whole, &v->parts[i]);
    }
    *all = validation_figure(&whole, reads->mixed);
    all->memory_gain_95 = validation_half_width(&spread);
    *files = v->figures;
    return STATUS_OK;
}
