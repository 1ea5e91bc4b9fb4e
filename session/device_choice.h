/* device_choice.h -- picks the device and the type of the weights by the names that programs and the library take. */
#pragma once
#include "model/weights.h"

/* Takes one line (no newline) that a user should read. */
enum { REPORT_LINE_MAX = 1024 };
typedef void report_line(const char *line);

/* "auto" takes a GPU if there is one (and reports it), else the CPU; "cuda" without a GPU is an error that
 * names the reason. dtype "auto": float32 on the CPU, bf16 on a GPU. "f32" on a GPU serves comparisons; "bf16" on
 * the CPU is an error. */
struct device_choice {
    const char *device, *dtype;
    report_line *report;                 /* NULL: nobody reads */
};
enum status device_choose(struct device **out, enum dtype *type, const struct device_choice *choice, int threads);
