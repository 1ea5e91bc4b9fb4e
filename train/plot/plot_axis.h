/* plot_axis.h -- axes of plots: round tick values, and numbers and names as text. Other programs' plots use it too. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

enum { PLOT_TICKS_MAX = 16, PLOT_LABEL_MAX = 24 };
struct plot_axis {
    double low, high;                           /* values at the ends */
    bool log;
    int n_ticks;
    double ticks[PLOT_TICKS_MAX];
    char labels[PLOT_TICKS_MAX][PLOT_LABEL_MAX];
};
/* Sets the ends, and at most `most` ticks at round numbers (1, 2, 5 times a power of ten) between low and high. A log
 * axis requires low > 0. */
void plot_axis_linear(struct plot_axis *axis, double low, double high, int most);
void plot_axis_log(struct plot_axis *axis, double low, double high, int most);
double plot_axis_at(const struct plot_axis *axis, double value);     /* 0 at low, 1 at high */
/* Formats a value with `digits` significant digits: 1234567 as "1.23 M", 0.000312 as "3.12e-4". Returns out. */
const char *plot_number(char out[PLOT_LABEL_MAX], double value, int digits);

/* Writes text for markup: escapes <>&" and replaces bytes that are not UTF-8 or not allowed in XML. */
void plot_text(FILE *out, const char *text);
