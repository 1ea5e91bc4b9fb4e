/* config_check.c -- checks of config keys against each other, and the values that follow from others. */
#include "base/file.h"
#include "base/memory.h"
#include "train/run/config_internal.h"
#include <string.h>

/* slots of a block that the tensor cores' path takes (kernels/memory/token_memory.h) */
enum { MEMORY_SLOTS_MAX = 1024 };

bool config_reads_passages(const struct train_config *c) {
    return c->schedule.memory_weight > 0 && c->memory_passages > 0;
}

enum status config_set_model(struct train_config *c, const char *json, size_t bytes) {
    char *text = NULL;
    TRY(memory_allocate(&text, bytes + 1));
    memcpy(text, json, bytes);
    text[bytes] = 0;
    memory_free(c->model_json);
    c->model_json = text;
    return config_tidy(&c->model_json);
}

static enum status config_load_model_json(struct train_config *c) {
    char path[FILE_PATH_MAX];
    struct file_map map;
    TRY(file_join(path, c->start_from, "config.json"));
    TRY(file_map(&map, path));
    enum status s = config_set_model(c, (const char *)map.data, map.size);
    file_unmap(&map);
    return s;
}

static enum status config_check_model(struct train_config *c) {
    if (!c->model_json && !c->start_from)
        return fail(STATUS_INVALID, "model is missing: an object as in config.json, or a model folder to start from");
    if (!c->model_json) TRY(config_load_model_json(c));
    TRY(model_config_parse(&c->model, "model", c->model_json, strlen(c->model_json)));
    if (c->model.landmark_sketch > 0) /* the optimizer would decay its tensor, which has no gradient */
        return fail(STATUS_INVALID, "landmark_sketch: is fitted after training, by drt-model sketch: train the model "
                                    "without this key");
    /* with start_from the config may be that folder's, which may have keys of other programs (see run_note_keys) */
    if (!c->start_from && c->model.unread[0]) {
        int edits;
        const char *near = model_config_near_key(c->model.unread, strcspn(c->model.unread, ","), &edits);
        return fail(STATUS_INVALID,
                    "model: no such key: %s (%s%s%skeys of other programs may stand in the config.json of a folder to "
                    "start from)",
                    c->model.unread, near ? "did you mean \"" : "", near ? near : "", near ? "\"? " : "");
    }
    if (!c->tokenizer && c->start_from) {
        char path[FILE_PATH_MAX];
        TRY(file_join(path, c->start_from, "tokenizer.json"));
        TRY(memory_copy_string(&c->tokenizer, path));
    }
    if (c->renew < 1 && (!c->start_from || c->model.pad_id < 0))
        return fail(STATUS_INVALID, "renew is %g: it needs start_from, and a model with pad_id", c->renew);
    if (!c->tokenizer) return fail(STATUS_INVALID, "tokenizer is missing: the tokenizer.json that made the data");
    if (c->end_id < 0) c->end_id = c->model.eos_id;
    if (c->end_id >= c->model.vocab_size)
        return fail(STATUS_INVALID, "end_id is %lld: the model has ids up to %d", (long long)c->end_id,
                    c->model.vocab_size - 1);
    return STATUS_OK;
}

static enum status config_check_length(const struct train_config *c) {
    int64_t chunk = model_config_ids(&c->model), rows = c->length / chunk * (chunk + 1) * c->sequences;
    if (c->length % chunk != 0)
        return fail(STATUS_INVALID, "length is %lld: must be a multiple of the model's %s, as %lld is",
                    (long long)c->length, c->model.landmark_block > 0 ? "landmark_block" : "enc_chunk_size",
                    (long long)((c->length / chunk + 1) * chunk));
    if (c->model.recurrent_layer > 0 && c->length % c->model.recurrent_block != 0)
        return fail(STATUS_INVALID, "length is %lld: must be a multiple of the model's recurrent_block, %d",
                    (long long)c->length, c->model.recurrent_block);
    if (rows > 1 << 30)
        return fail(STATUS_INVALID,
                    "sequences * length is too large for one micro-batch: lower sequences and raise accumulate");
    return STATUS_OK;
}

static enum status config_check_schedule(struct train_config *c) {
    struct schedule *s = &c->schedule;
    if (s->warmup > s->steps)
        return fail(STATUS_INVALID, "warmup is %lld: must be at most steps, %lld", (long long)s->warmup,
                    (long long)s->steps);
    if (s->min_lr > s->lr) return fail(STATUS_INVALID, "min_lr is %g: must be at most lr, %g", s->min_lr, s->lr);
    if (c->pool_before == POOL_CORPUS) return fail(STATUS_INVALID, "pool_before must be none, own or batch");
    if (s->pool_start > 1 && c->pool_before > c->pool)
        return fail(
            STATUS_INVALID,
            "pool_before is %s: must be the same as pool (%s) or before it in the order none, own, batch, corpus",
            pool_kind_name(c->pool_before), pool_kind_name(c->pool));
    if (c->eval_pool > c->pool) c->eval_pool = c->pool;
    s->pool = c->pool;
    s->pool_before = c->pool_before;
    s->seed = (uint64_t)c->seed;
    return STATUS_OK;
}

static enum status config_check_base_lm(struct train_config *c) {
    if (c->schedule.mlm_rate > 0 || c->schedule.contrastive_weight > 0)
        return fail(STATUS_INVALID,
                    "the model is a Base LM, which has no encoder: mlm.rate and contrastive.weight must be 0");
    if (c->pool == POOL_BATCH || c->pool == POOL_CORPUS)
        return fail(STATUS_INVALID, "the model is a Base LM, which retrieves nothing: pool must be none");
    c->pool = c->pool_before = POOL_NONE; /* instead of the default "own" */
    return STATUS_OK;
}

static enum status config_check_retrieval(const struct train_config *c) {
    bool hidden = c->model.encoder_input == ENCODER_INPUT_HIDDEN;
    if (c->schedule.mlm_rate > 0 && (hidden || c->model.mask_id < 0))
        return fail(STATUS_INVALID, "mlm.rate is %g, but the model has %s", c->schedule.mlm_rate,
                    hidden ? "encoder_input \"hidden\": there are no ids to mask" : "no mask_id");
    if (c->pool != POOL_CORPUS) return STATUS_OK;
    if (hidden)
        return fail(
            STATUS_INVALID,
            "pool corpus needs a model with encoder_input \"tokens\": only it can encode a chunk without its context");
    if (c->candidates < c->model.topk)
        return fail(STATUS_INVALID, "candidates is %lld: must be at least the model's chunk_topk, %d",
                    (long long)c->candidates, c->model.topk);
    return STATUS_OK;
}

/* The text's own past needs no property of the data. Other sequences and passages are excluded by document, which needs
 * whole chunks. */
static enum status config_check_memory(struct train_config *c) {
    const struct model_config *m = &c->model;
    if (c->pool_data.count > 0 && c->pool != POOL_CORPUS && !config_reads_passages(c))
        return fail(STATUS_INVALID, "pool_data is given, but nothing retrieves from it: set pool to corpus, or "
                                    "memory.weight and memory.passages");
    if (c->schedule.memory_weight <= 0) return STATUS_OK;
    if (m->memory_layer == 0)
        return fail(STATUS_INVALID,
                    "memory.weight is %g, but the model has no memory_layer: set it in model, with "
                    "start_from for weights that begin without one",
                    c->schedule.memory_weight);
    if (m->chunk < 1 || c->length % m->chunk != 0)
        return fail(STATUS_INVALID, "length is %lld: with memory.weight it must be a multiple of enc_chunk_size, %d",
                    (long long)c->length, m->chunk);
    if (c->memory_past == 0 && c->memory_group == 1 && c->memory_passages == 0)
        return fail(STATUS_INVALID,
                    "memory.weight is %g, but memory.past, memory.group and memory.passages leave "
                    "nothing to read",
                    c->schedule.memory_weight);
    if (c->sequences % c->memory_group != 0)
        return fail(STATUS_INVALID, "memory.group is %lld: sequences, %lld, must be a multiple of it",
                    (long long)c->memory_group, (long long)c->sequences);
    if (c->memory_passages > c->memory_read)
        return fail(STATUS_INVALID, "memory.read is %lld: must be at least memory.passages, %lld",
                    (long long)c->memory_read, (long long)c->memory_passages);
    int64_t slots =
        (c->memory_group - 1) * (c->length / m->chunk) + (c->memory_passages ? c->memory_read * c->memory_span : 0);
    if (slots > MEMORY_SLOTS_MAX)
        return fail(STATUS_INVALID,
                    "memory: a chunk would read %lld chunks of other sequences and passages: at most %d; "
                    "lower memory.group, memory.read or length",
                    (long long)slots, MEMORY_SLOTS_MAX);
    if (c->memory_pack && (c->memory_group < 2 || c->memory_passages == 0 || c->sampling != SAMPLING_EPOCHS))
        return fail(STATUS_INVALID,
                    "memory.pack needs memory.group above 1, memory.passages above 0 and sampling epochs");
    return STATUS_OK;
}

static enum status config_check_teach(const struct train_config *c) {
    const struct model_config *m = &c->model;
    double weight = c->schedule.teach_weight;
    if (weight <= 0) return STATUS_OK;
    if (m->base_lm)
        return fail(STATUS_INVALID, "teach.weight is %g, but the model is a Base LM, which has no retriever", weight);
    if (m->encoder_input != ENCODER_INPUT_TOKENS)
        return fail(STATUS_INVALID,
                    "teach.weight is %g: only a model with encoder_input \"tokens\" can encode candidates", weight);
    if (!config_reads_passages(c))
        return fail(STATUS_INVALID,
                    "teach.weight is %g, but nothing is read that could teach: set memory.weight and "
                    "memory.passages",
                    weight);
    if (c->teach_gradient == TEACH_PROJECTIONS && !m->retrieval_proj)
        return fail(STATUS_INVALID,
                    "teach.gradient is projections, but the model has none: set retrieval_proj in model, or "
                    "teach.gradient to encoder");
    return STATUS_OK;
}

/* A sample is one padded sequence, so it is impossible to read other sequences or to cut the text again. */
static enum status config_check_samples(const struct train_config *c) {
    if (c->align && (!c->samples || c->model.base_lm))
        return fail(STATUS_INVALID, "align is true: it needs samples, and a model with chunks");
    if (!c->samples) return STATUS_OK;
    if (c->sampling != SAMPLING_EPOCHS) return fail(STATUS_INVALID, "samples needs sampling epochs");
    if (c->pool == POOL_BATCH || (c->schedule.pool_start > 1 && c->pool_before == POOL_BATCH))
        return fail(STATUS_INVALID, "samples: pool must be none, own or corpus: sequences of samples end with padding, "
                                    "which others must not retrieve");
    if (c->schedule.memory_weight > 0)
        return fail(STATUS_INVALID, "samples: memory.weight is %g: the loss through a token memory needs running text",
                    c->schedule.memory_weight);
    return STATUS_OK;
}

static bool config_one_of(const char *text, const char *a, const char *b, const char *c) {
    return strcmp(text, a) == 0 || strcmp(text, b) == 0 || strcmp(text, c) == 0;
}

enum status config_check(struct train_config *c) {
    TRY(config_check_model(c));
    if (c->data.count == 0) return fail(STATUS_INVALID, "data is missing: token files, made by drt-tokenizer encode");
    TRY(config_check_length(c));
    TRY(c->model.base_lm ? config_check_base_lm(c) : config_check_retrieval(c));
    TRY(config_check_schedule(c));
    TRY(config_check_memory(c));
    TRY(config_check_teach(c));
    TRY(config_check_samples(c));
    if (!config_one_of(c->type, "auto", "f32", "bf16"))
        return fail(STATUS_INVALID, "type is \"%s\": must be auto, f32 or bf16", c->type);
    if (!config_one_of(c->checkpoint_type, "f32", "bf16", "bf16"))
        return fail(STATUS_INVALID, "checkpoint_type is \"%s\": must be f32 or bf16", c->checkpoint_type);
    return STATUS_OK;
}

int64_t config_chunks(const struct train_config *c) {
    return c->length / model_config_ids(&c->model);
}
