/* plot_internal.h -- the parts of a plot: series reduced to pixel columns, panels, and the page around them. */
#pragma once
#include "train/plot/plot.h"
#include "train/plot/plot_axis.h"
#include "train/plot/plot_log.h"
#include <stdbool.h>
#include <stdio.h>

/* All points of a series that lie in one pixel column. A line through first, low, high and last covers the same pixels
 * as a line through every point. */
struct plot_column {
    double along[2];                            /* tokens and step of the last point */
    double first, low, high, last, mean;        /* of the finite points */
    double smooth;                              /* the value of plot_smooth */
    int64_t low_at, high_at;                    /* index of each point: they tell which of low and high comes first */
    int64_t finite, broken;                     /* number of finite points; of the others */
    /* a point that is not finite lies between the previous column's finite points and these */
    bool gap;
};
struct plot_series { struct plot_column *columns; size_t n_columns; };

/* Reduces a log to at most `limit` columns of equal width from `low` to `high`; empty columns are left out. A log with
 * fewer points keeps each as a column of its own. */
enum status plot_subsample(struct plot_series *out, const struct plot_log *log, enum plot_value value,
                           enum plot_along along, double low, double high, size_t limit);
/* Sets `smooth` to the Gaussian mean of the columns. The width shrinks towards the start of the series, where a curve
 * is steep: the first value is not smoothed. */
void plot_smooth(struct plot_series *series, enum plot_along along, double width);
void plot_series_free(struct plot_series *series);

/* A run, its name in the legend and its log. */
struct plot_run { const char *path; char *name; struct plot_log log; };

struct plot_panel {
    const char *title;
    enum plot_value value, points;              /* points: a second series, drawn as rings; PLOT_VALUES: none */
    bool smooth, from_zero, marked;             /* marked: few values, each drawn as a ring */
    double log_ratio;                           /* the axis is logarithmic if high / low is larger; 0: never */
};
extern const struct plot_panel plot_panels[];
extern const int plot_n_panels;

struct plot_size { double width, height; };
struct plot_picture { struct plot_run *runs; int n_runs; double ends[2][2]; /* [along][low, high] */ };

bool plot_panel_empty(const struct plot_picture *picture, const struct plot_panel *panel);
/* Draws the panel in a box at (0, 0) of `svg`. Writes what the page's script needs to `data` as JSON; NULL: not
 * wanted. */
enum status plot_panel_draw(FILE *svg, FILE *data, const struct plot_picture *picture, const struct plot_panel *panel,
                            enum plot_along along, struct plot_size size);
/* Draws the short piece of a run's line that the legend shows. */
void plot_swatch(FILE *svg, int run, double x, double y, double width);

extern const char plot_style[];                 /* colours and lines of page and picture */
extern const char plot_page_head[], plot_page_style[], plot_page_body[], plot_page_data[], plot_page_tail[];

void plot_picture_ends(struct plot_picture *picture);
enum status plot_page(FILE *out, const struct plot_picture *picture, const struct plot_config *config);
enum status plot_svg(FILE *out, const struct plot_picture *picture, const struct plot_config *config);
