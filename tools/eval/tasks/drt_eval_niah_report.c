/* drt_eval_niah_report.c -- the table, the JSON object and the heat map of drt-eval niah. */
#include "base/formats/json.h"
#include "tools/eval/tasks/drt_eval_niah.h"
#include "tools/shared/ratio.h"

#include <errno.h>
#include <math.h>

double niah_bytes(const struct niah_cell *cell) {
    return (double)cell->past_bytes * (double)cell->trials / (double)cell->tokens;
}

void niah_print(const struct niah_result *r, const struct niah_options *o) {
    printf("%-12s %9s %7s  %6s  %-15s %7s %9s %7s %9s %8s %9s\n", "task", "context", "samples", "found",
           "95 % interval", "values", "retrieved", "one id", "us/token", "B/token", "peak MiB");
    for (int t = 0; t < o->n_tasks; t++)
        for (int c = 0; c < o->n_contexts; c++) {
            const struct niah_cell *cell = &r->cell[t][c];
            if (cell->trials == 0) continue;
            const struct ratio found = ratio_share(cell->whole, cell->trials);
            printf("%-12s %9lld %7lld  %6.3f  %.3f .. %.3f  %7.3f %9.3f %7.3f %9.1f %8.1f %9zu\n",
                   needle_task_names[o->task[t]], (long long)o->context[c], (long long)cell->trials, found.value,
                   found.low, found.high, cell->values / (double)cell->trials,
                   (double)cell->retrieved / (double)cell->trials, (double)cell->scored / (double)cell->trials,
                   cell->seconds * 1e6 / (double)cell->tokens, niah_bytes(cell), cell->resident >> 20);
        }
    printf("found: every id of the answer is the most probable one, in the order of the text; values: share of the\n"
           "requested values that a greedy answer contains, in any order (RULER's figure); retrieved: each id of a\n"
           "requested value was read; one id: the id that the papers' code scores is the most probable one; B/token:\n"
           "bytes of the own past's landmarks and ids\n");
}

void niah_print_json(const struct niah_result *r, const struct niah_options *o) {
    struct json_writer w;
    json_write_open(&w, stdout, 2);
    json_write_object(&w);
    json_write_key(&w, "wording");
    json_write_string(&w, o->wording);
    json_write_key(&w, "seed");
    json_write_int(&w, o->run.seed);
    json_write_key(&w, "rows");
    json_write_array(&w);
    for (int t = 0; t < o->n_tasks; t++)
        for (int c = 0; c < o->n_contexts; c++) {
            const struct niah_cell *cell = &r->cell[t][c];
            const struct {
                const char *key;
                int64_t value;
            } counts[] = {{"context", o->context[c]},       {"samples", cell->trials},
                          {"found", cell->whole},           {"one_id", cell->scored},
                          {"retrieved", cell->retrieved},   {"tokens", cell->tokens},
                          {"past_bytes", cell->past_bytes}, {"peak_bytes", (int64_t)cell->resident}};
            json_write_object(&w);
            json_write_key(&w, "task");
            json_write_string(&w, needle_task_names[o->task[t]]);
            for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
                json_write_key(&w, counts[i].key);
                json_write_int(&w, counts[i].value);
            }
            json_write_key(&w, "values");
            json_write_double(&w, cell->trials ? cell->values / (double)cell->trials : NAN);
            json_write_key(&w, "seconds");
            json_write_double(&w, cell->seconds);
            json_write_key(&w, "by_depth");
            json_write_array(&w);
            for (int d = 0; d < NIAH_DEPTHS; d++)
                json_write_double(
                    &w, cell->depth_trials[d] ? (double)cell->depth_whole[d] / (double)cell->depth_trials[d] : NAN);
            json_write_array_end(&w);
            json_write_object_end(&w);
        }
    json_write_array_end(&w);
    json_write_object_end(&w);
    putchar('\n');
}

/* ---- the heat map ---------------------------------------------------------------------------------------- */

enum { CELL_W = 56, CELL_H = 22, LEFT = 76, TOP = 44, GAP = 56 };

/* From dark orange (0) by a pale yellow to dark blue (1), which colour-blind readers can distinguish, too. */
static void niah_colour(double share, int rgb[3]) {
    static const int ends[3][3] = {{179, 88, 6}, {247, 240, 210}, {33, 102, 172}};
    const int from = share < 0.5 ? 0 : 1;
    for (int i = 0; i < 3; i++)
        rgb[i] = (int)lround(ends[from][i] + (2 * share - from) * (ends[from + 1][i] - ends[from][i]));
}

void niah_context_text(char out[24], int64_t n) {
    if (n % (1 << 20) == 0)
        snprintf(out, 24, "%lldM", (long long)(n >> 20));
    else if (n % 1024 == 0)
        snprintf(out, 24, "%lldK", (long long)(n >> 10));
    else
        snprintf(out, 24, "%lld", (long long)n);
}

static void niah_draw_cell(FILE *f, const struct niah_cell *cell, int depth, int x, int y) {
    int rgb[3];
    if (cell->depth_trials[depth] == 0) {
        fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#ccc\"/>\n", x, y,
                CELL_W - 2, CELL_H - 2);
        return;
    }
    const double share = (double)cell->depth_whole[depth] / (double)cell->depth_trials[depth];
    niah_colour(share, rgb);
    fprintf(f,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"rgb(%d,%d,%d)\"/><text x=\"%d\" y=\"%d\" "
            "fill=\"%s\" "
            "text-anchor=\"middle\">%.0f %%</text>\n",
            x, y, CELL_W - 2, CELL_H - 2, rgb[0], rgb[1], rgb[2], x + CELL_W / 2 - 1, y + CELL_H / 2 + 3,
            share > 0.25 && share < 0.8 ? "#222" : "#fff", 100 * share);
}

static void niah_draw_task(FILE *f, const struct niah_result *r, const struct niah_options *o, int t, int top) {
    fprintf(
        f,
        "<text x=\"%d\" y=\"%d\"><tspan font-weight=\"bold\">%s: answers found</tspan>, by tokens of the text</text>\n"
        "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">needle at</text>\n",
        LEFT, top + 14, needle_task_names[o->task[t]], LEFT - 8, top + TOP - 8);
    for (int c = 0; c < o->n_contexts; c++) {
        char text[24];
        niah_context_text(text, o->context[c]);
        fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", LEFT + c * CELL_W + CELL_W / 2,
                top + TOP - 8, text);
        for (int d = 0; d < NIAH_DEPTHS; d++)
            niah_draw_cell(f, &r->cell[t][c], d, LEFT + c * CELL_W, top + TOP + d * CELL_H);
    }
    for (int d = 0; d < NIAH_DEPTHS; d++)
        fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d..%d %%</text>\n", LEFT - 8,
                top + TOP + d * CELL_H + CELL_H / 2 + 3, 100 * d / NIAH_DEPTHS, 100 * (d + 1) / NIAH_DEPTHS);
}

void niah_svg_begin(FILE *f, int width, int height) {
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height, width, height);
}

enum status niah_draw(const struct niah_result *r, const struct niah_options *o) {
    const int map = TOP + NIAH_DEPTHS * CELL_H + GAP / 2;
    const int columns = o->n_contexts * CELL_W, width = LEFT + (columns > 360 ? columns : 360) + 16;
    FILE *f = fopen(o->heat_map, "we");
    if (!f) return fail_errno("%s", o->heat_map);
    niah_svg_begin(f, width, map * o->n_tasks);
    for (int t = 0; t < o->n_tasks; t++)
        niah_draw_task(f, r, o, t, t * map);
    fprintf(f, "</svg>\n");
    const bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) return fail_errno("%s", o->heat_map);
    return STATUS_OK;
}
