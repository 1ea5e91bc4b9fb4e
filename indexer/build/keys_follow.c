/* keys_follow.c -- see keys_follow.h. */
#include "indexer/build/keys_follow.h"
#include <string.h>

enum relation { SAME, OTHER_ROUNDING, OTHER_MODEL };

struct keys_maker keys_maker_of(const struct model_config *model, const struct params *params,
                                enum store_keys_rounding rounding) {
    struct keys_maker m = {.layers = model_config_layers(model), .rounding = rounding};
    params_fingerprint(params, m.weights);
    return m;
}

/* A file that another program wrote may have a window that this one does not make. */
static enum relation relation_of(const struct store_keys_state *have, const struct keys_maker *maker) {
    const struct store_keys_spec *s = &have->spec;
    if (memcmp(maker->weights, s->model, sizeof s->model) != 0 || s->layer > maker->layers || s->window != KEY_WINDOW)
        return OTHER_MODEL;
    return s->rounding == (int32_t)maker->rounding ? SAME : OTHER_ROUNDING;
}

static const char *remedy_of(int32_t rounding) {
    return rounding == STORE_KEYS_BF16 ? "--dtype auto" : "--dtype f32";
}

static void note_lacking(const char *store, const struct store_keys_state *have, const struct keys_maker *maker,
                         const struct progress *progress) {
    const char *is = have->chunks == 0 ? "damaged" : "of another model";
    if (have->chunks > 0 && relation_of(have, maker) == OTHER_ROUNDING)
        progress_note(progress,
                      "%s: its keys were computed with %s products, this run computes %s, so they do not have the new "
                      "chunks: run drt-index keys --store %s with their model and %s",
                      store, store_keys_rounding_name(have->spec.rounding), store_keys_rounding_name(maker->rounding),
                      store, remedy_of(have->spec.rounding));
    else
        progress_note(progress,
                      "%s: its keys are %s and do not have the new chunks: run drt-index keys --store %s with their "
                      "model",
                      store, is, store);
}

void keys_follow_decide(struct keys_follow *out, const char *store, const struct store_keys_state *have,
                        const struct keys_maker *maker, bool wanted, const struct progress *progress) {
    const bool same = have->chunks > 0 && relation_of(have, maker) == SAME;
    *out = (struct keys_follow){.lacking = have->files > 0 ? have->all - have->chunks : 0};
    if (same) out->layer = have->spec.layer, out->step = have->spec.step;
    out->make = wanted || (same && out->lacking > 0);
    if (!out->make && out->lacking > 0) note_lacking(store, have, maker, progress);
}

static enum status keys_follow_refused(const char *store, const struct store_keys_state *have,
                                       enum store_keys_rounding rounding, enum relation relation) {
    if (relation == OTHER_ROUNDING)
        return fail(STATUS_MISMATCH,
                    "%s: its keys were computed with %s products, and this run computes %s: take %s, or run drt-index "
                    "keys --store %s --remove first",
                    store, store_keys_rounding_name(have->spec.rounding), store_keys_rounding_name(rounding),
                    remedy_of(have->spec.rounding), store);
    return fail(STATUS_MISMATCH,
                "%s: it has keys of another model, layer or step: to replace them, run drt-index keys --store %s "
                "--remove first",
                store, store);
}

enum status keys_follow_check(const char *store, const struct store_keys_state *have, const struct keys_maker *maker) {
    const enum relation relation = have->chunks > 0 ? relation_of(have, maker) : SAME;
    return relation == SAME ? STATUS_OK : keys_follow_refused(store, have, maker->rounding, relation);
}

enum status keys_spec_check(const char *store, const struct store_keys_state *have,
                            const struct store_keys_spec *spec) {
    struct store_keys_spec other = have->spec;
    if (have->chunks == 0 || memcmp(&other, spec, sizeof other) == 0) return STATUS_OK;
    other.rounding = spec->rounding;
    const bool rounding = memcmp(&other, spec, sizeof other) == 0;
    return keys_follow_refused(store, have, (enum store_keys_rounding)spec->rounding,
                               rounding ? OTHER_ROUNDING : OTHER_MODEL);
}

enum status keys_follow_make(struct stored_keys_report *out, const char *store, const struct stored_keys_job *job) {
    const struct store_keys_spec spec = stored_keys_job_spec(job);
    struct store_keys_state have;
    TRY(store_keys_state(&have, job->config.view));
    TRY(keys_spec_check(store, &have, &spec));
    const enum status s = stored_keys_make(out, job);
    if (s != STATUS_NO_SPACE) return s;
    return fail(s, "%s; all documents are in the store, but not all keys: run the command again after that",
                status_message());
}
