/* device_choice.h -- selects the device and the type of the weights by the names that programs and the
 * library accept. */
#pragma once
#include "model/weights.h"

/* Receives one line (without a newline) for the user. */
enum { REPORT_LINE_MAX = 1024 };
typedef void report_line(const char *line);

/* "auto" selects a GPU if there is one, and reports it, otherwise the CPU. "cuda" without a GPU is an error that names
 * the reason. dtype "auto" is float32 on the CPU and bf16 on a GPU. "f32" on a GPU is for comparisons. "bf16" on the
 * CPU is an error. */
struct device_choice {
    const char *device, *dtype;
    report_line *report;                 /* NULL: no reports */
};
enum status device_choose(struct device **out, enum dtype *type, const struct device_choice *choice, int threads);
