/* plot.c -- reads the logs of runs, names the runs, and writes the panels as a page or a picture. */
#include "train/plot/plot.h"
#include "base/file.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "data/tokenizer/utf8.h"
#include "train/plot/plot_internal.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The last `parts` components of a path, without slashes at its end. */
static enum status plot_last_parts(char **out, const char *path, int parts) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    for (int i = 0; i < parts && begin > 0; i++) {
        if (i > 0) begin--;
        while (begin > 0 && path[begin - 1] != '/')
            begin--;
    }
    TRY(memory_copy_string(out, path + begin));
    (*out)[end - begin] = 0;
    return STATUS_OK;
}

static bool plot_names_differ(const struct plot_picture *p) {
    for (int i = 0; i < p->n_runs; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(p->runs[i].name, p->runs[k].name) == 0) return false;
    return true;
}

static enum status plot_name_runs(struct plot_picture *p) {
    for (int parts = 1; parts <= 8; parts++) {
        for (int i = 0; i < p->n_runs; i++) {
            memory_free(p->runs[i].name);
            p->runs[i].name = NULL;
            TRY(plot_last_parts(&p->runs[i].name, p->runs[i].path, parts));
        }
        if (plot_names_differ(p)) break;
    }
    return STATUS_OK;
}

/* The lower end of the axis is zero unless all logs start well above it. */
void plot_picture_ends(struct plot_picture *p) {
    for (int along = 0; along < 2; along++) {
        double low = INFINITY, high = -INFINITY;
        for (int i = 0; i < p->n_runs; i++) {
            const struct plot_log *log = &p->runs[i].log;
            if (log->n_rows == 0) continue;
            const struct plot_row *a = &log->rows[0], *b = &log->rows[log->n_rows - 1];
            low = fmin(low, (double)(along == PLOT_TOKENS ? a->tokens : a->step));
            high = fmax(high, (double)(along == PLOT_TOKENS ? b->tokens : b->step));
        }
        if (!(low <= high)) low = 0, high = 1;
        if (low < high * 0.4 || low == high) low = 0;
        p->ends[along][0] = low;
        p->ends[along][1] = high > low ? high : low + 1;
    }
}

void plot_text(FILE *out, const char *text) {
    size_t bytes = strlen(text);
    while (bytes > 0) {
        uint32_t code = 0;
        bool cut;
        int n = utf8_check(text, bytes, &code, &cut);
        bool fine = n > 0 && code >= 0x20 && code != 0x7f && code != 0xfffe && code != 0xffff;
        size_t length = n > 0 ? (size_t)n : code > 0 ? code : 1;
        if (!fine)
            fputs("\xef\xbf\xbd", out);
        else if (strchr("<>&\"", text[0]))
            fprintf(out, "&#%d;", text[0]);
        else
            fwrite(text, 1, length, out);
        text += length;
        bytes -= length;
    }
}

static bool plot_is_page(const char *path) {
    size_t n = strlen(path);
    return n >= 5 && strcmp(path + n - 5, ".html") == 0;
}

static bool plot_is_picture(const char *path) {
    size_t n = strlen(path);
    return n >= 4 && strcmp(path + n - 4, ".svg") == 0;
}

static enum status plot_draw(char **text, size_t *bytes, bool page, const struct plot_picture *p,
                             const struct plot_config *config) {
    FILE *memory = text_stream_open(text, bytes);
    if (!memory) return fail(STATUS_NO_MEMORY, "no memory for the plot");
    enum status status = page ? plot_page(memory, p, config) : plot_svg(memory, p, config);
    bool wrong = ferror(memory) != 0;
    if ((fclose(memory) != 0 || wrong) && status == STATUS_OK)
        status = fail(STATUS_NO_MEMORY, "no memory for the plot");
    return status;
}

enum status plot_write(const char *path, const char *const *runs, int n_runs, const struct plot_config *config) {
    assert(n_runs > 0);
    if (!plot_is_page(path) && !plot_is_picture(path))
        return fail(STATUS_INVALID, "%s: a plot's name ends in .html or .svg", path);
    if (n_runs > PLOT_RUNS_MAX)
        return fail(STATUS_INVALID, "%d runs: one plot has colours and line styles for %d", n_runs, PLOT_RUNS_MAX);
    struct plot_picture p = {.n_runs = n_runs};
    char *text = NULL;
    size_t bytes = 0;
    TRY(memory_allocate_zero(&p.runs, (size_t)n_runs));
    enum status status;
    char title[FILE_PATH_MAX];
    struct plot_config named = config ? *config : (struct plot_config){0};
    for (int i = 0; i < n_runs; i++) {
        p.runs[i].path = runs[i];
        TRY_GOTO(status, plot_log_read(&p.runs[i].log, runs[i]), out);
    }
    TRY_GOTO(status, plot_name_runs(&p), out);
    plot_picture_ends(&p);
    if (!named.title && n_runs > 1) snprintf(title, sizeof title, "%d runs", n_runs);
    if (!named.title) named.title = n_runs > 1 ? title : p.runs[0].name;
    TRY_GOTO(status, plot_draw(&text, &bytes, plot_is_page(path), &p, &named), out);
    status = file_save(path, text, bytes);
out:
    for (int i = 0; i < n_runs; i++) {
        plot_log_free(&p.runs[i].log);
        memory_free(p.runs[i].name);
    }
    memory_free(p.runs);
    free(text);
    return status;
}

enum status plot_refresh(const char *run) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, run, "plot.html"));
    return plot_write(path, &run, 1, NULL);
}
