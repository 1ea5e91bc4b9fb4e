/* drt_generate_interactive.c -- one text that a user and the model write in turns.
 *
 * This file applies the limit of an answer, and the generation has no limit. So an empty line continues the same answer
 * as if it had not been interrupted. Lines are read by poll and read, not by stdio, so that Ctrl-C discards the
 * line. */
#include "base/memory.h"
#include "tools/generate/drt_generate_state.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 4096, LINE_MAX_BYTES = 1 << 24 };

struct dialogue {
    struct generate_state *r;
    bool terminal;    /* the input is a terminal */
    bool open, ended; /* open: an answer may be continued; ended: it has ended */
    int32_t last;     /* an id that was generated and is not fed yet; -1: none */
    char *line;       /* the input: a line of n bytes, then the bytes after its newline */
    size_t held, capacity;
};
enum line { LINE_TEXT, LINE_END, LINE_INTERRUPTED };

static const char help[] = "Type text: it joins the text on a line of its own, and the model continues.\n"
                           "An empty line continues the answer. Ctrl-C stops an answer.\n"
                           "  /reset  begin another text: nothing is left of this one\n"
                           "  /help   this list\n"
                           "Ctrl-D ends. A line that begins with // is text that begins with /.\n";

/* Gets the next line without its newline. Afterwards the caller removes `*used` bytes. */
static enum status read_line(struct dialogue *d, enum line *kind, size_t *bytes, size_t *used) {
    for (size_t from = 0;;) {
        const char *newline = d->held > from ? memchr(d->line + from, '\n', d->held - from) : NULL;
        if (newline) {
            *kind = LINE_TEXT;
            *bytes = (size_t)(newline - d->line);
            *used = *bytes + 1;
            return STATUS_OK;
        }
        from = d->held;
        if (d->held > LINE_MAX_BYTES) return fail(STATUS_INVALID, "standard input: a line of more than 16 MiB");
        TRY(memory_grow(&d->line, &d->capacity, d->held + READ_BYTES));
        bool interrupted;
        TRY(progress_line_wait_input(STDIN_FILENO, &interrupted));
        if (interrupted) {
            *kind = LINE_INTERRUPTED;
            *used = d->held;
            return STATUS_OK;
        }
        ssize_t n = read(STDIN_FILENO, d->line + d->held, READ_BYTES);
        if (n < 0) return fail_errno("standard input");
        d->held += (size_t)n;
        if (n > 0) continue;
        *kind = d->held > 0 ? LINE_TEXT : LINE_END; /* the last line may lack a newline */
        *bytes = *used = d->held;
        return STATUS_OK;
    }
}

/* Prints the end of an answer that was held back as a possible beginning of a stop string, before the
 * text continues. */
static enum status close_answer(struct dialogue *d) {
    const char *text;
    size_t bytes;
    if (!d->open) return STATUS_OK;
    d->open = false;
    if (d->ended) return STATUS_OK;
    TRY(generation_stop(d->r->generation, &text, &bytes));
    if (bytes == 0) return STATUS_OK;
    TRY(printer_put(&d->r->printer, text, bytes));
    return printer_end(&d->r->printer);
}

static enum status generate_interactive_answer(struct dialogue *d) {
    struct generate_state *r = d->r;
    struct generation_token token = {0};
    d->open = true;
    d->ended = false;
    for (int64_t n = 0; n < r->options->max_tokens && !d->ended; n++) {
        if (progress_stop_requested(r->progress)) break;
        TRY(generation_next(r->generation, &token));
        TRY(generate_trace_token(r, &token));
        TRY(printer_put(&r->printer, token.text, token.bytes));
        d->ended = token.end != GENERATION_RUNNING;
        d->last = token.end == GENERATION_EOS ? -1 : token.id;
    }
    TRY(printer_end(&r->printer));
    if (d->terminal && token.end == GENERATION_EOS) fputs("(the document ends here)\n", stderr);
    return STATUS_OK;
}

/* Adds text. The first one begins the document; a later one begins a new line. */
static enum status add_text(struct dialogue *d, const char *text, size_t bytes) {
    const int32_t *ids = NULL;
    int64_t n = 0;
    char *joined;
    bool first = generation_tokens(d->r->generation) == 0;
    TRY(close_answer(d));
    TRY(memory_allocate(&joined, bytes + 1));
    joined[0] = '\n';
    if (bytes) memcpy(joined + !first, text, bytes);
    enum status s;
    TRY_GOTO(s, generation_encode(d->r->generation, &ids, &n, joined, bytes + !first), out);
    s = generation_feed(d->r->generation, ids, n, NULL);
out:
    memory_free(joined);
    d->last = -1;
    if (s == STATUS_OK) s = generate_interactive_answer(d);
    return s;
}

static enum status generate_interactive_reset(struct dialogue *d) {
    d->open = d->ended = false;
    if (d->r->trace) {
        fputs("drt-generate: /reset: a trace shows one text: start without --trace and --show-retrieved\n", stderr);
        return STATUS_OK;
    }
    return generation_reset(d->r->generation, (uint64_t)d->r->options->seed);
}

static enum status take_line(struct dialogue *d, const char *line, size_t bytes) {
    if (bytes == 0 && d->open && !d->ended) return generate_interactive_answer(d);
    if (bytes == 0) {
        if (d->terminal) fputs("(nothing to continue: type some text; /help lists the commands)\n", stderr);
        return STATUS_OK;
    }
    if (line[0] != '/') return add_text(d, line, bytes);
    if (bytes > 1 && line[1] == '/') return add_text(d, line + 1, bytes - 1);
    if (bytes == 6 && memcmp(line, "/reset", 6) == 0) return generate_interactive_reset(d);
    if (bytes != 5 || memcmp(line, "/help", 5) != 0)
        streams_printf(stderr, "drt-generate: there is no command %.*s\n", bytes < 40 ? (int)bytes : 40, line);
    fputs(help, stderr);
    return STATUS_OK;
}

static enum status generate_interactive_handle(struct dialogue *d, enum status s) {
    bool interrupted = progress_line_take_interrupt();
    if (s != STATUS_INTERRUPTED || !interrupted || d->r->trace) return s;
    fputs("(stopped while reading: another text begins)\n", stderr);
    return generate_interactive_reset(d);
}

static enum status generate_interactive_converse(struct dialogue *d, bool *interrupted, const char *prompt,
                                                 size_t bytes) {
    if (d->terminal) fputs("Ctrl-C stops an answer, Ctrl-D ends, /help lists the commands.\n", stderr);
    if (bytes > 0) {
        if (d->r->options->echo) TRY(printer_put(&d->r->printer, prompt, bytes));
        TRY(generate_interactive_handle(d, add_text(d, prompt, bytes)));
    }
    for (;;) {
        enum line kind = LINE_END;
        size_t line_bytes = 0, used = 0;
        *interrupted = progress_stop_requested(d->r->progress);
        if (*interrupted) return STATUS_OK;
        if (d->terminal) fputs("> ", stderr);
        TRY(read_line(d, &kind, &line_bytes, &used));
        if (kind == LINE_END) break;
        if (kind == LINE_TEXT) TRY(generate_interactive_handle(d, take_line(d, d->line, line_bytes)));
        if (kind == LINE_INTERRUPTED) {
            if (progress_line_take_interrupt() && d->terminal) fputs("\n(Ctrl-D ends)\n", stderr);
        }
        memmove(d->line, d->line + used, d->held - used);
        d->held -= used;
    }
    if (d->terminal) fputc('\n', stderr);
    return close_answer(d);
}

enum status generate_interactive(struct generate_state *r, bool *interrupted, const char *prompt, size_t bytes) {
    struct dialogue d = {.r = r, .last = -1, .terminal = isatty(STDIN_FILENO) == 1};
    enum status s = generate_interactive_converse(&d, interrupted, prompt, bytes);
    memory_free(d.line);
    struct trace *trace = r->trace;
    if (s != STATUS_OK || !trace) return s;
    if (d.last >= 0) TRY(trace_tokens(trace, &d.last, 1, false));
    r->trace = NULL; /* the watch is not called after this */
    return trace_end(trace, true);
}
