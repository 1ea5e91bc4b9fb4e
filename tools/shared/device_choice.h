/* device_choice.h -- --device and --dtype of the programs, said once. */
#pragma once
#include "model/weights.h"

/* "auto" takes a GPU where there is one (said on stderr), else the CPU; "cuda" without one is refused with the reason.
 * dtype "auto": float32 on the CPU, bf16 on a GPU; "f32" there is for comparisons; "bf16" on the CPU is refused. */
struct device_choice { const char *device, *dtype; };
#define DEVICE_CHOICE_DEFAULT {.device = "auto", .dtype = "auto"}
enum status device_choose(struct device **out, enum dtype *type, const struct device_choice *choice, int threads);
