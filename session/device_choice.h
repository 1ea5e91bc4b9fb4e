/* device_choice.h -- selects the device and the type of the weights by the names that programs and the
 * library accept. */
#pragma once
#include "kernels/device/device_group.h"
#include "model/weights.h"

/* Receives one line (without a newline) for the user. */
enum { REPORT_LINE_MAX = 1024 };
typedef void report_line(const char *line);

/* "auto" selects a GPU if there is one, and reports it, otherwise the CPU. "cuda" without a GPU is an error that names
 * the reason. dtype "auto" is float32 on the CPU and bf16 on a GPU. "f32" on a GPU is for comparisons. "bf16" on the
 * CPU is an error. "i8" is the type of "auto", with weights that engine_open rounds to 8 bits. */
struct device_choice {
    const char *device, *dtype;
    report_line *report;                 /* NULL: no reports */
    int devices;                         /* GPUs that work together, counted from GPU 0; 0: one GPU; -1: all */
};
enum status device_choose(struct device **out, enum dtype *type, const struct device_choice *choice, int threads);
/* Makes the group of choice->devices devices, the first of which is `first` from device_choose. choice->devices 0: the
 * group is zeroed. STATUS_INVALID: `first` is the CPU, or the host has fewer GPUs. */
enum status device_choose_group(struct device_group *out, struct device *first, const struct device_choice *choice);
