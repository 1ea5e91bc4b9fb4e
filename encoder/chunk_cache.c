/* chunk_cache.c -- slots found by key in an open-addressing hash table, and a doubly linked list in order of use.
 *
 * The circular list runs from the most to the least recently used slot, with free slots at its end: the slot to replace
 * is the last one that is not pinned. A get pins the chunks that it finds, and claims slots for the missing ones. If
 * reading or encoding fails, the claimed slots are freed, so that every slot with a key has an encoded chunk. */
#include "encoder/chunk_cache.h"
#include "base/clock.h"
#include "base/memory.h"
#include <assert.h>
#include <string.h>

enum { SLOT_ROWS = 64, NONE = -1, PREFAULTED = 32 };

struct slot {
    struct chunk_key key; /* id NONE: the slot is free */
    int64_t pins;
    int32_t newer, older; /* of the list, whose head is slot number `slots` */
};

struct chunk_cache {
    struct device *dev;
    struct encoder *encoder;
    int64_t slots;
    int hidden, chunk;
    bool off_by_one;
    struct slot *slot; /* [slots + 1] */
    int32_t *table;    /* [table_size]: a slot number or NONE, with linear probing */
    uint64_t table_mask;
    struct mat keys, values;   /* [slots * SLOT_ROWS, hidden], device memory */
    struct chunk_key *missing; /* these three are of the current get */
    int32_t *missing_slot, *ids;
    size_t missing_capacity, slot_capacity, ids_capacity;
    struct chunk_cache_stats stats;
};

/* Writes the slots that are used first (from the last one down), so that the system maps their pages at once. The first
 * write to a large page takes up to milliseconds, which would otherwise delay a token. They are as many as 4 chunks
 * with 8 neighbours use; more would make each new text wait, also one that never uses them. The other slots are mapped
 * when they are used; 8 of them take less than one large page of keys (and of values) with 384 dimensions. */
static void chunk_cache_prefault(struct chunk_cache *c) {
    int64_t slots = c->slots < PREFAULTED ? c->slots : PREFAULTED, rows = slots * SLOT_ROWS,
            first = c->keys.rows - rows;
    struct mat both[2] = {mat_rows(c->keys, first, rows), mat_rows(c->values, first, rows)};
    for (int i = 0; i < 2 && c->dev->shares_memory; i++)
        device_clear(c->dev, both[i].data, (size_t)(rows * c->hidden * dtype_bytes(both[i].type)));
}

enum status chunk_cache_create(struct chunk_cache **out, struct device *dev, const struct model_config *config,
                               struct encoder *encoder, int64_t slots) {
    assert(slots >= 1);
    if (slots > INT32_MAX / (2 * SLOT_ROWS))
        return fail(STATUS_UNSUPPORTED, "a chunk cache of %lld slots: at most %d", (long long)slots,
                    INT32_MAX / (2 * SLOT_ROWS));
    struct chunk_cache *c;
    enum status s;
    TRY(memory_allocate_zero(&c, 1));
    c->dev = dev;
    c->encoder = encoder;
    c->slots = slots;
    c->hidden = config->hidden;
    c->chunk = config->chunk;
    c->off_by_one = config->softmax_off_by_one;
    uint64_t size = 4;
    while (size < 2 * (uint64_t)slots)
        size *= 2;
    c->table_mask = size - 1;
    enum dtype type = encoder ? encoder_type(encoder) : DTYPE_F32;
    c->keys = c->values = mat_dense(NULL, type, slots * SLOT_ROWS, c->hidden);
    size_t bytes = mat_bytes(c->keys);
    TRY_GOTO(s, memory_allocate(&c->slot, (size_t)slots + 1), out);
    TRY_GOTO(s, memory_allocate(&c->table, size), out);
    TRY_GOTO(s, device_allocate(dev, &c->keys.data, bytes), out);
    TRY_GOTO(s, device_allocate(dev, &c->values.data, bytes), out);
    chunk_cache_prefault(c);
    memset(c->table, 0xff, size * sizeof *c->table);
    for (int64_t i = 0; i <= slots; i++)
        c->slot[i] = (struct slot){
            .key = {.id = NONE}, .newer = (int32_t)(i ? i - 1 : slots), .older = (int32_t)(i < slots ? i + 1 : 0)};
    *out = c;
    return STATUS_OK;
out:
    chunk_cache_free(c);
    return s;
}

void chunk_cache_free(struct chunk_cache *c) {
    if (!c) return;
    device_release(c->dev, c->keys.data);
    device_release(c->dev, c->values.data);
    memory_free(c->slot);
    memory_free(c->table);
    memory_free(c->missing);
    memory_free(c->missing_slot);
    memory_free(c->ids);
    memory_free(c);
}

struct gca_pool chunk_cache_pool(const struct chunk_cache *c) {
    return (struct gca_pool){.keys = c->keys,
                             .values = c->values,
                             .slot_rows = SLOT_ROWS,
                             .live_rows = c->chunk,
                             .off_by_one = c->off_by_one};
}

struct chunk_cache_stats chunk_cache_stats(const struct chunk_cache *c) {
    return c->stats;
}

static uint64_t chunk_cache_hash(struct chunk_key key) {
    uint64_t x = (uint64_t)key.id * 0x9E3779B97F4A7C15u ^ (uint64_t)(uint32_t)key.source * 0xC2B2AE3D27D4EB4Fu;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}

static bool chunk_cache_same_key(struct chunk_key a, struct chunk_key b) {
    return a.id == b.id && a.source == b.source;
}

/* Returns the hash table's bucket of this key, or the empty bucket for it. */
static uint64_t chunk_cache_bucket(const struct chunk_cache *c, struct chunk_key key) {
    uint64_t bucket = chunk_cache_hash(key) & c->table_mask;
    while (c->table[bucket] != NONE && !chunk_cache_same_key(c->slot[c->table[bucket]].key, key))
        bucket = (bucket + 1) & c->table_mask;
    return bucket;
}

/* Empties a bucket and moves later entries of its run up, so that no lookup ends early at the empty bucket. */
static void chunk_cache_remove_bucket(struct chunk_cache *c, uint64_t hole) {
    for (uint64_t bucket = (hole + 1) & c->table_mask; c->table[bucket] != NONE;
         bucket = (bucket + 1) & c->table_mask) {
        uint64_t home = chunk_cache_hash(c->slot[c->table[bucket]].key) & c->table_mask;
        if (((bucket - home) & c->table_mask) < ((bucket - hole) & c->table_mask)) continue;
        c->table[hole] = c->table[bucket];
        hole = bucket;
    }
    c->table[hole] = NONE;
}

static void chunk_cache_ring_remove(struct chunk_cache *c, int32_t s) {
    c->slot[c->slot[s].newer].older = c->slot[s].older;
    c->slot[c->slot[s].older].newer = c->slot[s].newer;
}

/* Inserts s after `after`. After the head, s is the newest; after the head's `newer`, it is the oldest. */
static void chunk_cache_ring_insert(struct chunk_cache *c, int32_t s, int32_t after) {
    int32_t older = c->slot[after].older;
    c->slot[s].newer = after;
    c->slot[s].older = older;
    c->slot[after].older = s;
    c->slot[older].newer = s;
}

static void chunk_cache_mark_used(struct chunk_cache *c, int32_t s) {
    chunk_cache_ring_remove(c, s);
    chunk_cache_ring_insert(c, s, (int32_t)c->slots);
}

static void chunk_cache_forget(struct chunk_cache *c, int32_t s) {
    if (c->slot[s].key.id == NONE) return;
    chunk_cache_remove_bucket(c, chunk_cache_bucket(c, c->slot[s].key));
    c->slot[s].key.id = NONE;
}

/* Takes the least recently used slot that is not pinned, and pins it once; its old chunk is removed. */
static enum status chunk_cache_claim(struct chunk_cache *c, int32_t *out) {
    int32_t s = c->slot[c->slots].newer;
    while (s != c->slots && c->slot[s].pins > 0)
        s = c->slot[s].newer;
    if (s == c->slots)
        return fail(STATUS_NO_SPACE, "all %lld slots of the chunk cache are pinned: create it with more slots",
                    (long long)c->slots);
    chunk_cache_forget(c, s);
    c->slot[s].pins = 1;
    chunk_cache_mark_used(c, s);
    *out = s;
    return STATUS_OK;
}

static void chunk_cache_set_key(struct chunk_cache *c, int32_t s, struct chunk_key key) {
    c->slot[s].key = key;
    c->table[chunk_cache_bucket(c, key)] = s;
}

/* Frees a claimed slot, which then is the next one to be claimed. */
static void chunk_cache_release(struct chunk_cache *c, int32_t s) {
    chunk_cache_forget(c, s);
    c->slot[s].pins = 0;
    chunk_cache_ring_remove(c, s);
    chunk_cache_ring_insert(c, s, c->slot[c->slots].newer);
}

static enum status chunk_cache_reserve(struct chunk_cache *c, int64_t n) {
    TRY(memory_grow(&c->missing, &c->missing_capacity, (size_t)n));
    TRY(memory_grow(&c->missing_slot, &c->slot_capacity, (size_t)n));
    return memory_grow(&c->ids, &c->ids_capacity, (size_t)(n * c->chunk));
}

/* Reads the tokens of the missing chunks and encodes them into their slots. */
static enum status chunk_cache_fill(struct chunk_cache *c, int64_t n, chunk_tokens *tokens, void *context) {
    assert(tokens && c->encoder);
    double start = clock_seconds();
    TRY(tokens(context, c->ids, c->missing, n));
    double read = clock_seconds();
    struct encoder_output out = {.keys = c->keys, .values = c->values, .slot = c->missing_slot};
    encoder_encode(c->encoder, &out, c->ids, n);
    c->stats.read_seconds += read - start;
    c->stats.encode_seconds += clock_seconds() - read;
    return STATUS_OK;
}

static bool chunk_cache_pin(struct chunk_cache *c, int32_t *slot, struct chunk_key key) {
    *slot = c->table[chunk_cache_bucket(c, key)];
    if (*slot == NONE) return false;
    c->slot[*slot].pins++;
    chunk_cache_mark_used(c, *slot);
    return true;
}

/* Pins the chunks that are cached before it claims slots for the others, so that none of this call's chunks is
 * replaced. A claimed slot gets its key at once, so that a repeated key finds it. */
static enum status chunk_cache_pin_all(struct chunk_cache *c, int32_t *slot, const struct chunk_key *keys, int64_t n,
                                       int64_t *missing) {
    for (int64_t i = 0; i < n; i++)
        if (keys[i].id >= 0) chunk_cache_pin(c, &slot[i], keys[i]);
    for (int64_t i = 0; i < n; i++) {
        if (keys[i].id < 0 || slot[i] != NONE || chunk_cache_pin(c, &slot[i], keys[i])) continue;
        int32_t s;
        TRY(chunk_cache_claim(c, &s));
        chunk_cache_set_key(c, s, keys[i]);
        c->missing[*missing] = keys[i];
        c->missing_slot[(*missing)++] = s;
        slot[i] = s;
    }
    return STATUS_OK;
}

enum status chunk_cache_get(struct chunk_cache *c, int32_t *slot, const struct chunk_key *keys, int64_t n,
                            chunk_tokens *tokens, void *context) {
    int64_t missing = 0, live = 0;
    for (int64_t i = 0; i < n; i++) {
        slot[i] = NONE;
        live += keys[i].id >= 0;
    }
    TRY(chunk_cache_reserve(c, n));
    enum status s = chunk_cache_pin_all(c, slot, keys, n, &missing);
    if (s == STATUS_OK && missing) s = chunk_cache_fill(c, missing, tokens, context);
    if (s != STATUS_OK) { /* the cache is unchanged, except that claimed slots have lost their old chunks */
        chunk_cache_unpin(c, slot, n);
        for (int64_t i = 0; i < missing; i++)
            chunk_cache_release(c, c->missing_slot[i]);
        return s;
    }
    c->stats.misses += missing;
    c->stats.hits += live - missing;
    return STATUS_OK;
}

enum status chunk_cache_put(struct chunk_cache *c, int32_t *slot, struct chunk_key key) {
    assert(key.id >= 0);
    if (chunk_cache_pin(c, slot, key)) return STATUS_OK;
    TRY(chunk_cache_claim(c, slot));
    chunk_cache_set_key(c, *slot, key);
    return STATUS_OK;
}

void chunk_cache_unpin(struct chunk_cache *c, const int32_t *slot, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (slot[i] < 0) continue;
        assert(slot[i] < c->slots && c->slot[slot[i]].pins > 0);
        c->slot[slot[i]].pins--;
    }
}
