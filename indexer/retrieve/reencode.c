/* reencode.c -- see reencode.h. */
#include "indexer/retrieve/reencode.h"
#include "base/memory.h"
#include "kernels/device/device_pair.h"
#include <string.h>

struct reencode {
    struct device *device;
    struct encoder *encoder;
    struct state_landmarks *states;
    struct store_fingerprint fingerprint;
    int64_t batch;
    struct device_pair rows; /* [batch, dim] */
};

static enum status reencode_batch(const struct reencode *r, float *rows, const int32_t *ids, int64_t n) {
    if (r->states) return state_landmarks_make(r->states, rows, ids, n);
    const size_t bytes = (size_t)n * (size_t)r->fingerprint.dim * sizeof *rows;
    const struct encoder_output out = {.landmarks = r->rows.device};
    encoder_encode(r->encoder, &out, ids, n);
    device_pair_download(r->device, &r->rows, bytes);
    TRY(device_sync(r->device));
    memcpy(rows, r->rows.host, bytes);
    return STATUS_OK;
}

static enum status reencode_chunks(void *context, float *rows, const int32_t *ids, int64_t n) {
    const struct reencode *r = context;
    for (int64_t at = 0; at < n; at += r->batch)
        TRY(reencode_batch(r, rows + at * r->fingerprint.dim, ids + at * r->fingerprint.chunk_tokens,
                           n - at < r->batch ? n - at : r->batch));
    return STATUS_OK;
}

enum status reencode_create(struct reencode **out, struct device *device, struct encoder *encoder,
                            struct state_landmarks *states, const struct store_fingerprint *fingerprint) {
    struct reencode *r;
    TRY(memory_allocate_zero(&r, 1));
    *r = (struct reencode){.device = device,
                           .encoder = encoder,
                           .states = states,
                           .fingerprint = *fingerprint,
                           .batch = encoder ? encoder_batch(encoder) : state_landmarks_batch(states)};
    size_t bytes = (size_t)r->batch * (size_t)fingerprint->dim * sizeof(float);
    enum status s = device_pair_allocate(device, &r->rows, bytes);
    if (s != STATUS_OK) {
        reencode_free(r);
        return s;
    }
    *out = r;
    return STATUS_OK;
}

void reencode_free(struct reencode *r) {
    if (!r) return;
    device_pair_release(r->device, &r->rows);
    memory_free(r);
}

struct store_encoder reencode_encoder(struct reencode *r) {
    return (struct store_encoder){.fingerprint = r->fingerprint, .encode = reencode_chunks, .context = r};
}
