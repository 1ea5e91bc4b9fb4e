/* plot_axis.c -- round numbers along an axis, and how numbers are written. */
#include "train/plot/plot_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static const struct {
    double unit;
    const char *sign;
} SI[] = {{1e15, " P"}, {1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " K"}};

/* The suffix of numbers up to `largest` (K, M, ...): numbers have one only from 10,000 on. */
static double plot_axis_si_unit(double largest, const char **sign) {
    *sign = "";
    if (largest < 1e4 || largest >= 1e18) return 1;
    for (size_t i = 0; i < sizeof SI / sizeof *SI; i++)
        if (largest >= SI[i].unit) {
            *sign = SI[i].sign;
            return SI[i].unit;
        }
    return 1;
}

/* Shortens the exponent of C's format: 1e-04 becomes 1e-4. */
static void plot_axis_shorten_exponent(char *text) {
    char *e = strchr(text, 'e');
    if (!e) return;
    char *to = e + 1, *from = e + 1;
    if (*from == '-')
        to++, from++;
    else if (*from == '+')
        from++;
    while (*from == '0' && from[1])
        from++;
    memmove(to, from, strlen(from) + 1);
}

const char *plot_number(char out[PLOT_LABEL_MAX], double value, int digits) {
    const char *sign;
    double unit = plot_axis_si_unit(fabs(value), &sign), shown = value / unit;
    bool small = value != 0 && fabs(value) < 1e-2, large = fabs(value) >= 1e18;
    if (small || large) {
        snprintf(out, PLOT_LABEL_MAX, "%.*e", digits - 1, value);
        plot_axis_shorten_exponent(out);
        return out;
    }
    int whole = shown == 0 ? 1 : (int)floor(log10(fabs(shown))) + 1;
    int decimals = digits - (whole > 1 ? whole : 1);
    snprintf(out, PLOT_LABEL_MAX, "%.*f%s", decimals > 0 ? decimals : 0, shown, sign);
    return out;
}

/* Decimals that tell multiples of `step` apart: 0 for 20, 1 for 0.5, 2 for 0.02. */
static int plot_axis_decimals_for(double step) {
    int decimals = (int)-floor(log10(step) + 1e-9);
    return decimals > 0 ? decimals : 0;
}

/* Below 0.01 all ticks share the largest one's power of ten: 0.5e-4, 1.0e-4, 1.5e-4. */
static void plot_axis_label_linear(struct plot_axis *axis, double step) {
    double largest = fmax(fabs(axis->low), fabs(axis->high));
    bool power = largest < 1e-2 || largest >= 1e18;
    const char *sign;
    double unit = plot_axis_si_unit(largest, &sign);
    int exponent = (int)floor(log10(largest) + 1e-9);
    if (power) unit = pow(10, exponent);
    for (int i = 0; i < axis->n_ticks; i++) {
        double tick = axis->ticks[i];
        int decimals = plot_axis_decimals_for(step / unit);
        if (tick == 0)
            snprintf(axis->labels[i], PLOT_LABEL_MAX, "0");
        else if (power)
            snprintf(axis->labels[i], PLOT_LABEL_MAX, "%.*fe%d", decimals, tick / unit, exponent);
        else
            snprintf(axis->labels[i], PLOT_LABEL_MAX, "%.*f%s", decimals, tick / unit, sign);
    }
}

/* The smallest of 1, 2, 5 times a power of ten that is at least `least`. */
static double plot_axis_round_step(double least) {
    double power = pow(10, floor(log10(least)));
    double m = least / power;
    return power * (m <= 1 + 1e-9 ? 1 : m <= 2 + 1e-9 ? 2 : m <= 5 + 1e-9 ? 5 : 10);
}

static void plot_axis_ticks_linear(struct plot_axis *axis, int most) {
    double step = plot_axis_round_step((axis->high - axis->low) / most);
    for (;;) {
        double first = ceil(axis->low / step - 1e-6), last = floor(axis->high / step + 1e-6);
        if (last - first < most) {
            axis->n_ticks = 0;
            for (double k = first; k <= last; k++)
                axis->ticks[axis->n_ticks++] = k * step;
            plot_axis_label_linear(axis, step);
            return;
        }
        step = plot_axis_round_step(step * 1.5);
    }
}

/* Widens an axis whose two ends are equal. */
static void plot_axis_widen(double *low, double *high) {
    double least = fmax(fabs(*low), fabs(*high)) * 1e-6;
    if (*high - *low > least && *high > *low) return;
    double middle = (*low + *high) / 2, margin = middle != 0 ? fabs(middle) / 10 : 1;
    *low = middle - margin;
    *high = middle + margin;
}

void plot_axis_linear(struct plot_axis *axis, double low, double high, int most) {
    assert(isfinite(low) && isfinite(high) && low <= high && most >= 2 && most <= PLOT_TICKS_MAX);
    plot_axis_widen(&low, &high);
    *axis = (struct plot_axis){.low = low, .high = high};
    plot_axis_ticks_linear(axis, most);
}

/* Puts ticks at these multiples in every decade, with the densest set that fits. Over many decades only every second or
 * fifth one has a tick. */
static int plot_axis_ticks_log(struct plot_axis *axis, const double *multiples, int n, int every, int most) {
    int count = 0;
    double first = floor(log10(axis->low)), last = ceil(log10(axis->high));
    for (double decade = first; decade <= last; decade++) {
        if (fmod(fabs(decade), every) != 0) continue;
        for (int i = 0; i < n; i++) {
            double tick = pow(10, decade) * multiples[i];
            if (tick < axis->low * (1 - 1e-9) || tick > axis->high * (1 + 1e-9)) continue;
            if (count >= most) return -1;
            axis->ticks[count++] = tick;
        }
    }
    return count;
}

static void plot_axis_label_log(struct plot_axis *axis) {
    for (int i = 0; i < axis->n_ticks; i++) {
        double tick = axis->ticks[i];
        const char *sign;
        double unit = plot_axis_si_unit(tick, &sign);
        if (tick < 0.99e-2 || tick >= 1e18) {
            snprintf(axis->labels[i], PLOT_LABEL_MAX, "%.0e", tick);
            plot_axis_shorten_exponent(axis->labels[i]);
        } else {
            snprintf(axis->labels[i], PLOT_LABEL_MAX, "%.4g%s", tick / unit, sign);
        }
    }
}

/* Removes linear ticks that are too near to the one before: on a log axis they stand closer and closer. */
static void plot_axis_drop_crowded(struct plot_axis *axis, double least) {
    int kept = 0;
    for (int i = 0; i < axis->n_ticks; i++) {
        if (kept > 0 && plot_axis_at(axis, axis->ticks[i]) - plot_axis_at(axis, axis->ticks[kept - 1]) < least)
            continue;
        axis->ticks[kept] = axis->ticks[i];
        memmove(axis->labels[kept++], axis->labels[i], PLOT_LABEL_MAX);
    }
    axis->n_ticks = kept;
}

void plot_axis_log(struct plot_axis *axis, double low, double high, int most) {
    assert(low > 0 && isfinite(high) && low <= high && most >= 2 && most <= PLOT_TICKS_MAX);
    if (high < low * 1.01) low /= 1.05, high *= 1.05;
    *axis = (struct plot_axis){.low = low, .high = high, .log = true};
    static const double MULTIPLES[] = {1, 2, 5}, ODD[] = {1, 3};
    static const struct {
        const double *multiples;
        int n, every;
    } CHOICES[] = {{MULTIPLES, 3, 1}, {ODD, 2, 1},       {MULTIPLES, 1, 1},
                   {MULTIPLES, 1, 2}, {MULTIPLES, 1, 5}, {MULTIPLES, 1, 20}};
    if (high < low * 8) { /* less than a decade: linear ticks are denser and equally round */
        plot_axis_ticks_linear(axis, most + 2 < PLOT_TICKS_MAX ? most + 2 : PLOT_TICKS_MAX);
        plot_axis_drop_crowded(axis, 0.55 / most);
        return;
    }
    for (size_t i = 0; i < sizeof CHOICES / sizeof *CHOICES; i++) {
        axis->n_ticks = plot_axis_ticks_log(axis, CHOICES[i].multiples, CHOICES[i].n, CHOICES[i].every, most);
        if (axis->n_ticks >= 0) break;
    }
    if (axis->n_ticks < 0) axis->n_ticks = 0;
    plot_axis_label_log(axis);
}

double plot_axis_at(const struct plot_axis *axis, double value) {
    if (!axis->log) return (value - axis->low) / (axis->high - axis->low);
    double least = axis->low * 1e-3; /* a log axis draws values <= 0 below its lower end */
    return log((value > least ? value : least) / axis->low) / log(axis->high / axis->low);
}
