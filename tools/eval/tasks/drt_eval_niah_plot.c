/* drt_eval_niah_plot.c -- a plot of seconds and bytes of the own past per token, against the context, side by side. */
#include "tools/eval/tasks/drt_eval_niah.h"
#include "train/plot/plot_axis.h"

#include <math.h>

enum { TEXT_APART = 36, WIDTH = 400, HEIGHT = 300, LEFT = 70, RIGHT = 24, TOP = 50, BOTTOM = 50, TICKS = 6 };
static const char *const colours[NEEDLE_TASKS] = {"#2166ac", "#b2182b", "#1b7837", "#762a83"};

struct cost_panel {
    const char *title;
    double (*cost)(const struct niah_cell *cell);
    double left; /* of one of the two plots */
    struct plot_axis x, y;
};

static double cost_seconds(const struct niah_cell *cell) {
    return cell->seconds * 1e6 / (double)cell->tokens;
}

static double cost_x(const struct cost_panel *p, int64_t context) {
    return p->left + LEFT + 10 + plot_axis_at(&p->x, log2((double)context)) * (WIDTH - LEFT - RIGHT - 20);
}

static double cost_y(const struct cost_panel *p, double value) {
    return HEIGHT - BOTTOM - plot_axis_at(&p->y, value) * (HEIGHT - TOP - BOTTOM);
}

static void cost_axes(FILE *f, struct cost_panel *p, const struct niah_result *r, const struct niah_options *o) {
    double most = 0;
    for (int t = 0; t < o->n_tasks; t++)
        for (int c = 0; c < o->n_contexts; c++)
            if (r->cell[t][c].trials > 0) most = fmax(most, p->cost(&r->cell[t][c]));
    plot_axis_linear(&p->y, 0, most > 0 ? most * 1.1 : 1, TICKS);
    p->x = (struct plot_axis){.low = log2((double)o->context[0]),
                              .high = log2((double)o->context[o->n_contexts - 1]) + (o->n_contexts == 1)};
    for (int i = 0; i < p->y.n_ticks; i++) {
        const double y = cost_y(p, p->y.ticks[i]);
        fprintf(f,
                "<line x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%.0f\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                p->left + LEFT, y, p->left + WIDTH - RIGHT, y, p->left + LEFT - 8, y + 4, p->y.labels[i]);
    }
    double last = -INFINITY; /* a context whose text would meet the one before has none */
    for (int c = 0; c < o->n_contexts; c++) {
        char text[24];
        const double x = cost_x(p, o->context[c]);
        niah_context_text(text, o->context[c]);
        if (x - last < TEXT_APART) continue;
        last = x;
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, HEIGHT - BOTTOM + 18, text);
    }
    fprintf(f,
            "<text x=\"%.0f\" y=\"20\" font-weight=\"bold\">%s</text><text x=\"%.0f\" y=\"%d\" "
            "text-anchor=\"middle\">tokens of the text</text>\n",
            p->left + LEFT, p->title, p->left + LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 12);
}

static void cost_line(FILE *f, const struct cost_panel *p, const struct niah_result *r, const struct niah_options *o,
                      int t) {
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colours[t]);
    for (int c = 0; c < o->n_contexts; c++)
        if (r->cell[t][c].trials > 0)
            fprintf(f, "%.1f,%.1f ", cost_x(p, o->context[c]), cost_y(p, p->cost(&r->cell[t][c])));
    fprintf(f, "\"/>\n");
    for (int c = 0; c < o->n_contexts; c++) {
        if (r->cell[t][c].trials == 0) continue;
        const double value = p->cost(&r->cell[t][c]);
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%s: %.1f</title></circle>\n",
                cost_x(p, o->context[c]), cost_y(p, value), colours[t], needle_task_names[o->task[t]], value);
    }
    fprintf(f, "<text x=\"%.0f\" y=\"%d\" fill=\"%s\">%s</text>\n", p->left + LEFT + 4 + 78 * t, TOP - 12, colours[t],
            needle_task_names[o->task[t]]);
}

enum status niah_plot(const struct niah_result *r, const struct niah_options *o) {
    struct cost_panel panels[] = {{.title = "microseconds a token", .cost = cost_seconds},
                                  {.title = "bytes of the own past a token", .cost = niah_bytes, .left = WIDTH}};
    FILE *f = fopen(o->plot, "we");
    if (!f) return fail_errno("%s", o->plot);
    niah_svg_begin(f, 2 * WIDTH, HEIGHT);
    for (size_t i = 0; i < ARRAY_LEN(panels); i++) {
        cost_axes(f, &panels[i], r, o);
        for (int t = 0; t < o->n_tasks; t++)
            cost_line(f, &panels[i], r, o, t);
    }
    fprintf(f, "</svg>\n");
    const bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) return fail_errno("%s", o->plot);
    return STATUS_OK;
}
