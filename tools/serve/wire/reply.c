/* reply.c -- see reply.h. */
#include "tools/serve/wire/reply.h"
#include "base/memory.h"
#include "data/tokenizer/utf8.h"

#include <errno.h>
#include <stdio_ext.h>
#include <string.h>

enum status reply_add(struct reply *r, const void *data, size_t bytes) {
    TRY(memory_grow(&r->data, &r->capacity, r->bytes + bytes));
    if (bytes) memcpy(r->data + r->bytes, data, bytes);
    r->bytes += bytes;
    return STATUS_OK;
}

static ssize_t reply_cookie_write(void *cookie, const char *data, size_t bytes) {
    if (reply_add(cookie, data, bytes) == STATUS_OK) return (ssize_t)bytes;
    errno = ENOMEM;
    return 0;
}

enum status reply_open(struct reply *r) {
    const cookie_io_functions_t functions = {.write = reply_cookie_write};
    *r = (struct reply){0};
    r->file = fopencookie(r, "w", functions);
    if (!r->file) return fail_errno("a buffer for an answer");
    (void)__fsetlocking(r->file, FSETLOCKING_BYCALLER); /* JSON is written character by character */
    json_write_open(&r->json, r->file, 0);
    return STATUS_OK;
}

void reply_close(struct reply *r) {
    if (r->file) fclose(r->file);
    memory_free(r->data);
    *r = (struct reply){0};
}

enum status reply_flush(struct reply *r) {
    if (fflush(r->file) == 0 && !ferror(r->file)) return STATUS_OK;
    return fail(STATUS_NO_MEMORY, "an answer of more than %zu bytes: out of memory", r->bytes);
}

void reply_clear(struct reply *r) {
    r->bytes = 0;
}

void reply_event_begin(struct reply *r) {
    fputs("data: ", r->file);
    json_write_open(&r->json, r->file, 0);
}

enum status reply_event_end(struct reply *r) {
    fputs("\n\n", r->file);
    return reply_flush(r);
}

enum status reply_event_done(struct reply *r) {
    fputs("data: [DONE]\n\n", r->file);
    return reply_flush(r);
}

static const char *reply_error_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 503:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

void reply_error(struct reply *r, int status, const char *message, const char *param, const char *code) {
    struct json_writer *w = &r->json;
    json_write_object(w);
    json_write_key(w, "error");
    json_write_object(w);
    json_write_key(w, "message");
    json_write_string(w, message);
    json_write_key(w, "type");
    json_write_string(w, reply_error_type(status));
    json_write_key(w, "param");
    if (param && *param)
        json_write_string(w, param);
    else
        json_write_null(w);
    json_write_key(w, "code");
    if (code)
        json_write_string(w, code);
    else
        json_write_null(w);
    json_write_object_end(w);
    json_write_object_end(w);
}

void reply_token_text(struct reply *r, const char *data, size_t bytes, bool key) {
    char text[512] = "bytes:";
    size_t used = strlen(text);
    if (bytes < sizeof text && !memchr(data, 0, bytes) && utf8_valid_prefix(data, bytes) == bytes) {
        memcpy(text, data, bytes);
        text[bytes] = 0;
    } else {
        for (size_t i = 0; i < bytes && used + 5 < sizeof text; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "\\x%02x", (unsigned char)data[i]);
    }
    if (key)
        json_write_key(&r->json, text);
    else
        json_write_string(&r->json, text);
}

int64_t reply_characters(const char *data, size_t bytes) {
    int64_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)data[i] & 0xC0) != 0x80;
    return n;
}
