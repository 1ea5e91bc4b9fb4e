/* result.h -- the figures that a benchmark measured, as one JSON file.
 *
 * Each benchmark program takes `--json FILE` and then writes, beside its text, one object:
 *
 *   name, commit, date (UTC), command; machine {cpu, cores, load (of the last minute, at the start), gpu};
 *   figures [{name, unit, median, q1, q3, n, peer, ratio}]
 *
 * q1 and q3 are the quartiles of the n measured values, interpolated. peer names the object of a comparison (a library,
 * or a limit of the machine). ratio is how many times as fast this program is, or its share of the limit. Both are left
 * out without a peer. The commit is the environment's DRT_COMMIT, or that of the build.
 * tests/bench/result.py writes the same, tests/bench/report.py makes BENCHMARKS.md from such files.
 *
 * One result a process, one thread. Without --json the calls do nothing. A failure to write ends the program with 1. */
#pragma once
#include <stdint.h>

/* Measured values, grown as needed. Zero it to begin. */
struct samples { double *at; int64_t count, capacity; };

struct figure {
    const char *unit;
    const double *values; /* count of them, in any order; not changed */
    int64_t count;
    double scale;         /* a value times this is the figure; 0: 1 */
    double work;          /* not 0: the figure is work / (a value times scale), a rate */
    const char *peer;     /* NULL: none */
    double ratio;
};

#ifdef __cplusplus
extern "C" {
#endif

/* First call of main: takes `--json FILE` out of the arguments and notes the command and the machine. */
void result_begin(const char *name, int *argc, char **argv);
void result_gpu(const char *name);    /* of the GPU that is measured; NULL: the environment's DRT_GPU, else "unknown" */
void result_figure(const struct figure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
void result_value(const char *unit, double value, const char *format, ...) __attribute__((format(printf, 3, 4)));
void result_end(void);                                    /* writes the file */

void samples_add(struct samples *s, double value);
void samples_free(struct samples *s);                     /* zeroed afterwards */
double samples_quantile(const double *values, int64_t count, double q);   /* 0 <= q <= 1; count > 0 */

#ifdef __cplusplus
}
#endif
