/* memory_options.c -- see memory_options.h. */
#include "tools/memory/memory_options.h"
#include "base/memory.h"
#include "indexer/retrieve/memory_source.h"
#include "session/memory_folder.h"
#include <stdio.h>
#include <string.h>

enum { K = 32, EVERY = 16, AFTER = 1 };
static const double tau_default = 32, weight_default = 0.1;

bool memory_options_given(const struct memory_options *o) {
    return o->config || o->order || o->span || o->searcher || o->keys || o->k || o->every || o->layer || o->past ||
           o->tau > 0 || o->weight > 0;
}

int64_t memory_options_past(const struct memory_options *o) {
    return o->past ? o->past : MEMORY_PAST;
}

static enum status parse_span(int *before, int *after, const char *text) {
    char end;
    if (sscanf(text, "%d,%d%c", before, after, &end) == 2 && *before >= 0 && *before <= MEMORY_SPAN_MAX &&
        *after >= 0 && *after <= MEMORY_SPAN_MAX)
        return STATUS_OK;
    return fail(STATUS_INVALID, "--memory-span %s: must be two numbers of 0 to %d, such as 0,1", text, MEMORY_SPAN_MAX);
}

static enum memory_searcher parse_searcher(const char *name) {
    int at = 0;
    while (at + 1 < MEMORY_SEARCHERS && strcmp(name, memory_searcher_names[at]) != 0)
        at++;
    return (enum memory_searcher)at;
}

/* What a gate was fitted for. (A whole configuration has many KB, too many for a small stack.) */
struct setting {
    int key_layer, before, after;
    enum memory_searcher searcher;
};

/* Checks that no option changes the setting of a fitted gate. */
static enum status memory_options_agree(const char *file, const struct setting *fitted,
                                        const struct memory_config *wanted) {
    if (fitted->key_layer != wanted->key_layer)
        return fail(STATUS_INVALID,
                    "%s: its gate was fitted with --memory-layer %d, not %d: leave the option out, or fit a gate with "
                    "drt-eval fit-memory --memory-layer %d --out FILE and give it as --memory-config FILE",
                    file, fitted->key_layer, wanted->key_layer, wanted->key_layer);
    if (fitted->before != wanted->before || fitted->after != wanted->after)
        return fail(STATUS_INVALID,
                    "%s: its gate was fitted with --memory-span %d,%d, not %d,%d: leave the option out, or fit a gate "
                    "with drt-eval fit-memory --memory-span %d,%d --out FILE and give it as --memory-config FILE",
                    file, fitted->before, fitted->after, wanted->before, wanted->after, wanted->before, wanted->after);
    return memory_searcher_agrees(file, fitted->searcher, wanted->searcher);
}

/* Takes the order of the file's configuration. */
static enum status options_order(struct memory_config *out, const char *file, const struct model_folder *model) {
    struct memory_config *from; /* too large for a small stack */
    TRY(memory_allocate(&from, 1));
    enum status s = memory_folder_load(from, model, file, false);
    if (s == STATUS_OK && from->order.candidates == 0)
        s = fail(STATUS_INVALID, "%s: has no order of candidates: fit one with drt-eval fit-order", file);
    if (s == STATUS_OK) s = memory_searcher_agrees(file, from->searcher, out->searcher);
    if (s == STATUS_OK) out->order = from->order;
    memory_free(from);
    return s;
}

enum status memory_options_config(struct memory_config *out, char file[FILE_PATH_MAX], const struct memory_options *o,
                                  const struct model_folder *model, bool small) {
    int layers = model_config_layers(&model->config);
    const int layer = model_config_key_layer(&model->config);
    const bool mixed = o->tau > 0 || o->weight > 0;
    const double tau = o->tau > 0 ? o->tau : tau_default, weight = o->weight > 0 ? o->weight : weight_default;
    const bool fitted = o->config || (!o->unfitted && !mixed && memory_folder_has(model));
    memset(out, 0, sizeof *out);
    file[0] = 0;
    out->key_layer = layer, out->k = K, out->every = EVERY, out->after = AFTER;
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        out->mixture[kind] = (struct memory_mixture){
            .given = true, .tau = {tau, tau}, .gate = memory_gate_fixed((enum memory_kind)kind, weight)};
    if (o->config && mixed)
        return fail(STATUS_INVALID, "--memory-tau and --memory-weight: %s has both: leave them out", o->config);
    if (o->config) snprintf(file, FILE_PATH_MAX, "%s", o->config);
    if (fitted && !o->config) TRY(memory_folder_path(file, model, small));
    if (fitted) TRY(memory_folder_load(out, model, o->config ? o->config : file, small));
    memory_folder_sign(out, model);
    const struct setting of_gate = {out->key_layer, out->before, out->after, out->searcher};
    if (o->k) out->k = (int)o->k;
    if (o->every) out->every = (int)o->every;
    if (o->layer) out->key_layer = (int)o->layer;
    if (o->searcher) out->searcher = parse_searcher(o->searcher);
    for (int i = 0; o->keys && i < MEMORY_KEYS; i++)
        if (strcmp(o->keys, memory_keys_names[i]) == 0) out->keys = (enum memory_keys)i;
    if (o->span) TRY(parse_span(&out->before, &out->after, o->span));
    if (fitted) TRY(memory_options_agree(file, &of_gate, out));
    if (o->order) TRY(options_order(out, o->order, model));
    if (out->key_layer > layers)
        return fail(STATUS_INVALID, "--memory-layer %d: the model has %d layers", out->key_layer, layers);
    return STATUS_OK;
}

enum status memory_options_fitted(const struct memory_config *c, const char *file, enum memory_kind kind) {
    if (c->mixture[kind].given) return STATUS_OK;
    return fail(STATUS_INVALID, "%s: has nothing fitted for \"%s\": take another --memory, or fit again", file,
                memory_kind_names[kind]);
}
