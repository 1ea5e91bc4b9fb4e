/* record_format_internal.h -- the format of a store and the type of its landmarks, which determines the format. */
#pragma once
#include "store/catalog/records_internal.h"

/* Returns the format of a store with this type of landmarks. */
int record_format_of(enum store_landmarks type);
/* Writes the format. For landmarks other than fp16 it also writes their type, which format 4 and older do not have. */
enum status record_put_format(struct catalog_txn *t, enum store_landmarks type);
/* Gets the fingerprint and the format as record_get_fingerprint does, and the type of landmarks. STATUS_VERSION: the
 * type is one of a newer program. */
enum status record_get_identity(struct catalog_txn *t, const struct catalog *c, struct store_fingerprint *fingerprint,
                                int *format, enum store_landmarks *type);

/* Gets a value of the table meta that ends with its CRC32C. `bytes`: its length without the CRC32C; `value` needs 4
 * bytes more. *found false: there is no such record. */
enum status record_get_checked(struct catalog_txn *t, const struct catalog *c, const char *name, const uint8_t **value,
                               size_t bytes, bool *found);
enum status record_put_checked(struct catalog_txn *t, const char *name, uint8_t *value, size_t bytes);
