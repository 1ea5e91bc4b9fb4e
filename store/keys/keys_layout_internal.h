/* keys_layout_internal.h -- the record "keys" of table meta: the first chunk of each section. A store without the
 * record has one section. */
#pragma once
#include "store/catalog/catalog_internal.h"
#include "store/keys/keys_layout.h"

/* Of the first `chunks` chunks of a store. */
enum status keys_layout_read(struct keys_layout *out, struct catalog_txn *t, const struct catalog *c, int64_t chunks);
/* first [n]: ascending from 0. Call it before anything is published. */
enum status record_put_sections(struct catalog_txn *t, const int64_t *first, int64_t n);
enum status record_remove_sections(struct catalog_txn *t);
