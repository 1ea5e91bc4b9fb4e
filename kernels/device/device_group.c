/* device_group.c -- see device_group.h. */
#include "kernels/device/device_group.h"
#include "base/memory.h"
#include "kernels/device/device_internal.h"
#include <string.h>

int device_count(const char *kind) {
    return strcmp(kind, "cuda") == 0 ? device_count_cuda() : strcmp(kind, "cpu") == 0;
}

enum status device_open_number(struct device **out, const char *kind, int number, int threads) {
    if (strcmp(kind, "cuda") != 0) return device_open(out, kind, threads);
    return device_open_cuda_number(out, number, threads);
}

void device_enter(struct device *dev) {
    if (dev->runtime->enter) dev->runtime->enter(dev);
}

enum status device_group_open(struct device_group *out, struct device *first, int n, int threads) {
    const bool cpu = first->shares_memory;
    const int there = cpu ? n : device_count(first->name);
    *out = (struct device_group){0};
    if (n == -1 && !cpu) n = there;
    if (n < 1 || n > there)
        return fail(STATUS_INVALID, "%d devices are requested, and this process sees %d of kind %s", n,
                    device_count(first->name), first->name);
    TRY(memory_allocate_zero(&out->devices, (size_t)n));
    out->devices[0] = first;
    for (out->n = 1; out->n < n; out->n++) {
        const enum status status = device_open_number(&out->devices[out->n], first->name, out->n, threads);
        if (status == STATUS_OK) continue;
        device_group_close(out);
        return status;
    }
    return STATUS_OK;
}

void device_group_close(struct device_group *g) {
    for (int i = 1; i < g->n; i++) {
        device_enter(g->devices[i]);
        device_close(g->devices[i]);
    }
    if (g->n > 1) device_enter(g->devices[0]);
    memory_free(g->devices);
    *g = (struct device_group){0};
}
