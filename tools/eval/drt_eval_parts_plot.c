/* drt_eval_parts_plot.c -- a plot of the gain by part of the store: a line for each memory, with an
 * interval at each part. */
#include "base/file.h"
#include "base/formats/text.h"
#include "tools/eval/drt_eval_parts.h"
#include "train/plot/plot_axis.h"
#include <math.h>
#include <stdlib.h>

enum { WIDTH = 640, HEIGHT = 400, LEFT = 70, RIGHT = 20, TOP = 40, BOTTOM = 60, TICKS = 8 };
static const char *const colours[EVAL_PART_SERIES] = {"#2166ac", "#b2182b"};

struct part_plot {
    FILE *f;
    struct plot_axis y;
    int smallest; /* shift of the part at the left end */
};
static double plot_x(const struct part_plot *p, int shift) {
    const double at = p->smallest > 0 ? 1 - (double)shift / p->smallest : 0.5;
    return LEFT + 20 + at * (WIDTH - LEFT - RIGHT - 40);
}
static double plot_y(const struct part_plot *p, double percent) {
    return HEIGHT - BOTTOM - plot_axis_at(&p->y, percent) * (HEIGHT - TOP - BOTTOM);
}

static void plot_axes(const struct part_plot *p, const char *reference) {
    fprintf(p->f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    for (int i = 0; i < p->y.n_ticks; i++) {
        const double y = plot_y(p, p->y.ticks[i]);
        fprintf(p->f,
                "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"%s\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">",
                LEFT, y, WIDTH - RIGHT, y, fabs(p->y.ticks[i]) < 1e-12 ? "#555" : "#ddd", LEFT - 8, y + 4);
        plot_text(p->f, p->y.labels[i]);
        fprintf(p->f, " %%</text>\n");
    }
    for (int shift = 0; shift <= p->smallest; shift++)
        fprintf(p->f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", plot_x(p, shift),
                HEIGHT - BOTTOM + 20, shift == 0 ? "1" : eval_part_names[shift - 1]);
    fprintf(p->f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">part of the store</text>\n", WIDTH / 2, HEIGHT - 16);
    fprintf(p->f, "<text x=\"%d\" y=\"20\">change in perplexity against ", LEFT);
    plot_text(p->f, reference);
    fprintf(p->f, ", 95 %% intervals</text>\n");
}

static void plot_line(const struct part_plot *p, const struct eval_part_series *s, int which) {
    const char *colour = colours[which];
    fprintf(p->f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (int i = 0; i < s->n; i++)
        fprintf(p->f, "%.1f,%.1f ", plot_x(p, s->rows[i].shift), plot_y(p, s->rows[i].change.value));
    fprintf(p->f, "\"/>\n");
    for (int i = 0; i < s->n; i++) {
        const struct ratio c = s->rows[i].change;
        const double x = plot_x(p, s->rows[i].shift) + 3 * which; /* the memories' intervals are drawn side by side */
        fprintf(p->f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%s: %+.2f %%</title></circle>\n", x,
                plot_y(p, c.value), colour, s->rows[i].part, c.value);
        if (c.low > c.high) continue;
        fprintf(p->f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x, plot_y(p, c.low), x,
                plot_y(p, c.high), colour);
    }
    fprintf(p->f, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", LEFT + 10 + 140 * which, TOP - 6, colour,
            eval_mode_names[s->whole]);
}

static void plot_all(FILE *f, const struct eval_part_series series[EVAL_PART_SERIES], const char *reference) {
    struct part_plot p = {.f = f};
    double low = 0, high = 0;
    for (int which = 0; which < EVAL_PART_SERIES; which++)
        for (int i = 0; i < series[which].n; i++) {
            const struct eval_part_row *row = &series[which].rows[i];
            const bool interval = row->change.low <= row->change.high;
            p.smallest = row->shift > p.smallest ? row->shift : p.smallest;
            low = fmin(low, interval ? row->change.low : row->change.value);
            high = fmax(high, interval ? row->change.high : row->change.value);
        }
    plot_axis_linear(&p.y, low, high, TICKS);
    plot_axes(&p, reference);
    for (int which = 0; which < EVAL_PART_SERIES; which++)
        if (series[which].n > 0) plot_line(&p, &series[which], which);
    fprintf(f, "</svg>\n");
}

static enum status write_file(const char *path, const char *text, size_t bytes) {
    struct file_writer *file = NULL;
    TRY(file_create(&file, path));
    enum status s = file_write(file, text, bytes);
    if (s == STATUS_OK) return file_publish(file);
    file_discard(file);
    return s;
}

enum status eval_plot_parts(const struct eval_result *r, const char *path) {
    struct eval_part_series series[EVAL_PART_SERIES];
    char *text = NULL;
    size_t bytes = 0;
    if (eval_reference(r) < 0)
        return fail(STATUS_INVALID, "--plot %s: there is nothing to compare with: add --base DIR, or none to --modes",
                    path);
    for (int which = 0; which < EVAL_PART_SERIES; which++)
        TRY(eval_part_series(&series[which], r, which));
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return fail(STATUS_NO_MEMORY, "%s: no memory to draw it", path);
    plot_all(memory, series, eval_mode_names[eval_reference(r)]);
    enum status s =
        fclose(memory) == 0 ? write_file(path, text, bytes) : fail(STATUS_NO_MEMORY, "%s: no memory to draw it", path);
    free(text);
    return s;
}
