/* device_pair.h -- data that the host passes to ops, or takes from them: pinned host memory with its side on the device
 * (kernels/device/device.h, device_side). If the device shares memory, both addresses are equal. */
#pragma once
#include "kernels/device/device.h"

struct device_pair { void *host, *device; };
/* Zeroed host memory; a zeroed struct is an empty pair. Call device_pair_release after a failure, too. */
static inline enum status device_pair_allocate(struct device *dev, struct device_pair *out, size_t bytes) {
    TRY(device_allocate_host_bytes(dev, &out->host, bytes));
    TRY(device_buffer(dev, &out->device, bytes));
    out->device = device_side(dev, out->host, out->device);
    return STATUS_OK;
}
static inline void device_pair_release(struct device *dev, struct device_pair *p) {
    if (p->device != p->host) device_release(dev, p->device);
    device_release_host(dev, p->host);
    *p = (struct device_pair){0};
}
static inline void device_pair_upload(struct device *dev, const struct device_pair *p, size_t bytes) {
    device_upload(dev, p->device, p->host, bytes);
}
static inline void device_pair_download(struct device *dev, const struct device_pair *p, size_t bytes) {
    device_download(dev, p->host, p->device, bytes);
}
