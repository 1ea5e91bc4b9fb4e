/* fuzz_plot_log.c -- any bytes as a training log: an error that names the log, or rows in order that can be drawn. */
#include "train/plot/plot_internal.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No count is lost, and each value is in the range of its column. */
static void check_series(const struct plot_series *s, size_t limit) {
    if (s->n_columns > limit) abort();
    for (size_t i = 0; i < s->n_columns; i++) {
        const struct plot_column *c = &s->columns[i];
        if (c->finite + c->broken <= 0) abort();
        if (c->finite > 0 && !(c->low <= c->first && c->first <= c->high && c->low <= c->last && c->last <= c->high))
            abort();
        if (c->finite > 0 && !isfinite(c->smooth)) abort();
    }
}

static void draw(struct plot_picture *p) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    struct plot_config config = {.title = "fuzz"};
    if (!out || plot_page(out, p, &config) != STATUS_OK || plot_svg(out, p, &config) != STATUS_OK) abort();
    fclose(out);
    if (memmem(text, bytes, "\"nan", 4) || memmem(text, bytes, "inf ", 4)) abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char name[] = "fuzz";
    struct plot_run run = {.path = name, .name = name};
    struct plot_log *log = &run.log;
    if (plot_log_parse(log, name, (const char *)data, size) != STATUS_OK) {
        if (strncmp(status_message(), "fuzz: line ", 11) != 0) abort();
        plot_log_free(log);
        return 0;
    }
    for (size_t i = 1; i < log->n_rows; i++)
        if (log->rows[i].step < log->rows[i - 1].step || log->rows[i].tokens < log->rows[i - 1].tokens) abort();
    struct plot_picture p = {.runs = &run, .n_runs = 1};
    plot_picture_ends(&p);
    for (int v = 0; v < PLOT_VALUES; v++) {
        struct plot_series s;
        if (plot_subsample(&s, log, (enum plot_value)v, PLOT_STEPS, p.ends[1][0], p.ends[1][1], 50) != STATUS_OK)
            abort();
        plot_smooth(&s, PLOT_STEPS, (p.ends[1][1] - p.ends[1][0]) / 10);
        check_series(&s, 50);
        plot_series_free(&s);
    }
    draw(&p);
    plot_log_free(log);
    return 0;
}
