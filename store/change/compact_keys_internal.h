/* compact_keys_internal.h -- copies the keys of a token memory into a compacted store. */
#pragma once
#include "store/store.h"

/* Copies the keys of `from` to the store in folder `to`, which has its documents in the same order. If `from` has no
 * keys, nothing is done; if they are damaged or not of all chunks, a note says so. A call that was stopped or killed
 * can be repeated. *chunks: those of `to` that have keys now. */
enum status compact_keys(int64_t *chunks, const char *to, struct store_view *from, const struct progress *progress);
