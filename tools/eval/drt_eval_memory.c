/* drt_eval_memory.c -- the modes of drt-eval ppl that mix token memories into the model's probabilities. */
#include "kernels/memory/next_token.h"
#include "tools/eval/drt_eval_run.h"
#include "tools/eval/fit/drt_eval_searches.h"
#include <math.h>

enum memory_kind eval_kind_of(int mode) {
    if (mode == EVAL_MEMORY_BOTH || mode == EVAL_MEMORY_OTHER_BOTH || mode >= EVAL_PART_BOTH) return MEMORY_BOTH;
    return mode == EVAL_MEMORY_OWN_PAST ? MEMORY_OWN_PAST : MEMORY_CORPUS;
}

int eval_read_of(int mode, int side) {
    if (!memory_kind_reads(eval_kind_of(mode), side)) return -1;
    if (side == MEMORY_OWN_PAST) return MEMORY_READ_PAST;
    if (mode >= EVAL_PART_CORPUS) return MEMORY_READ_PART + (mode - EVAL_PART_CORPUS) % EVAL_PARTS;
    if (mode == EVAL_MEMORY_KNN) return MEMORY_READ_KNN;
    return mode == EVAL_MEMORY_RANDOM                                    ? MEMORY_READ_RANDOM
           : mode == EVAL_MEMORY_ORACLE                                  ? MEMORY_READ_ORACLE
           : mode == EVAL_MEMORY_OTHER || mode == EVAL_MEMORY_OTHER_BOTH ? MEMORY_READ_OTHER
                                                                         : MEMORY_READ_FOUND;
}

/* Adds the temperature `tau` to the read's list, which is ascending, unless the list has it. */
static void read_wants(struct memory_read *read, float tau) {
    int at = 0;
    while (at < read->taus && read->tau[at] < tau)
        at++;
    if (at < read->taus && read->tau[at] == tau) return;
    for (int t = read->taus++; t > at; t--)
        read->tau[t] = read->tau[t - 1];
    read->tau[at] = tau;
}
static int read_index(const struct memory_read *read, float tau) {
    int at = 0;
    while (read->tau[at] < tau)
        at++;
    return at;
}

/* Whether this run only adds queries to kNN-LM, and scores no tokens. */
static bool eval_memory_collects(const struct eval_run *r) {
    return r->engines->knn && !memory_knn_searched(r->engines->knn);
}

static enum status memory_wants(struct eval_run *r, int mode) {
    enum memory_kind kind = eval_kind_of(mode);
    const struct memory_mixture *mixture = &r->engines->memory.mixture[kind];
    const bool all = r->samples || eval_memory_collects(r);
    if (!all) TRY(memory_options_fitted(&r->engines->memory, r->engines->memory_file, kind));
    for (int side = 0; side < MEMORY_SIDES; side++) {
        int read = eval_read_of(mode, side);
        if (read < 0 || read == MEMORY_READ_OTHER) continue; /* OTHER comes from a file */
        for (int t = 0; all && t < MEMORY_TAUS; t++)
            read_wants(&r->reads_of[read], (float)memory_taus[t]);
        if (!all) read_wants(&r->reads_of[read], (float)mixture->tau[side]);
    }
    return STATUS_OK;
}

enum status eval_memory_prepare(struct eval_run *r) {
    const struct memory_config *memory = &r->engines->memory;
    int n = 0;
    if (!eval_has_memory(r->result)) return STATUS_OK;
    if (r->engines->searches) return eval_searches_prepare(r);
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_MODES; mode++)
        if (r->result->mode[mode]) TRY(memory_wants(r, mode));
    for (int what = 0; what < MEMORY_READS; what++) {
        if (r->reads_of[what].taus == 0) continue;
        r->read_at[what] = n;
        r->reads_of[what].what = (enum memory_reads)what;
        r->reads[n++] = r->reads_of[what];
        if (r->samples) r->samples->has[what] = true;
    }
    const struct memory_window_config config = {.engine = r->engine,
                                                .memory = memory,
                                                .finder = memory_search_finder(r->engines->search),
                                                .knn = r->engines->knn,
                                                .context = r->options->context,
                                                .past = memory_options_past(&r->options->memory_options),
                                                .seed = (uint64_t)r->options->seed,
                                                .gca = r->memory_gca,
                                                .progress = &r->in_window};
    r->result->store_chunks = r->engine->info.chunks;
    r->result->memory_search = memory_search_describe(r->engines->search, memory->k);
    TRY(memory_window_create(&r->memory, &config, r->reads, n));
    r->result->memory = memory;
    r->result->memory_file = r->engines->memory_file;
    r->result->memory_keys = memory_window_keys(r->memory);
    return STATUS_OK;
}

/* Adds the losses of n scored tokens in one mode. */
static void mode_score(struct eval_run *r, struct eval_document *d, const struct memory_lm *lm, int mode, int64_t n,
                       int64_t token) {
    const struct memory_mixture *mixture = &r->engines->memory.mixture[eval_kind_of(mode)];
    r->result->seconds[mode] = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct memory_lm_evidence model = {lm->entropy[i], lm->largest[i]};
        struct memory_evidence of[MEMORY_SIDES] = {0};
        double g[1 + MEMORY_SIDES], log_p[MEMORY_SIDES] = {-INFINITY, -INFINITY};
        for (int side = 0; side < MEMORY_SIDES; side++) {
            int what = eval_read_of(mode, side);
            if (what < 0) continue;
            const struct memory_read *read = &r->reads[r->read_at[what]];
            float *const *column = read->column[read_index(read, (float)mixture->tau[side])];
            of[side] = memory_evidence_of(read->mark, column, i);
            log_p[side] = (double)column[MEMORY_LOG_P][i];
        }
        memory_gate_weights(g, &mixture->gate, &model, of);
        double nll = -memory_mixed(g, (double)lm->log_p[i], log_p);
        d->nll[mode] += nll;
        r->result->tokens.nll[mode][token + i] = (float)nll;
    }
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (eval_read_of(mode, side) >= 0)
            r->result->seconds[mode] += r->reads[r->read_at[eval_read_of(mode, side)]].seconds;
}

enum status eval_memory_score(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t n, int64_t first,
                              int64_t token) {
    struct memory_lm lm;
    TRY(memory_window_run(r->memory, &lm, ids, n, first, r->stored));
    if (r->samples) TRY(memory_samples_lm(r->samples, &lm, n - first, (int32_t)r->result->n_documents));
    for (int what = 0; what < MEMORY_READS && r->samples; what++)
        if (r->samples->has[what]) memory_samples_read(r->samples, &r->reads[r->read_at[what]]);
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_MODES && !r->samples && !eval_memory_collects(r); mode++)
        if (r->result->mode[mode]) mode_score(r, d, &lm, mode, n - first, token);
    return STATUS_OK;
}
