/* model_config.c -- reads config.json, checks every value, and refuses values that this network does not support.
 *
 * Published configs have keys that no code reads, and keys for which this code supports one value. The latter are
 * checked. Otherwise a model of another kind would be accepted and give wrong results. */
#include "model/model_config.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/formats/near_name.h"
#include "kernels/landmark/landmark_attention.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { UNSET = INT32_MIN, LAYERS_MAX = 1024, SKETCH_MIN = 8, SKETCH_MAX = 1 << 16 };

/* The members of the file; UNSET: the file lacks it. */
struct raw {
    int32_t vocab_size, hidden, ffn, heads, kv_heads, encoder_layers, chunk, topk, window, memory_layer, memory_size;
    int32_t recurrent_layer, recurrent_states, recurrent_block, landmark_block, landmark_topk;
    int32_t landmark_sketch;
    int32_t landmark_id, mask_id, pad_id, eos_id;
    int32_t layers[MODEL_GROUPS_MAX + 1];
    int n_layers;
    double rms_eps;
    int input; /* -1: absent */
    int retrieval_proj, off_by_one, tied, bias, alibi;
    bool silu;
    char unread[MODEL_UNREAD_MAX];
};

static const struct {
    const char *key;
    size_t offset;
    int32_t lowest, highest;
    bool needed;
} whole_numbers[] = {
    {"vocab_size", offsetof(struct raw, vocab_size), 2, 1 << 22, true},
    {"hidden_size", offsetof(struct raw, hidden), 2, 1 << 16, true},
    {"intermediate_size", offsetof(struct raw, ffn), 2, 1 << 18, true},
    {"num_attention_heads", offsetof(struct raw, heads), 1, 1 << 10, true},
    {"num_key_value_heads", offsetof(struct raw, kv_heads), 1, 1 << 10, false},
    {"encoder_layers", offsetof(struct raw, encoder_layers), 0, LAYERS_MAX, false},
    {"enc_chunk_size", offsetof(struct raw, chunk), 1, 1 << 16, false},
    {"chunk_topk", offsetof(struct raw, topk), 0, 1 << 10, false},
    {"slide_window", offsetof(struct raw, window), 0, 1 << 24, true},
    {"chunk_id", offsetof(struct raw, landmark_id), -1, 1 << 22, false},
    {"mask_id", offsetof(struct raw, mask_id), -1, 1 << 22, false},
    {"pad_id", offsetof(struct raw, pad_id), -1, 1 << 22, false},
    {"eos_id", offsetof(struct raw, eos_id), -1, 1 << 22, false},
    {"memory_layer", offsetof(struct raw, memory_layer), 0, LAYERS_MAX, false},
    {"memory_size", offsetof(struct raw, memory_size), 0, 1 << 16, false},
    {"recurrent_layer", offsetof(struct raw, recurrent_layer), 0, LAYERS_MAX, false},
    {"recurrent_states", offsetof(struct raw, recurrent_states), 2, 1 << 16, false},
    {"recurrent_block", offsetof(struct raw, recurrent_block), 1, 1 << 24, false},
    {"landmark_block", offsetof(struct raw, landmark_block), 0, LANDMARK_BLOCK_MAX, false},
    {"landmark_topk", offsetof(struct raw, landmark_topk), 1, LANDMARK_TOPK_MAX, false},
    {"landmark_sketch", offsetof(struct raw, landmark_sketch), 0, SKETCH_MAX, false},
};

static const struct {
    const char *key;
    size_t offset;
} flags[] = {
    {"retrieval_proj", offsetof(struct raw, retrieval_proj)},
    {"softmax_off_by_one", offsetof(struct raw, off_by_one)},
    {"tie_word_embeddings", offsetof(struct raw, tied)},
    {"attention_bias", offsetof(struct raw, bias)},
    {"enable_alibi", offsetof(struct raw, alibi)},
};

static const char *const other_keys[] = {"decoder_layers", "encoder_input", "rms_norm_eps", "hidden_act"};

const char *model_config_near_key(const char *name, size_t length, int *edits) {
    struct near_name near = near_name_of(name, length);
    for (size_t i = 0; i < ARRAY_LEN(whole_numbers); i++)
        near_name_offer(&near, whole_numbers[i].key);
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        near_name_offer(&near, flags[i].key);
    for (size_t i = 0; i < ARRAY_LEN(other_keys); i++)
        near_name_offer(&near, other_keys[i]);
    *edits = near.best ? near.edits : 0;
    return near_name_best(&near);
}

static enum status read_layers(struct json *j, struct raw *raw) {
    TRY(json_expect(j, JSON_ARRAY, "decoder_layers: a list of numbers"));
    for (;;) {
        enum json_event event = json_next(j);
        int64_t value = 0;
        if (event == JSON_ARRAY_END) return STATUS_OK;
        if (event != JSON_NUMBER) return json_fail(j, "decoder_layers: a number of layers");
        TRY(json_int(j, &value));
        if (value < 1 || value > LAYERS_MAX)
            return fail(STATUS_INVALID, "%s: decoder_layers holds %lld: each must be from 1 to %d", j->name,
                        (long long)value, LAYERS_MAX);
        if (raw->n_layers > MODEL_GROUPS_MAX)
            return fail(STATUS_UNSUPPORTED, "%s: decoder_layers has more than %d groups", j->name, MODEL_GROUPS_MAX);
        raw->layers[raw->n_layers++] = (int32_t)value;
    }
}

static enum status read_text(struct json *j, const char *what) {
    return json_next(j) == JSON_STRING ? STATUS_OK : json_fail(j, what);
}

static enum status read_input(struct json *j, struct raw *raw) {
    TRY(read_text(j, "encoder_input: \"hidden\" or \"tokens\""));
    if (json_equals(j, "hidden"))
        raw->input = ENCODER_INPUT_HIDDEN;
    else if (json_equals(j, "tokens"))
        raw->input = ENCODER_INPUT_TOKENS;
    else
        return json_fail(j, "encoder_input: \"hidden\" or \"tokens\"");
    return STATUS_OK;
}

static enum status skip_unread(struct json *j, struct raw *raw) {
    size_t used = strlen(raw->unread), capacity = sizeof raw->unread - used,
           shown = j->length < capacity ? j->length : capacity;
    int n = snprintf(raw->unread + used, capacity, "%s%.*s", used ? ", " : "", (int)shown, j->text);
    if (n < 0 || (size_t)n >= capacity) memcpy(raw->unread + sizeof raw->unread - sizeof "...", "...", sizeof "...");
    return json_skip(j);
}

/* Reads the value of the key that was just read. */
static enum status read_member(struct json *j, struct raw *raw) {
    for (size_t i = 0; i < ARRAY_LEN(whole_numbers); i++) {
        if (!json_equals(j, whole_numbers[i].key)) continue;
        int32_t number;
        TRY(json_next_int_in(j, whole_numbers[i].key, whole_numbers[i].lowest, whole_numbers[i].highest, &number));
        memcpy((char *)raw + whole_numbers[i].offset, &number, sizeof number);
        return STATUS_OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        if (!json_equals(j, flags[i].key)) continue;
        bool value = false;
        TRY(json_next_bool(j, &value));
        int number = value;
        memcpy((char *)raw + flags[i].offset, &number, sizeof number);
        return STATUS_OK;
    }
    if (json_equals(j, "decoder_layers"))
        return raw->n_layers ? json_fail(j, "decoder_layers once") : read_layers(j, raw);
    if (json_equals(j, "encoder_input")) return read_input(j, raw);
    if (json_equals(j, "rms_norm_eps")) return json_next_double(j, &raw->rms_eps);
    if (json_equals(j, "hidden_act")) {
        TRY(read_text(j, "hidden_act: \"silu\""));
        raw->silu = json_equals(j, "silu");
        return STATUS_OK;
    }
    return skip_unread(j, raw);
}

static enum status check_kind(const char *name, const struct raw *r) {
    if (!r->silu) return fail(STATUS_UNSUPPORTED, "%s: hidden_act must be \"silu\"", name);
    if (r->bias == 1)
        return fail(STATUS_UNSUPPORTED, "%s: attention_bias must be false: the network has no biases", name);
    if (r->tied == 0)
        return fail(STATUS_UNSUPPORTED, "%s: tie_word_embeddings must be true: the head is the embedding", name);
    if (r->alibi == 0)
        return fail(STATUS_UNSUPPORTED, "%s: enable_alibi must be true: positions come from ALiBi", name);
    if (r->kv_heads != UNSET && r->kv_heads != r->heads)
        return fail(STATUS_UNSUPPORTED, "%s: num_key_value_heads is %d: must equal num_attention_heads, %d", name,
                    r->kv_heads, r->heads);
    return STATUS_OK;
}

static enum status check_id(const char *name, const char *key, int32_t id, int32_t vocab_size, bool needed) {
    if (id == UNSET || id == -1) return needed ? fail(STATUS_INVALID, "%s: %s is missing", name, key) : STATUS_OK;
    if (id >= vocab_size)
        return fail(STATUS_INVALID, "%s: %s is %d: the vocabulary has %d ids", name, key, id, vocab_size);
    return STATUS_OK;
}

/* The landmark and the end of a document have ids of their own: a text's end would else be read as a pad or a landmark,
 * and never be generated. A Base LM reads no pads, so its pad may be the end (model_config_take). */
static enum status check_distinct(const char *name, const struct raw *r, bool retrieval) {
    const struct mark {
        const char *key;
        int32_t id;
    } marks[] = {{"chunk_id", r->landmark_id}, {"eos_id", r->eos_id}, {"pad_id", r->pad_id}, {"mask_id", r->mask_id}};
    for (size_t i = 0; i < 2; i++)
        for (size_t j = i + 1; j < ARRAY_LEN(marks); j++) {
            const bool is = marks[i].id != UNSET && marks[i].id >= 0;
            if (is && marks[i].id == marks[j].id && (retrieval || i == 0))
                return fail(STATUS_INVALID, "%s: %s and %s are both %d: each needs an id of its own", name,
                            marks[i].key, marks[j].key, marks[i].id);
        }
    return STATUS_OK;
}

static enum status check_sizes(const char *name, const struct raw *r) {
    for (size_t i = 0; i < ARRAY_LEN(whole_numbers); i++) {
        int32_t value;
        memcpy(&value, (const char *)r + whole_numbers[i].offset, sizeof value);
        if (whole_numbers[i].needed && value == UNSET)
            return fail(STATUS_INVALID, "%s: %s is missing", name, whole_numbers[i].key);
    }
    if (r->n_layers == 0) return fail(STATUS_INVALID, "%s: decoder_layers is missing", name);
    if (r->rms_eps == 0.0) return fail(STATUS_INVALID, "%s: rms_norm_eps is missing or 0", name);
    if (r->hidden % r->heads)
        return fail(STATUS_INVALID, "%s: hidden_size %d is not a multiple of num_attention_heads %d", name, r->hidden,
                    r->heads);
    int dim = r->hidden / r->heads;
    if (dim % 2 || dim > 512)
        return fail(STATUS_UNSUPPORTED, "%s: a head has %d numbers: must be even, and at most 512", name, dim);
    if (!(r->rms_eps > 0.0 && r->rms_eps < 1.0))
        return fail(STATUS_INVALID, "%s: rms_norm_eps is %g: must be between 0 and 1", name, r->rms_eps);
    return STATUS_OK;
}

static enum status check_retrieval(const char *name, const struct raw *r) {
    if (r->n_layers == 1)
        return fail(STATUS_INVALID, "%s: encoder_layers is %d, but decoder_layers has no retrieval group", name,
                    r->encoder_layers);
    if (r->encoder_layers < 1)
        return fail(STATUS_INVALID, "%s: encoder_layers must be at least 1: decoder_layers has retrieval groups", name);
    if (r->chunk != 63 && r->chunk != 64)
        return r->chunk == UNSET
                   ? fail(STATUS_INVALID, "%s: enc_chunk_size is missing", name)
                   : fail(STATUS_UNSUPPORTED, "%s: enc_chunk_size is %d: must be 63 or 64", name, r->chunk);
    if (r->topk == UNSET || r->topk < 1) return fail(STATUS_INVALID, "%s: chunk_topk must be at least 1", name);
    return STATUS_OK;
}

static enum status check_memory(const char *name, const struct model_config *c) {
    int layers = model_config_layers(c);
    if (c->memory_layer > layers)
        return fail(STATUS_INVALID, "%s: memory_layer is %d: the model has %d layers", name, c->memory_layer, layers);
    if (c->memory_size > 0 && c->memory_layer == 0)
        return fail(STATUS_INVALID,
                    "%s: memory_size is %d, but memory_layer is missing: the layer whose states are keys", name,
                    c->memory_size);
    if (c->memory_size == 1 || c->memory_size > c->hidden)
        return fail(STATUS_UNSUPPORTED, "%s: memory_size is %d: must be 0 or from 2 to hidden_size, %d", name,
                    c->memory_size, c->hidden);
    return STATUS_OK;
}

/* The block's keys are read from the ring of the window, so a block cannot be longer than the window. */
static enum status check_recurrent(const char *name, const struct model_config *c) {
    if (c->recurrent_layer == 0)
        return c->recurrent_states == 0 && c->recurrent_block == 0
                   ? STATUS_OK
                   : fail(STATUS_INVALID, "%s: %s is %d, but recurrent_layer is missing: the layer with the state",
                          name, c->recurrent_states ? "recurrent_states" : "recurrent_block",
                          c->recurrent_states ? c->recurrent_states : c->recurrent_block);
    if (!c->base_lm)
        return fail(STATUS_UNSUPPORTED,
                    "%s: recurrent_layer is %d: the model must be a Base LM (encoder_layers 0, one entry in "
                    "decoder_layers)",
                    name, c->recurrent_layer);
    if (c->recurrent_layer > c->lower_layers)
        return fail(STATUS_INVALID, "%s: recurrent_layer is %d: the model has %d layers", name, c->recurrent_layer,
                    c->lower_layers);
    if (c->recurrent_states == 0 || c->recurrent_block == 0)
        return fail(STATUS_INVALID, "%s: %s is missing: recurrent_layer needs it", name,
                    c->recurrent_states ? "recurrent_block" : "recurrent_states");
    if (c->recurrent_block > c->window)
        return fail(STATUS_INVALID, "%s: recurrent_block is %d: must be at most slide_window, %d", name,
                    c->recurrent_block, c->window);
    if (c->memory_layer > 0)
        return fail(STATUS_UNSUPPORTED,
                    "%s: memory_layer is %d, with recurrent_layer: a trained token memory does not carry the state",
                    name, c->memory_layer);
    return STATUS_OK;
}

/* A token memory encodes passages separately, where blocks would begin at other positions. */
static enum status check_landmarks(const char *name, const struct model_config *c) {
    if (c->landmark_block == 0)
        return c->landmark_topk == 0
                   ? STATUS_OK
                   : fail(STATUS_INVALID, "%s: landmark_topk is %d, but landmark_block is missing: the ids of a block",
                          name, c->landmark_topk);
    if (!c->base_lm)
        return fail(STATUS_UNSUPPORTED,
                    "%s: landmark_block is %d: the model must be a Base LM (encoder_layers 0, one entry in "
                    "decoder_layers)",
                    name, c->landmark_block);
    if (c->landmark_topk == 0)
        return fail(STATUS_INVALID, "%s: landmark_topk is missing: how many blocks a position reads beside its own",
                    name);
    if (c->recurrent_layer > 0)
        return fail(STATUS_UNSUPPORTED, "%s: recurrent_layer is %d, with landmark_block: a model has one of the two",
                    name, c->recurrent_layer);
    if (c->memory_layer > 0)
        return fail(STATUS_UNSUPPORTED,
                    "%s: memory_layer is %d, with landmark_block: a trained token memory does not know landmarks", name,
                    c->memory_layer);
    return STATUS_OK;
}

/* The states of a landmark are those of a chunk that is read alone (indexer/landmarks/state_landmarks.h), without the
 * state of a recurrent layer and without landmarks of blocks. */
static enum status check_sketch(const char *name, const struct model_config *c) {
    const int n = c->landmark_sketch;
    if (n == 0) return STATUS_OK;
    if (n < SKETCH_MIN)
        return fail(STATUS_INVALID, "%s: landmark_sketch is %d: must be 0 or from %d to %d", name, n, SKETCH_MIN,
                    SKETCH_MAX);
    if (!c->base_lm)
        return fail(STATUS_INVALID,
                    "%s: landmark_sketch is %d: the model must be a Base LM (encoder_layers 0, one entry in "
                    "decoder_layers)",
                    name, n);
    if (c->recurrent_layer > 0 || c->landmark_block > 0)
        return fail(STATUS_INVALID, "%s: landmark_sketch is %d, with %s: such a model makes no landmarks of a store",
                    name, n, c->recurrent_layer > 0 ? "recurrent_layer" : "landmark_block");
    return STATUS_OK;
}

static int32_t or_default(int32_t value, int32_t otherwise) {
    return value == UNSET ? otherwise : value;
}

static void model_config_take(struct model_config *c, const struct raw *r) {
    *c = (struct model_config){
        .vocab_size = r->vocab_size,
        .hidden = r->hidden,
        .ffn = r->ffn,
        .heads = r->heads,
        .head_dim = r->hidden / r->heads,
        .lower_layers = r->layers[0],
        .groups = r->n_layers - 1,
        .encoder_layers = or_default(r->encoder_layers, 0),
        .chunk = or_default(r->chunk, 63),
        .topk = or_default(r->topk, 0),
        .memory_layer = or_default(r->memory_layer, 0),
        .memory_size = or_default(r->memory_size, 0),
        .window = r->window,
        .recurrent_layer = or_default(r->recurrent_layer, 0),
        .recurrent_states = or_default(r->recurrent_states, 0),
        .recurrent_block = or_default(r->recurrent_block, 0),
        .landmark_block = or_default(r->landmark_block, 0),
        .landmark_topk = or_default(r->landmark_topk, 0),
        .landmark_sketch = or_default(r->landmark_sketch, 0),
        .landmark_id = or_default(r->landmark_id, -1),
        .mask_id = or_default(r->mask_id, -1),
        .pad_id = or_default(r->pad_id, -1),
        .eos_id = or_default(r->eos_id, -1),
        .rms_eps = (float)r->rms_eps,
        /* rope_theta of a published config belongs to a rotary decoder that is switched off; the encoder
         * does not use it. */
        .rope_theta = 10000.0f,
        .encoder_input = r->input == ENCODER_INPUT_TOKENS ? ENCODER_INPUT_TOKENS : ENCODER_INPUT_HIDDEN,
        .retrieval_proj = r->retrieval_proj == 1,
    };
    c->softmax_off_by_one = r->off_by_one < 0 ? c->chunk == 63 : r->off_by_one == 1;
    c->base_lm = c->encoder_layers == 0 && c->groups == 0;
    if (c->landmark_block > 0) c->chunk = c->landmark_block;
    if (c->base_lm && c->pad_id == c->eos_id) c->pad_id = -1; /* of many Hugging Face models; nothing is padded */
    memcpy(c->group_layers, r->layers + 1, (size_t)c->groups * sizeof *c->group_layers);
    memcpy(c->unread, r->unread, sizeof c->unread);
}

enum status model_config_parse(struct model_config *out, const char *name, const void *json, size_t bytes) {
    struct raw r = {
        .input = -1, .retrieval_proj = -1, .off_by_one = -1, .tied = -1, .bias = -1, .alibi = -1, .silu = true};
    for (size_t i = 0; i < ARRAY_LEN(whole_numbers); i++)
        memcpy((char *)&r + whole_numbers[i].offset, &(int32_t){UNSET}, sizeof(int32_t));
    struct json j;
    json_open(&j, name, json, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object of configuration keys"));
    for (enum json_event event; (event = json_next(&j)) != JSON_OBJECT_END;) {
        if (event != JSON_KEY) return json_fail(&j, "a key");
        TRY(read_member(&j, &r));
    }
    TRY(json_expect(&j, JSON_END, "nothing after the object"));

    TRY(check_sizes(name, &r));
    TRY(check_kind(name, &r));
    bool retrieval = r.n_layers > 1 || or_default(r.encoder_layers, 0) > 0;
    if (retrieval) TRY(check_retrieval(name, &r));
    bool landmarks = retrieval || or_default(r.landmark_block, 0) > 0;
    TRY(check_id(name, "chunk_id", r.landmark_id, r.vocab_size, landmarks));
    TRY(check_id(name, "pad_id", r.pad_id, r.vocab_size, retrieval));
    TRY(check_id(name, "mask_id", r.mask_id, r.vocab_size, false));
    TRY(check_id(name, "eos_id", r.eos_id, r.vocab_size, false));
    TRY(check_distinct(name, &r, retrieval));
    model_config_take(out, &r);
    TRY(check_recurrent(name, out));
    TRY(check_landmarks(name, out));
    TRY(check_sketch(name, out));
    return check_memory(name, out);
}

enum status model_config_load(struct model_config *out, const char *model_folder) {
    char path[FILE_PATH_MAX];
    struct file_map map;
    TRY(file_join(path, model_folder, "config.json"));
    TRY(file_map(&map, path));
    enum status s = model_config_parse(out, path, map.data, map.size);
    file_unmap(&map);
    return s;
}

int model_config_layers(const struct model_config *c) {
    int layers = c->lower_layers;
    for (int g = 0; g < c->groups; g++)
        layers += c->group_layers[g];
    return layers;
}

int model_config_key_layer(const struct model_config *c) {
    return c->memory_layer > 0 ? c->memory_layer : model_config_layers(c);
}

int model_config_key_size(const struct model_config *c, int key_layer) {
    return c->memory_size > 0 && key_layer == c->memory_layer ? c->memory_size : c->hidden;
}

int model_config_landmark_size(const struct model_config *c) {
    return c->hidden + c->landmark_sketch;
}

int model_config_ids(const struct model_config *c) {
    return model_config_landmarks(c) ? c->chunk : 1;
}

int model_config_positions(const struct model_config *c) {
    return model_config_landmarks(c) ? c->chunk + 1 : 1;
}
