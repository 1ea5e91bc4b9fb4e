/* device_choice.c -- see device_choice.h. */
#include "session/device_choice.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void PRINTF_LIKE(2, 3) report(const struct device_choice *choice, const char *format, ...) {
    char line[REPORT_LINE_MAX];
    va_list arguments;
    if (!choice->report) return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    choice->report(line);
}

static enum status choose_type(enum dtype *out, const struct device *dev, const char *dtype) {
    bool automatic = strcmp(dtype, "auto") == 0, bf16 = strcmp(dtype, "bf16") == 0;
    if (bf16 && dev->shares_memory)
        return fail(STATUS_UNSUPPORTED, "bf16: the CPU computes in float32 only; use --device cuda, or f32");
    const bool rounded = automatic || strcmp(dtype, "i8") == 0;
    *out = bf16 || (rounded && !dev->shares_memory) ? DTYPE_BF16 : DTYPE_F32;
    return STATUS_OK;
}

enum status device_choose(struct device **out, enum dtype *type, const struct device_choice *choice, int threads) {
    bool automatic = strcmp(choice->device, "auto") == 0;
    struct device *dev = NULL;
    enum status status = device_open(&dev, automatic ? "cuda" : choice->device, threads);
    if (automatic && status == STATUS_UNSUPPORTED) {
        if (device_built("cuda")) report(choice, "device cpu: %s", status_message());
        status = device_open(&dev, "cpu", threads);
    }
    if (status != STATUS_OK) return status;
    status = choose_type(type, dev, choice->dtype);
    if (status != STATUS_OK) {
        device_close(dev);
        return status;
    }
    if (automatic && !dev->shares_memory)
        report(choice, "device %s, %s (choose with --device cpu|cuda%s)", dev->name,
               strcmp(choice->dtype, "auto") == 0 ? "bf16" : choice->dtype,
               strcmp(choice->dtype, "auto") == 0 ? " and --dtype" : "");
    *out = dev;
    return STATUS_OK;
}

enum status device_choose_group(struct device_group *out, struct device *first, const struct device_choice *choice) {
    *out = (struct device_group){0};
    if (choice->devices == 0) return STATUS_OK;
    if (first->shares_memory)
        return fail(STATUS_INVALID, "several devices are GPUs, and this program computes on the CPU: choose the device "
                                    "cuda, or one device");
    return device_group_open(out, first, choice->devices, 1);
}
