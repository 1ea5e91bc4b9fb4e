/* device_pair.h -- data that the host passes to ops, or takes from them, at its addresses on the host and on the device
 * (kernels/device/device.h, device_side). If the device shares memory, both addresses are equal.
 *
 * A pair has pinned memory, for downloads and large uploads. An upload from pinned memory waits for all ops before it,
 * so small data that is uploaded for each token or batch is in ordinary memory: a stage. A send does not wait. */
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
static inline void device_pair_send(struct device *dev, const struct device_pair *p, size_t bytes) {
    device_send(dev, p->device, p->host, bytes);
}
static inline void device_pair_download(struct device *dev, const struct device_pair *p, size_t bytes) {
    device_download(dev, p->host, p->device, bytes);
}

/* Ordinary host memory with its buffer on the device; a zeroed struct is empty. */
struct device_stage { void *host, *buffer; size_t host_bytes, buffer_bytes; };
/* Makes both at least `bytes`. What was uploaded is lost if buffer_bytes was less. */
static inline enum status device_stage_reserve(struct device *dev, struct device_stage *s, size_t bytes) {
    TRY(memory_grow_bytes(&s->host, &s->host_bytes, bytes, 1));
    if (s->buffer_bytes >= bytes) return STATUS_OK;
    device_release(dev, s->buffer);
    s->buffer = NULL;
    s->buffer_bytes = 0;
    TRY(device_buffer(dev, &s->buffer, s->host_bytes));
    s->buffer_bytes = s->host_bytes;
    return STATUS_OK;
}
static inline void *device_stage_device(const struct device *dev, const struct device_stage *s) {
    return device_side(dev, s->host, s->buffer);
}
static inline void device_stage_upload(struct device *dev, const struct device_stage *s, size_t bytes) {
    device_upload(dev, device_stage_device(dev, s), s->host, bytes);
}
static inline void device_stage_release(struct device *dev, struct device_stage *s) {
    device_release(dev, s->buffer);
    memory_free(s->host);
    *s = (struct device_stage){0};
}
