/* task_file.c -- see task_file.h. Memory has one line at a time, whose strings are unescaped into one buffer. */
#include "tools/tasks/task_file.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "data/readers/reader_stream.h"
#include "data/tokenizer/utf8.h"
#include <string.h>

enum { READ_BYTES = 256 << 10 };
enum member { MEMBER_INPUT, MEMBER_PREFIX, MEMBER_DOCUMENT, MEMBER_SUMMARY, MEMBERS };

struct task_file {
    struct stream *stream;
    const char *path;
    char *data; /* [held]: bytes that were read; the current line begins at `at` */
    size_t at, held, capacity;
    bool ended;
    int64_t line;
    char *text; /* the unescaped strings of the line, each with a NUL */
    size_t text_used, text_capacity;
    size_t member[MEMBERS], member_bytes[MEMBERS]; /* position and length in `text`; member_bytes SIZE_MAX: absent */
    size_t *output_at;
    const char **outputs;
    int n_outputs;
    size_t at_capacity, outputs_capacity;
};

enum status task_file_open(struct task_file **out, const char *path) {
    struct task_file *f = NULL;
    TRY(memory_allocate_zero(&f, 1));
    f->path = path;
    enum status status = stream_open(&f->stream, path);
    if (status != STATUS_OK) {
        task_file_close(f);
        return status;
    }
    *out = f;
    return STATUS_OK;
}

void task_file_close(struct task_file *f) {
    if (!f) return;
    stream_close(f->stream);
    memory_free(f->data);
    memory_free(f->text);
    memory_free(f->output_at);
    memory_free(f->outputs);
    memory_free(f);
}

static enum status task_line(struct task_file *f, const char **line, size_t *bytes, bool *more) {
    for (size_t looked = 0;;) {
        const char *end =
            f->held > f->at + looked ? memchr(f->data + f->at + looked, '\n', f->held - f->at - looked) : NULL;
        *line = f->data ? f->data + f->at : ""; /* nothing is read yet */
        if (end || f->ended) {
            *more = end || f->held > f->at;
            *bytes = end ? (size_t)(end - *line) : f->held - f->at;
            f->at += *bytes + (end != NULL);
            f->line += *more;
            return STATUS_OK;
        }
        looked = f->held - f->at;
        if (looked > TASK_LINE_MAX)
            return fail(STATUS_INVALID, "%s: line %lld has more than 1 GiB", f->path, (long long)f->line + 1);
        if (f->at > 0) memmove(f->data, f->data + f->at, looked);
        f->at = 0;
        f->held = looked;
        size_t got = 0;
        TRY(memory_grow(&f->data, &f->capacity, f->held + READ_BYTES));
        TRY(stream_read(f->stream, f->data + f->held, READ_BYTES, &got));
        f->held += got;
        f->ended = got < READ_BYTES;
    }
}

static enum status task_string(struct task_file *f, const struct json *j, size_t *at, size_t *bytes) {
    TRY(memory_grow(&f->text, &f->text_capacity, f->text_used + j->length + 1));
    *at = f->text_used;
    TRY(json_string(j, f->text + *at, j->length + 1, bytes));
    f->text_used += *bytes + 1;
    return STATUS_OK;
}

static enum status task_member(struct task_file *f, struct json *j, enum member m) {
    if (json_next(j) != JSON_STRING) return json_fail(j, "a string");
    return task_string(f, j, &f->member[m], &f->member_bytes[m]);
}

static enum status task_outputs(struct task_file *f, struct json *j) {
    TRY(json_expect(j, JSON_ARRAY, "an array of strings"));
    for (;;) {
        enum json_event event = json_next(j);
        size_t bytes;
        if (event == JSON_ARRAY_END) return STATUS_OK;
        if (event != JSON_STRING) return json_fail(j, "a string");
        TRY(memory_grow(&f->output_at, &f->at_capacity, (size_t)f->n_outputs + 1));
        TRY(task_string(f, j, &f->output_at[f->n_outputs], &bytes));
        if (strlen(f->text + f->output_at[f->n_outputs]) != bytes || bytes == 0)
            return fail(STATUS_INVALID, "%s: line %lld: an output is empty or has a NUL byte", f->path,
                        (long long)f->line);
        f->n_outputs++;
    }
}

static enum status task_members(struct task_file *f, struct json *j) {
    static const struct {
        const char *name;
        enum member member;
    } names[] = {{"input", MEMBER_INPUT},      {"answer_prefix", MEMBER_PREFIX}, {"document", MEMBER_DOCUMENT},
                 {"article", MEMBER_DOCUMENT}, {"summary", MEMBER_SUMMARY},      {"highlights", MEMBER_SUMMARY}};
    TRY(json_expect(j, JSON_OBJECT, "an object"));
    for (;;) {
        enum json_event event = json_next(j);
        size_t i = 0;
        if (event == JSON_OBJECT_END) break;
        if (event != JSON_KEY) return json_fail(j, "a member");
        while (i < ARRAY_LEN(names) && !json_equals(j, names[i].name))
            i++;
        if (i < ARRAY_LEN(names))
            TRY(task_member(f, j, names[i].member));
        else if (json_equals(j, "outputs"))
            TRY(task_outputs(f, j));
        else
            TRY(json_skip(j));
    }
    return json_next(j) == JSON_END ? STATUS_OK : json_fail(j, "the end of the line");
}

/* Appends the parts of the prompt to `text`, one after another. */
static enum status task_join(struct task_file *f, struct task_sample *out, enum member first, const char *then,
                             size_t then_bytes) {
    const size_t bytes = f->member_bytes[first] + then_bytes;
    char *prompt = f->text + f->text_used;
    memcpy(prompt, f->text + f->member[first], f->member_bytes[first]);
    memcpy(prompt + f->member_bytes[first], then, then_bytes);
    prompt[bytes] = 0;
    out->prompt = prompt;
    out->prompt_bytes = bytes;
    return STATUS_OK;
}

static enum status task_make(struct task_file *f, struct task_sample *out) {
    static const char summary[] = TASK_SUMMARY;
    const bool input = f->member_bytes[MEMBER_INPUT] != SIZE_MAX,
               document = f->member_bytes[MEMBER_DOCUMENT] != SIZE_MAX;
    const bool prefix = f->member_bytes[MEMBER_PREFIX] != SIZE_MAX;
    if (input ? f->n_outputs == 0 : !document || f->member_bytes[MEMBER_SUMMARY] == SIZE_MAX)
        return fail(
            STATUS_INVALID,
            "%s: line %lld is no sample: it needs \"input\" and \"outputs\" (at least one string), \"document\" "
            "and \"summary\", or \"article\" and \"highlights\"",
            f->path, (long long)f->line);
    TRY(memory_grow(&f->text, &f->text_capacity, 2 * f->text_used + sizeof summary));
    TRY(memory_grow(&f->outputs, &f->outputs_capacity, (size_t)f->n_outputs + 1));
    for (int i = 0; i < f->n_outputs; i++)
        f->outputs[i] = f->text + f->output_at[i];
    if (!input) f->outputs[0] = f->text + f->member[MEMBER_SUMMARY];
    *out = (struct task_sample){
        .outputs = f->outputs, .n_outputs = input ? f->n_outputs : 1, .line = f->line, .summary = !input};
    if (!input) return task_join(f, out, MEMBER_DOCUMENT, summary, sizeof summary - 1);
    return task_join(f, out, MEMBER_INPUT, prefix ? f->text + f->member[MEMBER_PREFIX] : "",
                     prefix ? f->member_bytes[MEMBER_PREFIX] : 0);
}

static enum status task_parse(struct task_file *f, struct task_sample *out, const char *line, size_t bytes) {
    struct json j;
    f->text_used = 0;
    f->n_outputs = 0;
    for (int m = 0; m < MEMBERS; m++)
        f->member_bytes[m] = SIZE_MAX;
    json_open_line(&j, f->path, line, bytes, f->line);
    TRY(task_members(f, &j));
    return task_make(f, out);
}

enum status task_file_next(struct task_file *f, struct task_sample *out, bool *more) {
    for (;;) {
        const char *line = NULL;
        size_t bytes = 0;
        TRY(task_line(f, &line, &bytes, more));
        if (*more && f->line == 1) {
            const size_t mark = utf8_mark(line, bytes);
            line += mark, bytes -= mark;
        }
        if (!*more) return STATUS_OK;
        size_t blank = 0;
        while (blank < bytes && strchr(" \t\r", line[blank]))
            blank++;
        if (blank < bytes) return task_parse(f, out, line, bytes);
    }
}

static char task_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool task_contains(const char *text, size_t bytes, const char *part) {
    const size_t n = strlen(part);
    for (size_t at = 0; at + n <= bytes; at++) {
        size_t i = 0;
        while (i < n && task_lower(text[at + i]) == task_lower(part[i]))
            i++;
        if (i == n) return true;
    }
    return false;
}

double task_contained(const struct task_sample *s, const char *answer, size_t bytes) {
    int found = 0;
    for (int i = 0; i < s->n_outputs; i++)
        found += s->outputs[i][0] && task_contains(answer, bytes, s->outputs[i]);
    return (double)found / s->n_outputs;
}
