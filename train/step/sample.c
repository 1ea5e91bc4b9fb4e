/* sample.c -- see sample.h. */
#include "train/step/sample.h"
#include "base/file.h"
#include "base/memory.h"
#include "decoder/decoder.h"
#include "decoder/logits/sampler.h"
#include <string.h>

struct sample {
    const struct train_config *config;
    const struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    struct weights weights;
    struct decoder *decoder;
    struct decoder_state *state;
    struct sampler *sampler;
    float *logits;
    int32_t *ids; /* the prompt's, then the text's */
    size_t capacity;
    int64_t n_ids;
};

static enum status sample_first_ids(struct sample *s, const char *prompt) {
    const int32_t *ids = NULL;
    size_t n = 0;
    TRY(tokenizer_encode(s->tokenizer, s->scratch, prompt, strlen(prompt), TOKENIZER_RECOGNISE, &ids, &n));
    TRY(memory_grow(&s->ids, &s->capacity, n + 1 + (size_t)s->config->sample_tokens));
    if (n) memcpy(s->ids, ids, n * sizeof *ids);
    if (n == 0)
        s->ids[n++] =
            s->config->end_id >= 0 ? (int32_t)s->config->end_id : 0; /* the end of a document starts a new one */
    s->n_ids = (int64_t)n;
    decoder_state_free(s->state);
    s->state = NULL;
    TRY(decoder_state_create(&s->state, s->decoder, NULL));
    struct decoder_output output = {.logits = s->logits};
    return decoder_forward(s->state, &output, s->ids, s->n_ids);
}

static enum status sample_write_one(struct sample *s, struct file_writer *file, const char *prompt) {
    static const char rule[] = "\n--------\n";
    TRY(sample_first_ids(s, prompt));
    for (int64_t i = 0; i < s->config->sample_tokens; i++) {
        int32_t id = sampler_pick(s->sampler, s->logits);
        if (id == s->config->end_id) break;
        s->ids[s->n_ids++] = id;
        struct decoder_output output = {.logits = s->logits};
        TRY(decoder_forward(s->state, &output, &id, 1));
    }
    const char *text;
    size_t bytes;
    TRY(tokenizer_decode(s->tokenizer, s->scratch, s->ids, (size_t)s->n_ids, true, &text, &bytes));
    TRY(file_write(file, text, bytes));
    return file_write(file, rule, sizeof rule - 1);
}

static enum status sample_open(struct sample *s, struct device *cpu, const struct params *params) {
    const struct model_config *model = &s->config->model;
    struct sampler_config how = {.temperature = 0.8f, .top_p = 0.95f, .seed = (uint64_t)s->config->seed};
    const int32_t marks[] = {model->landmark_id, model->pad_id, model->mask_id};
    int32_t banned[ARRAY_LEN(marks)];
    how.banned = banned;
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (marks[i] >= 0) banned[how.n_banned++] = marks[i];
    TRY(tokenizer_scratch_create(&s->scratch, s->tokenizer));
    TRY(sampler_create(&s->sampler, &how, model->vocab_size));
    TRY(memory_allocate_aligned(&s->logits, (size_t)model->vocab_size));
    s->weights = weights_of_params(params);
    return decoder_create(&s->decoder, cpu, model, &s->weights, 256);
}

enum status sample_write(const char *path, struct device *cpu, const struct train_config *config,
                         const struct params *params, const struct tokenizer *tokenizer) {
    struct sample s = {.config = config, .tokenizer = tokenizer};
    struct file_writer *file = NULL;
    enum status status;
    TRY_GOTO(status, sample_open(&s, cpu, params), out);
    TRY_GOTO(status, file_create(&file, path), out);
    if (config->prompts.count == 0) TRY_GOTO(status, sample_write_one(&s, file, ""), out);
    for (size_t i = 0; i < config->prompts.count; i++)
        TRY_GOTO(status, sample_write_one(&s, file, config->prompts.items[i]), out);
    status = file_publish(file);
    file = NULL;
out:
    file_discard(file);
    decoder_state_free(s.state);
    decoder_free(s.decoder);
    sampler_free(s.sampler);
    tokenizer_scratch_free(s.scratch);
    memory_free(s.logits);
    memory_free(s.ids);
    return status;
}
