/* device_flat_index.c -- see device_flat_index.h. */
#include "tools/device_flat_index.h"
#include <stdio.h>

/* Left for what a program allocates behind the landmarks: caches of chunks, states, logits. */
#define RESERVE_BYTES (UINT64_C(1) << 30)

enum status device_flat_index(struct flat_index **out, struct device *device, struct store_view *view) {
    *out = NULL;
    if (device->shares_memory) return STATUS_OK;
    const struct flat_index_config config = {.device = device, .view = view, .reserve = RESERVE_BYTES};
    enum status status = flat_index_create(out, &config);
    unsigned long long bytes = flat_index_bytes(device, view);
    if (status == STATUS_NO_MEMORY) {
        fprintf(stderr, "corpus search by the store, on the CPU: its landmarks (%llu bytes) do not fit the GPU: %s\n",
                bytes, status_message());
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        fprintf(stderr, "corpus search gpu-flat: exact, over %llu bytes of landmarks on the GPU\n", bytes);
    return status;
}
