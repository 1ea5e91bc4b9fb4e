/* memory_config.c -- the file of a token memory (JSON, version 2), and gates that are not fitted. */
#include "decoder/memory_config.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/formats/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIT_AGAIN "fit it again with drt-eval fit-memory"

const char *const memory_kind_names[MEMORY_KINDS] = {"own", "corpus", "both"};

bool memory_kind_reads(enum memory_kind kind, int side) {
    return kind == MEMORY_BOTH || (int)kind == side;
}

struct memory_gate memory_gate_fixed(enum memory_kind kind, double weight) {
    struct memory_gate gate = {0};
    int sides = kind == MEMORY_BOTH ? MEMORY_SIDES : 1;
    for (int i = 0; i < MEMORY_FEATURES; i++)
        gate.deviation[i] = 1;
    for (int side = 0; side < MEMORY_SIDES; side++)
        gate.b2[side] = log(weight / (sides * (1 - weight)));
    return gate;
}

/* The members that are numbers, those that are fingerprints, and the arrays of numbers of a mixture. */
static const struct {
    const char *name;
    size_t offset;
    int64_t low, high;
} whole[] = {
    {"key_layer", offsetof(struct memory_config, key_layer), 1, 1 << 10},
    {"k", offsetof(struct memory_config, k), 1, MEMORY_K_MAX},
    {"every", offsetof(struct memory_config, every), 1, MEMORY_EVERY_MAX},
    {"before", offsetof(struct memory_config, before), 0, 8},
    {"after", offsetof(struct memory_config, after), 0, 8},
};
static const struct {
    const char *name;
    size_t offset;
} prints[] = {
    {"tokenizer", offsetof(struct memory_config, tokenizer)},
    {"weights", offsetof(struct memory_config, weights)},
};
static const struct {
    const char *name;
    size_t offset;
    int n;
} arrays[] = {
    {"tau", offsetof(struct memory_mixture, tau), MEMORY_SIDES},
    {"mean", offsetof(struct memory_mixture, gate.mean), MEMORY_FEATURES},
    {"deviation", offsetof(struct memory_mixture, gate.deviation), MEMORY_FEATURES},
    {"w1", offsetof(struct memory_mixture, gate.w1), MEMORY_GATE_HIDDEN *MEMORY_FEATURES},
    {"b1", offsetof(struct memory_mixture, gate.b1), MEMORY_GATE_HIDDEN},
    {"w2", offsetof(struct memory_mixture, gate.w2), MEMORY_SIDES *MEMORY_GATE_HIDDEN},
    {"b2", offsetof(struct memory_mixture, gate.b2), MEMORY_SIDES},
};
enum {
    WHOLE = sizeof whole / sizeof whole[0],
    PRINTS = sizeof prints / sizeof prints[0],
    ARRAYS = sizeof arrays / sizeof arrays[0],
    PRINT_BYTES = 16
};

const char *const memory_searcher_names[MEMORY_SEARCHERS] = {"lexical", "landmark", "hybrid"};
const char *const memory_keys_names[MEMORY_KEYS] = {"auto", "stored", "device", "encoded"};

enum status memory_searcher_agrees(const char *file, enum memory_searcher fitted, enum memory_searcher wanted) {
    if ((fitted == MEMORY_LANDMARK) == (wanted == MEMORY_LANDMARK)) return STATUS_OK;
    return fail(STATUS_INVALID, "%s: was fitted with the scores of a %s search, not %s: take that kind, or fit again",
                file, memory_searcher_names[fitted], memory_searcher_names[wanted]);
}

static void *memory_config_member(const void *of, size_t offset) {
    return (char *)of + offset;
}

/* ---- writing ---- */

static void print_write(struct json_writer *w, const uint8_t print[PRINT_BYTES]) {
    char text[2 * PRINT_BYTES + 1];
    for (int i = 0; i < PRINT_BYTES; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", print[i]);
    json_write_string(w, text);
}

static void mixture_write(struct json_writer *w, const struct memory_mixture *m) {
    json_write_object(w);
    for (int i = 0; i < ARRAYS; i++) {
        const double *values = memory_config_member(m, arrays[i].offset);
        json_write_key(w, arrays[i].name);
        json_write_array(w);
        for (int j = 0; j < arrays[i].n; j++)
            json_write_double(w, values[j]);
        json_write_array_end(w);
    }
    json_write_object_end(w);
}

static void order_write(struct json_writer *w, const struct order_weights *order) {
    json_write_key(w, "order");
    json_write_object(w);
    json_write_key(w, "candidates"), json_write_int(w, order->candidates);
    json_write_key(w, "weights");
    json_write_array(w);
    for (int i = 0; i < CANDIDATE_FEATURES; i++)
        json_write_double(w, order->weights[i]);
    json_write_array_end(w);
    json_write_object_end(w);
}

enum status memory_config_save(const struct memory_config *c, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return fail(STATUS_NO_MEMORY, "%s: no memory to write it", path);
    struct json_writer w;
    json_write_open(&w, memory, 1);
    json_write_object(&w);
    json_write_key(&w, "version");
    json_write_int(&w, MEMORY_CONFIG_VERSION);
    for (int i = 0; i < PRINTS; i++) {
        json_write_key(&w, prints[i].name);
        print_write(&w, memory_config_member(c, prints[i].offset));
    }
    for (int i = 0; i < WHOLE; i++) {
        json_write_key(&w, whole[i].name);
        json_write_int(&w, *(const int *)memory_config_member(c, whole[i].offset));
    }
    json_write_key(&w, "searcher");
    json_write_string(&w, memory_searcher_names[c->searcher]);
    if (c->order.candidates > 0) order_write(&w, &c->order);
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        if (!c->mixture[kind].given) continue;
        json_write_key(&w, memory_kind_names[kind]);
        mixture_write(&w, &c->mixture[kind]);
    }
    json_write_object_end(&w);
    fputc('\n', memory);
    enum status s = fclose(memory) == 0 ? STATUS_OK : fail(STATUS_NO_MEMORY, "%s: no memory to write it", path);
    if (s == STATUS_OK) s = file_save(path, text, bytes);
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

/* Products and sums of larger numbers overflow, and a gate with such numbers gives no weights. */
static const double largest_number = 1e100;
static const double largest_weight = 1e15; /* of an order, whose sums are float32 */

static enum status mixture_check(const struct json *j, const struct memory_mixture *m, int kind) {
    bool sound = true;
    for (int i = 0; i < ARRAYS; i++)
        for (int k = 0; k < arrays[i].n; k++)
            sound = sound && fabs(((const double *)memory_config_member(m, arrays[i].offset))[k]) <= largest_number;
    for (int side = 0; side < MEMORY_SIDES; side++)
        sound = sound && (m->tau[side] > 0 || !memory_kind_reads((enum memory_kind)kind, side));
    for (int i = 0; i < MEMORY_FEATURES; i++)
        sound = sound && m->gate.deviation[i] > 0;
    return sound ? STATUS_OK
                 : fail(STATUS_INVALID,
                        "%s: \"%s\": tau and deviation must be above 0, and no number beyond 1e100: " FIT_AGAIN,
                        j->name, memory_kind_names[kind]);
}

static enum status mixture_read(struct json *j, struct memory_mixture *m, int kind) {
    unsigned seen = 0;
    if (m->given) return fail(STATUS_INVALID, "%s: \"%s\" is there twice", j->name, memory_kind_names[kind]);
    TRY(json_expect(j, JSON_OBJECT, "an object"));
    enum json_event event;
    while ((event = json_next(j)) == JSON_KEY) {
        int found = -1;
        for (int i = 0; i < ARRAYS; i++)
            if (json_equals(j, arrays[i].name)) found = i;
        if (found < 0) return json_fail(j, "tau or a part of the gate");
        if (seen & 1u << found) return json_fail(j, "each part of the gate once");
        TRY(array_read(j, memory_config_member(m, arrays[found].offset), arrays[found].n));
        seen |= 1u << found;
    }
    if (event != JSON_OBJECT_END) return json_fail(j, "a member");
    for (int i = 0; i < ARRAYS; i++)
        if (!(seen & 1u << i))
            return fail(STATUS_INVALID, "%s: %s of \"%s\" is missing: " FIT_AGAIN, j->name, arrays[i].name,
                        memory_kind_names[kind]);
    m->given = true;
    return mixture_check(j, m, kind);
}

static enum status order_read(struct json *j, struct order_weights *order) {
    bool weights = false;
    if (order->candidates > 0) return json_fail(j, "\"order\" once");
    TRY(json_expect(j, JSON_OBJECT, "an object"));
    enum json_event event;
    while ((event = json_next(j)) == JSON_KEY) {
        if (json_equals(j, "candidates")) {
            int64_t value;
            TRY(json_next_int(j, &value));
            if (value < 1 || value > MEMORY_CANDIDATES_MAX)
                return fail(STATUS_INVALID, "%s: candidates of \"order\" is %lld: must be 1 to %d", j->name,
                            (long long)value, MEMORY_CANDIDATES_MAX);
            order->candidates = (int)value;
        } else if (json_equals(j, "weights")) {
            TRY(array_read(j, order->weights, CANDIDATE_FEATURES));
            weights = true;
        } else {
            return json_fail(j, "candidates or weights");
        }
    }
    if (event != JSON_OBJECT_END) return json_fail(j, "a member");
    if (order->candidates == 0 || !weights)
        return fail(STATUS_INVALID, "%s: \"order\" needs candidates and weights: fit it again with drt-eval fit-order",
                    j->name);
    for (int i = 0; i < CANDIDATE_FEATURES; i++)
        if (fabs(order->weights[i]) > largest_weight)
            return fail(STATUS_INVALID, "%s: weights of \"order\" must not be beyond 1e15", j->name);
    return STATUS_OK;
}

static int memory_config_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum status print_read(struct json *j, uint8_t print[PRINT_BYTES]) {
    TRY(json_expect(j, JSON_STRING, "a fingerprint"));
    if (j->length != (size_t)2 * PRINT_BYTES) return json_fail(j, "a fingerprint of 32 hexadecimal digits");
    for (int i = 0; i < PRINT_BYTES; i++) {
        int high = memory_config_digit(j->text[2 * i]), low = memory_config_digit(j->text[2 * i + 1]);
        if (high < 0 || low < 0) return json_fail(j, "a fingerprint of 32 hexadecimal digits");
        print[i] = (uint8_t)(high * 16 + low);
    }
    return STATUS_OK;
}

static enum status searcher_read(struct json *j, enum memory_searcher *out) {
    TRY(json_expect(j, JSON_STRING, "landmark, lexical or hybrid"));
    for (int i = 0; i < MEMORY_SEARCHERS; i++)
        if (json_equals(j, memory_searcher_names[i])) {
            *out = (enum memory_searcher)i;
            return STATUS_OK;
        }
    return json_fail(j, "landmark, lexical or hybrid");
}

/* seen: one bit for each member of whole, then of prints. */
static enum status member_read(struct json *j, struct memory_config *c, unsigned *seen) {
    if (json_equals(j, "version")) return json_skip(j); /* config_version has read it */
    for (int i = 0; i < PRINTS; i++) {
        if (!json_equals(j, prints[i].name)) continue;
        *seen |= 1u << (WHOLE + i);
        return print_read(j, memory_config_member(c, prints[i].offset));
    }
    for (int i = 0; i < WHOLE; i++) {
        if (!json_equals(j, whole[i].name)) continue;
        int64_t value;
        TRY(json_next_int(j, &value));
        if (value < whole[i].low || value > whole[i].high)
            return fail(STATUS_INVALID, "%s: %s is %lld: must be %lld to %lld", j->name, whole[i].name,
                        (long long)value, (long long)whole[i].low, (long long)whole[i].high);
        *(int *)memory_config_member(c, whole[i].offset) = (int)value;
        *seen |= 1u << i;
        return STATUS_OK;
    }
    if (json_equals(j, "searcher")) return searcher_read(j, &c->searcher);
    if (json_equals(j, "order")) return order_read(j, &c->order);
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        if (json_equals(j, memory_kind_names[kind])) return mixture_read(j, &c->mixture[kind], kind);
    return json_fail(j, "a member of a memory's configuration (docs/token-memory.md)");
}

/* Read before everything else, because another version has other members. Version 1 had no number. */
static enum status config_version(struct json j) {
    int64_t version = 1;
    TRY(json_expect(&j, JSON_OBJECT, "an object"));
    enum json_event event;
    while ((event = json_next(&j)) == JSON_KEY) {
        if (json_equals(&j, "version"))
            TRY(json_next_int(&j, &version));
        else
            TRY(json_skip(&j));
    }
    if (event != JSON_OBJECT_END) return json_fail(&j, "a member");
    if (version == MEMORY_CONFIG_VERSION) return STATUS_OK;
    return fail(STATUS_INVALID, "%s: has version %lld of a memory's configuration, not %d: " FIT_AGAIN, j.name,
                (long long)version, MEMORY_CONFIG_VERSION);
}

enum status memory_config_parse(struct memory_config *c, const char *name, const void *text, size_t bytes) {
    struct json json, *j = &json;
    unsigned seen = 0;
    *c = (struct memory_config){0};
    json_open(j, name, text, bytes);
    TRY(config_version(*j));
    TRY(json_expect(j, JSON_OBJECT, "an object"));
    enum json_event event;
    while ((event = json_next(j)) == JSON_KEY)
        TRY(member_read(j, c, &seen));
    if (event != JSON_OBJECT_END) return json_fail(j, "a member");
    for (int i = 0; i < WHOLE + PRINTS; i++)
        if (!(seen & 1u << i))
            return fail(STATUS_INVALID, "%s: %s is missing: " FIT_AGAIN, j->name,
                        i < WHOLE ? whole[i].name : prints[i - WHOLE].name);
    return json_next(j) == JSON_END ? STATUS_OK : json_fail(j, "the end of the file");
}

enum status memory_config_load(struct memory_config *out, const char *path) {
    struct file_map map;
    TRY(file_map(&map, path));
    enum status s = memory_config_parse(out, path, map.data, map.size);
    file_unmap(&map);
    return s;
}
