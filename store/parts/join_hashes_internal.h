/* join_hashes_internal.h -- the table of hashes of a joined store, which is made after all documents are recorded.
 *
 * Hashes are sorted and appended in their order. Only the first document with a hash gets it; the later ones are copies
 * and are recorded as deleted. */
#pragma once
#include "store/writer_internal.h"

struct hash_entry { uint64_t high, low; int64_t document; };              /* the hash, as two big-endian numbers */
struct hash_list { struct hash_entry *at; size_t n, capacity; };
enum status hash_list_add(struct hash_list *list, const uint8_t hash[16], int64_t document);

/* Records the hashes of all documents of w->sealed that are in view, and the copies. `all`: these hashes, in any order;
 * NULL: they are read from the catalog, in passes of about `most` documents, 48 bytes each. The table of hashes must be
 * empty. After a call that was killed, empty it and call again with NULL. */
enum status join_hashes(struct store_writer *w, const struct hash_list *all, int64_t most,
                        const struct store_publish *how);
