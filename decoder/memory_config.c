/* memory_config.c -- the file of a token memory, and what its gate computes. */
#include "decoder/memory_config.h"
#include "base/file.h"
#include "base/formats/json.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const memory_kind_names[MEMORY_KINDS] = {"own", "corpus", "both"};

/* ---- the gate ---- */

struct memory_gate memory_gate_fixed(double weight) {
    struct memory_gate gate = {.b2 = log(weight / (1 - weight))};
    for (int i = 0; i < MEMORY_FEATURES; i++)
        gate.deviation[i] = 1;
    return gate;
}

double memory_gate_open(const struct memory_gate *gate, const float features[MEMORY_FEATURES]) {
    if (features[MEMORY_LSE] == -INFINITY) return 0;
    double x[MEMORY_FEATURES], sum = gate->b2;
    for (int i = 0; i < MEMORY_FEATURES; i++)
        x[i] = ((double)features[i] - gate->mean[i]) / gate->deviation[i];
    for (int h = 0; h < MEMORY_GATE_HIDDEN; h++) {
        double a = gate->b1[h];
        for (int i = 0; i < MEMORY_FEATURES; i++)
            a += gate->w1[h][i] * x[i];
        sum += gate->w2[h] * tanh(a);
    }
    return 1 / (1 + exp(-sum));
}

double memory_mixed(double log_lm, double log_p, double g) {
    double lm = log_lm + log1p(-g), memory = g > 0 ? log_p + log(g) : -INFINITY;
    double top = lm > memory ? lm : memory;
    return top == -INFINITY ? top : top + log1p(exp((lm > memory ? memory : lm) - top));
}

/* ---- writing ---- */

/* The members that are numbers, and arrays of numbers. */
static const struct {
    const char *name;
    size_t offset;
    int64_t low, high;
} whole[] = {
    {"key_layer", offsetof(struct memory_config, key_layer), 1, 1 << 10},
    {"k", offsetof(struct memory_config, k), 1, 1024},
    {"every", offsetof(struct memory_config, every), 1, 1024},
    {"before", offsetof(struct memory_config, before), 0, 8},
    {"after", offsetof(struct memory_config, after), 0, 8},
};
static const struct {
    const char *name;
    size_t offset;
    int n;
} arrays[] = {
    {"mean", offsetof(struct memory_gate, mean), MEMORY_FEATURES},
    {"deviation", offsetof(struct memory_gate, deviation), MEMORY_FEATURES},
    {"w1", offsetof(struct memory_gate, w1), MEMORY_GATE_HIDDEN *MEMORY_FEATURES},
    {"b1", offsetof(struct memory_gate, b1), MEMORY_GATE_HIDDEN},
    {"w2", offsetof(struct memory_gate, w2), MEMORY_GATE_HIDDEN},
    {"b2", offsetof(struct memory_gate, b2), 1},
};
enum { WHOLE = sizeof whole / sizeof whole[0], ARRAYS = sizeof arrays / sizeof arrays[0] };

static void mixture_write(struct json_writer *w, const struct memory_mixture *m) {
    json_write_object(w);
    json_write_key(w, "tau");
    json_write_double(w, m->tau);
    for (int i = 0; i < ARRAYS; i++) {
        const double *values = (const double *)(const void *)((const char *)&m->gate + arrays[i].offset);
        json_write_key(w, arrays[i].name);
        json_write_array(w);
        for (int j = 0; j < arrays[i].n; j++)
            json_write_double(w, values[j]);
        json_write_array_end(w);
    }
    json_write_object_end(w);
}

enum status memory_config_save(const struct memory_config *c, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) return fail(STATUS_NO_MEMORY, "%s: no memory to write it", path);
    struct json_writer w;
    json_write_open(&w, memory, 1);
    json_write_object(&w);
    for (int i = 0; i < WHOLE; i++) {
        json_write_key(&w, whole[i].name);
        json_write_int(&w, *(const int *)(const void *)((const char *)c + whole[i].offset));
    }
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        if (!c->mixture[kind].given) continue;
        json_write_key(&w, memory_kind_names[kind]);
        mixture_write(&w, &c->mixture[kind]);
    }
    json_write_object_end(&w);
    fputc('\n', memory);
    struct file_writer *file = NULL;
    enum status s = fclose(memory) == 0 ? STATUS_OK : fail(STATUS_NO_MEMORY, "%s: no memory to write it", path);
    if (s == STATUS_OK) s = file_create(&file, path);
    if (s == STATUS_OK) s = file_write(file, text, bytes);
    if (s == STATUS_OK)
        s = file_publish(file);
    else
        file_discard(file);
    free(text);
    return s;
}

/* ---- reading ---- */

static enum status array_read(struct json *j, double *values, int n) {
    TRY(json_expect(j, JSON_ARRAY, "an array of numbers"));
    for (int i = 0; i < n; i++)
        TRY(json_next_double(j, &values[i]));
    return json_expect(j, JSON_ARRAY_END, "the end of the array");
}

static enum status mixture_read(struct json *j, struct memory_mixture *m, const char *kind) {
    unsigned seen = 0;
    if (m->given) return fail(STATUS_INVALID, "%s: \"%s\" is there twice", j->name, kind);
    TRY(json_expect(j, JSON_OBJECT, "an object"));
    enum json_event event;
    while ((event = json_next(j)) == JSON_KEY) {
        int found = -1;
        for (int i = 0; i < ARRAYS; i++)
            if (json_equals(j, arrays[i].name)) found = i;
        if (found < 0 && !json_equals(j, "tau")) return json_fail(j, "tau or a part of the gate");
        if (found < 0)
            TRY(json_next_double(j, &m->tau));
        else
            TRY(array_read(j, (double *)(void *)((char *)&m->gate + arrays[found].offset), arrays[found].n));
        seen |= 1u << (found + 1);
    }
    if (event != JSON_OBJECT_END) return json_fail(j, "a member");
    for (int i = -1; i < ARRAYS; i++)
        if (!(seen & 1u << (i + 1)))
            return fail(STATUS_INVALID, "%s: %s of \"%s\" is missing: fit it again with drt-eval fit-memory", j->name,
                        i < 0 ? "tau" : arrays[i].name, kind);
    bool sound = m->tau > 0 && isfinite(m->tau);
    for (int i = 0; i < MEMORY_FEATURES; i++)
        sound = sound && m->gate.deviation[i] > 0;
    if (!sound) return fail(STATUS_INVALID, "%s: \"%s\": tau and deviation must be above 0", j->name, kind);
    m->given = true;
    return STATUS_OK;
}

static enum status member_read(struct json *j, struct memory_config *c, unsigned *seen) {
    for (int i = 0; i < WHOLE; i++) {
        if (!json_equals(j, whole[i].name)) continue;
        int64_t value;
        TRY(json_next_int(j, &value));
        if (value < whole[i].low || value > whole[i].high)
            return fail(STATUS_INVALID, "%s: %s is %lld: must be %lld to %lld", j->name, whole[i].name,
                        (long long)value, (long long)whole[i].low, (long long)whole[i].high);
        *(int *)(void *)((char *)c + whole[i].offset) = (int)value;
        *seen |= 1u << i;
        return STATUS_OK;
    }
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        if (json_equals(j, memory_kind_names[kind])) return mixture_read(j, &c->mixture[kind], memory_kind_names[kind]);
    return json_fail(j, "a member of a memory's configuration (docs/token-memory.md)");
}

static enum status config_read(struct memory_config *c, struct json *j) {
    unsigned seen = 0;
    *c = (struct memory_config){0};
    TRY(json_expect(j, JSON_OBJECT, "an object"));
    enum json_event event;
    while ((event = json_next(j)) == JSON_KEY)
        TRY(member_read(j, c, &seen));
    if (event != JSON_OBJECT_END) return json_fail(j, "a member");
    for (int i = 0; i < WHOLE; i++)
        if (!(seen & 1u << i))
            return fail(STATUS_INVALID, "%s: %s is missing: fit it again with drt-eval fit-memory", j->name,
                        whole[i].name);
    return json_next(j) == JSON_END ? STATUS_OK : json_fail(j, "the end of the file");
}

enum status memory_config_load(struct memory_config *out, const char *path) {
    struct file_map map;
    struct json json;
    TRY(file_map(&map, path));
    json_open(&json, path, map.data, map.size);
    enum status s = config_read(out, &json);
    file_unmap(&map);
    return s;
}
