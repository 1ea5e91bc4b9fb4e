/* plot_series.c -- reduces a series of any length to pixel columns, and smooths it. */
#include "base/memory.h"
#include "train/plot/plot_internal.h"
#include <assert.h>
#include <math.h>

static size_t plot_series_column(double x, double low, double high, size_t limit) {
    double at = (x - low) / (high - low) * (double)limit;
    return at <= 0 ? 0 : at >= (double)limit ? limit - 1 : (size_t)at;
}

static void plot_series_add_point(struct plot_column *c, double v, int64_t index) {
    if (c->finite == 0) c->first = c->low = c->high = v, c->low_at = c->high_at = index;
    if (v < c->low) c->low = v, c->low_at = index;
    if (v > c->high) c->high = v, c->high_at = index;
    c->last = v;
    c->finite++;
    c->mean += (v - c->mean) / (double)c->finite;
}

enum status plot_subsample(struct plot_series *out, const struct plot_log *log, enum plot_value value,
                           enum plot_along along, double low, double high, size_t limit) {
    assert(limit > 0 && high > low);
    *out = (struct plot_series){0};
    size_t capacity = 0, current = 0;
    bool broken = false;
    for (size_t i = 0; i < log->n_rows; i++) {
        const struct plot_row *row = &log->rows[i];
        if (!(row->has >> value & 1)) continue;
        double x[2] = {[PLOT_TOKENS] = (double)row->tokens, [PLOT_STEPS] = (double)row->step};
        size_t column = plot_series_column(x[along], low, high, limit);
        if (out->n_columns == 0 || column != current) {
            enum status status = memory_grow(&out->columns, &capacity, out->n_columns + 1);
            if (status != STATUS_OK) {
                plot_series_free(out);
                return status;
            }
            out->columns[out->n_columns++] = (struct plot_column){0};
            current = column;
        }
        struct plot_column *c = &out->columns[out->n_columns - 1];
        c->along[PLOT_TOKENS] = x[PLOT_TOKENS], c->along[PLOT_STEPS] = x[PLOT_STEPS];
        if (isfinite(row->values[value])) {
            if (c->finite == 0) c->gap = broken;
            plot_series_add_point(c, row->values[value], (int64_t)i);
            broken = false;
        } else {
            c->broken++;
            broken = true;
        }
    }
    for (size_t i = 0; i < out->n_columns; i++)
        out->columns[i].smooth = out->columns[i].mean;
    return STATUS_OK;
}

/* Each smoothed value is a direct sum over the columns within three widths, about a thousand at most. Running sums
 * would be faster, but a spike of 1e30 would leave a rounding error in all later values. */
void plot_smooth(struct plot_series *series, enum plot_along along, double width) {
    size_t from = 0;
    for (size_t i = 0; i < series->n_columns; i++) {
        struct plot_column *c = &series->columns[i];
        if (c->finite == 0) continue;
        double x = c->along[along], left = (x - series->columns[0].along[along]) / 3;
        double sigma = left < width ? left : width, weights = 0, sum = 0;
        if (!(sigma > 0)) continue;
        while (x - series->columns[from].along[along] > 3 * width)
            from++;
        for (size_t k = from; k < series->n_columns; k++) {
            const struct plot_column *other = &series->columns[k];
            double d = (other->along[along] - x) / sigma;
            if (d > 3) break;
            if (other->finite == 0 || d < -3) continue;
            double weight = exp(-d * d / 2) * (double)other->finite;
            weights += weight;
            sum += weight * other->mean;
        }
        c->smooth = sum / weights; /* weights > 0, because the column's own weight is included */
    }
}

void plot_series_free(struct plot_series *series) {
    memory_free(series->columns);
    *series = (struct plot_series){0};
}
