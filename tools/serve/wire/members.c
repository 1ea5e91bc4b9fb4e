/* members.c -- see members.h. */
#include "tools/serve/wire/members.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static enum status member_wrong(struct members *m, const struct member *field, const char *wanted) {
    snprintf(m->param, REQUEST_PARAM, "%s%s", m->prefix, field->name);
    return fail(STATUS_INVALID, "%s must be %s", m->param, wanted);
}

bool members_whole(struct members *m, int64_t *out) {
    double value = NAN;
    if (json_int(&m->json, out) == STATUS_OK) return true;
    if (json_double(&m->json, &value) != STATUS_OK || value != floor(value) || fabs(value) > MEMBERS_EXACT)
        return false;
    *out = (int64_t)value;
    return true;
}

/* (double)INT64_MAX is 2^63, one more than the largest int64_t. */
static long long member_limit(double limit) {
    return limit >= (double)INT64_MAX ? INT64_MAX : (long long)limit;
}

static enum status member_number(struct members *m, const struct member *field, enum json_event event) {
    char wanted[96];
    double value = NAN;
    int64_t whole = 0;
    const bool integer = field->kind == MEMBER_INT;
    if (integer)
        snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", member_limit(field->min),
                 member_limit(field->max));
    else
        snprintf(wanted, sizeof wanted, "a number from %.15g to %.15g", field->min, field->max);
    if (event != JSON_NUMBER) return member_wrong(m, field, wanted);
    if (integer) {
        if (!members_whole(m, &whole)) return member_wrong(m, field, wanted);
        value = (double)whole;
    } else if (json_double(&m->json, &value) != STATUS_OK) {
        return member_wrong(m, field, wanted);
    }
    if (!(value >= field->min && value <= field->max)) return member_wrong(m, field, wanted);
    if (integer)
        *(int64_t *)field->value = whole;
    else
        *(double *)field->value = value;
    return STATUS_OK;
}

static enum status member_choice(struct members *m, const struct member *field, enum json_event event) {
    char wanted[160] = "one of";
    for (int i = 0; i < field->n_names; i++) {
        if (event == JSON_STRING && json_equals(&m->json, field->names[i])) {
            *(int *)field->value = i;
            return STATUS_OK;
        }
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s \"%s\"", i ? "," : "", field->names[i]);
    }
    return member_wrong(m, field, wanted);
}

/* An unsupported member is accepted with a value that has no effect. */
static enum status member_neutral(struct members *m, const struct member *field, enum json_event event) {
    char wanted[96];
    double value = NAN;
    if (field->kind == MEMBER_ZERO) {
        snprintf(wanted, sizeof wanted, "%.15g (this server has no other)", field->min);
        if (event == JSON_NUMBER && json_double(&m->json, &value) == STATUS_OK && value == field->min) return STATUS_OK;
        return member_wrong(m, field, wanted);
    }
    if (event == JSON_STRING && m->json.length == 0) return STATUS_OK;
    if (event == JSON_OBJECT || event == JSON_ARRAY) {
        enum json_event next = json_next(&m->json);
        if (next == JSON_OBJECT_END || next == JSON_ARRAY_END) return STATUS_OK;
    }
    return member_wrong(m, field, "left out or null: this server does not support it");
}

static enum status member_value(struct members *m, const struct member *field) {
    enum json_event event = json_next(&m->json);
    if (event == JSON_ERROR) return json_fail(&m->json, "a value");
    if (event == JSON_NULL) return STATUS_OK;
    if (field->given) *field->given = true;
    switch (field->kind) {
    case MEMBER_INT:
    case MEMBER_DOUBLE:
        return member_number(m, field, event);
    case MEMBER_BOOL:
        if (event != JSON_TRUE && event != JSON_FALSE) return member_wrong(m, field, "true or false");
        *(bool *)field->value = event == JSON_TRUE;
        return STATUS_OK;
    case MEMBER_CHOICE:
        return member_choice(m, field, event);
    case MEMBER_READ: {
        snprintf(m->param, REQUEST_PARAM, "%s%s", m->prefix, field->name);
        TRY(field->read(m, event));
        m->param[0] = 0;
        return STATUS_OK;
    }
    case MEMBER_ZERO:
    case MEMBER_NULL:
        break;
    }
    return member_neutral(m, field, event);
}

static enum status member_unknown(struct members *m) {
    char name[32];
    size_t length = 0;
    if (m->json.length < sizeof name && json_string(&m->json, name, sizeof name, &length) == STATUS_OK &&
        strlen(name) == length) {
        snprintf(m->param, REQUEST_PARAM, "%s%s", m->prefix, name);
        return fail(STATUS_INVALID, "unknown member \"%s%s\"", m->prefix, name);
    }
    return fail(STATUS_INVALID, "unknown member with a name of %zu bytes", m->json.length);
}

enum status members_object(struct members *m, const struct member *table, int n) {
    uint64_t seen = 0;
    for (;;) {
        enum json_event event = json_next(&m->json);
        if (event == JSON_OBJECT_END) return STATUS_OK;
        if (event != JSON_KEY) return json_fail(&m->json, "a member or the end of the object");
        int i = 0;
        while (i < n && !json_equals(&m->json, table[i].name))
            i++;
        if (i == n) return member_unknown(m);
        if (seen & (UINT64_C(1) << i)) return member_wrong(m, &table[i], "given once");
        seen |= UINT64_C(1) << i;
        TRY(member_value(m, &table[i]));
    }
}

enum status members_parse(struct members *m, const char *body, size_t bytes, const struct member *table, int n) {
    json_open(&m->json, "request body", body, bytes);
    if (json_next(&m->json) != JSON_OBJECT) return json_fail(&m->json, "a JSON object");
    TRY(members_object(m, table, n));
    if (json_next(&m->json) != JSON_END) return json_fail(&m->json, "the end of the body");
    return STATUS_OK;
}

enum status members_text(struct members *m, struct request_text *out) {
    TRY(memory_allocate(&out->data, m->json.length + 1));
    return json_string(&m->json, out->data, m->json.length + 1, &out->bytes);
}

/* entered: the event of the first id, or of the end, has been read. */
enum status members_ids(struct members *m, struct request_text *out, bool entered) {
    size_t capacity = (size_t)out->n_ids;
    enum json_event event = entered ? JSON_NUMBER : json_next(&m->json);
    for (; event != JSON_ARRAY_END; event = json_next(&m->json)) {
        int64_t id = -1;
        if (event != JSON_NUMBER || !members_whole(m, &id) || id < 0 || id >= m->limits->vocab_size) {
            if (event == JSON_ERROR) return json_fail(&m->json, "a token id");
            return fail(STATUS_INVALID, "%s must have token ids from 0 to %d alone", m->param,
                        m->limits->vocab_size - 1);
        }
        if (out->n_ids == m->limits->max_prompt_tokens)
            return fail(STATUS_INVALID, "%s has more than %lld token ids, the limit of this server", m->param,
                        (long long)m->limits->max_prompt_tokens);
        TRY(memory_grow(&out->ids, &capacity, (size_t)out->n_ids + 1));
        out->ids[out->n_ids++] = (int32_t)id;
    }
    return STATUS_OK;
}
