/* stored_passages.h -- the stored keys of passages, which become slots of a token memory: from the files of a store
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
    struct packed_slots to;              /* the slots of the pool */
};
struct stored_passages;
/* Borrows everything until stored_passages_close. *out is NULL if the store has no keys of the spec, or those of
 * another model, and `must` is false. Failures are those of stored_keys_find and device_keys_take. */
enum status stored_passages_open(struct stored_passages **out, const struct stored_passages_config *config);
void stored_passages_close(struct stored_passages *p);    /* NULL is fine */
/* Whether keys are in the device's memory: stored_passages_gather is called then, and else stored_passages_copy. */
bool stored_passages_on_device(const struct stored_passages *p);

/* Keys and squares of slots first .. first+n-1 become those of the chunks of ranges [n]. Values are not written. */
enum status stored_passages_copy(struct stored_passages *p, int64_t first, const struct store_range *ranges, int64_t n);
/* Keys, squares and values of slots first .. first+n-1 become those of the passages of chunks [n], memory of the
 * device. Only queues. */
void stored_passages_gather(struct stored_passages *p, int64_t first, const int64_t *chunks, int64_t n);
