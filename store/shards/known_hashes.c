/* known_hashes.c -- see known_hashes_internal.h. A Bloom filter with two bits for each hash, whose own bits select
 * them. Both are in one word, so that a document touches one cache line. */
#include "base/memory.h"
#include "store/shards/known_hashes_internal.h"
#include <string.h>

enum { WORD_BITS = 20, WORDS = 1 << WORD_BITS }; /* 8 MiB; of ten million documents 7 % would need a search */

struct known_hashes {
    uint64_t words[WORDS];
};

enum status known_hashes_create(struct known_hashes **out) {
    TRY(memory_allocate_aligned(out, 1)); /* in large pages, where the system has them */
    memset(*out, 0, sizeof **out);
    return STATUS_OK;
}

void known_hashes_free(struct known_hashes *k) {
    memory_free(k);
}

static uint64_t bits_of(const uint8_t hash[16], uint64_t *word) {
    uint64_t select, bits;
    memcpy(&select, hash, sizeof select);
    memcpy(&bits, hash + 8, sizeof bits);
    *word = select >> (64 - WORD_BITS);
    return UINT64_C(1) << (bits >> 58) | UINT64_C(1) << (bits >> 52 & 63);
}

void known_hashes_prefetch(const struct known_hashes *k, const uint8_t hash[16]) {
    uint64_t word;
    (void)bits_of(hash, &word);
    if (k) __builtin_prefetch(&k->words[word], 1);
}

void known_hashes_add(struct known_hashes *k, const uint8_t hash[16]) {
    uint64_t word;
    if (!k) return;
    const uint64_t bits = bits_of(hash, &word);
    k->words[word] |= bits;
}

bool known_hashes_may_have(const struct known_hashes *k, const uint8_t hash[16]) {
    uint64_t word;
    if (!k) return true;
    const uint64_t bits = bits_of(hash, &word);
    return (k->words[word] & bits) == bits;
}
