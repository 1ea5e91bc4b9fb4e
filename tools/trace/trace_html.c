/* trace_html.c -- a trace as one page that needs no other resources: the records as JSON, and a script that shows them.
 *
 * The JSON is inside a <script>, where only the texts "</script>" and "<!--" would be harmful. So every '<' is written
 * as \u003c, which JSON allows in strings, and '<' occurs nowhere else. The script inserts texts only as textContent,
 * so no text of a document becomes markup. */
#include "base/file.h"
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "tools/trace/trace.h"
#include "tools/trace/trace_page.h"

#include <stdlib.h>
#include <string.h>

struct page {
    struct trace_sink sink;
    struct file_writer *file;
    int64_t chunks;
};

static enum status write_text(struct page *p, const char *text) {
    return file_write(p->file, text, strlen(text));
}

static enum status write_escaped(struct page *p, const char *text, size_t bytes, const char *less) {
    while (bytes > 0) {
        const char *found = memchr(text, '<', bytes);
        size_t run = found ? (size_t)(found - text) : bytes;
        TRY(file_write(p->file, text, run));
        if (!found) return STATUS_OK;
        TRY(write_text(p, less));
        text += run + 1;
        bytes -= run + 1;
    }
    return STATUS_OK;
}

static enum status page_chunk(struct trace_sink *sink, const struct trace_chunk *chunk) {
    struct page *p = (struct page *)sink;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return fail(STATUS_NO_MEMORY, "no memory for a chunk of the trace");
    struct json_writer w;
    json_write_open(&w, memory, 0);
    trace_write_json(&w, chunk);
    enum status status;
    TRY_GOTO(status, fclose(memory) == 0 ? STATUS_OK : fail(STATUS_NO_MEMORY, "no memory for a chunk of the trace"),
             out);
    TRY_GOTO(status, write_text(p, p->chunks++ ? ",\n" : "\n"), out);
    status = write_escaped(p, text, bytes, "\\u003c");
out:
    free(text);
    return status;
}

static enum status page_end(struct trace_sink *sink, bool keep) {
    struct page *p = (struct page *)sink;
    enum status status = keep ? write_text(p, trace_page_tail) : STATUS_OK;
    if (keep && status == STATUS_OK)
        status = file_publish(p->file);
    else
        file_discard(p->file);
    memory_free(p);
    return status;
}

/* Escapes the title for markup: first '&', then '<'. */
static enum status write_title(struct page *p, const char *title) {
    for (const char *at = title;;) {
        size_t run = strcspn(at, "&");
        TRY(write_escaped(p, at, run, "&lt;"));
        if (!at[run]) return STATUS_OK;
        TRY(write_text(p, "&amp;"));
        at += run + 1;
    }
}

static enum status write_head(struct page *p, const char *title) {
    TRY(write_text(p, trace_page_head));
    TRY(write_title(p, title));
    TRY(write_text(p, trace_page_style));
    TRY(write_title(p, title));
    return write_text(p, trace_page_body);
}

enum status trace_html(struct trace_sink **out, const char *path, const char *title) {
    struct page *p = NULL;
    TRY(memory_allocate_zero(&p, 1));
    enum status status = file_create(&p->file, path);
    if (status == STATUS_OK) {
        p->sink = (struct trace_sink){.chunk = page_chunk, .end = page_end};
        status = write_head(p, title);
    }
    if (status != STATUS_OK) {
        file_discard(p->file);
        memory_free(p);
        return status;
    }
    *out = &p->sink;
    return STATUS_OK;
}
