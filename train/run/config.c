/* config.c -- one table of keys gives reading, writing, defaults and help. */
#include "base/file.h"
#include "base/formats/json.h"
#include "base/formats/near_name.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "train/memory/memory_loss.h"
#include "train/run/config_internal.h"
#include "train/step/corpus_pool.h"
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum config_kind { WHOLE, NUMBER, SWITCH, TEXT, TEXTS, MODEL, POOL, SAMPLING, GRADIENT, TEACH };

struct config_key {
    const char *group, *name; /* group "": a key at the top level */
    enum config_kind kind;
    size_t offset;
    double min, max;
    const char *standard; /* the default as JSON, text without quotes; NULL: none */
    const char *help;
};

#define AT(member) offsetof(struct train_config, member)
static const struct config_key keys[] = {
    {"", "model", MODEL, AT(model_json), 0, 0, NULL,
     "an object (a model's config.json), or the folder of a model whose weights to start from"},
    {"", "start_from", TEXT, AT(start_from), 0, 0, NULL,
     "folder of the initial weights; none: random weights from `seed`"},
    {"", "renew", NUMBER, AT(renew), 0, 1, "1",
     "with start_from: embeddings whose cosine with that of pad_id is larger (rare ids of its text) begin anew; "
     "1: off"},
    {"", "tokenizer", TEXT, AT(tokenizer), 0, 0, NULL, "tokenizer.json; default: the one of start_from"},
    {"", "data", TEXTS, AT(data), 0, 0, NULL, "token files (.u16, .u32) to train on"},
    {"", "valid", TEXTS, AT(valid), 0, 0, NULL, "token files for validation"},
    {"", "pool_data", TEXTS, AT(pool_data), 0, 0, NULL,
     "token files that are retrieved from, beside data, but never predicted"},
    {"", "end_id", WHOLE, AT(end_id), -1, 4294967295.0, "-1", "id that ends a document; -1: the model's eos_id"},
    {"", "sampling", SAMPLING, AT(sampling), 0, 0, "epochs",
     "epochs: each token once an epoch, windows in random order; random: windows start anywhere, as in the papers"},
    {"", "samples", SWITCH, AT(samples), 0, 0, "false",
     "data and valid are samples (drt-tokenizer samples): one a sequence, and only its answer is predicted"},
    {"", "align", SWITCH, AT(align), 0, 0, "false",
     "samples: pads precede each one, so that a query has read all of its prompt but the last id"},
    {"", "sequences", WHOLE, AT(sequences), 1, 1 << 20, "8", "sequences of a micro-batch"},
    {"", "length", WHOLE, AT(length), 2, 1 << 26, "1008", "tokens of a sequence: a multiple of the model's chunk"},
    {"", "accumulate", WHOLE, AT(accumulate), 1, 1 << 16, "1", "micro-batches of a step"},
    {"", "steps", WHOLE, AT(schedule.steps), 1, 1e12, "1000", "steps of the whole run"},
    {"", "lr", NUMBER, AT(schedule.lr), 0, 10, "0.001", "highest learning rate"},
    {"", "min_lr", NUMBER, AT(schedule.min_lr), 0, 10, "0.0001", "learning rate at the last step (cosine)"},
    {"", "trunk_lr", NUMBER, AT(trunk_lr), 0, 1, "1",
     "factor of lr for the tensors that a Base LM has as well; 0: they are not updated"},
    {"", "warmup", WHOLE, AT(schedule.warmup), 0, 1e12, "100", "steps of linear warm-up"},
    {"", "beta1", NUMBER, AT(beta1), 0, 0.99999, "0.9", "AdamW: decay of the first moment"},
    {"", "beta2", NUMBER, AT(beta2), 0, 0.9999999, "0.95", "AdamW: decay of the second moment"},
    {"", "eps", NUMBER, AT(eps), 1e-30, 1, "1e-08", "AdamW: added to the root of the second moment"},
    {"", "weight_decay", NUMBER, AT(weight_decay), 0, 10, "0.1", "AdamW weight decay of matrices; norms never decay"},
    {"", "decay_embedding", SWITCH, AT(decay_embedding), 0, 0, "false", "weight decay for the embedding as well"},
    {"", "clip", NUMBER, AT(clip), 0, 1e9, "1", "largest norm of each part of the gradient; 0: no clipping"},
    {"", "pool", POOL, AT(pool), 0, 0, "own", "chunks that queries retrieve from: none, own (past), batch, corpus"},
    {"", "pool_start", WHOLE, AT(schedule.pool_start), 0, 1e12, "0", "the step from which `pool` is used"},
    {"", "pool_before", POOL, AT(pool_before), 0, 0, "own", "the pool before pool_start"},
    {"", "candidates", WHOLE, AT(candidates), 1, CORPUS_POOL_CANDIDATES_MAX, "16",
     "pool corpus: chunks found and encoded for each query of each group"},
    {"", "refresh", WHOLE, AT(refresh), 1, 1e9, "100", "pool corpus: steps between two encodings of the whole corpus"},
    {"", "gumbel", SWITCH, AT(gumbel), 0, 0, "true", "Gumbel noise on retrieval scores while training"},
    {"", "gumbel_until", NUMBER, AT(schedule.gumbel_until), 0, 1, "1",
     "fraction of the steps after which there is no noise"},
    {"", "corpus_alone", NUMBER, AT(schedule.corpus_alone), 0, 1, "0",
     "pool corpus: fraction of the sequences that retrieve from the corpus only, not from their own past"},
    {"copies", "rate", NUMBER, AT(schedule.copies_rate), 0, 1, "0",
     "pool corpus: fraction of the queries with one neighbour that contains ids of the next chunk; 0: off"},
    {"copies", "until", NUMBER, AT(schedule.copies_until), 0, 1, "1",
     "fraction of the steps at which copies.rate has fallen to 0"},
    {"mlm", "rate", NUMBER, AT(schedule.mlm_rate), 0, 1, "0",
     "fraction of the encoder's ids that are masked; 0: off (papers: 0.15)"},
    {"mlm", "weight", NUMBER, AT(schedule.mlm_weight), 0, 1000, "1", "weight of the masked-token loss"},
    {"mlm", "until", NUMBER, AT(schedule.mlm_until), 0, 1, "0.5", "fraction of the steps after which masking ends"},
    {"contrastive", "weight", NUMBER, AT(schedule.contrastive_weight), 0, 1000, "0",
     "weight of the contrastive loss of the retriever; 0: off"},
    {"contrastive", "start", WHOLE, AT(schedule.contrastive_start), 0, 1e12, "0", "first step with this loss"},
    {"contrastive", "ramp", WHOLE, AT(schedule.contrastive_ramp), 0, 1e12, "0",
     "steps from contrastive.start until the full weight"},
    {"contrastive", "reach", WHOLE, AT(schedule.contrastive_reach), 1, 1 << 20, "1",
     "a query's positive is one of the next so many chunks, drawn for each query"},
    {"contrastive", "cut_query", SWITCH, AT(cut_query), 0, 0, "true",
     "its gradient does not reach the decoder's layers"},
    {"memory", "weight", NUMBER, AT(schedule.memory_weight), 0, 1, "0",
     "the mixture's part of the loss through a token memory; the model's own loss counts the rest; 0: off"},
    {"memory", "start", WHOLE, AT(schedule.memory_start), 0, 1e12, "0", "first step with this loss"},
    {"memory", "gradient", GRADIENT, AT(memory_gradient), 0, 0, "all",
     "how far the memory's gradient goes: all, states (not into keys), projection (not into the trunk)"},
    {"memory", "past", WHOLE, AT(memory_past), 0, 1 << 26, "2048",
     "ids of its own past that a position reads; 0: none"},
    {"memory", "drop_past", NUMBER, AT(schedule.memory_drop_past), 0, 1, "0",
     "fraction of the micro-batches in which no position reads its own past"},
    {"memory", "group", WHOLE, AT(memory_group), 1, 1 << 20, "1",
     "sequences of a micro-batch that read one another, except shared documents; 1: none"},
    {"memory", "pack", SWITCH, AT(memory_pack), 0, 0, "false",
     "fill a group with windows that BM25 finds similar; needs sampling epochs and memory.passages"},
    {"memory", "passages", WHOLE, AT(memory_passages), 0, 64, "0",
     "passages that BM25 finds for each chunk in data and pool_data, encoded by the model; 0: none"},
    {"memory", "read", WHOLE, AT(memory_read), 1, 512, "16",
     "passages that a chunk reads: those of its own and of chunks before it"},
    {"memory", "span", WHOLE, AT(memory_span), 1, 8, "2", "chunks of a passage"},
    {"memory", "neighbours", TEXT, AT(memory_neighbours), 0, 0, NULL,
     "file that keeps what BM25 found, for other runs on the same text; default: neighbours.safetensors in the run"},
    {"teach", "weight", NUMBER, AT(schedule.teach_weight), 0, 1000, "0",
     "weight of the loss that teaches the retriever what the token memory's reader gains; 0: off"},
    {"teach", "start", WHOLE, AT(schedule.teach_start), 0, 1e12, "0", "first step with this loss"},
    {"teach", "coming", WHOLE, AT(teach_coming), 0, 64, "2",
     "passages that BM25 finds with the chunk to come: candidates of the teacher, never read"},
    {"teach", "temperature", NUMBER, AT(schedule.teach_temperature), 0.001, 1000, "2",
     "temperature of the teacher's softmax over gains, in nats of a chunk"},
    {"teach", "gradient", TEACH, AT(teach_gradient), 0, 0, "projections",
     "how far its gradient goes: projections (lmk_q_proj, lmk_k_proj), encoder, all"},
    {"", "save_every", WHOLE, AT(save_every), 1, 1e12, "1000", "steps between checkpoints"},
    {"", "keep", WHOLE, AT(keep), 1, 1e6, "3", "number of newest checkpoints to keep"},
    {"", "checkpoint_type", TEXT, AT(checkpoint_type), 0, 0, "f32", "number type of model.safetensors: f32 or bf16"},
    {"", "eval_every", WHOLE, AT(eval_every), 1, 1e12, "500", "steps between validations"},
    {"", "eval_windows", WHOLE, AT(eval_windows), 0, 1e9, "64",
     "sequences of a validation, spread over `valid`; 0: all"},
    {"", "eval_pool", POOL, AT(eval_pool), 0, 0, "own", "pool of the validation; at most `pool`"},
    {"", "sample_every", WHOLE, AT(sample_every), 0, 1e12, "0", "steps between samples of text; 0: none"},
    {"", "sample_tokens", WHOLE, AT(sample_tokens), 1, 1e6, "126", "tokens of a sample"},
    {"", "prompts", TEXTS, AT(prompts), 0, 0, NULL, "texts that samples continue; none: the start of a document"},
    {"", "type", TEXT, AT(type), 0, 0, "auto",
     "number type of activations: auto (bf16 on a GPU, f32 on the CPU), bf16, f32"},
    {"", "recompute", SWITCH, AT(recompute), 0, 0, "false",
     "compute activations again in the backward pass, to save memory"},
    {"", "seed", WHOLE, AT(seed), 0, 9e15, "1", "seed of initial weights, order of data, noise and masks"},
};
enum { KEYS = ARRAY_LEN(keys) };

static void config_full_name(char out[64], const struct config_key *k) {
    snprintf(out, 64, "%s%s%s", k->group, k->group[0] ? "." : "", k->name);
}

static void *config_member(struct train_config *c, const struct config_key *k) {
    return (char *)c + k->offset;
}

/* ---- values -------------------------------------------------------------------------------------------------------
 */

static enum status config_set_text(char **text, const char *value) {
    char *copy;
    TRY(memory_copy_string(&copy, value));
    memory_free(*text);
    *text = copy;
    return STATUS_OK;
}

static void config_clear_strings(struct config_strings *list) {
    for (size_t i = 0; i < list->count; i++)
        memory_free(list->items[i]);
    memory_free(list->items);
    *list = (struct config_strings){0};
}

static enum status config_add_string(struct config_strings *list, const char *text) {
    TRY(memory_grow(&list->items, &list->capacity, list->count + 1));
    TRY(memory_copy_string(&list->items[list->count], text));
    list->count++;
    return STATUS_OK;
}

enum status config_set_strings(struct config_strings *list, const char *const *items, int count) {
    config_clear_strings(list);
    for (int i = 0; i < count; i++)
        TRY(config_add_string(list, items[i]));
    return STATUS_OK;
}

static enum status config_set_number(struct train_config *c, const char *name, const struct config_key *k,
                                     double value) {
    char full[64];
    config_full_name(full, k);
    if (!(value >= k->min && value <= k->max))
        return fail(STATUS_INVALID, "%s: %s is %g: must be from %.15g to %.15g", name, full, value, k->min, k->max);
    if (k->kind == NUMBER)
        *(double *)config_member(c, k) = value;
    else
        *(int64_t *)config_member(c, k) = (int64_t)value;
    return STATUS_OK;
}

/* Of the kinds that a string sets. */
static enum status config_set_string(struct train_config *c, const char *name, const struct config_key *k,
                                     const char *text) {
    char full[64];
    config_full_name(full, k);
    if (k->kind == TEXT) return config_set_text(config_member(c, k), text);
    if (k->kind == MODEL) {
        memory_free(c->model_json);
        c->model_json = NULL;
        return config_set_text(&c->start_from, text);
    }
    int found = k->kind == POOL       ? pool_kind_find(text)
                : k->kind == SAMPLING ? sampling_find(text)
                : k->kind == TEACH    ? teach_gradient_find(text)
                                      : memory_gradient_find(text);
    if (found < 0)
        return fail(STATUS_INVALID, "%s: %s is \"%.40s\": must be %s", name, full, text,
                    k->kind == POOL       ? "none, own, batch or corpus"
                    : k->kind == SAMPLING ? "epochs or random"
                    : k->kind == TEACH    ? "projections, encoder or all"
                                          : "all, states or projection");
    *(int *)config_member(c, k) = found;
    return STATUS_OK;
}

/* The STRING that was just read, unescaped. Free with memory_free. */
static enum status config_read_string(char **out, const struct json *j) {
    size_t length;
    TRY(memory_allocate(out, j->length + 1));
    enum status s = json_string(j, *out, j->length + 1, &length);
    if (s == STATUS_OK && strlen(*out) != length) s = json_fail(j, "text without a zero byte");
    if (s != STATUS_OK) memory_free(*out);
    return s;
}

static enum status read_strings(struct json *j, struct config_strings *list) {
    config_clear_strings(list);
    TRY(json_expect(j, JSON_ARRAY, "a list of strings"));
    for (enum json_event event; (event = json_next(j)) != JSON_ARRAY_END;) {
        char *text;
        if (event != JSON_STRING) return json_fail(j, "a string");
        TRY(config_read_string(&text, j));
        enum status s = config_add_string(list, text);
        memory_free(text);
        TRY(s);
    }
    return STATUS_OK;
}

/* ---- copying JSON ---------------------------------------------------------------------------------------------------
 */

static enum status config_copy_text(struct json_writer *w, const struct json *j, bool key) {
    char *text;
    TRY(config_read_string(&text, j));
    key ? json_write_key(w, text) : json_write_string(w, text);
    memory_free(text);
    return STATUS_OK;
}

static enum status config_copy_number(struct json_writer *w, const struct json *j) {
    int64_t whole;
    double number;
    if (json_int(j, &whole) == STATUS_OK) {
        json_write_int(w, whole);
        return STATUS_OK;
    }
    TRY(json_double(j, &number));
    json_write_double(w, number);
    return STATUS_OK;
}

static enum status config_copy_event(struct json_writer *w, const struct json *j, enum json_event event) {
    enum { DEEP = 32 }; /* less than the nesting that the writer supports */
    if (j->depth > DEEP) return json_fail(j, "less nesting");
    switch (event) {
    case JSON_KEY:
    case JSON_STRING:
        return config_copy_text(w, j, event == JSON_KEY);
    case JSON_NUMBER:
        return config_copy_number(w, j);
    case JSON_OBJECT:
        json_write_object(w);
        return STATUS_OK;
    case JSON_OBJECT_END:
        json_write_object_end(w);
        return STATUS_OK;
    case JSON_ARRAY:
        json_write_array(w);
        return STATUS_OK;
    case JSON_ARRAY_END:
        json_write_array_end(w);
        return STATUS_OK;
    case JSON_NULL:
        json_write_null(w);
        return STATUS_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        json_write_bool(w, event == JSON_TRUE);
        return STATUS_OK;
    default:
        return json_fail(j, "JSON");
    }
}

/* Writes JSON text in the writer's layout. */
static enum status config_copy_json(struct json_writer *w, const char *text) {
    struct json j;
    json_open(&j, "model", text, strlen(text));
    for (enum json_event event; (event = json_next(&j)) != JSON_END;)
        TRY(config_copy_event(w, &j, event));
    return STATUS_OK;
}

enum status config_tidy(char **json) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return fail_errno("model");
    struct json_writer w;
    json_write_open(&w, memory, 1);
    enum status s = config_copy_json(&w, *json);
    bool broken = ferror(memory) != 0;
    if ((fclose(memory) != 0 || broken) && s == STATUS_OK) s = fail(STATUS_NO_MEMORY, "model: out of memory");
    if (s == STATUS_OK) s = config_set_text(json, text);
    free(text);
    return s;
}

/* Keeps an object as its text, in one layout. */
static enum status config_read_object(struct json *j, char **out) {
    const char *begin = j->at - 1;
    assert(*begin == '{');
    TRY(json_skip_rest(j));
    char *copy;
    size_t n = (size_t)(j->at - begin);
    TRY(memory_allocate(&copy, n + 1));
    memcpy(copy, begin, n);
    copy[n] = 0;
    memory_free(*out);
    *out = copy;
    return config_tidy(out);
}

static enum status config_read_value(struct train_config *c, struct json *j, const struct config_key *k) {
    int64_t whole;
    double number;
    switch (k->kind) {
    case WHOLE:
        TRY(json_next_int(j, &whole));
        return config_set_number(c, j->name, k, (double)whole);
    case NUMBER:
        TRY(json_next_double(j, &number));
        return config_set_number(c, j->name, k, number);
    case SWITCH:
        return json_next_bool(j, config_member(c, k));
    case TEXTS:
        return read_strings(j, config_member(c, k));
    default:
        break;
    }
    enum json_event event = json_next(j);
    if (event == JSON_OBJECT && k->kind == MODEL) return config_read_object(j, &c->model_json);
    if (event != JSON_STRING) return json_fail(j, k->kind == MODEL ? "an object, or a folder's name" : "a string");
    char *text;
    TRY(config_read_string(&text, j));
    enum status s = config_set_string(c, j->name, k, text);
    memory_free(text);
    return s;
}

/* ---- reading ------------------------------------------------------------------------------------------------------
 */

/* Names that other programs give to keys. */
static const struct {
    const char *theirs, *ours;
} config_terms[] = {
    {"learning_rate", "lr"}, {"batch_size", "sequences"}, {"gradient_accumulation_steps", "accumulate"}};

/* The key that was meant, or NULL. Keys of an object are also found by their names alone. full: [KEYS] for their names.
 */
static const char *config_near_key(char full[KEYS][64], const char *key, size_t length) {
    struct near_name near = near_name_of(key, length), alone = near;
    for (size_t i = 0; i < ARRAY_LEN(config_terms); i++)
        if (strlen(config_terms[i].theirs) == length && memcmp(config_terms[i].theirs, key, length) == 0)
            return config_terms[i].ours;
    for (int i = 0; i < KEYS; i++) {
        config_full_name(full[i], &keys[i]);
        near_name_offer(&near, full[i]);
        near_name_offer(&near, keys[i].group);
        near_name_offer(&alone, keys[i].name);
    }
    if (near.best || !alone.best) return near_name_best(&near);
    for (int i = 0; i < KEYS; i++)
        if (keys[i].name == alone.best) return full[i];
    return NULL;
}

/* name: of the file, or NULL. */
static enum status config_unknown_key(const char *name, const char *key, size_t length) {
    char full[KEYS][64];
    const char *best = config_near_key(full, key, length), *file = name ? name : "", *colon = name ? ": " : "";
    int shown = (int)(length < 60 ? length : 60);
    const char *dot = memchr(key, '.', length);
    const bool same = best && strlen(best) == length && memcmp(best, key, length) == 0;
    if (same && dot) /* as --set writes it */
        return fail(STATUS_INVALID, "%s%sthere is no key \"%s\": write \"%.*s\": {\"%.*s\": ...}", file, colon, best,
                    (int)(dot - key), key, (int)(length - (size_t)(dot - key) - 1), dot + 1);
    if (same) return fail(STATUS_INVALID, "%s is an object: set one of its keys, as %s.KEY=VALUE", best, best);
    return fail(STATUS_INVALID, "%s%sthere is no key \"%.*s\"%s%s%s; drt-train --help lists all", file, colon, shown,
                key, best ? ": did you mean \"" : "", best ? best : "", best ? "\"?" : "");
}

static enum status config_unknown_member(const struct json *j, const char *group) {
    char key[128];
    int n = snprintf(key, sizeof key, "%s%s%.*s", group, group[0] ? "." : "", (int)(j->length < 60 ? j->length : 60),
                     j->text);
    return config_unknown_key(j->name, key, (size_t)n);
}

static bool config_is_group(const struct json *j, const char **group) {
    for (int i = 0; i < KEYS; i++)
        if (keys[i].group[0] && json_equals(j, keys[i].group)) {
            *group = keys[i].group;
            return true;
        }
    return false;
}

static enum status config_read_members(struct train_config *c, struct json *j, const char *group, bool seen[KEYS]) {
    for (enum json_event event; (event = json_next(j)) != JSON_OBJECT_END;) {
        if (event != JSON_KEY) return json_fail(j, "a key");
        int found = -1;
        for (int i = 0; i < KEYS && found < 0; i++)
            if (strcmp(keys[i].group, group) == 0 && json_equals(j, keys[i].name)) found = i;
        const char *inner;
        if (found >= 0) {
            char full[64];
            config_full_name(full, &keys[found]);
            if (seen[found]) return fail(STATUS_INVALID, "%s: %s is given twice", j->name, full);
            seen[found] = true;
            enum status s = config_read_value(c, j, &keys[found]);
            if (s != STATUS_OK) return fail_context(s, "%s", full);
        } else if (!group[0] && config_is_group(j, &inner)) {
            TRY(json_expect(j, JSON_OBJECT, "an object"));
            TRY(config_read_members(c, j, inner, seen));
        } else {
            return config_unknown_member(j, group);
        }
    }
    return STATUS_OK;
}

enum status config_read(struct train_config *c, const char *name, const void *json, size_t bytes) {
    struct json j;
    bool seen[KEYS] = {false};
    json_open(&j, name, json, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object of configuration keys"));
    TRY(config_read_members(c, &j, "", seen));
    return json_expect(&j, JSON_END, "nothing after the object");
}

enum status config_load(struct train_config *c, const char *path) {
    struct file_map map;
    TRY(file_map(&map, path));
    enum status s = config_read(c, path, map.data, map.size);
    file_unmap(&map);
    return s;
}

static enum status config_set_key(struct train_config *c, const char *name, const struct config_key *k,
                                  const char *value) {
    if (k->kind >= TEXT && k->kind != TEXTS && !(k->kind == MODEL && value[0] == '{'))
        return config_set_string(c, name, k, value);
    struct json j;
    json_open(&j, name, value, strlen(value));
    TRY(config_read_value(c, &j, k));
    return json_expect(&j, JSON_END, "nothing after the value");
}

enum status config_set(struct train_config *c, const char *assignment) {
    const char *equals = strchr(assignment, '=');
    if (!equals) return fail(STATUS_INVALID, "%.60s: must be KEY=VALUE", assignment);
    for (int i = 0; i < KEYS; i++) {
        char full[64];
        config_full_name(full, &keys[i]);
        if (strlen(full) == (size_t)(equals - assignment) && memcmp(full, assignment, strlen(full)) == 0)
            return config_set_key(c, full, &keys[i], equals + 1);
    }
    return config_unknown_key(NULL, assignment, (size_t)(equals - assignment));
}

enum status config_defaults(struct train_config *out) {
    *out = (struct train_config){0};
    enum status s = STATUS_OK;
    for (int i = 0; i < KEYS && s == STATUS_OK; i++)
        if (keys[i].standard) s = config_set_key(out, "default", &keys[i], keys[i].standard);
    if (s != STATUS_OK) config_free(out);
    return s;
}

void config_free(struct train_config *c) {
    for (int i = 0; i < KEYS; i++) {
        if (keys[i].kind == TEXT || keys[i].kind == MODEL) memory_free(*(char **)config_member(c, &keys[i]));
        if (keys[i].kind == TEXTS) config_clear_strings(config_member(c, &keys[i]));
    }
    *c = (struct train_config){0};
}

/* ---- writing ------------------------------------------------------------------------------------------------------
 */

static void config_write_value(struct json_writer *w, const struct train_config *c, const struct config_key *k) {
    const void *at = (const char *)c + k->offset;
    const struct config_strings *list = at;
    switch (k->kind) {
    case WHOLE:
        json_write_int(w, *(const int64_t *)at);
        break;
    case NUMBER:
        json_write_double(w, *(const double *)at);
        break;
    case SWITCH:
        json_write_bool(w, *(const bool *)at);
        break;
    case TEXT:
        json_write_string(w, *(char *const *)at);
        break;
    case MODEL:
        if (config_copy_json(w, c->model_json) != STATUS_OK) assert(!"tidy JSON"); /* config_tidy wrote it */
        break;
    case POOL:
        json_write_string(w, pool_kind_name(*(const enum pool_kind *)at));
        break;
    case SAMPLING:
        json_write_string(w, sampling_name(*(const enum sampling *)at));
        break;
    case GRADIENT:
        json_write_string(w, memory_gradient_name(*(const enum memory_gradient *)at));
        break;
    case TEACH:
        json_write_string(w, teach_gradient_name(*(const enum teach_gradient *)at));
        break;
    case TEXTS:
        json_write_array(w);
        for (size_t i = 0; i < list->count; i++)
            json_write_string(w, list->items[i]);
        json_write_array_end(w);
    }
}

void config_write(const struct train_config *c, FILE *out) {
    struct json_writer w;
    const char *group = "";
    json_write_open(&w, out, 1);
    json_write_object(&w);
    for (int i = 0; i < KEYS; i++) {
        const struct config_key *k = &keys[i];
        if ((k->kind == TEXT || k->kind == MODEL) && !*(char *const *)((const char *)c + k->offset)) continue;
        if (strcmp(group, k->group) != 0) {
            if (group[0]) json_write_object_end(&w);
            if (k->group[0]) json_write_key(&w, k->group), json_write_object(&w);
            group = k->group;
        }
        json_write_key(&w, k->name);
        config_write_value(&w, c, k);
    }
    if (group[0]) json_write_object_end(&w);
    json_write_object_end(&w);
}

void config_help(FILE *out) {
    for (int i = 0; i < KEYS; i++) {
        char full[64];
        config_full_name(full, &keys[i]);
        fprintf(out, "  %-22s %s", full, keys[i].help);
        fprintf(out, keys[i].standard ? " (default: %s)\n" : "\n", keys[i].standard);
    }
}
