/* plot_panel.c -- draws one panel: the axes, and every run's values of one kind.
 *
 * Logged values are faint and their smoothed line is strong. All faint lines are drawn first, so that no run covers
 * another's smoothed line. Coordinates have one decimal, a tenth of a pixel. */
#include "train/plot/plot_internal.h"
#include <math.h>

const struct plot_panel plot_panels[] = {
    {.title = "Training loss, nats a token",
     .value = PLOT_LOSS,
     .points = PLOT_VALID_LOSS,
     .smooth = true,
     .log_ratio = 2.5},
    {.title = "Masked-token loss, nats",
     .value = PLOT_MLM_LOSS,
     .points = PLOT_VALUES,
     .smooth = true,
     .log_ratio = 2.5},
    {.title = "Contrastive loss, nats",
     .value = PLOT_CONTRASTIVE_LOSS,
     .points = PLOT_VALUES,
     .smooth = true,
     .log_ratio = 8},
    {.title = "Retrieval accuracy (contrastive)",
     .value = PLOT_CONTRASTIVE_ACCURACY,
     .points = PLOT_VALUES,
     .smooth = true,
     .from_zero = true},
    {.title = "Validation, bits per byte", .value = PLOT_VALID_BITS_PER_BYTE, .points = PLOT_VALUES, .marked = true},
    {.title = "Learning rate", .value = PLOT_LEARNING_RATE, .points = PLOT_VALUES, .from_zero = true},
    {.title = "Gradient norm", .value = PLOT_GRADIENT_NORM, .points = PLOT_VALUES, .smooth = true, .log_ratio = 8},
    {.title = "Throughput, tokens per second",
     .value = PLOT_TOKENS_PER_SECOND,
     .points = PLOT_VALUES,
     .smooth = true,
     .from_zero = true},
    {.title = "Device memory, bytes", .value = PLOT_DEVICE_BYTES, .points = PLOT_VALUES, .from_zero = true},
};
const int plot_n_panels = sizeof plot_panels / sizeof *plot_panels;

/* A panel while it is drawn. lines, points: the two series of each run. */
struct drawing {
    FILE *svg, *data;
    const struct plot_picture *picture;
    const struct plot_panel *panel;
    enum plot_along along;
    struct plot_axis x, y;
    double left, right, top, bottom;
    struct plot_series lines[PLOT_RUNS_MAX], points[PLOT_RUNS_MAX];
};

static double plot_panel_x_of(const struct drawing *d, const struct plot_column *c) {
    return d->left + plot_axis_at(&d->x, c->along[d->along]) * (d->right - d->left);
}

static double plot_panel_y_of(const struct drawing *d, double value) {
    double at = plot_axis_at(&d->y, value);
    return d->bottom - (at < 0 ? 0 : at > 1 ? 1 : at) * (d->bottom - d->top);
}

/* The state of a path. The path starts again after every gap. A single point is a line of length 0, which round line
 * caps draw as a dot. */
struct pen {
    const struct drawing *d;
    double x, y;
    bool down, dot;
};

static void plot_panel_pen_to(struct pen *p, double x, double y) {
    x = round(x * 10) / 10;
    y = round(y * 10) / 10;
    if (p->down && x == p->x && y == p->y) return;
    fprintf(p->d->svg, "%s%.10g %.10g", p->down ? "L" : "M", x, y);
    p->dot = !p->down;
    p->down = true;
    p->x = x;
    p->y = y;
}

static void plot_panel_pen_up(struct pen *p) {
    if (p->dot) fputs("h0", p->d->svg);
    p->down = p->dot = false;
}

static void plot_panel_path_begin(const struct drawing *d, int run, const char *kind) {
    fprintf(d->svg, "<path class=\"run r%d %s s%d d%d\" d=\"", run, kind, run % 7, run / 7);
}

static void plot_panel_draw_logged(const struct drawing *d, int run, const char *kind) {
    const struct plot_series *s = &d->lines[run];
    struct pen pen = {.d = d};
    plot_panel_path_begin(d, run, kind);
    for (size_t i = 0; i < s->n_columns; i++) {
        const struct plot_column *c = &s->columns[i];
        if (c->finite == 0) continue;
        if (c->gap) plot_panel_pen_up(&pen);
        double x = plot_panel_x_of(d, c);
        bool low_first = c->low_at < c->high_at;
        plot_panel_pen_to(&pen, x, plot_panel_y_of(d, c->first));
        plot_panel_pen_to(&pen, x, plot_panel_y_of(d, low_first ? c->low : c->high));
        plot_panel_pen_to(&pen, x, plot_panel_y_of(d, low_first ? c->high : c->low));
        plot_panel_pen_to(&pen, x, plot_panel_y_of(d, c->last));
    }
    plot_panel_pen_up(&pen);
    fputs("\"/>\n", d->svg);
}

static void plot_panel_draw_smooth(const struct drawing *d, const struct plot_series *s, int run, const char *kind) {
    struct pen pen = {.d = d};
    plot_panel_path_begin(d, run, kind);
    for (size_t i = 0; i < s->n_columns; i++) {
        const struct plot_column *c = &s->columns[i];
        if (c->finite == 0) continue;
        if (c->gap) plot_panel_pen_up(&pen);
        plot_panel_pen_to(&pen, plot_panel_x_of(d, c), plot_panel_y_of(d, c->smooth));
    }
    plot_panel_pen_up(&pen);
    fputs("\"/>\n", d->svg);
}

/* Marks the points of a short series: a line through one or two of them is too short to be seen. */
static void plot_panel_draw_dots(const struct drawing *d, const struct plot_series *s, int run) {
    if (s->n_columns > 40) return;
    plot_panel_path_begin(d, run, "dot");
    for (size_t i = 0; i < s->n_columns; i++)
        if (s->columns[i].finite)
            fprintf(d->svg, "M%.1f %.1fh0", plot_panel_x_of(d, &s->columns[i]), plot_panel_y_of(d, s->columns[i].last));
    fputs("\"/>\n", d->svg);
}

/* Draws a smoothed line, and rings that are at least 7 pixels apart. */
static void plot_panel_draw_points(const struct drawing *d, const struct plot_series *s, int run) {
    double before = -1e9;
    plot_panel_draw_smooth(d, s, run, "smooth");
    for (size_t i = 0; i < s->n_columns; i++) {
        const struct plot_column *c = &s->columns[i];
        double x = plot_panel_x_of(d, c);
        if (c->finite == 0 || x - before < 7) continue;
        fprintf(d->svg, "<circle class=\"run r%d ring s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>\n", run, run % 7, x,
                plot_panel_y_of(d, c->last));
        before = x;
    }
}

/* Draws a cross at the upper edge wherever a value was not finite. */
static void plot_panel_draw_broken(const struct drawing *d, const struct plot_series *s, int run) {
    double before = -1e9;
    for (size_t i = 0; i < s->n_columns; i++) {
        double x = plot_panel_x_of(d, &s->columns[i]);
        if (s->columns[i].broken == 0 || x - before < 7) continue;
        fprintf(d->svg,
                "<path class=\"run r%d cross s%d\" d=\"M%.1f %.1fl6 6m0-6l-6 6\"><title>not a finite number"
                "</title></path>\n",
                run, run % 7, x - 3, d->top + 3 + 9 * (run % 3));
        before = x;
    }
}

static void plot_panel_draw_text(const struct drawing *d, const char *class, double x, double y, const char *text) {
    fprintf(d->svg, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    plot_text(d->svg, text);
    fputs("</text>\n", d->svg);
}

static void plot_panel_draw_axes(const struct drawing *d, struct plot_size size) {
    double width = d->right - d->left, height = d->bottom - d->top;
    for (int i = 0; i < d->y.n_ticks; i++) {
        double y = d->bottom - plot_axis_at(&d->y, d->y.ticks[i]) * height;
        fprintf(d->svg, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>\n", d->left, y, width);
        plot_panel_draw_text(d, "tick end", d->left - 7, y + 4, d->y.labels[i]);
    }
    for (int i = 0; i < d->x.n_ticks; i++) {
        double x = d->left + plot_axis_at(&d->x, d->x.ticks[i]) * width;
        fprintf(d->svg, "<path class=\"grid\" d=\"M%.1f %.1fv%.1f\"/>\n", x, d->top, height);
        plot_panel_draw_text(d, "tick middle", x, d->bottom + 17, d->x.labels[i]);
    }
    fprintf(d->svg, "<path class=\"frame\" d=\"M%.1f %.1fv%.1fh%.1f\"/>\n", d->left, d->top, height, width);
    plot_panel_draw_text(d, "name middle", (d->left + d->right) / 2, size.height - 5,
                         d->along == PLOT_TOKENS ? "tokens" : "steps");
}

/* Draws the key to lines and rings at the right of the title. */
static void plot_panel_draw_key(const struct drawing *d) {
    double y = d->top - 12, x = d->right - 296;
    bool points = false;
    for (int i = 0; i < d->picture->n_runs; i++)
        points |= d->points[i].n_columns > 0;
    if (!points) x += 96;
    fprintf(d->svg, "<path class=\"raw key\" d=\"M%.1f %.1fl4-5 4 7 4-8 4 7 4-4\"/>\n", x, y - 3);
    plot_panel_draw_text(d, "name", x + 26, y, "as logged");
    fprintf(d->svg, "<path class=\"line key\" d=\"M%.1f %.1fh20\"/>\n", x + 101, y - 4);
    plot_panel_draw_text(d, "name", x + 127, y, "smoothed");
    if (!points) return;
    fprintf(d->svg,
            "<path class=\"smooth key\" d=\"M%.1f %.1fh20\"/><circle class=\"ring key\" cx=\"%.1f\" cy=\"%.1f\" "
            "r=\"3.2\"/>\n",
            x + 202, y - 4, x + 212, y - 4);
    plot_panel_draw_text(d, "name", x + 228, y, "validation");
}

static void plot_panel_widen(double range[3], const struct plot_series *s) {
    for (size_t i = 0; i < s->n_columns; i++) {
        const struct plot_column *c = &s->columns[i];
        if (c->finite == 0) continue;
        range[0] = fmin(range[0], c->low);
        range[1] = fmax(range[1], c->high);
        if (c->low > 0) range[2] = fmin(range[2], c->low);
    }
}

static void plot_panel_set_y_axis(struct drawing *d) {
    double range[3] = {INFINITY, -INFINITY, INFINITY}; /* least, greatest, least above zero */
    for (int i = 0; i < d->picture->n_runs; i++) {
        plot_panel_widen(range, &d->lines[i]);
        plot_panel_widen(range, &d->points[i]);
    }
    if (!(range[0] <= range[1])) range[0] = 0, range[1] = 1; /* no finite value */
    double ratio = d->panel->log_ratio;
    int most = d->bottom - d->top > 220 ? 10 : 6;
    if (ratio > 0 && range[1] > ratio * range[2]) {
        double margin = pow(range[1] / range[2], 0.04);
        plot_axis_log(&d->y, range[2] / margin, range[1] * margin, most);
        return;
    }
    double low = d->panel->from_zero && range[0] > 0 ? 0 : range[0], margin = (range[1] - low) * 0.06;
    plot_axis_linear(&d->y, low == 0 && d->panel->from_zero ? 0 : low - margin, range[1] + margin, most);
}

static void plot_panel_data_numbers(FILE *out, const char *key, const struct plot_series *s,
                                    double (*get)(const struct plot_column *)) {
    fprintf(out, "\"%s\":[", key);
    for (size_t i = 0; i < s->n_columns; i++) {
        const struct plot_column *c = &s->columns[i];
        double v = get(c);
        if (i) fputc(',', out);
        if (isfinite(v))
            fprintf(out, "%.*g", fabs(v) >= 1e6 ? 12 : 5, v);
        else
            fputs("null", out);
    }
    fputs("]", out);
}

static double plot_panel_get_tokens(const struct plot_column *c) {
    return c->along[PLOT_TOKENS];
}
static double plot_panel_get_step(const struct plot_column *c) {
    return c->along[PLOT_STEPS];
}
static double plot_panel_get_smooth(const struct plot_column *c) {
    return c->finite ? c->smooth : NAN;
}
static double plot_panel_get_low(const struct plot_column *c) {
    return c->finite ? c->low : NAN;
}
static double plot_panel_get_high(const struct plot_column *c) {
    return c->finite ? c->high : NAN;
}

static void plot_panel_data_series(const struct drawing *d, const struct plot_series *s, int run, const char *kind,
                                   bool *first) {
    if (s->n_columns == 0) return;
    fprintf(d->data, "%s\n{\"run\":%d,\"kind\":\"%s\",", *first ? "" : ",", run, kind);
    *first = false;
    plot_panel_data_numbers(d->data, "tokens", s, plot_panel_get_tokens);
    fputc(',', d->data);
    plot_panel_data_numbers(d->data, "steps", s, plot_panel_get_step);
    fputc(',', d->data);
    plot_panel_data_numbers(d->data, "value", s, plot_panel_get_smooth);
    fputc(',', d->data);
    plot_panel_data_numbers(d->data, "low", s, plot_panel_get_low);
    fputc(',', d->data);
    plot_panel_data_numbers(d->data, "high", s, plot_panel_get_high);
    fputc('}', d->data);
}

static void plot_panel_write_data(const struct drawing *d, struct plot_size size) {
    bool first = true;
    fprintf(
        d->data,
        "{\"width\":%g,\"left\":%g,\"right\":%g,\"top\":%g,\"bottom\":%g,\"y\":[%.9g,%.9g],\"log\":%s,\"smooth\":%s,",
        size.width, d->left, d->right, d->top, d->bottom, d->y.low, d->y.high, d->y.log ? "true" : "false",
        d->panel->smooth ? "true" : "false");
    fputs("\"series\":[", d->data);
    for (int i = 0; i < d->picture->n_runs; i++) {
        plot_panel_data_series(d, &d->lines[i], i, "", &first);
        plot_panel_data_series(d, &d->points[i], i, "validation", &first);
    }
    fputs("]}", d->data);
}

static void plot_panel_draw_all(const struct drawing *d, struct plot_size size) {
    char title[128];
    snprintf(title, sizeof title, "%s%s", d->panel->title, d->y.log ? " (log scale)" : "");
    plot_panel_draw_text(d, "title", d->left, d->top - 12, title);
    plot_panel_draw_axes(d, size);
    int n = d->picture->n_runs;
    for (int i = 0; i < n; i++)
        if (d->panel->marked)
            plot_panel_draw_points(d, &d->lines[i], i);
        else
            plot_panel_draw_logged(d, i, d->panel->smooth ? "raw" : "line"), plot_panel_draw_dots(d, &d->lines[i], i);
    for (int i = 0; i < n && d->panel->smooth; i++)
        plot_panel_draw_smooth(d, &d->lines[i], i, "line");
    for (int i = 0; i < n; i++) {
        if (d->points[i].n_columns > 0) plot_panel_draw_points(d, &d->points[i], i);
        plot_panel_draw_broken(d, &d->lines[i], i);
    }
    if (d->panel->points != PLOT_VALUES) plot_panel_draw_key(d);
    if (d->data) plot_panel_write_data(d, size);
}

bool plot_panel_empty(const struct plot_picture *picture, const struct plot_panel *panel) {
    uint32_t wanted = 1u << panel->value | (panel->points != PLOT_VALUES ? 1u << panel->points : 0);
    for (int i = 0; i < picture->n_runs; i++)
        for (size_t k = 0; k < picture->runs[i].log.n_rows; k++)
            if (picture->runs[i].log.rows[k].has & wanted) return false;
    return true;
}

enum status plot_panel_draw(FILE *svg, FILE *data, const struct plot_picture *picture, const struct plot_panel *panel,
                            enum plot_along along, struct plot_size size) {
    struct drawing d = {.svg = svg, .data = data, .picture = picture, .panel = panel, .along = along};
    d.left = 62, d.right = size.width - 18, d.top = 34, d.bottom = size.height - 42;
    double low = picture->ends[along][0], high = picture->ends[along][1];
    plot_axis_linear(&d.x, low, high, size.width > 900 ? 12 : 7);
    size_t columns = (size_t)(d.right - d.left);
    enum status status = STATUS_OK;
    for (int i = 0; i < picture->n_runs && status == STATUS_OK; i++) {
        const struct plot_log *log = &picture->runs[i].log;
        status = plot_subsample(&d.lines[i], log, panel->value, along, low, high, columns);
        if (status == STATUS_OK && panel->points != PLOT_VALUES)
            status = plot_subsample(&d.points[i], log, panel->points, along, low, high, columns);
        if (panel->smooth) plot_smooth(&d.lines[i], along, (high - low) / 150);
    }
    if (status == STATUS_OK) {
        plot_panel_set_y_axis(&d);
        plot_panel_draw_all(&d, size);
    }
    for (int i = 0; i < picture->n_runs; i++) {
        plot_series_free(&d.lines[i]);
        plot_series_free(&d.points[i]);
    }
    return status;
}

void plot_swatch(FILE *svg, int run, double x, double y, double width) {
    fprintf(svg, "<path class=\"line s%d d%d\" d=\"M%.1f %.1fh%.1f\"/>", run % 7, run / 7, x, y, width);
}
