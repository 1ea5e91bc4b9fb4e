/* run_log.c -- see run_log.h. */
#include "train/run/run_log.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "train/run/event_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run_log {
    FILE *file;
    char *path;
    struct event_file *events;
};

/* "step" of a complete line; false: not a line of this log. */
static bool run_log_line_step(int64_t *step, const char *text, size_t bytes) {
    struct json j;
    bool found = false;
    json_open(&j, "log", text, bytes);
    if (json_next(&j) != JSON_OBJECT) return false;
    for (enum json_event event; (event = json_next(&j)) != JSON_OBJECT_END;) {
        if (event != JSON_KEY) return false;
        if (json_equals(&j, "step")) {
            if (json_next_int(&j, step) != STATUS_OK) return false;
            found = true;
        } else if (json_skip(&j) != STATUS_OK) {
            return false;
        }
    }
    return found && json_next(&j) == JSON_END;
}

/* Bytes of the lines up to step `keep`. */
static size_t run_log_kept_bytes(const struct file_map *map, int64_t keep) {
    const char *text = (const char *)map->data;
    size_t at = 0;
    while (at < map->size) {
        const char *end = memchr(text + at, '\n', map->size - at);
        int64_t step;
        if (!end || !run_log_line_step(&step, text + at, (size_t)(end - text) - at) || step > keep) break;
        at = (size_t)(end - text) + 1;
    }
    return at;
}

static enum status run_log_truncate(const char *path, int64_t keep) {
    struct file_map map;
    if (!file_exists(path)) return STATUS_OK;
    TRY(file_map(&map, path));
    size_t bytes = run_log_kept_bytes(&map, keep);
    bool longer = bytes < map.size;
    file_unmap(&map);
    if (longer && truncate(path, (off_t)bytes) != 0) return fail_errno("%s: cannot be truncated", path);
    return STATUS_OK;
}

/* The event file is beside the log. TensorBoard recognizes it by "tfevents" in its name. */
static enum status run_log_open_events(struct run_log *log, int64_t keep) {
    char path[FILE_PATH_MAX];
    const char *slash = strrchr(log->path, '/');
    int folder = slash ? (int)(slash - log->path) + 1 : 0;
    int n = snprintf(path, sizeof path, "%.*sevents.out.tfevents.drt", folder, log->path);
    if (n >= (int)sizeof path) return fail(STATUS_INVALID, "%s: the path is too long", log->path);
    return event_file_open(&log->events, path, keep);
}

enum status run_log_open(struct run_log **out, const char *path, int64_t keep) {
    struct run_log *log;
    TRY(run_log_truncate(path, keep));
    TRY(memory_allocate_zero(&log, 1));
    enum status s;
    TRY_GOTO(s, memory_copy_string(&log->path, path), out);
    log->file = fopen(path, "a");
    TRY_GOTO(s, log->file ? STATUS_OK : fail_errno("%s: cannot be written", path), out);
    TRY_GOTO(s, run_log_open_events(log, keep), out);
    *out = log;
out:
    if (s != STATUS_OK) run_log_close(log);
    return s;
}

static void run_log_write_number(struct json_writer *w, const char *key, double value) {
    json_write_key(w, key);
    json_write_double(w, value);
}

static void run_log_write_number_if(struct json_writer *w, const char *key, double value) {
    if (!isnan(value)) run_log_write_number(w, key, value);
}

/* -1: the part has no norm of its own. */
static void run_log_write_norm(struct json_writer *w, const char *key, double norm) {
    if (!(norm < 0)) run_log_write_number(w, key, norm);
}

/* A float32 in its shortest form: 0.005, not 0.004999999888241291. */
static double run_log_rounded(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.7g", value);
    return strtod(text, NULL);
}

/* JSON has no infinity or NaN, so the reason is written as text. fabs avoids "-nan". */
static void run_log_write_reason(struct json_writer *w, const struct step_report *r) {
    char text[160];
    int used = snprintf(text, sizeof text, "loss %g, gradient norm %g", fabs(r->loss), fabs(r->gradient_norm));
    if (!(r->memory_gradient_norm < 0))
        used += snprintf(text + used, sizeof text - (size_t)used, ", memory's %g", fabs(r->memory_gradient_norm));
    if (!(r->retriever_gradient_norm < 0))
        snprintf(text + used, sizeof text - (size_t)used, ", retriever's %g", fabs(r->retriever_gradient_norm));
    json_write_key(w, "skipped"), json_write_bool(w, true);
    json_write_key(w, "skipped_for"), json_write_string(w, text);
}

static void run_log_write_files(struct json_writer *w, const struct run_log_line *line) {
    json_write_key(w, "valid_bits_per_byte_by_file");
    json_write_object(w);
    for (int i = 0; i < line->n_valid_files; i++)
        run_log_write_number_if(w, line->valid_files[i], line->valid_figures[i].bits_per_byte);
    json_write_object_end(w);
}

static enum status run_log_write_events(struct run_log *log, const struct run_log_line *line) {
    const struct step_report *r = &line->report;
    const struct event_value values[] = {
        {"loss/train", r->loss},
        {"loss/valid", line->validated ? line->valid_loss : NAN},
        {"loss/mlm", r->mlm_loss},
        {"loss/contrastive", r->contrastive_loss},
        {"valid/bits_per_byte", line->validated ? line->valid_bits_per_byte : NAN},
        {"retrieval/contrastive_accuracy", r->contrastive_accuracy},
        {"retrieval/corpus_weight", r->corpus_weight},
        {"step/lr", line->lr},
        {"step/gradient_norm", r->gradient_norm},
        {"step/memory_gradient_norm", r->memory_gradient_norm < 0 ? NAN : r->memory_gradient_norm},
        {"step/retriever_gradient_norm", r->retriever_gradient_norm < 0 ? NAN : r->retriever_gradient_norm},
        {"step/tokens", (double)line->tokens},
        {"step/tokens_per_second", line->tokens_per_second},
        {"step/device_bytes", (double)line->device_bytes},
    };
    return event_file_write(log->events, line->step, values, ARRAY_LEN(values));
}

enum status run_log_write(struct run_log *log, const struct run_log_line *line) {
    const struct step_report *r = &line->report;
    struct json_writer w;
    json_write_open(&w, log->file, 0);
    json_write_object(&w);
    json_write_key(&w, "step"), json_write_int(&w, line->step);
    json_write_key(&w, "tokens"), json_write_int(&w, line->tokens);
    run_log_write_number(&w, "loss", r->loss);
    run_log_write_number_if(&w, "mlm_loss", r->mlm_loss);
    run_log_write_number_if(&w, "contrastive_loss", r->contrastive_loss);
    run_log_write_number_if(&w, "contrastive_accuracy", r->contrastive_accuracy);
    run_log_write_number_if(&w, "corpus_weight", r->corpus_weight);
    run_log_write_number_if(&w, "memory_loss", r->memory_loss);
    run_log_write_number_if(&w, "memory_gate", r->memory_gate);
    run_log_write_number_if(&w, "memory_share", r->memory_share);
    run_log_write_number_if(&w, "teach_loss", r->teach_loss);
    run_log_write_number_if(&w, "teach_accuracy", r->teach_accuracy);
    run_log_write_number_if(&w, "teach_gain", r->teach_gain);
    run_log_write_number_if(&w, "teach_best_gain", r->teach_best_gain);
    run_log_write_number(&w, "lr", run_log_rounded(line->lr));
    run_log_write_number(&w, "gradient_norm", r->gradient_norm);
    run_log_write_norm(&w, "memory_gradient_norm", r->memory_gradient_norm);
    run_log_write_norm(&w, "retriever_gradient_norm", r->retriever_gradient_norm);
    json_write_key(&w, "pool"), json_write_string(&w, line->pool);
    if (line->skipped) run_log_write_reason(&w, r);
    if (line->validated) {
        run_log_write_number(&w, "valid_loss", line->valid_loss);
        run_log_write_number(&w, "valid_bits_per_byte", line->valid_bits_per_byte);
        run_log_write_number_if(&w, "valid_memory_loss", line->valid_memory_loss);
        run_log_write_number_if(&w, "valid_memory_bits_per_byte", line->valid_memory_bits_per_byte);
        run_log_write_number_if(&w, "valid_memory_gain_95", line->valid_memory_gain_95);
        if (line->n_valid_files > 1) run_log_write_files(&w, line);
    }
    run_log_write_number(&w, "tokens_per_second", line->tokens_per_second);
    run_log_write_number(&w, "seconds", line->seconds);
    json_write_key(&w, "device_bytes"), json_write_int(&w, (int64_t)line->device_bytes);
    json_write_object_end(&w);
    fputc('\n', log->file);
    if (fflush(log->file) != 0 || ferror(log->file)) return fail_errno("%s: cannot be written", log->path);
    return run_log_write_events(log, line);
}

enum status run_log_sync(struct run_log *log) {
    if (fsync(fileno(log->file)) != 0) return fail_errno("%s: cannot be synced", log->path);
    return event_file_sync(log->events);
}

void run_log_close(struct run_log *log) {
    if (!log) return;
    if (log->file) fclose(log->file); /* every line was flushed, and the flush was checked */
    event_file_close(log->events);
    memory_free(log->path);
    memory_free(log);
}
