/* ablation_page.c -- table.html: the rows as bars with their intervals. The page contains the SVG and needs no other
 * file.
 *
 * The Base LM is the line at zero. A bar to the left is a lower perplexity. Its colour shows whether the interval is
 * below zero, above zero, or contains zero. Every text of a config is escaped. */
#include "tools/ablation/ablation_table.h"
#include <math.h>
#include <string.h>

static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Ablation</title>\n<style>\n"
    ":root{color-scheme:light dark;--back:#fff;--text:#1d2126;--soft:#5c6670;--line:#d9dee3;--band:#f5f7f9;"
    "--less:#1f77b4;--more:#c8590b;--even:#8a939c;--zero:#1d2126}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#15181b;--text:#e6e9ec;--soft:#9aa4ae;--line:#343a40;"
    "--band:#1c2024;--less:#5aa9e6;--more:#f0924a;--even:#7d868f;--zero:#e6e9ec}}\n"
    "body{margin:0 auto;padding:24px 20px 60px;max-width:1120px;background:var(--back);color:var(--text);"
    "font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 4px}p{margin:4px 0;max-width:76ch}"
    "p.soft{color:var(--soft)}.note{border-left:4px solid var(--more);padding-left:10px}\n"
    "svg{display:block;width:100%;height:auto;font:13px system-ui,sans-serif;fill:var(--text);margin-top:10px}\n"
    ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(480px,1fr));gap:8px 28px}"
    "@media(max-width:540px){.grid{grid-template-columns:1fr}}\n"
    "figure{margin:8px 0}figcaption{font-weight:600}\n"
    ".part{font-weight:600}.soft{fill:var(--soft);color:var(--soft)}.tick{stroke:var(--line)}"
    ".zero{stroke:var(--zero);stroke-width:1.5}"
    ".whisker{stroke:var(--text);stroke-width:1.4;fill:none}.less{fill:var(--less)}.more{fill:var(--more)}"
    ".even{fill:var(--even)}.band{fill:var(--band)}.num{font-variant-numeric:tabular-nums}\n"
    ".scroll{overflow-x:auto}.scroll svg{min-width:860px}table{border-collapse:collapse;font-size:13px;margin-top:10px}"
    "th,td{padding:3px 12px 3px 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line);"
    "font-variant-numeric:tabular-nums}th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}"
    "tr.part td{font-weight:600;padding-top:10px}\n"
    ".one{white-space:nowrap}.key{display:inline-block;width:12px;height:12px;margin:0 5px -1px 14px}"
    ".key.less{background:var(--less)}.key.more{background:var(--more)}.key.even{background:var(--even)}\n"
    "</style>\n";

/* Writes text as markup; control characters become spaces. */
static void page_text(FILE *f, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '<')
            fputs("&lt;", f);
        else if (c == '>')
            fputs("&gt;", f);
        else if (c == '&')
            fputs("&amp;", f);
        else if (c == '"')
            fputs("&quot;", f);
        else
            fputc(c < 32 || c == 127 ? ' ' : c, f);
    }
}

/* ---- one chart ------------------------------------------------------------------------------------------- */

/* The documents of a chart: all, those of one text, or those of one class of overlap. */
struct chart {
    const struct ablation_table *table;
    int file, class;           /* -1: all */
    bool small;                /* short names instead of titles */
    double low, high;          /* values in per cent at the ends of the axis */
    double left, width, right; /* of the axis; columns of numbers are to the right of it */
};
enum { ROW_HEIGHT = 24, PART_HEIGHT = 30, AXIS_HEIGHT = 30 };

static const struct ablation_figure *chart_figure(const struct chart *c, int row) {
    const struct ablation_table_row *r = &c->table->rows[row];
    const struct ablation_figure *f = c->file >= 0    ? &r->domain[c->file]
                                      : c->class >= 0 ? &r->overlap[c->class]
                                                      : &r->all;
    return r->nll && f->there ? f : NULL;
}

/* Returns 1, 2 or 5 times a power of ten. */
static double round_step(double step) {
    double power = pow(10, floor(log10(step))), of = step / power;
    return power * (of <= 1 ? 1 : of <= 2 ? 2 : of <= 5 ? 5 : 10);
}

static double chart_scale(struct chart *c) {
    c->low = 0;
    c->high = 0;
    for (int row = 0; row < ABLATION_ROWS; row++) {
        const struct ablation_figure *f = chart_figure(c, row);
        if (!f) continue;
        bool interval = f->change.low <= f->change.high;
        c->low = fmin(c->low, interval ? f->change.low : f->change.value);
        c->high = fmax(c->high, interval ? f->change.high : f->change.value);
    }
    double step = round_step(fmax(c->high - c->low, 0.1) / (c->small ? 4 : 8));
    c->low = step * floor(c->low / step - 0.1);
    c->high = step * ceil(c->high / step + 0.1);
    return step;
}

static double chart_x(const struct chart *c, double percent) {
    return c->left + c->width * (percent - c->low) / (c->high - c->low);
}

static void draw_axis(FILE *f, const struct chart *c, double step, double height) {
    const int decimals = step < 0.1 ? 2 : step < 1 ? 1 : 0;
    const int labelled = chart_x(c, step) - chart_x(c, 0) < 50 ? 2 : 1; /* a label is up to 46 wide */
    for (int64_t i = llround(c->low / step); i <= llround(c->high / step); i++) {
        const double x = chart_x(c, (double)i * step);
        fprintf(f, "<line class=\"%s\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\"/>", i == 0 ? "zero" : "tick", x,
                AXIS_HEIGHT - 6, x, height);
        if (i == 0)
            fprintf(f, "<text class=\"part\" x=\"%.1f\" y=\"16\" text-anchor=\"middle\">%s</text>\n", x,
                    c->small ? "0" : "Base LM");
        else if (i % labelled == 0)
            fprintf(f, "<text class=\"soft num\" x=\"%.1f\" y=\"16\" text-anchor=\"middle\">%+.*f %%</text>\n", x,
                    decimals, (double)i * step);
    }
}

static void draw_bar(FILE *f, const struct chart *c, const struct ablation_figure *of, double y) {
    const struct ratio r = of->change;
    const bool interval = r.low <= r.high;
    const char *colour = !interval || (r.low <= 0 && r.high >= 0) ? "even" : r.value < 0 ? "less" : "more";
    const double zero = chart_x(c, 0), x = chart_x(c, r.value), middle = y + ROW_HEIGHT / 2.0;
    fprintf(f, "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"/>", colour, fmin(zero, x), y + 5,
            fabs(x - zero), ROW_HEIGHT - 10);
    if (!interval) return;
    const double low = chart_x(c, r.low), high = chart_x(c, r.high);
    fprintf(f, "<path class=\"whisker\" d=\"M%.2f %.1fV%.1fM%.2f %.1fH%.2fM%.2f %.1fV%.1f\"/>", low, middle - 4,
            middle + 4, low, middle, high, high, middle - 4, middle + 4);
}

static void draw_numbers(FILE *f, const struct chart *c, const struct ablation_figure *of, bool base, double y) {
    const double x = c->left + c->width + 26;
    fprintf(f, "<text class=\"num\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>", x + 46, y,
            of->perplexity.value);
    if (base) return;
    fprintf(f, "<text class=\"num\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%+.2f %%</text>", x + 122, y,
            of->change.value);
    if (of->change.low > of->change.high || c->small) return;
    fprintf(f, "<text class=\"num soft\" x=\"%.1f\" y=\"%.1f\">%+.2f .. %+.2f</text>", x + 136, y, of->change.low,
            of->change.high);
}

/* bands: draws only the parts that are under the lines of the axis. */
static void draw_rows(FILE *f, const struct chart *c, double total, bool bands) {
    const char *part = "";
    double y = AXIS_HEIGHT;
    int shown = 0;
    for (int row = 0; row < ABLATION_ROWS; row++) {
        const struct ablation_row *r = &ablation_rows[row];
        const struct ablation_figure *of = chart_figure(c, row);
        if (!of) continue;
        if (!c->small && strcmp(part, r->part) != 0) {
            if (!bands) fprintf(f, "<text class=\"part\" x=\"4\" y=\"%.1f\">%s</text>\n", y + PART_HEIGHT - 9, r->part);
            y += PART_HEIGHT;
            shown = 0;
        }
        part = r->part;
        if (bands && shown++ % 2 == 0)
            fprintf(f, "<rect class=\"band\" x=\"0\" y=\"%.1f\" width=\"%.0f\" height=\"%d\"/>\n", y, total,
                    ROW_HEIGHT);
        if (!bands) {
            fprintf(f, "<text x=\"%d\" y=\"%.1f\">%s</text>", c->small ? 4 : 14, y + 16.5,
                    c->small ? r->name : r->title);
            if (row > 0) draw_bar(f, c, of, y);
            draw_numbers(f, c, of, row == 0, y + 16.5);
            fputc('\n', f);
        }
        y += ROW_HEIGHT;
    }
}

static void draw_chart(FILE *f, struct chart c) {
    double height = AXIS_HEIGHT + 6;
    const char *part = "";
    c.left = c.small ? 122 : 282;
    c.width = c.small ? 214 : 490;
    c.right = c.small ? 152 : 302;
    const double total = c.left + c.width + c.right, step = chart_scale(&c);
    for (int row = 0; row < ABLATION_ROWS; row++) {
        if (!chart_figure(&c, row)) continue;
        height += ROW_HEIGHT + (!c.small && strcmp(part, ablation_rows[row].part) != 0 ? PART_HEIGHT : 0);
        part = ablation_rows[row].part;
    }
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", total, height);
    draw_rows(f, &c, total, true);
    draw_axis(f, &c, step, height);
    fprintf(f,
            "<text class=\"soft\" x=\"%.0f\" y=\"16\" text-anchor=\"end\">ppl</text>"
            "<text class=\"soft\" x=\"%.0f\" y=\"16\" text-anchor=\"end\">change</text>",
            c.left + c.width + 72, c.left + c.width + 148);
    if (!c.small) fprintf(f, "<text class=\"soft\" x=\"%.0f\" y=\"16\">95 %% interval</text>", c.left + c.width + 162);
    draw_rows(f, &c, total, false);
    fputs("</svg>\n", f);
}

/* ---- the page -------------------------------------------------------------------------------------------- */

static void page_overlap(FILE *f, const struct ablation_table *t, const struct ablation_overlap *o, const char *what) {
    if (!o) return;
    struct ablation_overlap_sum s = ablation_overlap_sum(t, o, -1);
    fprintf(f,
            "<p class=\"soft\">%s: %lld of %lld documents share 13 tokens in a row with it; runs of 13 tokens and more "
            "cover "
            "%.2f %% of all; the longest run has %lld tokens.</p>\n",
            what, (long long)s.touched, (long long)s.documents, 100 * s.covered, (long long)s.longest);
}

static void page_intro(FILE *f, const struct ablation_table *t) {
    int64_t tokens = 0;
    for (size_t i = 0; i < t->n_documents; i++)
        tokens += t->documents[i].tokens;
    fputs(page_head, f);
    const char *path = t->plan->config->path, *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t length = strlen(name);
    fputs("<h1>Perplexity against the Base LM: config ", f);
    page_text(f, name, length > 5 && strcmp(name + length - 5, ".json") == 0 ? length - 5 : length);
    fputs("</h1>\n", f);
    if (t->n_rows < t->n_selected)
        fprintf(f, "<p class=\"note\">Not finished: %d of %d rows. The same command continues.</p>\n", t->n_rows,
                t->n_selected);
    fprintf(f,
            "<p>Each bar is the change of perplexity against the Base LM (the line at zero, perplexity %.2f); the line "
            "on a "
            "bar is the 95 %% interval. <b>Left is better.</b>",
            t->rows[0].all.perplexity.value);
    fputs(" <span class=\"one\"><span class=\"key less\"></span>better</span> <span class=\"one\"><span class=\"key "
          "even\"></span>zero lies in the "
          "interval</span> <span class=\"one\"><span class=\"key more\"></span>worse</span></p>\n",
          f);
    fprintf(
        f,
        "<p class=\"soft\">%lld tokens of %zu documents, the same in every row; windows of %lld tokens, the first %lld "
        "of each are read and not scored. A change is the mean over texts, each counted once; intervals are a "
        "bootstrap over "
        "documents, paired.</p>\n",
        (long long)tokens, t->n_documents, (long long)t->plan->config->context, (long long)t->plan->config->skip);
    page_overlap(f, t, t->overlap, "The store");
    page_overlap(f, t, t->other, "The store of other text");
}

static void page_domains(FILE *f, const struct ablation_table *t) {
    const struct ablation_config *c = t->plan->config;
    if (c->valid.count < 2) return;
    fputs("<h2>By text</h2>\n<p class=\"soft\">The same change for each text. A row has the name that the config "
          "selects it by.</p>\n"
          "<div class=\"grid\">\n",
          f);
    for (size_t i = 0; i < c->valid.count; i++) {
        size_t documents = 0;
        for (size_t d = 0; d < t->n_documents; d++)
            documents += t->documents[d].file == (int)i;
        fputs("<figure><figcaption>", f);
        page_text(f, c->domains.items[i], strlen(c->domains.items[i]));
        fprintf(f, " <span class=\"soft\">%zu documents</span></figcaption>\n", documents);
        draw_chart(f, (struct chart){.table = t, .file = (int)i, .class = -1, .small = true});
        fputs("</figure>\n", f);
    }
    fputs("</div>\n", f);
}

static void page_classes(FILE *f, const struct ablation_table *t) {
    if (!t->overlap) return;
    fputs("<h2>By what the store has of the document</h2>\n<p class=\"soft\">Runs of 13 tokens and more that the "
          "document "
          "shares with a document of the store cover so much of it.</p>\n<div class=\"grid\">\n",
          f);
    for (int i = 0; i < ABLATION_CLASSES; i++) {
        if (t->class_documents[i] == 0) continue;
        fprintf(f, "<figure><figcaption>%s <span class=\"soft\">%lld documents, %lld tokens</span></figcaption>\n",
                ablation_class_names[i], (long long)t->class_documents[i], (long long)t->class_tokens[i]);
        draw_chart(f, (struct chart){.table = t, .file = -1, .class = i, .small = true});
        fputs("</figure>\n", f);
    }
    fputs("</div>\n", f);
}

static void page_numbers(FILE *f, const struct ablation_table *t) {
    const char *part = "";
    fputs("<h2>All numbers</h2>\n<div class=\"scroll\"><table><tr><th>row</th><th>what</th><th>perplexity</th>"
          "<th>95 %</th><th>change</th><th>95 %</th><th>bits a byte</th><th>parameters</th></tr>\n",
          f);
    for (int row = 0; row < ABLATION_ROWS; row++) {
        const struct ablation_table_row *r = &t->rows[row];
        const struct ratio p = r->all.perplexity, c = r->all.change;
        if (!r->nll) continue;
        if (strcmp(part, ablation_rows[row].part) != 0)
            fprintf(f, "<tr class=\"part\"><td colspan=\"8\">%s</td></tr>\n", part = ablation_rows[row].part);
        fprintf(f, "<tr><td>%s</td><td>%s</td><td>%.4f</td>", ablation_rows[row].name, ablation_rows[row].title,
                p.value);
        fprintf(f, p.low <= p.high ? "<td>%.2f .. %.2f</td>" : "<td></td>", p.low, p.high);
        if (row == 0)
            fputs("<td>0</td><td></td>", f);
        else {
            fprintf(f, "<td>%+.2f %%</td>", c.value);
            fprintf(f, c.low <= c.high ? "<td>%+.2f .. %+.2f</td>" : "<td></td>", c.low, c.high);
        }
        fprintf(f, "<td>%.4f</td><td>%lld</td></tr>\n", r->bits_per_byte.value,
                (long long)t->plan->models[t->plan->scores[t->plan->rows[row].score].model].parameters);
    }
    fputs("</table></div>\n", f);
}

void ablation_page_write(FILE *f, const struct ablation_table *t) {
    page_intro(f, t);
    fputs("<div class=\"scroll\">\n", f);
    draw_chart(f, (struct chart){.table = t, .file = -1, .class = -1});
    fputs("</div>\n", f);
    page_domains(f, t);
    page_classes(f, t);
    page_numbers(f, t);
    fputs("</html>\n", f);
}
