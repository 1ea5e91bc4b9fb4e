/* known_hashes_internal.h -- whether a store may have a document with a hash, from a fixed number of bits, so that most
 * new documents need no search. A wrong yes is possible, and gets more frequent with the documents; a wrong no is not.
 * For one thread. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct known_hashes;
enum status known_hashes_create(struct known_hashes **out);
void known_hashes_free(struct known_hashes *k);           /* NULL is fine */
void known_hashes_add(struct known_hashes *k, const uint8_t hash[16]);        /* NULL is fine */
/* Loads what known_hashes_may_have needs into the cache. */
void known_hashes_prefetch(const struct known_hashes *k, const uint8_t hash[16]);   /* NULL is fine */
bool known_hashes_may_have(const struct known_hashes *k, const uint8_t hash[16]);   /* NULL: true */
