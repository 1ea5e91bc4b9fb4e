/* reencode.h -- an encoder as store_repair takes it: landmarks of stored chunks in memory of this process.
 *
 * The bytes are those that indexer_run made, on the same kind of device with the same dtype (docs/store-format.md). */
#pragma once
#include "encoder/encoder.h"
#include "indexer/build/state_landmarks.h"
#include "store/store.h"

struct reencode;
/* encoder NULL: of a Base LM, by `states`. Device and both are borrowed until reencode_free. */
enum status reencode_create(struct reencode **out, struct device *device, struct encoder *encoder,
                            struct state_landmarks *states, const struct store_fingerprint *fingerprint);
void reencode_free(struct reencode *r);                   /* before the device is closed; NULL is fine */
struct store_encoder reencode_encoder(struct reencode *r);    /* valid as long as r; one thread at a time */
