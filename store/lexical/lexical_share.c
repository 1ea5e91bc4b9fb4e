/* lexical_share.c -- makes the lists of one share of the ids: see lexical_share_internal.h. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "store/lexical/lexical_format_internal.h"
#include "store/lexical/lexical_runs_internal.h"
#include "store/lexical/lexical_share_internal.h"
#include <assert.h>
#include <string.h>

enum { ENTRY_BYTES = 6 * LEXICAL_VARINT_BYTES };

struct lexical_share {
    struct lexical_share_range ids;
    int64_t vocab, chunks; /* chunks: those of the segment */
    struct runs *runs;
    struct spool *lists, *entries;
    uint64_t *keys; /* the keys of the current chunk */
    size_t keys_capacity;
    uint64_t last_key, list_bytes; /* list_bytes: bytes of the current list so far */
    uint8_t *dense;                /* 2 bits for each chunk */
    uint8_t *skips;                /* skip entries of the current list */
    size_t skips_capacity;
    struct lexical_share_part parts[LEXICAL_SHARE_PARTS];
};

enum status lexical_share_create(struct lexical_share **out, const char *folder, int64_t vocab,
                                 struct lexical_share_range ids, uint64_t max_ram) {
    struct lexical_share *s = NULL;
    TRY(memory_allocate_zero(&s, 1));
    s->ids = ids;
    s->vocab = vocab;
    enum status status;
    const uint64_t v = (uint64_t)vocab, begin = (uint64_t)ids.begin, end = (uint64_t)ids.end;
    const struct runs_range keys[] = {{begin, end}, {v + begin * v, v + end * v}};
    TRY_GOTO(status, runs_create(&s->runs, folder, max_ram, keys, ARRAY_LEN(keys)), out);
    TRY_GOTO(status, spool_create(&s->lists, folder), out);
    TRY_GOTO(status, spool_create(&s->entries, folder), out);
    *out = s;
out:
    if (status != STATUS_OK) lexical_share_free(s);
    return status;
}

void lexical_share_free(struct lexical_share *s) {
    if (!s) return;
    runs_free(s->runs);
    spool_free(s->lists);
    spool_free(s->entries);
    memory_free(s->keys);
    memory_free(s->dense);
    memory_free(s->skips);
    memory_free(s);
}

enum status lexical_share_add(struct lexical_share *s, const int32_t *ids, int n, uint32_t chunk) {
    const uint32_t begin = (uint32_t)s->ids.begin, width = (uint32_t)(s->ids.end - s->ids.begin);
    int keys = 0;
    TRY(memory_grow(&s->keys, &s->keys_capacity, 2 * (size_t)n));
    for (int i = 0; i < n; i++) {
        if ((uint32_t)ids[i] - begin >= width) continue;
        s->keys[keys++] = (uint64_t)ids[i];
        if (i + 1 < n) s->keys[keys++] = (uint64_t)(s->vocab + ids[i] * s->vocab + ids[i + 1]);
    }
    return keys > 0 ? runs_add(s->runs, s->keys, keys, chunk) : STATUS_OK;
}

/* ---- lists ---- */

static enum status write_list_bytes(struct lexical_share *s, const void *data, size_t bytes) {
    s->list_bytes += bytes;
    return spool_write(s->lists, data, bytes);
}

/* A dictionary entry being composed. */
struct entry {
    uint8_t bytes[4 * LEXICAL_VARINT_BYTES];
    size_t n;
};

static void entry_number(struct entry *e, uint64_t value) {
    e->n += (size_t)lexical_put_varint(e->bytes + e->n, value);
}

static enum status write_short(struct lexical_share *s, struct entry *e, int64_t n) {
    uint32_t chunks[LEXICAL_BLOCK];
    uint8_t codes[LEXICAL_BLOCK], block[LEXICAL_BLOCK_BYTES];
    int got;
    unsigned form;
    TRY(runs_next_postings(s->runs, chunks, codes, LEXICAL_BLOCK, &got));
    assert(got == n);
    size_t bytes = lexical_block_encode(block, &form, chunks, codes, got, 0);
    entry_number(e, form);
    if (lexical_form_code(form) > 0) entry_number(e, bytes - lexical_packed_bytes(got, lexical_form_width(form)));
    return write_list_bytes(s, block, bytes);
}

static enum status write_dense(struct lexical_share *s, struct entry *e) {
    size_t bytes = ((size_t)s->chunks + 3) / 4;
    if (!s->dense) TRY(memory_allocate(&s->dense, bytes));
    memset(s->dense, 0, bytes);
    uint32_t chunks[LEXICAL_BLOCK];
    uint8_t codes[LEXICAL_BLOCK];
    for (int n = 1; n > 0;) {
        TRY(runs_next_postings(s->runs, chunks, codes, LEXICAL_BLOCK, &n));
        for (int i = 0; i < n; i++)
            s->dense[chunks[i] / 4] = (uint8_t)(s->dense[chunks[i] / 4] | (codes[i] + 1) << (chunks[i] % 4 * 2));
    }
    entry_number(e, 0);
    return write_list_bytes(s, s->dense, bytes);
}

static enum status write_blocks(struct lexical_share *s, struct entry *e) {
    uint32_t chunks[LEXICAL_BLOCK], base = 0;
    uint8_t codes[LEXICAL_BLOCK], block[LEXICAL_BLOCK_BYTES];
    size_t skips = 0;
    for (;;) {
        int n;
        unsigned form;
        TRY(runs_next_postings(s->runs, chunks, codes, LEXICAL_BLOCK, &n));
        if (n == 0) break;
        size_t bytes = lexical_block_encode(block, &form, chunks, codes, n, base);
        TRY(write_list_bytes(s, block, bytes));
        TRY(memory_grow(&s->skips, &s->skips_capacity, skips + LEXICAL_SKIP_BYTES));
        little_endian_put(s->skips + skips, chunks[n - 1] | form << RUNS_CHUNK_BITS, 4);
        little_endian_put(s->skips + skips + 4, s->list_bytes, 4);
        skips += LEXICAL_SKIP_BYTES;
        base = chunks[n - 1] + 1;
    }
    TRY(write_list_bytes(s, s->skips, skips));
    entry_number(e, s->list_bytes);
    return STATUS_OK;
}

/* What lexical_share_next returns: the data that the dictionary needs. */
static enum status write_entry(struct lexical_share *s, uint64_t key, int64_t n, const struct entry *e) {
    uint8_t bytes[ENTRY_BYTES];
    size_t used = (size_t)lexical_put_varint(bytes, key - s->last_key);
    used += (size_t)lexical_put_varint(bytes + used, (uint64_t)n);
    used += (size_t)lexical_put_varint(bytes + used, s->list_bytes);
    used += (size_t)lexical_put_varint(bytes + used, e->n);
    s->last_key = key;
    struct lexical_share_part *part = &s->parts[key >= (uint64_t)s->vocab];
    part->last_key = key;
    part->entries += used + e->n;
    TRY(spool_write(s->entries, bytes, used));
    return spool_write(s->entries, e->bytes, e->n);
}

static enum status write_list(struct lexical_share *s, uint64_t key, int64_t n) {
    struct lexical_share_part *part = &s->parts[key >= (uint64_t)s->vocab];
    struct entry e = {.n = 0};
    s->list_bytes = 0;
    if (n <= LEXICAL_BLOCK)
        TRY(write_short(s, &e, n));
    else if (n * LEXICAL_DENSE_SHARE >= s->chunks)
        TRY(write_dense(s, &e));
    else
        TRY(write_blocks(s, &e));
    part->keys++;
    part->postings += n;
    part->bytes += s->list_bytes;
    return write_entry(s, key, n, &e);
}

enum status lexical_share_finish(struct lexical_share *s, int64_t chunks) {
    s->chunks = chunks;
    TRY(runs_finish(s->runs));
    for (;;) {
        bool more;
        uint64_t key;
        int64_t n;
        TRY(runs_next_key(s->runs, &more, &key, &n));
        if (!more) break;
        TRY(write_list(s, key, n));
    }
    runs_free(s->runs);
    s->runs = NULL;
    TRY(spool_flush(s->lists)); /* several threads read it */
    return spool_flush(s->entries);
}

struct lexical_share_part lexical_share_part(const struct lexical_share *s, int part) {
    return s->parts[part];
}

enum status lexical_share_lists(struct lexical_share *s, void *out, size_t bytes, uint64_t offset) {
    return spool_read(s->lists, out, bytes, offset);
}

enum status lexical_share_entries(struct lexical_share *s, void *out, size_t bytes, uint64_t offset, size_t *got) {
    const uint64_t left = spool_bytes(s->entries) - offset;
    *got = left < bytes ? (size_t)left : bytes;
    return spool_read(s->entries, out, *got, offset);
}
