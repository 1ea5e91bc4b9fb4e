/* lists.c -- see lists_internal.h. */
#include "base/memory.h"
#include "store/lexical/build/lists_internal.h"
#include <assert.h>
#include <string.h>

enum { CHUNK_BITS = 24, ENTRY_TAIL_BYTES = 16 }; /* the tail: a number of 32 bits, or two small ones */
enum { WORD_CHUNKS = 32 };                       /* chunks in 64 bits of a dense list */

enum status lists_create(struct lists_writer *w, const char *folder, int64_t chunks, size_t buffer) {
    *w = (struct lists_writer){.chunks = chunks};
    for (int i = 0; i < LISTS_PARTS; i++) {
        TRY(spool_create(&w->parts[i].lists, folder, buffer));
        TRY(spool_create(&w->parts[i].entries, folder, buffer));
    }
    return STATUS_OK;
}

void lists_free(struct lists_writer *w) {
    for (int i = 0; i < LISTS_PARTS; i++) {
        spool_free(w->parts[i].lists);
        spool_free(w->parts[i].entries);
    }
    memory_free(w->skips);
    memory_free(w->dense);
}

void lists_begin(struct lists_writer *w, int writer) {
    for (int i = 0; i < LISTS_PARTS; i++) {
        struct lists_part *p = &w->parts[i];
        p->piece = (struct lists_piece){
            .lists_at = spool_bytes(p->lists), .entries_at = spool_bytes(p->entries), .writer = writer};
    }
}

enum status lists_flush(struct lists_writer *w) {
    for (int i = 0; i < LISTS_PARTS; i++) {
        TRY(spool_flush(w->parts[i].lists));
        TRY(spool_flush(w->parts[i].entries));
    }
    return STATUS_OK;
}

/* A dictionary entry being composed. */
struct entry {
    uint8_t bytes[ENTRY_TAIL_BYTES];
    size_t n;
};

static void entry_number(struct entry *e, uint64_t value) {
    e->n += (size_t)lexical_put_varint(e->bytes + e->n, value);
}

/* Ends the list of a key: `bytes` were written to the part's lists. */
static enum status end_list(struct lists_part *p, uint64_t key, int64_t n, uint64_t bytes, const struct entry *e) {
    uint8_t *at;
    TRY(spool_reserve(p->entries, LISTS_ENTRY_BYTES, &at));
    size_t used = (size_t)lexical_put_varint(at, key - p->piece.last_key);
    used += (size_t)lexical_put_varint(at + used, (uint64_t)n);
    used += (size_t)lexical_put_varint(at + used, bytes);
    at[used++] = (uint8_t)e->n;
    memcpy(at + used, e->bytes, sizeof e->bytes); /* a constant number of bytes is faster to copy */
    used += e->n;
    p->entries->buffered += used;
    p->piece.last_key = key;
    p->piece.keys++;
    p->piece.postings += n;
    p->piece.bytes += bytes;
    p->piece.entries += used;
    return STATUS_OK;
}

static enum status add_short(struct lists_part *p, uint64_t key, const uint32_t *chunks, const uint8_t *codes, int n) {
    struct entry e = {.n = 0};
    uint8_t *at;
    unsigned form;
    TRY(spool_reserve(p->lists, LEXICAL_BLOCK_BYTES, &at));
    const size_t bytes = lexical_block_encode(at, &form, chunks, codes, n, 0);
    p->lists->buffered += bytes;
    entry_number(&e, form);
    if (lexical_form_code(form) > 0) entry_number(&e, bytes - lexical_packed_bytes(n, lexical_form_width(form)));
    return end_list(p, key, n, bytes, &e);
}

/* A list of blocks being written. */
struct blocks {
    struct lists_writer *w;
    struct lists_part *part;
    uint32_t base;
    uint64_t bytes;
    size_t skips;
};

static enum status add_block(struct blocks *b, const uint32_t *chunks, const uint8_t *codes, int n) {
    struct lists_writer *w = b->w;
    uint8_t *at;
    unsigned form;
    TRY(spool_reserve(b->part->lists, LEXICAL_BLOCK_BYTES, &at));
    const size_t bytes = lexical_block_encode(at, &form, chunks, codes, n, b->base);
    b->part->lists->buffered += bytes;
    b->bytes += bytes;
    TRY(memory_grow(&w->skips, &w->skips_capacity, b->skips + LEXICAL_SKIP_BYTES));
    little_endian_put(w->skips + b->skips, chunks[n - 1] | form << CHUNK_BITS, 4);
    little_endian_put(w->skips + b->skips + 4, b->bytes, 4);
    b->skips += LEXICAL_SKIP_BYTES;
    b->base = chunks[n - 1] + 1;
    return STATUS_OK;
}

static enum status end_blocks(struct blocks *b, uint64_t key, int64_t n) {
    struct entry e = {.n = 0};
    TRY(spool_write(b->part->lists, b->w->skips, b->skips));
    b->bytes += b->skips;
    entry_number(&e, b->bytes);
    return end_list(b->part, key, n, b->bytes, &e);
}

static bool is_dense(const struct lists_writer *w, int64_t n) {
    return n > LEXICAL_BLOCK && n * LEXICAL_DENSE_SHARE >= w->chunks;
}

enum status lists_clear_dense(struct lists_writer *w) {
    const size_t bytes = ((size_t)w->chunks + WORD_CHUNKS - 1) / WORD_CHUNKS * sizeof(uint64_t);
    if (!w->dense) TRY(memory_allocate(&w->dense, bytes));
    memset(w->dense, 0, bytes);
    return STATUS_OK;
}

static enum status write_dense(struct lists_writer *w, struct lists_part *p, uint64_t key, int64_t n) {
    const size_t bytes = ((size_t)w->chunks + 3) / 4;
    struct entry e = {.n = 0};
    entry_number(&e, 0);
    TRY(spool_write(p->lists, w->dense, bytes));
    return end_list(p, key, n, bytes, &e);
}

enum status lists_add(struct lists_writer *w, int part, uint64_t key, const uint32_t *chunks, const uint8_t *codes,
                      int64_t n) {
    struct lists_part *p = &w->parts[part];
    if (n <= LEXICAL_BLOCK) return add_short(p, key, chunks, codes, (int)n);
    if (is_dense(w, n)) {
        TRY(lists_clear_dense(w));
        for (int64_t i = 0; i < n; i++)
            w->dense[chunks[i] / 4] = (uint8_t)(w->dense[chunks[i] / 4] | (codes[i] + 1) << (chunks[i] % 4 * 2));
        return write_dense(w, p, key, n);
    }
    struct blocks b = {.w = w, .part = p};
    for (int64_t i = 0; i < n; i += LEXICAL_BLOCK)
        TRY(add_block(&b, chunks + i, codes + i, n - i < LEXICAL_BLOCK ? (int)(n - i) : LEXICAL_BLOCK));
    return end_blocks(&b, key, n);
}

enum status lists_add_dense(struct lists_writer *w, int part, uint64_t key, int64_t n) {
    struct lists_part *p = &w->parts[part];
    if (is_dense(w, n)) return write_dense(w, p, key, n);
    uint32_t chunks[LEXICAL_BLOCK];
    uint8_t codes[LEXICAL_BLOCK];
    struct blocks b = {.w = w, .part = p};
    int have = 0;
    for (int64_t i = 0; i < w->chunks; i += WORD_CHUNKS) {
        uint64_t word;
        memcpy(&word, w->dense + i / 4, sizeof word); /* numbers are little-endian here, too */
        for (uint64_t there = (word | word >> 1) & UINT64_C(0x5555555555555555); there; there &= there - 1) {
            const int bit = __builtin_ctzll(there);
            chunks[have] = (uint32_t)i + (uint32_t)bit / 2;
            codes[have++] = (uint8_t)((word >> bit & 3) - 1);
            if (have < LEXICAL_BLOCK || n <= LEXICAL_BLOCK) continue;
            TRY(add_block(&b, chunks, codes, have));
            have = 0;
        }
    }
    if (n <= LEXICAL_BLOCK) return add_short(p, key, chunks, codes, have);
    if (have > 0) TRY(add_block(&b, chunks, codes, have));
    return end_blocks(&b, key, n);
}
