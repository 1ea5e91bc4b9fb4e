/* plot_log.c -- reads a training log; see plot_log.h. */
#include "train/plot/plot_log.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include <math.h>
#include <string.h>

const char *const plot_value_keys[PLOT_VALUES] = {
    "loss", "valid_loss",    "mlm_loss",          "contrastive_loss",    "contrastive_accuracy",
    "lr",   "gradient_norm", "tokens_per_second", "valid_bits_per_byte", "device_bytes"};

/* Larger values would overflow sums of squares: they count as not finite. */
static const double VALUE_MAX = 1e100;

static enum status plot_log_read_value(struct json *j, double *out) {
    switch (json_next(j)) {
    case JSON_NULL:
        *out = NAN;
        return STATUS_OK;
    case JSON_NUMBER:
        TRY(json_double(j, out));
        if (fabs(*out) > VALUE_MAX) *out = NAN;
        return STATUS_OK;
    default:
        return json_fail(j, "a number or null");
    }
}

static enum status plot_log_read_member(struct json *j, struct plot_row *row) {
    if (json_equals(j, "step")) return json_next_int(j, &row->step);
    if (json_equals(j, "tokens")) return json_next_int(j, &row->tokens);
    for (int v = 0; v < PLOT_VALUES; v++)
        if (json_equals(j, plot_value_keys[v])) {
            row->has |= 1u << v;
            return plot_log_read_value(j, &row->values[v]);
        }
    return json_skip(j);
}

static enum status plot_log_read_row(struct plot_row *row, const char *name, const char *text, size_t bytes) {
    struct json j;
    *row = (struct plot_row){.step = -1, .tokens = -1};
    json_open(&j, name, text, bytes);
    TRY(json_expect(&j, JSON_OBJECT, "an object"));
    for (;;) {
        enum json_event event = json_next(&j);
        if (event == JSON_OBJECT_END) break;
        if (event != JSON_KEY) return json_fail(&j, "a key");
        TRY(plot_log_read_member(&j, row));
    }
    TRY(json_expect(&j, JSON_END, "the end of the line"));
    if (row->step < 0) return fail(STATUS_INVALID, "%s: no \"step\" of zero or more", name);
    if (row->tokens < 0) return fail(STATUS_INVALID, "%s: no \"tokens\" of zero or more", name);
    return STATUS_OK;
}

/* A step that is smaller than the one before, or equal with equal values, means that the run was resumed from a
 * checkpoint. The rows after that checkpoint belong to the interrupted attempt and are removed. */
static void plot_log_drop_after(struct plot_log *log, const struct plot_row *row) {
    while (log->n_rows > 0 && log->rows[log->n_rows - 1].step > row->step)
        log->n_rows--;
    for (size_t i = log->n_rows; i > 0 && log->rows[i - 1].step == row->step; i--)
        log->rows[i - 1].has &= ~row->has;
}

static enum status plot_log_add_row(struct plot_log *log, const struct plot_row *row, const char *name) {
    plot_log_drop_after(log, row);
    if (log->n_rows > 0 && log->rows[log->n_rows - 1].tokens > row->tokens)
        return fail(STATUS_INVALID, "%s: step %lld has seen %lld tokens, and a step before it %lld", name,
                    (long long)row->step, (long long)row->tokens, (long long)log->rows[log->n_rows - 1].tokens);
    TRY(memory_grow(&log->rows, &log->capacity, log->n_rows + 1));
    log->rows[log->n_rows++] = *row;
    return STATUS_OK;
}

static size_t plot_log_trim(const char *text, size_t bytes) {
    while (bytes > 0 && strchr(" \t\r", text[bytes - 1]) && text[bytes - 1])
        bytes--;
    return bytes;
}

enum status plot_log_parse(struct plot_log *out, const char *name, const char *text, size_t bytes) {
    *out = (struct plot_log){0};
    const char *end = text + bytes;
    for (int64_t line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = plot_log_trim(text, (size_t)((stop ? stop : end) - text));
        char where[FILE_PATH_MAX + 32];
        snprintf(where, sizeof where, "%s: line %lld of the log", name, (long long)line);
        struct plot_row row;
        enum status status = length ? plot_log_read_row(&row, where, text, length) : STATUS_OK;
        if (status != STATUS_OK && !stop) return STATUS_OK; /* the run is still writing this line */
        if (status == STATUS_OK && length) status = plot_log_add_row(out, &row, where);
        if (status == STATUS_INVALID) return fail(STATUS_CORRUPT, "%s", status_message());
        TRY(status);
        text = stop ? stop + 1 : end;
    }
    return STATUS_OK;
}

enum status plot_log_read(struct plot_log *out, const char *path) {
    *out = (struct plot_log){0};
    char file[FILE_PATH_MAX];
    if (file_is_directory(path)) {
        TRY(file_join(file, path, "log.jsonl"));
        if (!file_exists(file))
            return fail(STATUS_NOT_FOUND, "%s: has no log.jsonl; a run is a folder that drt-train wrote", path);
        path = file;
    }
    struct file_map map = {0};
    TRY(file_map(&map, path));
    enum status status = plot_log_parse(out, path, (const char *)map.data, map.size);
    file_unmap(&map);
    return status;
}

void plot_log_free(struct plot_log *log) {
    memory_free(log->rows);
    *log = (struct plot_log){0};
}
