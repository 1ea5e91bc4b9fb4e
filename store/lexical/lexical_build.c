/* lexical_build.c -- see lexical_build.h. Occurrences are sorted in runs. The merge writes each list at once. The
 * dictionary and its index are collected in spools until the postings are complete. */
#include "store/lexical/lexical_build.h"
#include "base/crc32c.h"
#include "base/memory.h"
#include "store/lexical/lexical_format_internal.h"
#include "store/lexical/lexical_runs_internal.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { KEYS_A_STEP = 1 << 16, RAM_MIN = 1 << 20 };
static const uint64_t max_ram_default = UINT64_C(1) << 30;

struct lexical_builder {
    struct file_writer *file;
    struct runs *runs;
    struct spool *dictionary, *index;
    struct lexical_frame frame;
    const struct progress *progress;
    uint64_t *keys; /* of the current chunk */
    size_t keys_capacity;
    uint64_t last_key;
    uint8_t *dense; /* 2 bits per chunk */
    uint8_t *skips; /* the table of blocks of the current list */
    size_t skips_capacity;
    char path[FILE_PATH_MAX];
};

static void folder_of(char out[FILE_PATH_MAX], const char *path) {
    snprintf(out, FILE_PATH_MAX, "%s", path);
    char *slash = strrchr(out, '/');
    if (slash)
        slash[slash == out ? 1 : 0] = 0;
    else
        snprintf(out, FILE_PATH_MAX, ".");
}

enum status lexical_builder_create(struct lexical_builder **out, const char *path, const struct lexical_build *how) {
    if (how->vocab_size < 1 || how->vocab_size > LEXICAL_VOCAB_MAX)
        return fail(STATUS_UNSUPPORTED, "%s: a lexical index has a vocabulary of 1 to %d ids, not %d: build without it",
                    path, LEXICAL_VOCAB_MAX, how->vocab_size);
    struct lexical_builder *b = NULL;
    TRY(memory_allocate_zero(&b, 1));
    uint64_t max_ram = how->max_ram ? how->max_ram : max_ram_default;
    uint8_t header[LEXICAL_HEADER_BYTES];
    char folder[FILE_PATH_MAX];
    b->frame = (struct lexical_frame){.vocab_size = how->vocab_size, .first_chunk = how->first_chunk};
    b->progress = how->progress;
    enum status s;
    TRY_GOTO(s, file_create(&b->file, path), out); /* first, because it refuses a path that is too long */
    snprintf(b->path, sizeof b->path, "%s", path);
    folder_of(folder, path);
    TRY_GOTO(s, runs_create(&b->runs, folder, max_ram < RAM_MIN ? RAM_MIN : max_ram), out);
    TRY_GOTO(s, spool_create(&b->dictionary, folder), out);
    TRY_GOTO(s, spool_create(&b->index, folder), out);
    lexical_header_make(header, &b->frame);
    TRY_GOTO(s, file_write(b->file, header, sizeof header), out);
    *out = b;
out:
    if (s != STATUS_OK) lexical_builder_discard(b);
    return s;
}

void lexical_builder_discard(struct lexical_builder *b) {
    if (!b) return;
    file_discard(b->file);
    runs_free(b->runs);
    spool_free(b->dictionary);
    spool_free(b->index);
    memory_free(b->keys);
    memory_free(b->dense);
    memory_free(b->skips);
    memory_free(b);
}

int64_t lexical_builder_chunks(const struct lexical_builder *b) {
    return b->frame.chunks;
}

enum status lexical_builder_add(struct lexical_builder *b, const int32_t *ids, int n) {
    assert(n > 0);
    int64_t vocab = b->frame.vocab_size;
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return fail(STATUS_INVALID, "%s: token id %d is outside the vocabulary of %lld", b->path, ids[i],
                        (long long)vocab);
    if (b->frame.chunks == LEXICAL_CHUNKS_MAX)
        return fail(STATUS_INVALID, "%s: a lexical segment has at most %d chunks", b->path, LEXICAL_CHUNKS_MAX);
    TRY(memory_grow(&b->keys, &b->keys_capacity, 2 * (size_t)n));
    int keys = 0;
    for (int i = 0; i < n; i++)
        b->keys[keys++] = (uint64_t)ids[i];
    for (int i = 0; i + 1 < n; i++)
        b->keys[keys++] = (uint64_t)(vocab + ids[i] * vocab + ids[i + 1]);
    TRY(runs_add(b->runs, b->keys, keys, (uint32_t)b->frame.chunks));
    b->frame.chunks++;
    b->frame.tokens += n;
    return STATUS_OK;
}

/* ---- lists ---- */

static enum status write_part(struct lexical_builder *b, enum lexical_part part, const void *data, size_t bytes) {
    b->frame.bytes[part] += bytes;
    b->frame.crc[part] = crc32c(b->frame.crc[part], data, bytes);
    return part == LEXICAL_POSTINGS ? file_write(b->file, data, bytes)
                                    : spool_write(part == LEXICAL_INDEX ? b->index : b->dictionary, data, bytes);
}

/* A dictionary entry that is being written. */
struct entry {
    uint8_t bytes[4 * LEXICAL_VARINT_BYTES];
    size_t n;
};

static void entry_number(struct entry *e, uint64_t value) {
    e->n += (size_t)lexical_put_varint(e->bytes + e->n, value);
}

static enum status write_short(struct lexical_builder *b, struct entry *e, int64_t n) {
    uint32_t chunks[LEXICAL_BLOCK];
    uint8_t codes[LEXICAL_BLOCK], block[LEXICAL_BLOCK_BYTES];
    int got;
    unsigned form;
    TRY(runs_next_postings(b->runs, chunks, codes, LEXICAL_BLOCK, &got));
    assert(got == n);
    size_t bytes = lexical_block_encode(block, &form, chunks, codes, got, 0);
    entry_number(e, form);
    if (lexical_form_code(form) > 0) entry_number(e, bytes - lexical_packed_bytes(got, lexical_form_width(form)));
    return write_part(b, LEXICAL_POSTINGS, block, bytes);
}

static enum status write_dense(struct lexical_builder *b, struct entry *e) {
    size_t bytes = ((size_t)b->frame.chunks + 3) / 4;
    if (!b->dense) TRY(memory_allocate(&b->dense, bytes));
    memset(b->dense, 0, bytes);
    uint32_t chunks[LEXICAL_BLOCK];
    uint8_t codes[LEXICAL_BLOCK];
    for (int n = 1; n > 0;) {
        TRY(runs_next_postings(b->runs, chunks, codes, LEXICAL_BLOCK, &n));
        for (int i = 0; i < n; i++)
            b->dense[chunks[i] / 4] = (uint8_t)(b->dense[chunks[i] / 4] | (codes[i] + 1) << (chunks[i] % 4 * 2));
    }
    entry_number(e, 0);
    return write_part(b, LEXICAL_POSTINGS, b->dense, bytes);
}

static enum status write_blocks(struct lexical_builder *b, struct entry *e) {
    uint32_t chunks[LEXICAL_BLOCK], base = 0;
    uint8_t codes[LEXICAL_BLOCK], block[LEXICAL_BLOCK_BYTES];
    uint64_t begin = b->frame.bytes[LEXICAL_POSTINGS];
    size_t skips = 0;
    for (;;) {
        int n;
        unsigned form;
        TRY(runs_next_postings(b->runs, chunks, codes, LEXICAL_BLOCK, &n));
        if (n == 0) break;
        size_t bytes = lexical_block_encode(block, &form, chunks, codes, n, base);
        TRY(write_part(b, LEXICAL_POSTINGS, block, bytes));
        TRY(memory_grow(&b->skips, &b->skips_capacity, skips + LEXICAL_SKIP_BYTES));
        little_endian_put(b->skips + skips, chunks[n - 1] | form << RUNS_CHUNK_BITS, 4);
        little_endian_put(b->skips + skips + 4, b->frame.bytes[LEXICAL_POSTINGS] - begin, 4);
        skips += LEXICAL_SKIP_BYTES;
        base = chunks[n - 1] + 1;
    }
    TRY(write_part(b, LEXICAL_POSTINGS, b->skips, skips));
    entry_number(e, b->frame.bytes[LEXICAL_POSTINGS] - begin);
    return STATUS_OK;
}

static enum status write_list(struct lexical_builder *b, uint64_t key, int64_t n) {
    struct entry e = {.n = 0};
    if (b->frame.keys % LEXICAL_KEYS == 0) {
        uint8_t at[LEXICAL_INDEX_BYTES];
        little_endian_put(at, key, 8);
        little_endian_put(at + 8, b->frame.bytes[LEXICAL_DICTIONARY], 8);
        little_endian_put(at + 16, b->frame.bytes[LEXICAL_POSTINGS], 8);
        TRY(write_part(b, LEXICAL_INDEX, at, sizeof at));
        b->last_key = key;
    }
    entry_number(&e, key - b->last_key);
    entry_number(&e, (uint64_t)n);
    b->last_key = key;
    b->frame.keys++;
    b->frame.postings += n;
    if (n <= LEXICAL_BLOCK)
        TRY(write_short(b, &e, n));
    else if (n * LEXICAL_DENSE_SHARE >= b->frame.chunks)
        TRY(write_dense(b, &e));
    else
        TRY(write_blocks(b, &e));
    return write_part(b, LEXICAL_DICTIONARY, e.bytes, e.n);
}

static enum status write_lists(struct lexical_builder *b) {
    TRY(runs_finish(b->runs));
    for (;;) {
        bool more;
        uint64_t key;
        int64_t n;
        TRY(runs_next_key(b->runs, &more, &key, &n));
        if (!more) break;
        if (b->frame.keys % KEYS_A_STEP == 0) {
            progress_step(b->progress, "write lexical index", "keys", b->frame.keys, -1);
            if (progress_stop_requested(b->progress))
                return fail(STATUS_INTERRUPTED, "%s: stopped while the lexical index was written", b->path);
        }
        TRY(write_list(b, key, n));
    }
    TRY(spool_copy(b->dictionary, b->file));
    TRY(spool_copy(b->index, b->file));
    uint8_t footer[LEXICAL_FOOTER_BYTES];
    lexical_footer_make(footer, &b->frame);
    return file_write(b->file, footer, sizeof footer);
}

enum status lexical_builder_publish(struct lexical_builder *b, uint64_t *bytes, uint32_t *crc) {
    enum status s = write_lists(b);
    if (s == STATUS_OK) {
        *bytes = file_written(b->file);
        *crc = file_crc32c(b->file);
        s = file_publish(b->file);
        b->file = NULL;
    }
    lexical_builder_discard(b);
    return s;
}
