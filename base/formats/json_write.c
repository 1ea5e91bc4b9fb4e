/* json_write.c -- the writer of json.h. */
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/printable.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_write_open(struct json_writer *w, FILE *file, int indent) {
    *w = (struct json_writer){.file = file, .indent = indent};
    w->first[0] = true;
}

static void new_line(struct json_writer *w) {
    if (w->indent == 0) return;
    fputc('\n', w->file);
    for (int i = 0; i < w->depth * w->indent; i++)
        fputc(' ', w->file);
}

/* Writes the comma and the line break before a key or an item. Between a key and its value it writes neither. */
static void json_write_separate(struct json_writer *w) {
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->depth == 0) return;
    if (!w->first[w->depth]) fputc(',', w->file);
    w->first[w->depth] = false;
    new_line(w);
}

static void open_level(struct json_writer *w, char c) {
    json_write_separate(w);
    fputc(c, w->file);
    w->depth++;
    assert(w->depth < JSON_DEPTH_MAX);
    w->first[w->depth] = true;
}

static void close_level(struct json_writer *w, char c) {
    assert(w->depth > 0);
    bool empty = w->first[w->depth];
    w->depth--;
    if (!empty) new_line(w);
    fputc(c, w->file);
    if (w->depth == 0 && w->indent > 0) fputc('\n', w->file);
}

void json_write_object(struct json_writer *w) {
    open_level(w, '{');
}
void json_write_object_end(struct json_writer *w) {
    close_level(w, '}');
}
void json_write_array(struct json_writer *w) {
    open_level(w, '[');
}
void json_write_array_end(struct json_writer *w) {
    close_level(w, ']');
}

/* Returns the length of the valid UTF-8 character at p; 0: there is none. */
static size_t utf8_length(const unsigned char *p, size_t left) {
    if (p[0] < 0x80) return 1;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < n) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

/* Writes a character of several bytes. Characters that printable.h escapes are escaped as in JSON: "\u202e". */
static void write_wide(FILE *file, const char *text, size_t bytes) {
    char shown[PRINTABLE_MAX];
    (void)printable_char(shown, text, bytes);
    fputs(shown, file);
}

static void write_quoted(FILE *file, const unsigned char *p, size_t bytes) {
    fputc('"', file);
    for (size_t i = 0; i < bytes;) {
        unsigned char c = p[i];
        size_t n = utf8_length(p + i, bytes - i);
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", file);
        else if (c == '\t')
            fputs("\\t", file);
        else if (c == '\r')
            fputs("\\r", file);
        else if (c < 0x20 || c == 0x7f)
            fprintf(file, "\\u%04x", c);
        else if (n == 0)
            fputs("\xef\xbf\xbd", file);
        else if (n == 1)
            fputc(c, file);
        else
            write_wide(file, (const char *)p + i, n);
        i += n ? n : 1;
    }
    fputc('"', file);
}

void json_write_key(struct json_writer *w, const char *key) {
    json_write_separate(w);
    write_quoted(w->file, (const unsigned char *)key, strlen(key));
    fputs(w->indent ? ": " : ":", w->file);
    w->after_key = true;
}

void json_write_bytes(struct json_writer *w, const void *text, size_t bytes) {
    json_write_separate(w);
    write_quoted(w->file, text, bytes);
}

void json_write_string(struct json_writer *w, const char *text) {
    json_write_bytes(w, text, strlen(text));
}

void json_write_int(struct json_writer *w, int64_t value) {
    json_write_separate(w);
    fprintf(w->file, "%" PRId64, value);
}

void json_write_double(struct json_writer *w, double value) {
    json_write_separate(w);
    if (!isfinite(value)) {
        fputs("null", w->file);
        return;
    }
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        text_write_number(text, sizeof text, digits, value);
        if (text_read_number(text) == value) break;
    }
    fputs(text, w->file);
}

void json_write_bool(struct json_writer *w, bool value) {
    json_write_separate(w);
    fputs(value ? "true" : "false", w->file);
}

void json_write_null(struct json_writer *w) {
    json_write_separate(w);
    fputs("null", w->file);
}
