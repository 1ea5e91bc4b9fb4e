/* tokenizer_json.c -- see tokenizer_json.h. */
#include "data/tokenizer/tokenizer_json.h"
#include <string.h>

static enum json_event tokenizer_json_peek(const struct json *j) {
    struct json copy = *j;
    return json_next(&copy);
}

bool json_at_array_end(const struct json *j) {
    enum json_event event = tokenizer_json_peek(j);
    return event == JSON_ARRAY_END;
}

static enum status read_type(struct fields *f, struct json *j) {
    TRY(json_expect(j, JSON_STRING, "the name of a type"));
    f->type = j->text;
    f->type_length = j->length;
    return STATUS_OK;
}

static enum status unknown_member(const struct fields *f, const struct json *key) {
    char what[100];
    snprintf(what, sizeof what, "member \"%.*s\"", (int)(key->length < 60 ? key->length : 60), key->text);
    return tokenizer_refuse(f->tokenizer, f->part, what);
}

static enum status read_members(struct fields *f, struct json j, bool only_type) {
    enum json_event event;
    while ((event = json_next(&j)) == JSON_KEY) {
        if (json_equals(&j, "type")) {
            TRY(read_type(f, &j));
            continue;
        }
        int found = -1;
        for (int i = 0; i < f->count && found < 0; i++)
            if (json_equals(&j, f->names[i])) found = i;
        if (found < 0 && !only_type) return unknown_member(f, &j);
        if (found >= 0) {
            f->value[found] = j;
            f->present[found] = tokenizer_json_peek(&j) != JSON_NULL;
        }
        TRY(json_skip(&j));
    }
    return event == JSON_OBJECT_END ? STATUS_OK : json_fail(&j, "a member or }");
}

enum status fields_read(struct fields *f, const struct tokenizer *t, const char *part, struct json at,
                        const char *const *names, int count) {
    *f = (struct fields){.tokenizer = t, .part = part, .names = names, .count = count};
    TRY(json_expect(&at, JSON_OBJECT, "an object"));
    return read_members(f, at, false);
}

enum status fields_type(struct fields *f, const struct tokenizer *t, const char *part, struct json at) {
    *f = (struct fields){.tokenizer = t, .part = part};
    enum json_event event = json_next(&at);
    f->is_null = event == JSON_NULL;
    if (f->is_null) return STATUS_OK;
    if (event != JSON_OBJECT) return json_fail(&at, "an object or null");
    return read_members(f, at, true);
}

bool field_is_type(const struct fields *f, const char *type) {
    return f->type && strlen(type) == f->type_length && memcmp(f->type, type, f->type_length) == 0;
}

bool field_is(const struct fields *f, int index, const char *text) {
    struct json j = f->value[index];
    return f->present[index] && json_next(&j) == JSON_STRING && json_equals(&j, text);
}

enum status field_text(const struct fields *f, int index, struct bytes *out) {
    struct json j = f->value[index];
    if (!f->present[index]) {
        char what[80];
        snprintf(what, sizeof what, "a missing \"%s\"", f->names[index]);
        return tokenizer_refuse(f->tokenizer, f->part, what);
    }
    TRY(json_expect(&j, JSON_STRING, "a string"));
    TRY(bytes_append(out, j.text, j.length)); /* so that the capacity suffices: unescaped text is never longer */
    return json_string(&j, out->data, out->capacity, &out->size);
}

enum status field_bool(const struct fields *f, int index, bool missing, bool *out) {
    struct json j = f->value[index];
    *out = missing;
    return f->present[index] ? json_next_bool(&j, out) : STATUS_OK;
}

enum status field_int(const struct fields *f, int index, int64_t missing, int64_t *out) {
    struct json j = f->value[index];
    *out = missing;
    return f->present[index] ? json_next_int(&j, out) : STATUS_OK;
}
