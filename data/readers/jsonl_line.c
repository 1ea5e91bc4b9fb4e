/* jsonl_line.c -- makes a document from a line of jsonl. Every line is parsed strictly and completely, so a bad line is
 * an error with its number, and not a missing document. */
#include "base/formats/json.h"
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include "data/tokenizer/utf8.h"
#include <string.h>

struct line { /* for messages */
    const char *source;
    uint64_t number;
};

static enum status line_fail(const struct line *at, const char *what) {
    return fail(STATUS_INVALID, "%s:%llu: %s", at->source, (unsigned long long)at->number, what);
}

static enum status bad_json(const struct line *at, const struct json *j) {
    bool deep = j->depth == JSON_DEPTH_MAX && j->at < j->end && (*j->at == '[' || *j->at == '{');
    /* the input seems to be plain text, such as words on standard input */
    bool text = at->number == 1 && j->at == j->begin;
    return fail(STATUS_INVALID, "%s:%llu: %s at column %zu%s", at->source, (unsigned long long)at->number,
                deep ? "JSON nested deeper than is read" : "not valid JSON", (size_t)(j->at - j->begin) + 1,
                text ? "; if this is plain text, give --format txt"
                     : ": correct it, or leave it out (--skip-bad-lines)");
}

static enum status jsonl_line_unescape(const struct json *j, struct reader_buffer *out) {
    TRY(memory_grow(&out->data, &out->capacity, j->length + 1));
    return json_string(j, out->data, out->capacity, &out->size);
}

enum status reader_key_repair(struct reader_buffer *key, struct reader_buffer *spare) {
    uint64_t replaced;
    for (size_t i = 0; i < key->size; i++)
        if (key->data[i] == '\0') key->data[i] = (char)0xFF; /* which UTF-8 does not have */
    if (utf8_valid_prefix(key->data, key->size) == key->size) return STATUS_OK;
    TRY(utf8_repair(&spare->data, &spare->capacity, &spare->size, &replaced, key->data, key->size));
    const struct reader_buffer repaired = *spare;
    *spare = *key;
    *key = repaired;
    return STATUS_OK;
}

static enum status no_key(struct jsonl_parser *l) {
    TRY(memory_grow(&l->key.data, &l->key.capacity, 1));
    l->key.data[l->key.size = 0] = '\0';
    return STATUS_OK;
}

/* Reads the member "id": a string or a number, otherwise there is no key. */
static enum status read_id(struct jsonl_parser *l, const struct line *at, struct json *j) {
    struct reader_buffer *key = &l->key;
    struct json value = *j;
    enum json_event event = json_next(&value);
    TRY(no_key(l));
    if (event == JSON_STRING) {
        TRY(jsonl_line_unescape(&value, key));
        TRY(reader_key_repair(key, &l->spare));
    } else if (event == JSON_NUMBER) {
        TRY(memory_grow(&key->data, &key->capacity, value.length + 1));
        memcpy(key->data, value.text, value.length);
        key->data[key->size = value.length] = '\0';
    }
    return json_skip(j) == STATUS_OK ? STATUS_OK : bad_json(at, j);
}

/* Reads the "id" of the object in "meta", unless the line has an "id" of its own. */
static enum status read_meta(struct jsonl_parser *l, const struct line *at, struct json *j, bool has_id) {
    struct json inside = *j;
    if (json_skip(j) != STATUS_OK) return bad_json(at, j);
    if (has_id) return STATUS_OK;
    TRY(no_key(l));
    if (json_next(&inside) != JSON_OBJECT) return STATUS_OK;
    while (json_next(&inside) == JSON_KEY) {
        if (json_equals(&inside, "id"))
            TRY(read_id(l, at, &inside));
        else
            TRY(json_skip(&inside));
    }
    return STATUS_OK;
}

enum text_state { TEXT_MISSING, TEXT_NO_STRING, TEXT_FOUND };

static enum status read_text(struct jsonl_parser *l, const struct line *at, struct json *j, enum text_state *text) {
    struct json value = *j;
    const bool string = json_next(&value) == JSON_STRING;
    *text = string ? TEXT_FOUND : TEXT_NO_STRING;
    if (!string) return json_skip(j) == STATUS_OK ? STATUS_OK : bad_json(at, j);
    *j = value;
    return jsonl_line_unescape(j, &l->text);
}

/* Makes a document from one line. If a name occurs twice, the last member is used, as in Python. */
enum status jsonl_parse(struct jsonl_parser *l, struct document *d, const char *line, size_t bytes) {
    const struct line at = {d->source, d->line};
    struct json j;
    json_open(&j, d->source, line, bytes);
    enum json_event event = json_next(&j);
    if (event == JSON_ERROR) return bad_json(&at, &j);
    if (event != JSON_OBJECT) return line_fail(&at, "not a JSON object; jsonl wants one object a line");
    enum text_state text = TEXT_MISSING;
    bool has_id = false;
    TRY(no_key(l));
    while ((event = json_next(&j)) == JSON_KEY) {
        if (json_equals(&j, l->text_field)) {
            TRY(read_text(l, &at, &j, &text));
        } else if (json_equals(&j, "id")) {
            TRY(read_id(l, &at, &j));
            has_id = true;
        } else if (json_equals(&j, "meta")) {
            TRY(read_meta(l, &at, &j, has_id));
        } else if (json_skip(&j) != STATUS_OK) {
            return bad_json(&at, &j);
        }
    }
    if (event != JSON_OBJECT_END || json_next(&j) != JSON_END) return bad_json(&at, &j);
    if (text != TEXT_FOUND)
        return fail(STATUS_INVALID, "%s:%llu: %s \"%s\"%s; name the field that holds the text with --text-field",
                    at.source, (unsigned long long)at.number, text == TEXT_MISSING ? "no field" : "the field",
                    l->text_field, text == TEXT_MISSING ? "" : " is not a string");
    d->text = l->text.data;
    d->bytes = l->text.size;
    d->key = l->key.data;
    if (utf8_valid_prefix(d->text, d->bytes) != d->bytes) {
        struct reader_buffer *to = &l->repaired;
        TRY(utf8_repair(&to->data, &to->capacity, &to->size, &d->replaced, d->text, d->bytes));
        d->text = to->data;
        d->bytes = to->size;
    }
    return STATUS_OK;
}

void jsonl_parser_close(struct jsonl_parser *l) {
    memory_free(l->text.data);
    memory_free(l->repaired.data);
    memory_free(l->key.data);
    memory_free(l->spare.data);
}

/* ---- documents that another thread parses ---- */

struct document_parser {
    char *text_field;
    struct jsonl_parser jsonl;
};

enum status document_parser_create(struct document_parser **out, const struct reader *r) {
    struct document_parser *p = NULL;
    TRY(memory_allocate_zero(&p, 1));
    const enum status s = memory_copy_string(&p->text_field, r->text_field);
    p->jsonl.text_field = p->text_field;
    if (s != STATUS_OK)
        document_parser_free(p);
    else
        *out = p;
    return s;
}

void document_parser_free(struct document_parser *p) {
    if (!p) return;
    jsonl_parser_close(&p->jsonl);
    memory_free(p->text_field);
    memory_free(p);
}

enum status document_parse(struct document_parser *p, struct document *d) {
    if (!d->unparsed) return STATUS_OK;
    d->unparsed = false;
    return jsonl_parse(&p->jsonl, d, d->text, d->bytes);
}
