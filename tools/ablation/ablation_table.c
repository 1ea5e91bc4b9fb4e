/* ablation_table.c -- see ablation_table.h. */
#include "tools/ablation/ablation_table.h"
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "tools/ablation/ablation_run.h"
#include "tools/ablation/ablation_scored.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ablation_class_names[ABLATION_CLASSES] = {"nothing", "up to 10 % of the tokens",
                                                            "more than 10 % of the tokens"};

int ablation_class(const struct ablation_overlap *o) {
    return o->covered <= 0 ? 0 : o->covered <= 0.1 ? 1 : 2;
}

struct ablation_overlap_sum ablation_overlap_sum(const struct ablation_table *t, const struct ablation_overlap *o,
                                                 int file) {
    struct ablation_overlap_sum sum = {0};
    double tokens = 0;
    for (size_t i = 0; i < t->n_documents; i++) {
        if (file >= 0 && t->documents[i].file != file) continue;
        sum.documents++;
        sum.touched += o[i].covered > 0;
        sum.covered += o[i].covered * (double)t->documents[i].tokens;
        tokens += (double)t->documents[i].tokens;
        sum.longest = o[i].longest > sum.longest ? o[i].longest : sum.longest;
    }
    sum.covered = tokens > 0 ? sum.covered / tokens : 0;
    return sum;
}

/* ---- results to rows ------------------------------------------------------------------------------------- */

/* The first result defines the scored documents. Every other one must have the same documents. */
static enum status table_positions(struct ablation_table *t, struct ablation_scored *s, const char *path) {
    if (!t->documents) {
        t->documents = s->documents;
        t->n_documents = s->n;
        s->documents = NULL;
        return STATUS_OK;
    }
    bool same = t->n_documents == s->n;
    for (size_t i = 0; i < s->n && same; i++) {
        const struct ablation_document *a = &t->documents[i], *b = &s->documents[i];
        same = a->file == b->file && a->number == b->number && a->tokens == b->tokens && a->bytes == b->bytes;
    }
    if (same) return STATUS_OK;
    return fail(
        STATUS_MISMATCH,
        "%s: its scored documents are not those of the Base LM (another tokenizer, or texts that changed): name "
        "another --out",
        path);
}

static enum status table_take(struct ablation_table *t, int score, const char *folder) {
    const struct ablation_score *use = &t->plan->scores[score];
    struct ablation_scored s = {0};
    char path[FILE_PATH_MAX];
    TRY(ablation_path(path, folder, "scores/%s.json", use->name));
    enum status status = ablation_scored_read(&s, path, use->modes, use->n_modes);
    if (status == STATUS_OK) status = table_positions(t, &s, path);
    for (int row = 0; row < ABLATION_ROWS && status == STATUS_OK; row++) {
        if (t->plan->rows[row].score != score) continue;
        int mode = 0;
        while (strcmp(use->modes[mode], t->plan->rows[row].mode) != 0)
            mode++;
        status = memory_allocate(&t->rows[row].nll, s.n);
        if (status == STATUS_OK) memcpy(t->rows[row].nll, s.nll[mode], s.n * sizeof *s.nll[mode]);
        t->n_rows++;
    }
    struct ablation_overlap **to = use->what == ABLATION_STORE_OTHER ? &t->other : &t->overlap;
    if (status == STATUS_OK && s.overlap && use->model == 0 && !*to) {
        *to = s.overlap;
        s.overlap = NULL;
    }
    ablation_scored_free(&s);
    return status;
}

/* ---- figures --------------------------------------------------------------------------------------------- */

struct subset {
    int file, class;
}; /* file, class -1: all */

static bool in_subset(const struct ablation_table *t, size_t i, struct subset of) {
    if (of.file >= 0 && t->documents[i].file != of.file) return false;
    return of.class < 0 || (t->overlap && ablation_class(&t->overlap[i]) == of.class);
}

static struct ratio ratio_map(struct ratio r, double (*f)(double)) {
    return r.low <= r.high ? (struct ratio){f(r.value), f(r.low), f(r.high)} : (struct ratio){f(r.value), 1, 0};
}
static double to_percent(double nats) {
    return 100 * expm1(nats);
}
static double to_bits(double nats) {
    return nats / M_LN2;
}

/* As in drt-eval: a mean loss cannot be negative, so the interval is limited to 0 and above. */
static struct ratio mean_loss(const double *above, const double *below, size_t n) {
    struct ratio r = ratio_of(above, below, n);
    if (r.low <= r.high) r.low = fmax(r.low, 0);
    return r;
}

static enum status figure_make(struct ablation_figure *out, const struct ablation_table *t,
                               const struct ablation_table_row *row, struct subset of) {
    struct group_sample *samples = NULL;
    double *above = NULL, *below = NULL;
    size_t n = 0;
    struct ratio change;
    const bool all = of.file < 0 && of.class < 0;
    enum status s;
    TRY_GOTO(s, memory_allocate(&samples, t->n_documents), out);
    TRY_GOTO(s, memory_allocate(&above, t->n_documents), out);
    TRY_GOTO(s, memory_allocate(&below, t->n_documents), out);
    for (size_t i = 0; i < t->n_documents; i++) {
        const struct ablation_document *d = &t->documents[i];
        if (!in_subset(t, i, of)) continue;
        above[n] = row->nll[i];
        below[n] = (double)d->tokens;
        samples[n++] = (struct group_sample){all ? d->file : 0, row->nll[i] - t->rows[0].nll[i], (double)d->tokens};
    }
    if (n == 0) goto out;
    TRY_GOTO(s, ratio_mean_of_groups(&change, samples, n, all ? (int)t->plan->config->valid.count : 1), out);
    out->perplexity = ratio_map(mean_loss(above, below, n), exp);
    out->change = ratio_map(change, to_percent);
    out->there = true;
out:
    memory_free(samples);
    memory_free(above);
    memory_free(below);
    return s;
}

static enum status bits_make(struct ablation_table_row *row, const struct ablation_table *t) {
    double *bytes = NULL;
    TRY(memory_allocate(&bytes, t->n_documents));
    for (size_t i = 0; i < t->n_documents; i++)
        bytes[i] = (double)t->documents[i].bytes;
    row->bits_per_byte = ratio_map(mean_loss(row->nll, bytes, t->n_documents), to_bits);
    memory_free(bytes);
    return STATUS_OK;
}

static enum status row_make(struct ablation_table *t, struct ablation_table_row *row) {
    TRY(figure_make(&row->all, t, row, (struct subset){-1, -1}));
    for (size_t f = 0; f < t->plan->config->valid.count; f++)
        TRY(figure_make(&row->domain[f], t, row, (struct subset){(int)f, -1}));
    for (int c = 0; c < ABLATION_CLASSES; c++)
        TRY(figure_make(&row->overlap[c], t, row, (struct subset){-1, c}));
    return bits_make(row, t);
}

enum status ablation_table_make(struct ablation_table *out, const struct ablation_plan *plan, const char *folder) {
    *out = (struct ablation_table){.plan = plan};
    for (int row = 0; row < ABLATION_ROWS; row++)
        out->n_selected += plan->rows[row].score >= 0;
    for (size_t i = 0; i < plan->n_parts; i++)
        if (plan->parts[i].kind >= ABLATION_SCORE && plan->parts[i].done)
            TRY(table_take(out, plan->parts[i].of, folder));
    if (!out->rows[0].nll) out->n_rows = 0; /* there is no Base LM to compare with */
    for (size_t i = 0; i < out->n_documents && out->overlap; i++) {
        out->class_documents[ablation_class(&out->overlap[i])]++;
        out->class_tokens[ablation_class(&out->overlap[i])] += out->documents[i].tokens;
    }
    for (int row = 0; row < ABLATION_ROWS && out->n_rows > 0; row++)
        if (out->rows[row].nll) TRY(row_make(out, &out->rows[row]));
    return STATUS_OK;
}

void ablation_table_free(struct ablation_table *t) {
    for (int row = 0; row < ABLATION_ROWS; row++)
        memory_free(t->rows[row].nll);
    memory_free(t->documents);
    memory_free(t->overlap);
    memory_free(t->other);
    *t = (struct ablation_table){0};
}

/* ---- files ----------------------------------------------------------------------------------------------- */

static enum status table_file(const struct ablation_table *t, const char *folder, const char *name,
                              void write(FILE *f, const struct ablation_table *t)) {
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    struct file_writer *w;
    TRY(ablation_path(path, folder, "%s", name));
    FILE *f = text_stream_open(&text, &bytes);
    if (!f) return fail(STATUS_NO_MEMORY, "no memory for %s", path);
    write(f, t);
    enum status s = fclose(f) == 0 ? file_create(&w, path) : fail(STATUS_NO_MEMORY, "no memory for %s", path);
    if (s == STATUS_OK) {
        s = file_write(w, text, bytes);
        if (s == STATUS_OK)
            s = file_publish(w);
        else
            file_discard(w);
    }
    free(text);
    return s;
}

enum status ablation_table_write(const struct ablation_table *t, const char *folder) {
    TRY(table_file(t, folder, "table.txt", ablation_text_write));
    TRY(table_file(t, folder, "table.json", ablation_json_write));
    return table_file(t, folder, "table.html", ablation_page_write);
}
