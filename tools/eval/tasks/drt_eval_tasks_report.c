/* drt_eval_tasks_report.c -- the table and the JSON object of drt-eval tasks. */
#include "base/formats/json.h"
#include "base/memory.h"
#include "tools/eval/tasks/drt_eval_tasks.h"
#include "tools/shared/streams.h"

#include <math.h>
#include <string.h>

static struct ratio tasks_figure(const struct tasks_file_result *r, int k) {
    double *ones;
    struct ratio out = {.value = NAN, .low = 1, .high = 0};
    int64_t found = 0, missed = 0;
    for (size_t i = 0; i < r->n; i++) {
        found += r->scores[k][i] == 1;
        missed += r->scores[k][i] == 0;
    }
    if (r->n > 1 && (size_t)(found + missed) == r->n) return ratio_share(found, (int64_t)r->n);
    if (r->n == 0 || memory_allocate(&ones, r->n) != STATUS_OK) return out;
    for (size_t i = 0; i < r->n; i++)
        ones[i] = 1;
    out = ratio_of(r->scores[k], ones, r->n);
    memory_free(ones);
    return out;
}

void tasks_print(const struct tasks_file_result *results, int n, const char *metric) {
    printf("%-10s %8s  %-15s %8s %10s  file\n", "metric", "score", "95 % interval", "samples", "s/sample");
    for (int i = 0; i < n; i++)
        for (int k = 0; k < (metric ? 1 : ROUGE_KINDS); k++) {
            const struct ratio r = tasks_figure(&results[i], k);
            char interval[40] = "(one sample)";
            if (r.low <= r.high) snprintf(interval, sizeof interval, "%.4f .. %.4f", fmax(r.low, 0), fmin(r.high, 1));
            printf("%-10s %8.4f  %-15s %8zu %10.3f  ", metric ? metric : rouge_names[k], r.value, interval,
                   results[i].n, results[i].n ? results[i].seconds / (double)results[i].n : 0);
            streams_print_line(stdout, results[i].path, strlen(results[i].path), 80);
            putchar('\n');
        }
}

void tasks_print_json(const struct tasks_file_result *results, int n, const char *metric) {
    struct json_writer w;
    json_write_open(&w, stdout, 2);
    json_write_object(&w);
    json_write_key(&w, "files");
    json_write_array(&w);
    for (int i = 0; i < n; i++) {
        json_write_object(&w);
        json_write_key(&w, "file");
        json_write_string(&w, results[i].path);
        json_write_key(&w, "samples");
        json_write_int(&w, (int64_t)results[i].n);
        json_write_key(&w, "seconds");
        json_write_double(&w, results[i].seconds);
        for (int k = 0; k < (metric ? 1 : ROUGE_KINDS); k++) {
            const struct ratio r = tasks_figure(&results[i], k);
            json_write_key(&w, metric ? metric : rouge_names[k]);
            json_write_object(&w);
            json_write_key(&w, "score");
            json_write_double(&w, r.value);
            json_write_key(&w, "interval");
            json_write_array(&w);
            json_write_double(&w, r.low <= r.high ? r.low : NAN);
            json_write_double(&w, r.low <= r.high ? r.high : NAN);
            json_write_array_end(&w);
            json_write_object_end(&w);
        }
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    putchar('\n');
}
