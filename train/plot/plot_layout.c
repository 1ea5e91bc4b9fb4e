/* plot_layout.c -- lays out panels as one picture, or as a page with a table of runs. The first panel has the full
 * width. */
#include "base/formats/text.h"
#include "train/plot/plot_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1120, GAP = 20, MARGIN = 16 };
static const struct plot_size WIDE = {WIDTH, 350}, HALF = {(WIDTH - GAP) / 2., 236};

static bool plot_layout_is_empty(const struct plot_picture *p) {
    for (int i = 0; i < plot_n_panels; i++)
        if (!plot_panel_empty(p, &plot_panels[i])) return false;
    return true;
}

/* Estimated width of 13 px text. It is an upper limit for usual names, so that entries of the legend do not overlap. */
static double plot_layout_text_width(const char *text) {
    return 8.2 * (double)strlen(text);
}

/* Draws the legend in rows; returns its height. */
static double plot_layout_draw_legend(FILE *out, const struct plot_picture *p, double top) {
    double x = MARGIN, y = top;
    for (int i = 0; i < p->n_runs; i++) {
        double width = 34 + plot_layout_text_width(p->runs[i].name) + 22;
        if (x > MARGIN && x + width > WIDTH + MARGIN) x = MARGIN, y += 20;
        if (out) {
            plot_swatch(out, i, x, y - 4, 26);
            fprintf(out, "<text class=\"legend\" x=\"%.1f\" y=\"%.1f\">", x + 34, y);
            plot_text(out, p->runs[i].name);
            fputs("</text>\n", out);
        }
        x += width;
    }
    return y - top + 20;
}

/* Draws every panel that has data, one below the other. With out NULL it only computes the height. */
static enum status plot_layout_panels(FILE *out, const struct plot_picture *p, enum plot_along along, double *y) {
    int column = 0;
    for (int i = 0; i < plot_n_panels; i++) {
        if (plot_panel_empty(p, &plot_panels[i])) continue;
        struct plot_size size = i == 0 ? WIDE : HALF;
        double x = MARGIN + column * (HALF.width + GAP);
        if (out) {
            fprintf(out, "<g transform=\"translate(%.1f %.1f)\">\n", x, *y);
            TRY(plot_panel_draw(out, NULL, p, &plot_panels[i], along, size));
            fputs("</g>\n", out);
        }
        if (i == 0 || column == 1) *y += size.height + GAP;
        column = i == 0 ? 0 : 1 - column;
    }
    if (column == 1) *y += HALF.height + GAP;
    return STATUS_OK;
}

enum status plot_svg(FILE *out, const struct plot_picture *p, const struct plot_config *config) {
    bool empty = plot_layout_is_empty(p);
    double top = 58, body = top + plot_layout_draw_legend(NULL, p, top), height = body;
    TRY(plot_layout_panels(NULL, p, config->along, &height));
    if (empty) height += 40;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\">\n<title>",
            WIDTH + 2 * MARGIN, height, WIDTH + 2 * MARGIN, height);
    plot_text(out, config->title);
    fprintf(out, "</title>\n<style>\n%s</style>\n<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n",
            plot_style);
    fprintf(out, "<text class=\"heading\" x=\"%d\" y=\"28\">", MARGIN);
    plot_text(out, config->title);
    fputs("</text>\n", out);
    plot_layout_draw_legend(out, p, top);
    if (empty)
        fprintf(out, "<text class=\"legend\" x=\"%d\" y=\"%.1f\">Nothing was logged yet.</text>\n", MARGIN, body + 10);
    TRY(plot_layout_panels(out, p, config->along, &body));
    fputs("</svg>\n", out);
    return STATUS_OK;
}

/* The mean of the last hundredth of a run's values, since the loss of a single step is noisy. NaN when there are
 * none. */
static double plot_layout_last_mean(const struct plot_log *log, enum plot_value value) {
    size_t n = 0, wanted = log->n_rows / 100 + 1;
    double mean = 0;
    for (size_t i = log->n_rows; i > 0 && n < wanted; i--) {
        double v = log->rows[i - 1].values[value];
        if ((log->rows[i - 1].has >> value & 1) && isfinite(v)) mean += (v - mean) / (double)++n;
    }
    return n ? mean : NAN;
}

static double plot_layout_least(const struct plot_log *log, enum plot_value value, int64_t *step) {
    double best = NAN;
    for (size_t i = 0; i < log->n_rows; i++) {
        double v = log->rows[i].values[value];
        if (!(log->rows[i].has >> value & 1) || !isfinite(v) || v >= best) continue;
        best = v;
        *step = log->rows[i].step;
    }
    return best;
}

static void plot_layout_cell(FILE *out, double value, int digits) {
    char text[PLOT_LABEL_MAX];
    fprintf(out, "<td>%s</td>", isfinite(value) ? plot_number(text, value, digits) : "\xe2\x80\x93");
}

/* Formats 1234567 as 1,234,567: steps are shown in full. */
static void plot_layout_cell_whole(FILE *out, int64_t value) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)value);
    fputs("<td>", out);
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) fputc(',', out);
        fputc(digits[i], out);
    }
    fputs("</td>", out);
}

static void plot_layout_write_run(FILE *out, const struct plot_run *run, int i) {
    const struct plot_log *log = &run->log;
    const struct plot_row *last = log->n_rows ? &log->rows[log->n_rows - 1] : NULL;
    int64_t best_step = -1;
    double best = plot_layout_least(log, PLOT_VALID_LOSS, &best_step);
    fprintf(out,
            "<tr><th scope=\"row\"><label><input type=\"checkbox\" data-run=\"%d\" checked>"
            "<svg width=\"28\" height=\"10\" aria-hidden=\"true\">",
            i);
    plot_swatch(out, i, 1, 5, 26);
    fputs("</svg><span>", out);
    plot_text(out, run->name);
    fputs("</span></label></th>", out);
    plot_layout_cell_whole(out, last ? last->step : 0);
    plot_layout_cell(out, last ? (double)last->tokens : NAN, 4);
    plot_layout_cell(out, plot_layout_last_mean(log, PLOT_LOSS), 4);
    plot_layout_cell(out, best, 4);
    if (best_step >= 0)
        plot_layout_cell_whole(out, best_step);
    else
        plot_layout_cell(out, NAN, 4);
    plot_layout_cell(out, plot_layout_last_mean(log, PLOT_CONTRASTIVE_ACCURACY), 3);
    plot_layout_cell(out, plot_layout_last_mean(log, PLOT_TOKENS_PER_SECOND), 3);
    fputs("</tr>\n", out);
}

/* Writes each panel twice, along tokens and along steps; the style hides one of them. Both share their data. */
static enum status plot_layout_write_figure(FILE *out, FILE *data, const struct plot_picture *p,
                                            const struct plot_panel *panel) {
    struct plot_size size = panel == plot_panels ? WIDE : HALF;
    fprintf(out, "<figure%s>\n", panel == plot_panels ? " class=\"wide\"" : "");
    for (int along = 0; along < 2; along++) {
        fprintf(out, "<svg class=\"along%d\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">\n", along,
                size.width, size.height, panel->title);
        TRY(plot_panel_draw(out, along == 0 ? data : NULL, p, panel, along, size));
        fprintf(out, "<path class=\"pointer\" d=\"M0 0\"/></svg>\n");
    }
    fputs("</figure>\n", out);
    return STATUS_OK;
}

static enum status plot_layout_write_figures(FILE *out, FILE *data, const struct plot_picture *p) {
    bool first = true;
    for (int i = 0; i < plot_n_panels; i++) {
        if (plot_panel_empty(p, &plot_panels[i])) continue;
        if (!first) fputs(",\n", data);
        first = false;
        TRY(plot_layout_write_figure(out, data, p, &plot_panels[i]));
    }
    if (first) fputs("<p>Nothing was logged yet.</p>\n", out);
    return STATUS_OK;
}

enum status plot_page(FILE *out, const struct plot_picture *p, const struct plot_config *config) {
    fputs(plot_page_head, out);
    plot_text(out, config->title);
    fprintf(out, "%s%s%s%s\"><header><h1>", "</title>\n<style>\n", plot_style, plot_page_style,
            config->along == PLOT_STEPS ? "steps" : "tokens");
    plot_text(out, config->title);
    fputs(plot_page_body, out);
    for (int i = 0; i < p->n_runs; i++)
        plot_layout_write_run(out, &p->runs[i], i);
    fputs("</tbody></table></div>\n<main>\n", out);
    char *text = NULL;
    size_t bytes = 0;
    FILE *data = text_stream_open(&text, &bytes);
    if (!data) return fail(STATUS_NO_MEMORY, "no memory for the plot");
    fprintf(data, "{\"tokens\":[%.12g,%.12g],\"steps\":[%.12g,%.12g],\"panels\":[\n", p->ends[0][0], p->ends[0][1],
            p->ends[1][0], p->ends[1][1]);
    enum status status = plot_layout_write_figures(out, data, p);
    fputs("]}", data);
    if (fclose(data) != 0 && status == STATUS_OK) status = fail(STATUS_NO_MEMORY, "no memory for the plot");
    if (status == STATUS_OK) {
        fputs(plot_page_data, out);
        fwrite(text, 1, bytes, out);
        fputs(plot_page_tail, out);
    }
    free(text);
    return status;
}
