/* device_choice.h -- the options --device and --dtype, which all programs share. */
#pragma once
#include "model/weights.h"

/* "auto" takes a GPU if there is one (and prints so on stderr), else the CPU; "cuda" without a GPU is an error that
 * names the reason. dtype "auto": float32 on the CPU, bf16 on a GPU. "f32" on a GPU serves comparisons; "bf16" on
 * the CPU is an error. */
struct device_choice { const char *device, *dtype; };
#define DEVICE_CHOICE_DEFAULT {.device = "auto", .dtype = "auto"}
enum status device_choose(struct device **out, enum dtype *type, const struct device_choice *choice, int threads);
