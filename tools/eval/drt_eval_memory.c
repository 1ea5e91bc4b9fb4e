/* drt_eval_memory.c -- the modes of drt-eval ppl that mix a token memory into the model's probabilities. */
#include "tools/eval/drt_eval_run.h"
#include <math.h>

/* Which configuration serves a mode: random chunks are mixed as found ones would be. */
static enum memory_kind kind_of(int mode) {
    return mode == EVAL_MEMORY_OWN ? MEMORY_OWN : mode == EVAL_MEMORY_BOTH ? MEMORY_BOTH : MEMORY_CORPUS;
}

enum status eval_memory_prepare(struct eval_run *r) {
    const struct memory_config *memory = &r->engines->memory;
    int n = 0;
    if (!eval_has_memory(r->result)) return STATUS_OK;
    for (int mode = EVAL_MEMORY_OWN; mode < EVAL_MODES; mode++) {
        const struct memory_mixture *mixture = &memory->mixture[kind_of(mode)];
        if (!r->result->mode[mode]) continue;
        if (!mixture->given)
            return fail(STATUS_INVALID, "%s: has nothing fitted for \"%s\": leave it out of --memory, or fit again",
                        r->options->memory_options.config, memory_kind_names[kind_of(mode)]);
        r->read_of[mode] = n;
        const int taus = r->samples ? MEMORY_TAUS : 1;
        for (int t = 0; t < taus; t++)
            r->reads[n++] = (struct memory_read){.past = mode == EVAL_MEMORY_OWN || mode == EVAL_MEMORY_BOTH,
                                                 .found = mode == EVAL_MEMORY_CORPUS || mode == EVAL_MEMORY_BOTH,
                                                 .drawn = mode == EVAL_MEMORY_RANDOM,
                                                 .tau = (float)(r->samples ? memory_taus[t] : mixture->tau)};
    }
    const struct memory_window_config config = {.engine = r->engine,
                                                .memory = memory,
                                                .lexical = r->engines->lexical,
                                                .context = r->options->context,
                                                .seed = (uint64_t)r->options->seed};
    return memory_window_create(&r->memory, &config, r->reads, n);
}

enum status eval_memory_score(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t n,
                              int64_t first) {
    struct memory_lm lm;
    TRY(memory_window_run(r->memory, &lm, ids, n, first, r->stored));
    if (r->samples) {
        TRY(eval_samples_lm(r->samples, &lm, n - first, (int32_t)r->result->n_documents));
        for (int mode = EVAL_MEMORY_OWN; mode < EVAL_MODES; mode++)
            if (r->result->mode[mode]) eval_samples_memory(r->samples, mode, &r->reads[r->read_of[mode]]);
    }
    for (int mode = EVAL_MEMORY_OWN; mode < EVAL_MODES && !r->samples; mode++) {
        if (!r->result->mode[mode]) continue;
        const struct memory_read *read = &r->reads[r->read_of[mode]];
        const struct memory_gate *gate = &r->engines->memory.mixture[kind_of(mode)].gate;
        for (int64_t i = 0; i < n - first; i++) {
            float features[MEMORY_FEATURES];
            memory_window_features(features, &lm, read, i);
            d->nll[mode] -= memory_mixed((double)lm.log_p[i], (double)read->log_p[i], memory_gate_open(gate, features));
        }
        r->result->seconds[mode] = read->seconds;
    }
    return STATUS_OK;
}
