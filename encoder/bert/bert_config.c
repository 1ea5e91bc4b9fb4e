/* bert_config.c -- see bert_config.h. A key that changes the network is refused if its value is not supported; other
 * keys are ignored. */
#include "encoder/bert/bert_config.h"
#include "base/file.h"
#include "base/formats/json.h"
#include <stddef.h>
#include <string.h>

enum { UNSET = INT32_MIN, HEAD_DIM_MAX = 512 };

static const struct {
    const char *key;
    size_t offset;
    int32_t lowest, highest, absent; /* absent: the default; UNSET: the key is required */
} whole_numbers[] = {
    {"vocab_size", offsetof(struct bert_config, vocab_size), 3, 1 << 22, UNSET},
    {"hidden_size", offsetof(struct bert_config, hidden), 1, 1 << 14, UNSET},
    {"intermediate_size", offsetof(struct bert_config, ffn), 1, 1 << 16, UNSET},
    {"num_attention_heads", offsetof(struct bert_config, heads), 1, 1 << 10, UNSET},
    {"num_hidden_layers", offsetof(struct bert_config, layers), 1, 256, UNSET},
    {"max_position_embeddings", offsetof(struct bert_config, positions), 3, 1 << 16, UNSET},
    {"type_vocab_size", offsetof(struct bert_config, types), 1, 1 << 10, 2},
};

static const struct {
    const char *key, *accepted, *why;
} texts[] = {
    {"model_type", "bert", "only encoders of model_type \"bert\" are supported (such as Contriever, MiniLM, E5, GTE)"},
    {"hidden_act", "gelu", "only the exact GELU is supported"},
    {"position_embedding_type", "absolute", "only learned absolute positions are supported"},
};

static enum status read_number(struct json *j, struct bert_config *out, size_t i) {
    int32_t number;
    TRY(json_next_int_in(j, whole_numbers[i].key, whole_numbers[i].lowest, whole_numbers[i].highest, &number));
    memcpy((char *)out + whole_numbers[i].offset, &number, sizeof number);
    return STATUS_OK;
}

static enum status read_text(struct json *j, size_t i) {
    enum json_event event = json_next(j);
    if (event == JSON_NULL) return STATUS_OK;
    if (event != JSON_STRING) return json_fail(j, "a string");
    if (json_equals(j, texts[i].accepted)) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED, "%s: %s is \"%.*s\": %s", j->name, texts[i].key,
                (int)(j->length < 60 ? j->length : 60), j->text, texts[i].why);
}

static enum status read_decoder(struct json *j) {
    bool decoder = false;
    TRY(json_next_bool(j, &decoder));
    return decoder ? fail(STATUS_UNSUPPORTED, "%s: is_decoder is true: this is not an encoder", j->name) : STATUS_OK;
}

static enum status read_member(struct json *j, struct bert_config *out) {
    for (size_t i = 0; i < ARRAY_LEN(whole_numbers); i++)
        if (json_equals(j, whole_numbers[i].key)) return read_number(j, out, i);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (json_equals(j, texts[i].key)) return read_text(j, i);
    if (json_equals(j, "is_decoder")) return read_decoder(j);
    if (!json_equals(j, "layer_norm_eps")) return json_skip(j);
    double eps = 0;
    TRY(json_next_double(j, &eps));
    out->eps = (float)eps; /* rounding to float turns the smallest numbers into 0 */
    if (!(out->eps > 0 && eps < 1))
        return fail(STATUS_INVALID, "%s: layer_norm_eps is %g: must be between 0 and 1", j->name, eps);
    return STATUS_OK;
}

static enum status check_config(const char *name, struct bert_config *c) {
    for (size_t i = 0; i < ARRAY_LEN(whole_numbers); i++) {
        int32_t value;
        memcpy(&value, (const char *)c + whole_numbers[i].offset, sizeof value);
        if (value != UNSET) continue;
        if (whole_numbers[i].absent == UNSET)
            return fail(STATUS_INVALID, "%s: %s is missing: this is not the config of a BERT-type encoder", name,
                        whole_numbers[i].key);
        memcpy((char *)c + whole_numbers[i].offset, &whole_numbers[i].absent, sizeof value);
    }
    if (c->hidden % c->heads != 0)
        return fail(STATUS_INVALID, "%s: hidden_size %d is not a multiple of num_attention_heads %d", name, c->hidden,
                    c->heads);
    if (c->hidden / c->heads > HEAD_DIM_MAX)
        return fail(STATUS_UNSUPPORTED, "%s: heads of %d numbers: at most %d are computed", name, c->hidden / c->heads,
                    HEAD_DIM_MAX);
    c->max_tokens = c->positions;
    return STATUS_OK;
}

enum status bert_config_parse(struct bert_config *out, const char *name, const void *data, size_t bytes) {
    struct json j;
    *out = (struct bert_config){UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, 1e-12f, 0, false};
    json_open(&j, name, data, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object"));
    for (enum json_event e = json_next(&j); e != JSON_OBJECT_END; e = json_next(&j)) {
        if (e != JSON_KEY) return json_fail(&j, "a member");
        TRY(read_member(&j, out));
    }
    TRY(json_expect(&j, JSON_END, "the end of the file"));
    return check_config(name, out);
}

/* sentence-transformers before 6 wrote a flag for each mode, of which only the mean's may be true. Later versions write
 * "pooling_mode": a mode or a list of modes. */
static enum status read_pooling(struct json *j) {
    static const char prefix[] = "pooling_mode_", why[] = "only the mean over the tokens is supported";
    const struct json key = *j;
    if (json_equals(j, "pooling_mode")) {
        const bool list = json_next(j) == JSON_ARRAY, mean = !list || json_next(j) == JSON_STRING;
        if (!mean || !json_equals(j, "mean") || (list && json_next(j) != JSON_ARRAY_END))
            return fail(STATUS_UNSUPPORTED, "%s: pooling_mode is not \"mean\": %s", j->name, why);
        return STATUS_OK;
    }
    if (key.length < sizeof prefix || memcmp(key.text, prefix, sizeof prefix - 1) != 0) return json_skip(j);
    bool value = false;
    TRY(json_next_bool(j, &value));
    if (value == json_equals(&key, "pooling_mode_mean_tokens")) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED, "%s: %.*s is %s: %s", j->name, (int)(key.length < 60 ? key.length : 60), key.text,
                value ? "true" : "false", why);
}

enum status bert_pooling_parse(const char *name, const void *data, size_t bytes) {
    struct json j;
    json_open(&j, name, data, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object"));
    for (enum json_event e = json_next(&j); e != JSON_OBJECT_END; e = json_next(&j)) {
        if (e != JSON_KEY) return json_fail(&j, "a member");
        TRY(read_pooling(&j));
    }
    return json_expect(&j, JSON_END, "the end of the file");
}

/* The class is the part after the last dot. */
static enum status read_module(struct json *j) {
    static const char *const computed[] = {"Transformer", "Pooling", "Normalize"};
    TRY(json_expect(j, JSON_STRING, "type: the class of a module"));
    const char *dot = memrchr(j->text, '.', j->length), *class = dot ? dot + 1 : j->text;
    const size_t length = j->length - (size_t)(class - j->text);
    for (size_t i = 0; i < ARRAY_LEN(computed); i++)
        if (strlen(computed[i]) == length && memcmp(computed[i], class, length) == 0) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED, "%s: has a module %.*s: only Transformer, Pooling and Normalize are supported",
                j->name, (int)(length < 60 ? length : 60), class);
}

enum status bert_modules_parse(const char *name, const void *data, size_t bytes) {
    struct json j;
    json_open(&j, name, data, bytes);
    TRY(json_expect(&j, JSON_ARRAY, "a list of modules"));
    for (enum json_event module = json_next(&j); module != JSON_ARRAY_END; module = json_next(&j)) {
        if (module != JSON_OBJECT) return json_fail(&j, "a module");
        for (enum json_event e = json_next(&j); e != JSON_OBJECT_END; e = json_next(&j)) {
            if (e != JSON_KEY) return json_fail(&j, "a member");
            TRY(json_equals(&j, "type") ? read_module(&j) : json_skip(&j));
        }
    }
    return json_expect(&j, JSON_END, "the end of the file");
}

enum status bert_length_parse(struct bert_config *out, const char *name, const void *data, size_t bytes) {
    struct json j;
    json_open(&j, name, data, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object"));
    for (enum json_event e = json_next(&j); e != JSON_OBJECT_END; e = json_next(&j)) {
        if (e != JSON_KEY) return json_fail(&j, "a member");
        if (!json_equals(&j, "max_seq_length")) {
            TRY(json_equals(&j, "do_lower_case") ? json_next_bool(&j, &out->lower) : json_skip(&j));
            continue;
        }
        e = json_next(&j);
        if (e == JSON_NULL) continue;
        int64_t value = 0;
        if (e != JSON_NUMBER) return json_fail(&j, "max_seq_length: a number or null");
        TRY(json_int(&j, &value));
        if (value < 3 || value > out->positions)
            return fail(STATUS_INVALID, "%s: max_seq_length is %lld: must be from 3 to the model's %d positions", name,
                        (long long)value, out->positions);
        out->max_tokens = (int32_t)value;
    }
    return json_expect(&j, JSON_END, "the end of the file");
}

/* *there is false if there is no such file. */
static enum status map_file(struct file_map *out, char path[FILE_PATH_MAX], const char *folder, const char *name,
                            bool *there) {
    TRY(file_join(path, folder, name));
    *there = file_exists(path);
    *out = (struct file_map){0};
    return *there ? file_map(out, path) : STATUS_OK;
}

enum status bert_config_load(struct bert_config *out, const char *folder) {
    char path[FILE_PATH_MAX];
    struct file_map sizes = {0}, modules = {0}, pooling = {0}, length = {0};
    bool there;
    enum status s;
    if (!file_is_directory(folder))
        return fail(STATUS_NOT_FOUND,
                    "%s: no such folder; the folder of a BERT-type encoder has config.json, vocab.txt and "
                    "model.safetensors (or pytorch_model.bin)",
                    folder);
    TRY(map_file(&sizes, path, folder, "config.json", &there));
    if (!there) return fail(STATUS_NOT_FOUND, "%s: no such file; the folder of an encoder has its sizes there", path);
    TRY_GOTO(s, bert_config_parse(out, path, sizes.data, sizes.size), out);
    TRY_GOTO(s, map_file(&modules, path, folder, "modules.json", &there), out);
    if (there) TRY_GOTO(s, bert_modules_parse(path, modules.data, modules.size), out);
    TRY_GOTO(s, map_file(&pooling, path, folder, "1_Pooling/config.json", &there), out);
    if (there) TRY_GOTO(s, bert_pooling_parse(path, pooling.data, pooling.size), out);
    TRY_GOTO(s, map_file(&length, path, folder, "sentence_bert_config.json", &there), out);
    if (there) s = bert_length_parse(out, path, length.data, length.size);
out:
    file_unmap(&length);
    file_unmap(&pooling);
    file_unmap(&modules);
    file_unmap(&sizes);
    return s;
}
