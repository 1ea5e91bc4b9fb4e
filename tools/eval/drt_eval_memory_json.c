/* drt_eval_memory_json.c -- the tables of drt_eval_memory_report.c as JSON. */
#include "base/formats/json.h"
#include "tools/eval/drt_eval_parts.h"
#include "tools/eval/drt_eval_tokens.h"

static void write_change(struct json_writer *w, struct ratio change) {
    ratio_write(w, "change_percent", "interval", eval_map(change, eval_to_percent));
}

static enum status write_pairs(struct json_writer *w, const struct eval_result *r) {
    json_write_key(w, "memory_pairs");
    json_write_array(w);
    for (int i = 0; i < EVAL_MEMORY_PAIRS; i++) {
        const struct eval_pair *p = &eval_memory_pairs[i];
        struct ratio change;
        if (!r->mode[p->a] || !r->mode[p->b]) continue;
        TRY(eval_change(&change, r, p->a, p->b));
        json_write_object(w);
        json_write_key(w, "mode");
        json_write_string(w, eval_mode_names[p->a]);
        json_write_key(w, "against");
        json_write_string(w, eval_mode_names[p->b]);
        write_change(w, change);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    return STATUS_OK;
}

/* run < 0: documents without a shared run of 13. */
static enum status write_run(struct json_writer *w, const struct eval_result *r, int run) {
    int64_t n = 0;
    json_write_object(w);
    json_write_key(w, "run");
    json_write_string(w, run < 0 ? "documents without 13" : eval_run_rows[run].name);
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_MODES; mode++) {
        struct ratio change;
        if (!eval_is_memory(r, mode)) continue;
        TRY(run < 0 ? eval_clean_change(&change, &n, r, mode) : eval_run_change(&change, &n, r, mode, run));
        json_write_key(w, eval_mode_names[mode]);
        json_write_object(w);
        write_change(w, change);
        json_write_object_end(w);
    }
    json_write_key(w, run < 0 ? "documents" : "tokens");
    json_write_int(w, n);
    json_write_object_end(w);
    return STATUS_OK;
}

enum status eval_write_memory(struct json_writer *w, const struct eval_result *r) {
    if (!eval_has_memory(r) || eval_reference(r) < 0) return STATUS_OK;
    TRY(write_pairs(w, r));
    TRY(eval_write_parts(w, r));
    if (eval_has_runs(r)) {
        json_write_key(w, "runs");
        json_write_array(w);
        for (int run = 0; run < EVAL_RUNS; run++)
            TRY(write_run(w, r, run));
        TRY(write_run(w, r, -1));
        json_write_array_end(w);
    }
    json_write_key(w, "tokens");
    json_write_object(w);
    for (int mode = EVAL_MEMORY_OWN_PAST; mode < EVAL_MODES; mode++) {
        if (!eval_is_memory(r, mode)) continue;
        struct eval_helped h = eval_helped(r, mode);
        json_write_key(w, eval_mode_names[mode]);
        json_write_object(w);
        json_write_key(w, "helped");
        json_write_double(w, h.helped);
        json_write_key(w, "hurt");
        json_write_double(w, h.hurt);
        json_write_object_end(w);
    }
    json_write_object_end(w);
    return STATUS_OK;
}
