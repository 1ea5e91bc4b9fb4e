/* device_keys.h -- the stored keys of a whole store in a device's memory, with the id that follows each token and the
 * first id of each chunk. A token memory then finds the keys of a passage without reading a file
 * (docs/token-memory.md, "Stored keys").
 *
 * A copy is of one generation of a store and of one model's keys. The token memories of a device share the copies. One
 * that none uses stays until memory for another is needed. For one thread at a time, as the device is. */
#pragma once
#include "kernels/memory/packed_keys.h"
#include "store/keys/store_keys.h"

struct device_keys;
/* report: receives one line for the user when a copy was made; NULL: no reports. reserve: bytes of the device's memory
 * that a copy leaves free. */
enum status device_keys_create(struct device_keys **out, struct device *dev, void (*report)(const char *line),
                               uint64_t reserve);
void device_keys_free(struct device_keys *d);             /* after all copies were returned; NULL is fine */

/* Gets the copy of the keys of a view's chunks, and makes it if there is none. keys: opened with this view and spec,
 * only used during the call. Deleted chunks have no values. STATUS_NO_MEMORY: it does not fit; the message has the
 * bytes and the remedy. Each success is followed by device_keys_return. */
enum status device_keys_take(struct device_keys *d, const struct packed_chunks **out, struct store_view *view,
                             struct store_keys *keys, const struct store_keys_spec *spec);
void device_keys_return(struct device_keys *d, const struct packed_chunks *copy);       /* NULL is fine */
