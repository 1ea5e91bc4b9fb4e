/* result.c -- see result.h. */
#include "tests/bench/result.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/system/processors.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const char build_version_commit[]; /* cmake/version.cmake; "" outside of a git checkout */

static struct {
    const char *path, *name; /* path NULL: nothing is written */
    FILE *memory;
    char *text;
    size_t bytes;
    struct json_writer json;
    char cpu[128], gpu[128], command[2048];
    double load;
    bool has_figures;
} result;

_Noreturn static void result_fail(void) {
    fprintf(stderr, "%s: %s\n", result.name, status_message());
    exit(1);
}

static void result_machine(void) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(result.cpu, sizeof result.cpu, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        snprintf(result.cpu, sizeof result.cpu, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        break;
    }
    if (file) fclose(file);
    if (getloadavg(&result.load, 1) != 1) result.load = 0;
}

static void result_command(int argc, char **argv) {
    size_t at = 0;
    for (int i = 0; i < argc; i++) {
        const char *quote = argv[i][0] == '\0' || strpbrk(argv[i], " '\"$&;|<>()*") ? "'" : "";
        int n =
            snprintf(result.command + at, sizeof result.command - at, "%s%s%s%s", i ? " " : "", quote, argv[i], quote);
        if (n < 0 || (size_t)n >= sizeof result.command - at) return; /* a long command is truncated */
        at += (size_t)n;
    }
}

void result_begin(const char *name, int *argc, char **argv) {
    int kept = 1;
    result.name = name;
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--json") != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        if (i + 1 == *argc) {
            fprintf(stderr, "%s: --json needs the name of a file\n", name);
            exit(2);
        }
        result.path = argv[++i];
    }
    argv[kept] = NULL;
    *argc = kept;
    if (!result.path) return;
    result_machine();
    result_command(*argc, argv);
    result.memory = open_memstream(&result.text, &result.bytes);
    if (!result.memory) {
        (void)fail_errno("%s", result.path);
        result_fail();
    }
}

void result_gpu(const char *name) {
    if (!name) name = getenv("DRT_GPU");
    snprintf(result.gpu, sizeof result.gpu, "%s", name && *name ? name : "unknown");
}

static void result_string(const char *key, const char *value) {
    json_write_key(&result.json, key);
    json_write_string(&result.json, value);
}

static void result_number(const char *key, double value) {
    char digits[32]; /* six digits: more would be noise */
    snprintf(digits, sizeof digits, "%.6g", value);
    json_write_key(&result.json, key);
    json_write_double(&result.json, strtod(digits, NULL));
}

/* Writes the part before the figures; called with the first figure, when the device is known. */
static void result_head(void) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    const char *commit = getenv("DRT_COMMIT");
    if (!commit || !*commit) commit = build_version_commit;
    result.has_figures = true;
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &utc));
    json_write_open(&result.json, result.memory, 1);
    json_write_object(&result.json);
    result_string("name", result.name);
    result_string("commit", *commit ? commit : "unknown");
    result_string("date", date);
    result_string("command", result.command);
    json_write_key(&result.json, "machine");
    json_write_object(&result.json);
    result_string("cpu", result.cpu);
    json_write_key(&result.json, "cores");
    json_write_int(&result.json, processors_available());
    result_number("load", result.load);
    if (result.gpu[0]) result_string("gpu", result.gpu);
    json_write_object_end(&result.json);
    json_write_key(&result.json, "figures");
    json_write_array(&result.json);
}

static void result_write_figure(const struct figure *f, const char *name) {
    double scale = f->scale != 0 ? f->scale : 1;
    struct samples scaled = {0};
    if (!result.has_figures) result_head();
    for (int64_t i = 0; i < f->count; i++)
        samples_add(&scaled, f->work != 0 ? f->work / (f->values[i] * scale) : f->values[i] * scale);
    json_write_object(&result.json);
    result.json.indent = 0; /* a line a figure */
    result_string("name", name);
    result_string("unit", f->unit);
    result_number("median", samples_quantile(scaled.at, scaled.count, 0.5));
    result_number("q1", samples_quantile(scaled.at, scaled.count, 0.25));
    result_number("q3", samples_quantile(scaled.at, scaled.count, 0.75));
    json_write_key(&result.json, "n");
    json_write_int(&result.json, f->count);
    if (f->peer) {
        result_string("peer", f->peer);
        result_number("ratio", f->ratio);
    }
    json_write_object_end(&result.json);
    result.json.indent = 1;
    samples_free(&scaled);
}

void result_figure(const struct figure *f, const char *format, ...) {
    char name[200];
    va_list args;
    if (!result.path) return;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    result_write_figure(f, name);
}

void result_value(const char *unit, double value, const char *format, ...) {
    char name[200];
    va_list args;
    if (!result.path) return;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    result_write_figure(&(struct figure){.unit = unit, .values = &value, .count = 1}, name);
}

void result_end(void) {
    struct file_writer *writer;
    if (!result.path) return;
    if (!result.has_figures) result_head();
    json_write_array_end(&result.json);
    json_write_object_end(&result.json);
    if (fclose(result.memory) != 0) {
        (void)fail_errno("%s", result.path);
        result_fail();
    }
    if (file_create(&writer, result.path) != STATUS_OK) result_fail();
    if (file_write(writer, result.text, result.bytes) != STATUS_OK) {
        file_discard(writer);
        result_fail();
    }
    if (file_publish(writer) != STATUS_OK) result_fail();
    free(result.text);
    result.path = NULL;
}

void samples_add(struct samples *s, double value) {
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 16;
        s->at = realloc(s->at, (size_t)s->capacity * sizeof *s->at);
        if (!s->at) abort();
    }
    s->at[s->count++] = value;
}

void samples_free(struct samples *s) {
    free(s->at);
    *s = (struct samples){0};
}

static int samples_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_quantile(const double *values, int64_t count, double q) {
    double *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted) abort();
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, samples_compare);
    double at = q * (double)(count - 1);
    int64_t below = (int64_t)at;
    double value = sorted[below];
    if (below + 1 < count) value += (at - (double)below) * (sorted[below + 1] - sorted[below]);
    free(sorted);
    return value;
}
