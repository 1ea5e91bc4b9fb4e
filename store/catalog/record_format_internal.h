/* record_format_internal.h -- the format of a store, and the type of its landmarks, which decides it. */
#pragma once
#include "store/catalog/records_internal.h"

/* The format that a store with this type is written in. */
int record_format_of(enum store_landmarks type);
/* Writes the format and, of other landmarks than fp16, their type, which format 4 and older do not have. */
enum status record_put_format(struct catalog_txn *t, enum store_landmarks type);
/* The fingerprint and format as record_get_fingerprint, and the type. STATUS_VERSION: a type of a newer program. */
enum status record_get_identity(struct catalog_txn *t, const struct catalog *c, struct store_fingerprint *fingerprint,
                                int *format, enum store_landmarks *type);

/* A value of the table meta that ends with its CRC32C. `bytes`: without it; `value` has space for 4 more. *found false:
 * there is none. */
enum status record_get_checked(struct catalog_txn *t, const struct catalog *c, const char *name, const uint8_t **value,
                               size_t bytes, bool *found);
enum status record_put_checked(struct catalog_txn *t, const char *name, uint8_t *value, size_t bytes);
