/* device_choice.c -- see device_choice.h. */
#include "tools/shared/device_choice.h"
#include <stdio.h>
#include <string.h>

static enum status choose_type(enum dtype *out, const struct device *dev, const char *dtype) {
    bool automatic = strcmp(dtype, "auto") == 0, bf16 = strcmp(dtype, "bf16") == 0;
    if (bf16 && dev->shares_memory)
        return fail(STATUS_UNSUPPORTED, "bf16: the CPU computes in float32 only; use --device cuda, or f32");
    *out = bf16 || (automatic && !dev->shares_memory) ? DTYPE_BF16 : DTYPE_F32;
    return STATUS_OK;
}

enum status device_choose(struct device **out, enum dtype *type, const struct device_choice *choice, int threads) {
    bool automatic = strcmp(choice->device, "auto") == 0;
    struct device *dev = NULL;
    enum status status = device_open(&dev, automatic ? "cuda" : choice->device, threads);
    if (automatic && status == STATUS_UNSUPPORTED) {
        if (device_built("cuda")) fprintf(stderr, "device cpu: %s\n", status_message());
        status = device_open(&dev, "cpu", threads);
    }
    if (status != STATUS_OK) return status;
    status = choose_type(type, dev, choice->dtype);
    if (status != STATUS_OK) {
        device_close(dev);
        return status;
    }
    if (automatic && !dev->shares_memory)
        fprintf(stderr, "device %s, %s (choose with --device cpu|cuda%s)\n", dev->name,
                *type == DTYPE_BF16 ? "bf16" : "f32", strcmp(choice->dtype, "auto") == 0 ? " and --dtype" : "");
    *out = dev;
    return STATUS_OK;
}
