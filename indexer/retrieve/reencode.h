/* reencode.h -- an encoder for store_repair: makes landmarks of stored chunks in host memory.
 *
 * The bytes equal those of indexer_run on the same kind of device with the same dtype (docs/store-format.md). */
#pragma once
#include "encoder/encoder.h"
#include "indexer/landmarks/state_landmarks.h"
#include "store/store.h"

struct reencode;
/* encoder NULL: a Base LM, whose `states` make the landmarks. Device, encoder and states are borrowed until
 * reencode_free. */
enum status reencode_create(struct reencode **out, struct device *device, struct encoder *encoder,
                            struct state_landmarks *states, const struct store_fingerprint *fingerprint);
void reencode_free(struct reencode *r);                   /* call before the device is closed; NULL is fine */
struct store_encoder reencode_encoder(struct reencode *r);    /* valid until reencode_free; for one thread at a time */
