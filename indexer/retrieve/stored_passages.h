/* stored_passages.h -- the stored keys of passages, for slots of a token memory: from the files of a store
 * (store/keys/store_keys.h), or from their copy in the device's memory (indexer/retrieve/device_keys.h). For one thread
 * at a time. */
#pragma once
#include "indexer/retrieve/device_keys.h"

struct stored_passages_config {
    struct device *device;
    struct store_view *view;
    struct store_keys_spec spec;
    const char *name;                    /* of the model, for messages */
    bool must;                           /* it is an error if the store has no keys of the spec */
    struct device_keys *copies;          /* keys are read from a copy in the device's memory; NULL: from files */
};
struct stored_passages;
/* Borrows everything until stored_passages_close. *out is NULL if the store has no keys of the spec, or those of
 * another model, and `must` is false. Failures are those of stored_keys_find and device_keys_take. */
enum status stored_passages_open(struct stored_passages **out, const struct stored_passages_config *config);
void stored_passages_close(struct stored_passages *p);    /* NULL is fine */
/* The copy in the device's memory; NULL: keys are in files. */
const struct packed_chunks *stored_passages_on_device(const struct stored_passages *p);

/* Slot i, which is rows i*slot_rows .. of keys and square, gets the chunks of ranges[i], for i < n. */
enum status stored_passages_copy(struct stored_passages *p, struct mat keys, float *square, int64_t slot_rows,
                                 const struct store_range *ranges, int64_t n);
/* The same of codes, as they are in files, and scales: memory of the device. The other rows of slots change, too. */
enum status stored_passages_send(struct stored_passages *p, int8_t *code, float *scale, int64_t slot_rows,
                                 const struct store_range *ranges, int64_t n);
