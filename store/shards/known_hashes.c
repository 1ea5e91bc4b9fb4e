/* known_hashes.c -- see known_hashes_internal.h. A Bloom filter with two bits for each hash, whose own bits select
 * them. */
#include "base/memory.h"
#include "store/shards/known_hashes_internal.h"
#include <string.h>

enum { INDEX_BITS = 26, WORDS = (1 << INDEX_BITS) / 64 }; /* 8 MiB; ten million documents set a quarter of the bits */

struct known_hashes {
    uint64_t words[WORDS];
};

enum status known_hashes_create(struct known_hashes **out) {
    return memory_allocate_zero(out, 1);
}

void known_hashes_free(struct known_hashes *k) {
    memory_free(k);
}

static uint64_t index_of(const uint8_t *bytes) {
    uint64_t h;
    memcpy(&h, bytes, sizeof h);
    return h >> (64 - INDEX_BITS);
}

void known_hashes_add(struct known_hashes *k, const uint8_t hash[16]) {
    for (int i = 0; k && i < 2; i++) {
        const uint64_t at = index_of(hash + 8 * i);
        k->words[at / 64] |= UINT64_C(1) << at % 64;
    }
}

bool known_hashes_may_have(const struct known_hashes *k, const uint8_t hash[16]) {
    bool may = true;
    for (int i = 0; k && i < 2; i++) {
        const uint64_t at = index_of(hash + 8 * i);
        may = may && k->words[at / 64] >> at % 64 & 1;
    }
    return may;
}
