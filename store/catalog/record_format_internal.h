/* record_format_internal.h -- the format of a store, and the type of its landmarks, which decides it. */
#pragma once
#include "store/catalog/records_internal.h"

/* The format that a store with this type is written in. */
int record_format_of(enum store_landmarks type);
/* Writes the format and, of other landmarks than fp16, their type, which format 4 and older do not have. */
enum status record_put_format(struct catalog_txn *t, enum store_landmarks type);
/* `format`: from record_get_fingerprint. STATUS_VERSION: a type of a newer program. */
enum status record_get_landmarks(struct catalog_txn *t, const struct catalog *c, int format, enum store_landmarks *out);
