/* drt_eval_parts.c -- see drt_eval_parts.h: the rows as a table and as JSON. */
#include "tools/eval/drt_eval_parts.h"
#include "base/formats/json.h"
#include <math.h>

enum status eval_part_series(struct eval_part_series *out, const struct eval_result *r, int which) {
    const int first = which == 0 ? EVAL_PART_CORPUS : EVAL_PART_BOTH, reference = eval_reference(r);
    *out = (struct eval_part_series){.whole = which == 0 ? EVAL_MEMORY_CORPUS : EVAL_MEMORY_BOTH};
    for (int part = EVAL_PARTS - 1; part >= 0; part--)
        if (r->mode[first + part])
            out->rows[out->n++] =
                (struct eval_part_row){.part = eval_part_names[part], .mode = first + part, .shift = part + 1};
    if (out->n == 0) return STATUS_OK;
    if (r->mode[out->whole]) out->rows[out->n++] = (struct eval_part_row){.part = "1", .mode = out->whole};
    for (int i = 0; i < out->n; i++) {
        struct ratio nats;
        TRY(eval_change(&nats, r, out->rows[i].mode, reference));
        out->rows[i].change = eval_map(nats, eval_to_percent);
        TRY(eval_change(&nats, r, out->rows[i].mode, i > 0 ? out->rows[i - 1].mode : -1));
        out->rows[i].step = eval_map(nats, eval_to_percent);
    }
    return STATUS_OK;
}

/* ---- as text ---- */

static enum status print_row(const struct eval_result *r, const struct eval_part_row *row) {
    const int64_t chunks = r->store_chunks;
    printf("%-7s", row->part);
    if (chunks > 0)
        printf(" %11lld", (long long)(chunks >> row->shift));
    else
        printf(" %11s", "-");
    printf(" %+9.2f %%", row->change.value);
    eval_print_interval(row->change, "%+.2f %%");
    if (!isnan(row->step.value)) {
        printf(" %+9.2f %%", row->step.value);
        eval_print_interval(row->step, "%+.2f %%");
    } else {
        printf(" %34s", "");
    }
    for (int i = 0; i < r->n_files; i++) {
        struct ratio file;
        if (r->files[i].tokens == 0) continue;
        TRY(eval_figure(&file, r, i, row->mode, eval_reference(r), EVAL_PER_TOKEN));
        printf(" %+.2f", eval_to_percent(file.value));
    }
    printf("\n");
    return STATUS_OK;
}

enum status eval_print_parts(const struct eval_result *r) {
    for (int which = 0; which < EVAL_PART_SERIES; which++) {
        struct eval_part_series series;
        TRY(eval_part_series(&series, r, which));
        if (series.n == 0) continue;
        printf(
            "\n%s by part of the store: mean over files; paired against the part before\n%-7s %11s %11s  %-21s %11s  "
            "%-21s by file\n",
            eval_mode_names[series.whole], "part", "chunks", "change", "95 % interval", "step", "95 % interval");
        for (int i = 0; i < series.n; i++)
            TRY(print_row(r, &series.rows[i]));
    }
    return STATUS_OK;
}

/* ---- as JSON ---- */

static void write_row(struct json_writer *w, const struct eval_part_row *row, int64_t chunks) {
    json_write_object(w);
    json_write_key(w, "mode"), json_write_string(w, eval_mode_names[row->mode]);
    json_write_key(w, "part"), json_write_double(w, ldexp(1, -row->shift));
    if (chunks > 0) json_write_key(w, "chunks"), json_write_int(w, chunks >> row->shift);
    ratio_write(w, "change_percent", "change_percent_interval", row->change);
    ratio_write(w, "step_percent", "step_percent_interval", row->step);
    json_write_object_end(w);
}

enum status eval_write_parts(struct json_writer *w, const struct eval_result *r) {
    bool begun = false;
    for (int which = 0; which < EVAL_PART_SERIES; which++) {
        struct eval_part_series series;
        TRY(eval_part_series(&series, r, which));
        if (series.n > 0 && !begun) json_write_key(w, "store_parts"), json_write_array(w);
        begun = begun || series.n > 0;
        for (int i = 0; i < series.n; i++)
            write_row(w, &series.rows[i], r->store_chunks);
    }
    if (begun) json_write_array_end(w);
    return STATUS_OK;
}
