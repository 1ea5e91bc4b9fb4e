/* json_object.c -- see json_object.h. */
#include "base/formats/json_object.h"
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

static enum status object_copy_range(char **out, const char *text, size_t bytes) {
    char *copy = NULL;
    TRY(memory_allocate(&copy, bytes + 1));
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    *out = copy;
    return STATUS_OK;
}

/* Takes ownership of the key, also after a failure. */
static enum status object_add(struct object *m, char *key, const char *value, size_t bytes) {
    char *copy = NULL;
    enum status s = object_copy_range(&copy, value, bytes);
    if (s == STATUS_OK) s = memory_grow(&m->items, &m->capacity, m->count + 1);
    if (s != STATUS_OK) {
        memory_free(key);
        memory_free(copy);
        return s;
    }
    m->items[m->count++] = (struct object_member){key, copy};
    return STATUS_OK;
}

/* Reads the current KEY and the value after it. */
static enum status object_read_one(struct object *out, struct json *j) {
    char *key = NULL;
    size_t length = 0;
    TRY(memory_allocate(&key, j->length + 1));
    enum status s = json_string(j, key, j->length + 1, &length);
    if (s == STATUS_OK && strlen(key) != length) s = fail(STATUS_INVALID, "%s: a key has a NUL character", j->name);
    if (s == STATUS_OK && object_get(out, key)) s = fail(STATUS_INVALID, "%s: \"%s\" is given twice", j->name, key);
    const char *begin = j->at;
    if (s == STATUS_OK) s = json_skip(j);
    if (s != STATUS_OK) {
        memory_free(key);
        return s;
    }
    begin += strspn(begin, " \t\r\n:");
    return object_add(out, key, begin, (size_t)(j->at - begin));
}

enum status object_read(struct object *out, const char *name, const char *text, size_t bytes) {
    struct json j;
    *out = (struct object){0};
    json_open(&j, name, text, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object"));
    for (enum json_event e; (e = json_next(&j)) != JSON_OBJECT_END;) {
        if (e != JSON_KEY) return json_fail(&j, "a key");
        TRY(object_read_one(out, &j));
    }
    return json_expect(&j, JSON_END, "the end of the file");
}

void object_free(struct object *m) {
    for (size_t i = 0; i < m->count; i++) {
        memory_free(m->items[i].key);
        memory_free(m->items[i].value);
    }
    memory_free(m->items);
    *m = (struct object){0};
}

const char *object_get(const struct object *m, const char *key) {
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->items[i].key, key) == 0) return m->items[i].value;
    return NULL;
}

enum status object_set(struct object *m, const char *key, const char *value) {
    for (size_t i = 0; i < m->count; i++) {
        if (strcmp(m->items[i].key, key) != 0) continue;
        char *copy = NULL;
        TRY(memory_copy_string(&copy, value));
        memory_free(m->items[i].value);
        m->items[i].value = copy;
        return STATUS_OK;
    }
    char *name = NULL;
    TRY(memory_copy_string(&name, key));
    return object_add(m, name, value, strlen(value));
}

enum status object_set_string(struct object *m, const char *key, const char *text) {
    char *quoted = NULL;
    size_t bytes = 0;
    struct json_writer w;
    FILE *f = text_stream_open(&quoted, &bytes);
    if (!f) return fail(STATUS_NO_MEMORY, "no memory for a text of %zu bytes", strlen(text));
    json_write_open(&w, f, 0);
    json_write_string(&w, text);
    enum status s = fclose(f) == 0 ? object_set(m, key, quoted) : fail(STATUS_NO_MEMORY, "no memory for a text");
    free(quoted);
    return s;
}

enum status object_set_int(struct object *m, const char *key, long long value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    return object_set(m, key, text);
}

void object_remove(struct object *m, const char *key) {
    for (size_t i = 0; i < m->count; i++) {
        if (strcmp(m->items[i].key, key) != 0) continue;
        memory_free(m->items[i].key);
        memory_free(m->items[i].value);
        memmove(m->items + i, m->items + i + 1, (m->count - i - 1) * sizeof *m->items);
        m->count--;
        return;
    }
}

enum status object_copy(struct object *out, const struct object *from) {
    *out = (struct object){0};
    for (size_t i = 0; i < from->count; i++)
        TRY(object_set(out, from->items[i].key, from->items[i].value));
    return STATUS_OK;
}

enum status object_text(char **out, const struct object *m) {
    char *text = NULL;
    size_t bytes = 0;
    struct json_writer w;
    FILE *f = text_stream_open(&text, &bytes);
    if (!f) return fail(STATUS_NO_MEMORY, "no memory for an object of %zu members", m->count);
    for (size_t i = 0; i < m->count; i++) {
        fputs(i == 0 ? "{" : ", ", f);
        json_write_open(&w, f, 0);
        json_write_string(&w, m->items[i].key);
        fprintf(f, ": %s", m->items[i].value);
    }
    fputs(m->count == 0 ? "{}" : "}", f);
    enum status s = fclose(f) == 0 ? memory_copy_string(out, text) : fail(STATUS_NO_MEMORY, "no memory for an object");
    free(text);
    return s;
}

/* ---- values ---------------------------------------------------------------------------------------------- */

static enum status object_take_string(char **out, const struct json *j, const char *name, const char *key) {
    size_t length = 0;
    char *text = NULL;
    TRY(memory_allocate(&text, j->length + 1));
    enum status s = json_string(j, text, j->length + 1, &length);
    if (s == STATUS_OK && (length == 0 || strlen(text) != length))
        s = fail(STATUS_INVALID, "%s: %s: a text must not be empty, nor have a NUL character", name, key);
    if (s != STATUS_OK) {
        memory_free(text);
        return s;
    }
    *out = text;
    return STATUS_OK;
}

enum status object_string(char **out, const char *name, const char *key, const char *value) {
    struct json j;
    json_open(&j, name, value, strlen(value));
    if (json_next(&j) != JSON_STRING) return fail(STATUS_INVALID, "%s: %s must be a string", name, key);
    return object_take_string(out, &j, name, key);
}

enum status object_list_add(struct object_list *list, const char *text) {
    char *copy = NULL;
    TRY(memory_copy_string(&copy, text));
    enum status s = memory_grow(&list->items, &list->capacity, list->count + 1);
    if (s != STATUS_OK) {
        memory_free(copy);
        return s;
    }
    list->items[list->count++] = copy;
    return STATUS_OK;
}

enum status object_strings(struct object_list *out, const char *name, const char *key, const char *value) {
    struct json j;
    json_open(&j, name, value, strlen(value));
    if (json_next(&j) != JSON_ARRAY) return fail(STATUS_INVALID, "%s: %s must be a list of strings", name, key);
    for (enum json_event e; (e = json_next(&j)) != JSON_ARRAY_END;) {
        char *text = NULL;
        if (e != JSON_STRING) return fail(STATUS_INVALID, "%s: %s must be a list of strings", name, key);
        TRY(object_take_string(&text, &j, name, key));
        enum status s = object_list_add(out, text);
        memory_free(text);
        TRY(s);
    }
    return STATUS_OK;
}

void object_list_free(struct object_list *list) {
    for (size_t i = 0; i < list->count; i++)
        memory_free(list->items[i]);
    memory_free(list->items);
    *list = (struct object_list){0};
}
