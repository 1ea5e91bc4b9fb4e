/* ablation_text.c -- writes table.txt, and table.json for programs. */
#include "base/formats/json.h"
#include "tools/ablation/ablation_table.h"
#include <math.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------------------ */

/* Writes "-9.41 (-11.30 .. -7.82)". The Base LM has no interval. */
static const char *change_text(char out[64], const struct ablation_figure *f, bool base) {
    if (!f->there)
        snprintf(out, 64, "-");
    else if (base)
        snprintf(out, 64, "0");
    else if (f->change.low > f->change.high)
        snprintf(out, 64, "%+.2f", f->change.value);
    else
        snprintf(out, 64, "%+.2f (%+.2f .. %+.2f)", f->change.value, f->change.low, f->change.high);
    return out;
}

static void text_head(FILE *f, const struct ablation_table *t) {
    int64_t tokens = 0, bytes = 0;
    const struct ablation_config *c = t->plan->config;
    for (size_t i = 0; i < t->n_documents; i++) {
        tokens += t->documents[i].tokens;
        bytes += t->documents[i].bytes;
    }
    if (t->n_rows < t->n_selected)
        fprintf(f, "NOT FINISHED: %d of %d rows; the same command continues\n", t->n_rows, t->n_selected);
    fprintf(f, "scored     %lld tokens (%lld bytes of text) in %zu documents of %zu texts, the same in every row\n",
            (long long)tokens, (long long)bytes, t->n_documents, c->valid.count);
    fprintf(f, "windows    %lld tokens within a document, the first %lld of each are read and not scored\n",
            (long long)c->context, (long long)c->skip);
}

static void text_overlap(FILE *f, const struct ablation_table *t) {
    const struct {
        const char *what;
        const struct ablation_overlap *of;
    } stores[] = {{"store", t->overlap}, {"other", t->other}};
    for (size_t i = 0; i < ARRAY_LEN(stores); i++) {
        if (!stores[i].of) continue;
        struct ablation_overlap_sum s = ablation_overlap_sum(t, stores[i].of, -1);
        fprintf(
            f,
            "%-10s %lld of %lld documents share 13 tokens in a row with it; %.2f %% of all tokens; longest run %lld\n",
            stores[i].what, (long long)s.touched, (long long)s.documents, 100 * s.covered, (long long)s.longest);
    }
}

static void text_rows(FILE *f, const struct ablation_table *t) {
    const char *part = "";
    fprintf(f, "\n%-18s %-40s %10s  %-28s %9s %12s\n", "row", "what", "perplexity", "change to the Base LM, %",
            "bits/byte", "parameters");
    for (int row = 0; row < ABLATION_ROWS; row++) {
        const struct ablation_table_row *r = &t->rows[row];
        char change[64];
        if (!r->nll) continue;
        if (strcmp(part, ablation_rows[row].part) != 0) fprintf(f, "%s\n", part = ablation_rows[row].part);
        fprintf(f, "%-18s %-40s %10.4f  %-28s %9.4f %12lld\n", ablation_rows[row].name, ablation_rows[row].title,
                r->all.perplexity.value, change_text(change, &r->all, row == 0), r->bits_per_byte.value,
                (long long)t->plan->models[t->plan->scores[t->plan->rows[row].score].model].parameters);
    }
}

/* Writes one table of changes, with a column for each subset. */
static void text_subsets(FILE *f, const struct ablation_table *t, bool domains) {
    const struct ablation_config *c = t->plan->config;
    const int n = domains ? (int)c->valid.count : ABLATION_CLASSES;
    if (domains ? n < 2 : !t->overlap) return;
    fprintf(f, "\n%s\n%-18s",
            domains ? "Change to the Base LM, %, by text"
                    : "Change to the Base LM, %, by what the store has of the document",
            "row");
    for (int i = 0; i < n; i++)
        fprintf(f, "  %-26.26s", domains ? c->domains.items[i] : ablation_class_names[i]);
    fprintf(f, "\n");
    for (int row = 0; row < ABLATION_ROWS; row++) {
        if (!t->rows[row].nll) continue;
        fprintf(f, "%-18s", ablation_rows[row].name);
        for (int i = 0; i < n; i++) {
            char change[64];
            const struct ablation_figure *of = domains ? &t->rows[row].domain[i] : &t->rows[row].overlap[i];
            fprintf(f, "  %-26s", change_text(change, of, row == 0));
        }
        fprintf(f, "\n");
    }
}

void ablation_text_write(FILE *f, const struct ablation_table *t) {
    text_head(f, t);
    text_overlap(f, t);
    text_rows(f, t);
    text_subsets(f, t, true);
    text_subsets(f, t, false);
    fprintf(
        f,
        "\nA change is that of perplexity, the mean over texts, each counted once; intervals of 95 %% by a bootstrap "
        "over documents, paired.\n");
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

static void put_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}
static void put_text(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    json_write_string(w, value);
}

static void put_figure(struct json_writer *w, const struct ablation_figure *f) {
    ratio_write(w, "perplexity", "perplexity_interval", f->perplexity);
    ratio_write(w, "change_percent", "interval", f->change);
}

static void put_overlap(struct json_writer *w, const char *key, const struct ablation_table *t,
                        const struct ablation_overlap *o, int file) {
    json_write_key(w, key);
    if (!o) {
        json_write_null(w);
        return;
    }
    struct ablation_overlap_sum s = ablation_overlap_sum(t, o, file);
    json_write_object(w);
    put_int(w, "documents", s.documents);
    put_int(w, "documents_with_13_gram", s.touched);
    json_write_key(w, "covered_tokens"), json_write_double(w, s.covered);
    put_int(w, "longest_run", s.longest);
    json_write_object_end(w);
}

static void put_row(struct json_writer *w, const struct ablation_table *t, int row) {
    const struct ablation_table_row *r = &t->rows[row];
    const struct ablation_config *c = t->plan->config;
    const struct ablation_score *score = &t->plan->scores[t->plan->rows[row].score];
    const struct ablation_model *m = &t->plan->models[score->model];
    json_write_object(w);
    put_text(w, "row", ablation_rows[row].name);
    put_text(w, "title", ablation_rows[row].title);
    put_text(w, "part", ablation_rows[row].part);
    put_text(w, "model", m->name);
    put_text(w, "mode", t->plan->rows[row].mode);
    put_text(w, "result", score->name);
    put_int(w, "parameters", m->parameters);
    put_int(w, "trained_tokens",
            m->view_of >= 0 ? t->plan->models[m->view_of].steps * t->plan->models[m->view_of].step_tokens
                            : m->steps * m->step_tokens);
    put_figure(w, &r->all);
    ratio_write(w, "bits_per_byte", "bits_per_byte_interval", r->bits_per_byte);
    json_write_key(w, "by_text");
    json_write_array(w);
    for (size_t i = 0; i < c->valid.count; i++) {
        if (!r->domain[i].there) continue;
        json_write_object(w);
        put_text(w, "text", c->domains.items[i]);
        put_figure(w, &r->domain[i]);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_key(w, "by_overlap");
    json_write_array(w);
    for (int i = 0; i < ABLATION_CLASSES; i++) {
        if (!r->overlap[i].there) continue;
        json_write_object(w);
        put_text(w, "store_has", ablation_class_names[i]);
        put_int(w, "documents", t->class_documents[i]);
        put_int(w, "tokens", t->class_tokens[i]);
        put_figure(w, &r->overlap[i]);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

void ablation_json_write(FILE *f, const struct ablation_table *t) {
    struct json_writer w;
    int64_t tokens = 0, bytes = 0;
    const struct ablation_config *c = t->plan->config;
    for (size_t i = 0; i < t->n_documents; i++) {
        tokens += t->documents[i].tokens;
        bytes += t->documents[i].bytes;
    }
    json_write_open(&w, f, 1);
    json_write_object(&w);
    put_int(&w, "version", 1);
    json_write_key(&w, "finished"), json_write_bool(&w, t->n_rows == t->n_selected);
    put_int(&w, "documents", (int64_t)t->n_documents);
    put_int(&w, "tokens", tokens);
    put_int(&w, "bytes", bytes);
    put_int(&w, "context", c->context);
    put_int(&w, "skip", c->skip);
    put_text(&w, "against", "base");
    put_text(&w, "interval_method",
             "perplexity: 95 %, ratio estimator over documents, Student's t; change: mean over "
             "texts, paired bootstrap over documents");
    put_overlap(&w, "overlap", t, t->overlap, -1);
    put_overlap(&w, "overlap_other", t, t->other, -1);
    json_write_key(&w, "texts");
    json_write_array(&w);
    for (size_t i = 0; i < c->valid.count; i++) {
        json_write_object(&w);
        put_text(&w, "text", c->domains.items[i]);
        put_overlap(&w, "overlap", t, t->overlap, (int)i);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_key(&w, "rows");
    json_write_array(&w);
    for (int row = 0; row < ABLATION_ROWS; row++)
        if (t->rows[row].nll) put_row(&w, t, row);
    json_write_array_end(&w);
    json_write_object_end(&w);
    fputc('\n', f);
}
