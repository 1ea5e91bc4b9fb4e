/* golden_file.c -- tensors of a golden file, and their printed lines. */
#include "tests/golden/golden.h"
#include <stdarg.h>

static int find(const struct golden *g, const char *name) {
    for (int i = 0; i < safetensors_count(g->file); i++)
        if (strcmp(safetensors_at(g->file, i)->name, name) == 0) return i;
    return -1;
}

bool golden_has(const struct golden *g, const char *name) {
    return find(g, name) >= 0;
}

const struct tensor_view *golden_tensor(struct golden *g, const char *name) {
    int i = find(g, name);
    if (i >= 0) return safetensors_at(g->file, i);
    fprintf(stderr, "%s: has no tensor %s\n", g->name, name);
    exit(1);
}

void *golden_zeroed(int64_t count, size_t size) {
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    CHECK(memory);
    return memory;
}

float *golden_floats(struct golden *g, const char *name) {
    const struct tensor_view *t = golden_tensor(g, name);
    float *values = golden_zeroed(t->count, sizeof *values);
    CHECK_OK(safetensors_to_f32(values, t));
    return values;
}

int32_t *golden_ints(struct golden *g, const char *name) {
    const struct tensor_view *t = golden_tensor(g, name);
    int32_t *values = golden_zeroed(t->count, sizeof *values);
    CHECK_OK(safetensors_to_i32(values, t));
    return values;
}

char *golden_name(char out[96], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(out, 96, format, args);
    va_end(args);
    return out;
}

void golden_line(struct golden *g, const char *name, double difference, double tolerance) {
    bool ok = difference <= tolerance; /* false for NaN */
    printf("%s %s%s %.3g %g %s\n", g->name, name, g->suffix ? g->suffix : "", difference, tolerance,
           ok ? "ok" : "FAIL");
    g->failures += !ok;
    int i = find(g, name);
    if (i >= 0) g->seen[i] = true;
}

void golden_compare(struct golden *g, const char *name, const float *ours, int64_t n, double tolerance) {
    if (!golden_has(g, name)) return;
    if (golden_tensor(g, name)->count != n) {
        printf("%s %s has %lld elements where we have %lld FAIL\n", g->name, name,
               (long long)golden_tensor(g, name)->count, (long long)n);
        g->failures++;
        g->seen[find(g, name)] = true;
        return;
    }
    float *theirs = golden_floats(g, name);
    double worst = 0, squares = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = ours[i] == theirs[i] ? 0 : fabs((double)ours[i] - (double)theirs[i]);
        if (!(difference <= worst)) worst = difference;
        if (isnan(difference)) break;
        squares += difference * difference;
        if (isfinite(theirs[i])) size += (double)theirs[i] * (double)theirs[i];
    }
    if (g->type == DTYPE_F32 || isnan(worst))
        golden_line(g, name, worst, tolerance);
    else
        golden_line(g, name, size > 0 ? sqrt(squares / size) : sqrt(squares), TOLERANCE_BF16);
    free(theirs);
}

void golden_leave(struct golden *g, const char *name, const char *reason) {
    int i = find(g, name);
    if (i < 0 || g->seen[i]) return;
    printf("%s %s not compared: %s\n", g->name, name, reason);
    g->seen[i] = true;
}

void golden_finish(struct golden *g) {
    for (int i = 0; i < safetensors_count(g->file); i++) {
        const char *name = safetensors_at(g->file, i)->name;
        if (strncmp(name, "alt.", 4) == 0) golden_leave(g, name, "a known deviation, not the rule");
        bool counts = strncmp(name, "out.", 4) == 0 || strncmp(name, "grad.", 5) == 0;
        if (!counts || g->seen[i]) continue;
        printf("%s %s no rule of this program compares it FAIL\n", g->name, name);
        g->failures++;
    }
}
