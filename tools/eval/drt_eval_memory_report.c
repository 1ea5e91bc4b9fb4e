/* drt_eval_memory_report.c -- the tables of token memories: gains, pairs, figures by shared run, tokens
 * improved and worsened. */
#include "tools/eval/drt_eval_parts.h"
#include "tools/eval/drt_eval_tokens.h"
#include <math.h>

const struct eval_pair eval_memory_pairs[EVAL_MEMORY_PAIRS] = {
    {EVAL_MEMORY_BOTH, EVAL_MEMORY_OWN_PAST}, {EVAL_MEMORY_BOTH, EVAL_MEMORY_CORPUS},
    {EVAL_MEMORY_CORPUS, EVAL_MEMORY_RANDOM}, {EVAL_MEMORY_ORACLE, EVAL_MEMORY_CORPUS},
    {EVAL_MEMORY_KNN, EVAL_MEMORY_CORPUS},    {EVAL_MEMORY_OWN_PAST, EVAL_BASE_2},
    {EVAL_MEMORY_BOTH, EVAL_BASE_2},          {EVAL_MEMORY_OWN_PAST, EVAL_BASE_3},
    {EVAL_MEMORY_BOTH, EVAL_BASE_3},          {EVAL_MEMORY_OWN_PAST, EVAL_BASE_4},
    {EVAL_MEMORY_BOTH, EVAL_BASE_4},          {EVAL_MEMORY_OTHER_BOTH, EVAL_MEMORY_OWN_PAST},
};

static bool is_shown(const struct eval_result *r, int mode) {
    return r->mode[mode] && mode != eval_reference(r);
}

/* ---- as text ---- */

static enum status print_change(const struct eval_result *r, int a, int b) {
    struct ratio change;
    TRY(eval_change(&change, r, a, b));
    struct ratio percent = eval_map(change, eval_to_percent);
    printf(" %+9.2f %%", percent.value);
    eval_print_interval(percent, "%+.2f %%");
    for (int i = 0; i < r->n_files; i++) {
        struct ratio file = {0};
        if (r->files[i].tokens == 0) continue;
        TRY(eval_figure(&file, r, i, a, b, EVAL_PER_TOKEN));
        printf(" %+.2f", eval_to_percent(file.value));
    }
    printf("\n");
    return STATUS_OK;
}

static enum status print_gains(const struct eval_result *r, int reference) {
    printf("\n%-18s %11s  %-21s mean over files, bootstrap over documents; by file\n", "mode",
           reference == EVAL_BASE ? "to base" : "to none", "95 % interval");
    for (int mode = 0; mode < EVAL_PART_CORPUS; mode++) { /* eval_print_parts prints the other modes */
        if (!is_shown(r, mode)) continue;
        printf("%-18s", eval_mode_names[mode]);
        TRY(print_change(r, mode, reference));
    }
    return STATUS_OK;
}

static enum status print_pairs(const struct eval_result *r) {
    bool headed = false;
    for (int i = 0; i < EVAL_MEMORY_PAIRS; i++) {
        const struct eval_pair *p = &eval_memory_pairs[i];
        char pair[64];
        if (!r->mode[p->a] || !r->mode[p->b]) continue;
        if (!headed)
            printf("\n%-35s %8s  %-21s paired: mean over files; by file\n", "mode against mode", "change",
                   "95 % interval");
        headed = true;
        snprintf(pair, sizeof pair, "%s against %s", eval_mode_names[p->a], eval_mode_names[p->b]);
        printf("%-34s", pair);
        TRY(print_change(r, p->a, p->b));
    }
    return STATUS_OK;
}

static enum status print_run_row(const struct eval_result *r, const char *name, int run) {
    int64_t n = 0;
    bool counted = false;
    printf("%-22s", name);
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_PART_CORPUS; mode++) {
        struct ratio change;
        if (!eval_is_memory(r, mode)) continue;
        TRY(run < 0 ? eval_clean_change(&change, &n, r, mode) : eval_run_change(&change, &n, r, mode, run));
        struct ratio p = eval_map(change, eval_to_percent);
        if (!counted) printf(" %8lld", (long long)n);
        counted = true;
        if (n == 0)
            printf(" %24s", "-");
        else if (p.low > p.high)
            printf("  %+7.2f %14s", p.value, "");
        else
            printf("  %+7.2f (%+6.2f %+6.2f)", p.value, p.low, p.high);
    }
    printf("\n");
    return STATUS_OK;
}

static enum status print_runs(const struct eval_result *r) {
    if (!eval_has_runs(r)) return STATUS_OK;
    printf("\nchange (%%, 95 %% interval) by the longest run around a token that the store has too\n%-22s %8s", "run",
           "tokens");
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_PART_CORPUS; mode++)
        if (eval_is_memory(r, mode)) printf("  %23s", eval_mode_names[mode]);
    printf("\n");
    for (int run = 0; run < EVAL_RUNS; run++)
        TRY(print_run_row(r, eval_run_rows[run].name, run));
    return print_run_row(r, "documents without 13", -1);
}

static void print_helped(const struct eval_result *r) {
    bool headed = false;
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_PART_CORPUS; mode++) {
        if (!eval_is_memory(r, mode)) continue;
        struct eval_helped h = eval_helped(r, mode);
        if (!headed)
            printf("\n%-18s %9s %9s  tokens whose loss falls or rises by more than 0.01 nats\n", "mode", "helped",
                   "hurt");
        headed = true;
        printf("%-18s %7.1f %% %7.1f %%\n", eval_mode_names[mode], 100 * h.helped, 100 * h.hurt);
    }
}

enum status eval_print_memory(const struct eval_result *r) {
    int reference = eval_reference(r), modes = 0;
    for (int mode = 0; mode < EVAL_MODES; mode++)
        modes += r->mode[mode];
    if (reference < 0 || modes < 2 || !(eval_has_memory(r) || r->mode[EVAL_BASE])) return STATUS_OK;
    TRY(print_gains(r, reference));
    TRY(print_pairs(r));
    TRY(eval_print_parts(r));
    TRY(print_runs(r));
    print_helped(r);
    return STATUS_OK;
}
