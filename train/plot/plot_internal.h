/* plot_internal.h -- the parts of plot.h: columns of pixels, panels, and the page around them. */
#pragma once
#include "train/plot/plot.h"
#include "train/plot/plot_axis.h"
#include "train/plot/plot_log.h"
#include <stdbool.h>
#include <stdio.h>

/* One pixel column of one series: everything that lies in it. Drawing first, low and high, last gives the same
 * pixels as drawing every point. */
struct plot_column {
    double along[2];                            /* tokens and step of the last point */
    double first, low, high, last, mean;        /* of the finite points */
    double smooth;                              /* what plot_smooth gives */
    int64_t low_at, high_at;                    /* which of low and high comes first */
    int64_t finite, broken;                     /* points; points that were not finite */
    bool gap;                                   /* a broken point lies between the finite ones of before and these */
};
struct plot_series { struct plot_column *columns; size_t n_columns; };

/* At most `limit` columns of equal width from `low` to `high`, empty ones left out. Steps of a log that is shorter
 * than that stay single points. */
enum status plot_subsample(struct plot_series *out, const struct plot_log *log, enum plot_value value,
                           enum plot_along along, double low, double high, size_t limit);
/* Gaussian mean of the columns with this width; narrower towards the begin, where a curve is steep, so that the first
 * value stays itself. */
void plot_smooth(struct plot_series *series, enum plot_along along, double width);
void plot_series_free(struct plot_series *series);

/* One run as it is drawn. */
struct plot_run { const char *path; char *name; struct plot_log log; };

struct plot_panel {
    const char *title;
    enum plot_value value, points;              /* points: a second series, drawn as points; PLOT_VALUES: none */
    bool smooth, from_zero, marked;             /* marked: few and precious values, each a point */
    double log_ratio;                           /* a log scale when high / low passes it; 0: never */
};
extern const struct plot_panel plot_panels[];
extern const int plot_n_panels;

struct plot_size { double width, height; };
struct plot_picture { struct plot_run *runs; int n_runs; double ends[2][2]; /* [along][low, high] */ };

bool plot_panel_empty(const struct plot_picture *picture, const struct plot_panel *panel);
/* Draws into `svg` in a box at (0, 0). `data`, when not NULL, gets what the page's script needs, as JSON. */
enum status plot_panel_draw(FILE *svg, FILE *data, const struct plot_picture *picture, const struct plot_panel *panel,
                            enum plot_along along, struct plot_size size);
/* A short piece of line as the legend shows it. */
void plot_swatch(FILE *svg, int run, double x, double y, double width);

extern const char plot_style[];                 /* colours and lines, for page and picture */
extern const char plot_page_head[], plot_page_style[], plot_page_body[], plot_page_data[], plot_page_tail[];

void plot_picture_ends(struct plot_picture *picture);
enum status plot_page(FILE *out, const struct plot_picture *picture, const struct plot_config *config);
enum status plot_svg(FILE *out, const struct plot_picture *picture, const struct plot_config *config);
