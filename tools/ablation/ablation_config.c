/* ablation_config.c -- see ablation_config.h. One table describes every key. */
#include "tools/ablation/ablation_config.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/formats/near_name.h"
#include "base/memory.h"
#include "encoder/bert/bert_config.h"
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum key_kind { KEY_TEXT, KEY_LIST, KEY_INT, KEY_MEMBERS };
struct config_key {
    const char *name; /* "a.b" is the key b in the object a */
    enum key_kind kind;
    size_t offset;
    int64_t least, most;
    const char *words; /* the allowed values of a text, for example "self|corpus|both" */
};
#define AT(member) offsetof(struct ablation_config, member)

static const struct config_key keys[] = {
    {"train", KEY_LIST, AT(train), 0, 0, NULL},
    {"valid", KEY_LIST, AT(valid), 0, 0, NULL},
    {"other", KEY_LIST, AT(other), 0, 0, NULL},
    {"text_field", KEY_TEXT, AT(text_field), 0, 0, NULL},
    {"tokenizer", KEY_TEXT, AT(tokenizer), 0, 0, NULL},
    {"tokenizer.vocab_size", KEY_INT, AT(vocab_size), 512, 1 << 24, NULL},
    {"model", KEY_MEMBERS, AT(model), 0, 0, NULL},
    {"training", KEY_MEMBERS, AT(training), 0, 0, NULL},
    {"models", KEY_MEMBERS, AT(taken), 0, 0, NULL},
    {"budget.steps", KEY_INT, AT(steps), 1, INT64_C(1) << 40, NULL},
    {"budget.tokens", KEY_INT, AT(tokens), 1, INT64_C(1) << 60, NULL},
    {"budget.seconds", KEY_INT, AT(seconds), 1, INT64_C(1) << 40, NULL},
    {"score.context", KEY_INT, AT(context), 2, 1 << 28, NULL},
    {"score.skip", KEY_INT, AT(skip), 0, 1 << 28, NULL},
    {"score.max_documents", KEY_INT, AT(max_documents), 0, INT64_C(1) << 40, NULL},
    {"score.max_tokens", KEY_INT, AT(max_tokens), 0, INT64_C(1) << 40, NULL},
    {"score.document_tokens", KEY_INT, AT(document_tokens), 0, INT64_C(1) << 40, NULL},
    {"memory.k", KEY_INT, AT(memory_k), 1, 1024, NULL},
    {"memory.every", KEY_INT, AT(memory_every), 1, 1024, NULL},
    {"external", KEY_TEXT, AT(external), 0, 0, NULL},
    {"variant_mode", KEY_TEXT, AT(variant_mode), 0, 0, "self|corpus|both"},
    {"vary_k", KEY_TEXT, AT(vary_k), 0, 0, "evaluated|trained"},
    {"device", KEY_TEXT, AT(device), 0, 0, "auto|cpu|cuda"},
    {"gpus", KEY_LIST, AT(gpus), 0, 0, NULL},
    {"threads", KEY_INT, AT(threads), 0, 256, NULL},
    {"rows", KEY_LIST, AT(rows), 0, 0, NULL},
};

/* ---- one key --------------------------------------------------------------------------------------------- */

static bool config_is_word(const char *words, const char *text) {
    size_t length = strlen(text);
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, "|");
        if (n == length && memcmp(at, text, n) == 0) return true;
        at += n + (at[n] == '|');
    }
    return false;
}

static enum status config_read_text(struct ablation_config *c, const struct config_key *key, const char *value) {
    char **text = (char **)((char *)c + key->offset), *read = NULL;
    TRY(object_string(&read, c->path, key->name, value));
    memory_free(*text);
    *text = read;
    if (key->words && !config_is_word(key->words, read))
        return fail(STATUS_INVALID, "%s: %s is \"%s\": must be one of %s", c->path, key->name, read, key->words);
    return STATUS_OK;
}

static enum status config_read_int(struct ablation_config *c, const struct config_key *key, const char *value) {
    int64_t *number = (int64_t *)((char *)c + key->offset);
    struct json j;
    json_open(&j, c->path, value, strlen(value));
    if (json_next(&j) != JSON_NUMBER || json_int(&j, number) != STATUS_OK)
        return fail(STATUS_INVALID, "%s: %s must be a whole number", c->path, key->name);
    if (*number < key->least || *number > key->most)
        return fail(STATUS_INVALID, "%s: %s is %lld: must be from %lld to %lld", c->path, key->name, (long long)*number,
                    (long long)key->least, (long long)key->most);
    return STATUS_OK;
}

static enum status config_read_key(struct ablation_config *c, const struct config_key *key, const char *value) {
    void *at = (char *)c + key->offset;
    if (key->kind == KEY_TEXT) return config_read_text(c, key, value);
    if (key->kind == KEY_INT) return config_read_int(c, key, value);
    if (key->kind == KEY_LIST) return object_strings(at, c->path, key->name, value);
    if (value[0] != '{') return fail(STATUS_INVALID, "%s: %s must be an object", c->path, key->name);
    return object_read(at, c->path, value, strlen(value));
}

static enum status config_unknown_key(const struct ablation_config *c, const char *name) {
    struct near_name near = near_name_of(name, strlen(name));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        near_name_offer(&near, keys[i].name);
    const char *best = near_name_best(&near);
    return fail(STATUS_INVALID, "%s: no such key: %s (%s%s%s docs/ablation.md)", c->path, name,
                best ? "did you mean \"" : "see", best ? best : "", best ? "\"?" : "");
}

/* Reads the members of an object whose keys are in the table as "prefix.key". */
static enum status config_read_object(struct ablation_config *c, const struct object *m, const char *prefix) {
    for (size_t i = 0; i < m->count; i++) {
        char name[128];
        const struct config_key *found = NULL;
        bool inner = false;
        int length = snprintf(name, sizeof name, "%s%s", prefix, m->items[i].key);
        const bool object = m->items[i].value[0] == '{';
        for (size_t k = 0; k < ARRAY_LEN(keys) && length < (int)sizeof name; k++) {
            if (strcmp(keys[k].name, name) == 0 && (keys[k].kind == KEY_MEMBERS || !object)) found = &keys[k];
            inner = inner || (strncmp(keys[k].name, name, (size_t)length) == 0 && keys[k].name[length] == '.');
        }
        if (found) {
            TRY(config_read_key(c, found, m->items[i].value));
            continue;
        }
        if (!inner) return config_unknown_key(c, name);
        if (!object) return fail(STATUS_INVALID, "%s: %s must be an object", c->path, name);
        struct object of = {0};
        enum status s = object_read(&of, c->path, m->items[i].value, strlen(m->items[i].value));
        snprintf(name + length, sizeof name - (size_t)length, ".");
        if (s == STATUS_OK) s = config_read_object(c, &of, name);
        object_free(&of);
        TRY(s);
    }
    return STATUS_OK;
}

/* ---- values that follow from the keys -------------------------------------------------------------------------- */

static enum status config_select(struct ablation_config *c) {
    for (size_t i = 0; i < c->rows.count; i++) {
        int row = ablation_row_find(c->rows.items[i]);
        bool all = strcmp(c->rows.items[i], "all") == 0;
        if (row < 0 && !all)
            return fail(STATUS_INVALID, "%s: rows: there is no row \"%s\" (drt-eval ablation --list-rows names all)",
                        c->path, c->rows.items[i]);
        if (row >= 0) c->selected[row] = true;
        for (int r = 0; all && r < ABLATION_ROWS; r++)
            c->selected[r] = ablation_rows[r].store != ABLATION_STORE_EXTERNAL || c->external;
    }
    for (int r = 0; r < ABLATION_ROWS; r++)
        if (ablation_rows[r].always) c->selected[r] = true;
    for (int r = 0; r < ABLATION_ROWS; r++)
        if (c->selected[r] && ablation_rows[r].store == ABLATION_STORE_EXTERNAL && !c->external)
            return fail(STATUS_INVALID, "%s: row %s needs an encoder: set external to the folder of a BERT-type one",
                        c->path, ablation_rows[r].name);
    return STATUS_OK;
}

/* Computes chunk_topk and the number of groups. */
static enum status config_model_facts(struct ablation_config *c) {
    const char *topk = object_get(&c->model, "chunk_topk"), *layers = object_get(&c->model, "decoder_layers");
    struct json j;
    if (!topk || !layers)
        return fail(STATUS_INVALID, "%s: model.%s is missing: the keys are those of a DRT model's config.json", c->path,
                    topk ? "decoder_layers" : "chunk_topk");
    json_open(&j, c->path, topk, strlen(topk));
    if (json_next_int(&j, &c->chunk_topk) != STATUS_OK)
        return fail(STATUS_INVALID, "%s: model.chunk_topk must be a whole number", c->path);
    json_open(&j, c->path, layers, strlen(layers));
    c->groups = -1;
    if (json_next(&j) == JSON_ARRAY)
        while (json_next(&j) == JSON_NUMBER)
            c->groups++;
    if (c->groups < 1)
        return fail(STATUS_INVALID,
                    "%s: model.decoder_layers must be a list like [6, 6]: the lower layers, then those "
                    "of each group",
                    c->path);
    return STATUS_OK;
}

/* Refuses keys that this command sets itself. */
static enum status config_check_passed(const struct ablation_config *c) {
    static const char *const own[] = {"model", "start_from", "tokenizer", "data", "valid", "steps", "pool_data"};
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (object_get(&c->training, own[i]))
            return fail(STATUS_INVALID, "%s: training.%s is set by this command: leave it out", c->path, own[i]);
    static const char *const ids[] = {"vocab_size", "chunk_id", "pad_id", "mask_id", "eos_id"};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (c->vocab_size > 0 && object_get(&c->model, ids[i]))
            return fail(STATUS_INVALID, "%s: model.%s follows from tokenizer.vocab_size: leave it out", c->path,
                        ids[i]);
    for (size_t i = 0; i < c->taken.count; i++) {
        bool known = false;
        for (int k = 0; k < ABLATION_K; k++)
            known = known || strcmp(ablation_model_names[k], c->taken.items[i].key) == 0;
        if (!known)
            return fail(STATUS_INVALID,
                        "%s: models.%s: there is no such model (base, base-deep, base-full, block-recurrent, "
                        "landmark-attention, drt, no-gumbel, no-mlm, no-contrastive, own, own-taught)",
                        c->path, c->taken.items[i].key);
    }
    return STATUS_OK;
}

static enum status config_check_lists(const struct ablation_config *c) {
    const struct {
        const char *key, *what;
        const struct object_list *list;
    } texts[] = {{"train", "texts to train on", &c->train},
                 {"valid", "held-out texts", &c->valid},
                 {"other", "texts of another kind, for the store that should not help", &c->other}};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (texts[i].list->count == 0)
            return fail(STATUS_INVALID, "%s: %s is missing: %s", c->path, texts[i].key, texts[i].what);
        if (texts[i].list->count > ABLATION_FILES_MAX)
            return fail(STATUS_INVALID, "%s: %s has %zu files, at most %d: join some, or name a folder", c->path,
                        texts[i].key, texts[i].list->count, ABLATION_FILES_MAX);
    }
    if (!c->tokenizer && c->vocab_size == 0)
        return fail(STATUS_INVALID, "%s: tokenizer is missing: a tokenizer.json, or {\"vocab_size\": 16384}", c->path);
    if ((c->steps > 0) == (c->tokens > 0))
        return fail(STATUS_INVALID, "%s: budget: give steps or tokens%s", c->path, c->steps > 0 ? ", not both" : "");
    if (c->skip >= c->context)
        return fail(STATUS_INVALID, "%s: score.skip is %lld: must be smaller than score.context, %lld", c->path,
                    (long long)c->skip, (long long)c->context);
    if (c->gpus.count > 0 && strcmp(c->device, "cpu") == 0)
        return fail(STATUS_INVALID, "%s: gpus are named, but device is cpu: take one of them out", c->path);
    return STATUS_OK;
}

static enum status config_defaults_set(struct ablation_config *c, const char *name) {
    c->context = 4032;
    c->skip = 256;
    c->memory_k = 32;
    c->memory_every = 16;
    TRY(memory_copy_string(&c->path, name));
    TRY(memory_copy_string(&c->text_field, "text"));
    TRY(memory_copy_string(&c->device, "auto"));
    TRY(memory_copy_string(&c->variant_mode, "both"));
    return memory_copy_string(&c->vary_k, "evaluated");
}

/* Finds the part of each name that distinguishes the texts: valid-books.jsonl.xz becomes "books" if the other text is
 * valid-wiki.jsonl.xz. */
static enum status config_domains(struct ablation_config *c) {
    char name[FILE_PATH_MAX];
    size_t shared = 0;
    for (size_t i = 0; i < c->valid.count; i++) {
        const char *slash = strrchr(c->valid.items[i], '/'), *base = slash ? slash + 1 : c->valid.items[i];
        size_t length = strcspn(base, ".");
        snprintf(name, sizeof name, "%.*s", (int)(length > 0 ? length : strlen(base)), base);
        TRY(object_list_add(&c->domains, name));
        size_t same = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
        same = name[same] == '-' || name[same] == '_' ? same + 1 : 0;
        if (i == 0) shared = same;
        if (same != shared || strncmp(name, c->domains.items[0], same) != 0) shared = 0;
    }
    for (size_t i = 0; i < c->domains.count && c->domains.count > 1; i++) {
        char *d = c->domains.items[i];
        if (d[shared]) memmove(d, d + shared, strlen(d + shared) + 1);
    }
    return STATUS_OK;
}

enum status ablation_config_parse(struct ablation_config *out, const char *name, const char *text, size_t bytes) {
    struct object m = {0};
    *out = (struct ablation_config){0};
    enum status s = config_defaults_set(out, name);
    if (s == STATUS_OK) s = object_read(&m, name, text, bytes);
    if (s == STATUS_OK) s = config_read_object(out, &m, "");
    object_free(&m);
    TRY(s);
    TRY(config_check_lists(out));
    TRY(config_model_facts(out));
    TRY(config_check_passed(out));
    TRY(config_domains(out));
    return config_select(out);
}

/* ---- files ----------------------------------------------------------------------------------------------- */

static enum status config_resolve(char **text, const struct ablation_config *c, const char *key, const char *folder) {
    char path[FILE_PATH_MAX];
    if ((*text)[0] == '/')
        snprintf(path, sizeof path, "%s", *text);
    else
        TRY(file_join(path, folder, *text));
    char *absolute = realpath(path, NULL);
    if (!absolute)
        return fail_errno("%s: %s: %s (paths are relative to the config, or to --corpus DIR)", c->path, key, path);
    enum status s = STATUS_OK;
    char *copy = NULL;
    s = memory_copy_string(&copy, absolute);
    free(absolute);
    TRY(s);
    memory_free(*text);
    *text = copy;
    return STATUS_OK;
}

static enum status config_resolve_list(struct object_list *list, const struct ablation_config *c, const char *key,
                                       const char *folder) {
    for (size_t i = 0; i < list->count; i++)
        TRY(config_resolve(&list->items[i], c, key, folder));
    return STATUS_OK;
}

static enum status config_external(struct ablation_config *c, const char *folder) {
    struct bert_config encoder;
    TRY(config_resolve(&c->external, c, "external", folder));
    TRY(bert_config_load(&encoder, c->external));
    const double d = encoder.hidden, f = encoder.ffn;
    c->external_parameters = encoder.layers * (4 * d * d + 2 * d * f);
    return STATUS_OK;
}

static enum status config_files(struct ablation_config *c, const char *folder) {
    TRY(config_resolve_list(&c->train, c, "train", folder));
    TRY(config_resolve_list(&c->valid, c, "valid", folder));
    TRY(config_resolve_list(&c->other, c, "other", folder));
    if (c->tokenizer) TRY(config_resolve(&c->tokenizer, c, "tokenizer", folder));
    if (c->external) TRY(config_external(c, folder));
    for (size_t i = 0; i < c->taken.count; i++) {
        struct object_member *m = &c->taken.items[i];
        char *path = NULL, key[96];
        snprintf(key, sizeof key, "models.%s", m->key);
        TRY(object_string(&path, c->path, key, m->value));
        enum status s = config_resolve(&path, c, key, folder);
        if (s != STATUS_OK) {
            memory_free(path);
            return s;
        }
        memory_free(m->value);
        m->value = path;
    }
    return STATUS_OK;
}

enum status ablation_config_load(struct ablation_config *out, const char *path, const char *folder) {
    struct file_map map;
    char own[FILE_PATH_MAX];
    *out = (struct ablation_config){0};
    TRY(file_map(&map, path));
    enum status s = ablation_config_parse(out, path, (const char *)map.data, map.size);
    file_unmap(&map);
    TRY(s);
    snprintf(own, sizeof own, "%s", path);
    return config_files(out, folder ? folder : dirname(own));
}

void ablation_config_free(struct ablation_config *c) {
    struct object_list *lists[] = {&c->train, &c->valid, &c->other, &c->gpus, &c->rows, &c->domains};
    char *texts[] = {c->path, c->tokenizer, c->text_field, c->device, c->variant_mode, c->vary_k, c->external};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        object_list_free(lists[i]);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        memory_free(texts[i]);
    object_free(&c->model);
    object_free(&c->training);
    object_free(&c->taken);
    *c = (struct ablation_config){0};
}
