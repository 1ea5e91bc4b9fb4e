/* lexical_build.c -- see lexical_build.h.
 *
 * Chunks are collected in a block. The vocabulary is divided into shares, at most one for each thread
 * (lexical_share_internal.h), and the threads add each block to all shares. At the end they sort the shares and make
 * their lists. Then one thread joins the shares: it copies the postings to the file, and writes the dictionary and its
 * index to spools, which are copied after the last postings. */
#include "store/lexical/lexical_build.h"
#include "base/crc32c.h"
#include "base/memory.h"
#include "store/lexical/lexical_format_internal.h"
#include "store/lexical/lexical_runs_internal.h"
#include "store/lexical/lexical_share_internal.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    KEYS_A_STEP = 1 << 16,
    RAM_MIN = 1 << 20,
    SHARES_MAX = 32,
    BLOCK_IDS = 1 << 18, /* ids that the shares receive at once */
    COPY_BYTES = 1 << 18,
    ENTRY_BYTES = 6 * LEXICAL_VARINT_BYTES,
    MESSAGE_MAX = 1024
};
static const uint64_t max_ram_default = UINT64_C(1) << 30, share_ram_min = UINT64_C(16) << 20;

struct lexical_builder {
    struct file_writer *file;
    struct lexical_share *shares[SHARES_MAX];
    int n_shares;
    struct threads *threads;
    uint64_t max_ram;
    struct spool *dictionary, *index;
    struct lexical_frame frame;
    const struct progress *progress;
    int32_t *ids; /* ids of the chunks in the block: [BLOCK_IDS], or more if one chunk is longer */
    size_t ids_capacity, n_ids;
    int32_t *lengths; /* lengths of these chunks */
    size_t lengths_capacity, n_lengths;
    uint8_t *copy;                  /* [COPY_BYTES] */
    uint64_t last_key;              /* the last key that the dictionary has */
    enum status status[SHARES_MAX]; /* the results of the shares' threads */
    char messages[SHARES_MAX][MESSAGE_MAX];
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX];
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
    uint8_t header[LEXICAL_HEADER_BYTES];
    b->max_ram = how->max_ram ? how->max_ram : max_ram_default;
    b->threads = how->threads;
    b->frame = (struct lexical_frame){.vocab_size = how->vocab_size, .first_chunk = how->first_chunk};
    b->progress = how->progress;
    enum status s;
    TRY_GOTO(s, file_create(&b->file, path), out); /* first, because it refuses a path that is too long */
    snprintf(b->path, sizeof b->path, "%s", path);
    folder_of(b->folder, path);
    TRY_GOTO(s, spool_create(&b->dictionary, b->folder), out);
    TRY_GOTO(s, spool_create(&b->index, b->folder), out);
    TRY_GOTO(s, memory_allocate(&b->copy, COPY_BYTES), out);
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
    for (int i = 0; i < b->n_shares; i++)
        lexical_share_free(b->shares[i]);
    spool_free(b->dictionary);
    spool_free(b->index);
    memory_free(b->ids);
    memory_free(b->lengths);
    memory_free(b->copy);
    memory_free(b);
}

int64_t lexical_builder_chunks(const struct lexical_builder *b) {
    return b->frame.chunks;
}

/* ---- shares ---- */

/* Divides the vocabulary so that each share has about the same number of the block's ids. The division changes no byte
 * of the segment. */
static enum status make_shares(struct lexical_builder *b) {
    const int64_t vocab = b->frame.vocab_size;
    const uint64_t fit = b->max_ram / share_ram_min;
    int64_t wanted = threads_count(b->threads), seen = 0;
    if (wanted > SHARES_MAX) wanted = SHARES_MAX;
    if ((uint64_t)wanted > fit) wanted = fit > 1 ? (int64_t)fit : 1;
    uint64_t each = b->max_ram / (uint64_t)wanted;
    int64_t *counts;
    TRY(memory_allocate_zero(&counts, (size_t)vocab));
    for (size_t i = 0; i < b->n_ids; i++)
        counts[b->ids[i]]++;
    struct lexical_share_range range = {0, 0};
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < wanted && s == STATUS_OK; i++) {
        const int64_t goal = (int64_t)b->n_ids * (i + 1) / wanted;
        while (range.end < vocab && (seen < goal || i == wanted - 1))
            seen += counts[range.end++];
        s = lexical_share_create(&b->shares[i], b->folder, vocab, range, each < RAM_MIN ? RAM_MIN : each);
        if (s == STATUS_OK) b->n_shares++;
        range.begin = range.end;
    }
    memory_free(counts);
    return s;
}

/* Runs in one thread of several. Each share keeps its own failure, because an error message belongs to its thread. */
static void keep(struct lexical_builder *b, int64_t share, enum status status) {
    b->status[share] = status;
    if (status != STATUS_OK) snprintf(b->messages[share], MESSAGE_MAX, "%s", status_message());
}

static enum status shares_status(const struct lexical_builder *b) {
    for (int i = 0; i < b->n_shares; i++)
        if (b->status[i] != STATUS_OK) return fail(b->status[i], "%s", b->messages[i]);
    return STATUS_OK;
}

static void add_block(void *context, int64_t begin, int64_t end, int worker) {
    struct lexical_builder *b = context;
    (void)worker;
    for (int64_t share = begin; share < end; share++) {
        const int32_t *ids = b->ids;
        uint32_t chunk = (uint32_t)(b->frame.chunks - (int64_t)b->n_lengths);
        enum status s = STATUS_OK;
        for (size_t i = 0; i < b->n_lengths && s == STATUS_OK; i++) {
            s = lexical_share_add(b->shares[share], ids, b->lengths[i], chunk++);
            ids += b->lengths[i];
        }
        keep(b, share, s);
    }
}

/* Adds the chunks of the block to all shares. */
static enum status flush_block(struct lexical_builder *b) {
    if (b->n_shares == 0) TRY(make_shares(b));
    if (b->n_lengths == 0) return STATUS_OK;
    threads_for(b->threads, b->n_shares, 1, add_block, b);
    b->n_ids = b->n_lengths = 0;
    return shares_status(b);
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
    if (b->n_ids > 0 && b->n_ids + (size_t)n > BLOCK_IDS) TRY(flush_block(b));
    TRY(memory_grow(&b->ids, &b->ids_capacity, b->n_ids + (size_t)n));
    TRY(memory_grow(&b->lengths, &b->lengths_capacity, b->n_lengths + 1));
    memcpy(b->ids + b->n_ids, ids, (size_t)n * sizeof *ids);
    b->n_ids += (size_t)n;
    b->lengths[b->n_lengths++] = n;
    b->frame.chunks++;
    b->frame.tokens += n;
    return STATUS_OK;
}

static void finish_shares(void *context, int64_t begin, int64_t end, int worker) {
    struct lexical_builder *b = context;
    (void)worker;
    for (int64_t share = begin; share < end; share++)
        keep(b, share, lexical_share_finish(b->shares[share], b->frame.chunks));
}

/* ---- joining the shares ---- */

static enum status write_part(struct lexical_builder *b, enum lexical_part part, const void *data, size_t bytes) {
    b->frame.bytes[part] += bytes;
    b->frame.crc[part] = crc32c(b->frame.crc[part], data, bytes);
    return part == LEXICAL_POSTINGS ? file_write(b->file, data, bytes)
                                    : spool_write(part == LEXICAL_INDEX ? b->index : b->dictionary, data, bytes);
}

/* Reads the entries of a share, from its first key to its last. */
struct entries {
    struct lexical_share *share;
    uint8_t *memory; /* [COPY_BYTES] */
    uint64_t next;   /* the next byte of the entries to read into memory */
    struct lexical_bytes left;
    uint64_t key;
};

/* Reads on, if necessary, until memory has at least one whole entry or the entries end. */
static enum status entries_fill(struct entries *e) {
    size_t kept = (size_t)(e->left.end - e->left.at), got;
    if (kept >= 2 * ENTRY_BYTES) return STATUS_OK;
    if (kept) memmove(e->memory, e->left.at, kept);
    TRY(lexical_share_entries(e->share, e->memory + kept, COPY_BYTES - kept, e->next, &got));
    e->next += got;
    e->left = (struct lexical_bytes){e->memory, e->memory + kept + got, false};
    return STATUS_OK;
}

static enum status copy_lists(struct lexical_builder *b, struct lexical_share *share, uint64_t at, uint64_t bytes) {
    for (uint64_t end = at + bytes, n; at < end; at += n) {
        n = end - at < COPY_BYTES ? end - at : COPY_BYTES;
        TRY(lexical_share_lists(share, b->copy, (size_t)n, at));
        TRY(write_part(b, LEXICAL_POSTINGS, b->copy, (size_t)n));
    }
    return STATUS_OK;
}

/* list_at: where the list begins in the postings. */
static enum status write_entry(struct lexical_builder *b, struct entries *e, uint64_t *list_at) {
    uint8_t out[ENTRY_BYTES];
    TRY(entries_fill(e));
    e->key += lexical_get_varint(&e->left);
    const uint64_t n = lexical_get_varint(&e->left), list = lexical_get_varint(&e->left),
                   tail = lexical_get_varint(&e->left);
    assert(!e->left.bad && tail <= 4 * LEXICAL_VARINT_BYTES);
    if (b->frame.keys % LEXICAL_KEYS == 0) {
        uint8_t at[LEXICAL_INDEX_BYTES];
        little_endian_put(at, e->key, 8);
        little_endian_put(at + 8, b->frame.bytes[LEXICAL_DICTIONARY], 8);
        little_endian_put(at + 16, *list_at, 8);
        TRY(write_part(b, LEXICAL_INDEX, at, sizeof at));
        b->last_key = e->key;
    }
    size_t used = (size_t)lexical_put_varint(out, e->key - b->last_key);
    used += (size_t)lexical_put_varint(out + used, n);
    memcpy(out + used, e->left.at, tail);
    e->left.at += tail;
    b->last_key = e->key;
    b->frame.keys++;
    *list_at += list;
    return write_part(b, LEXICAL_DICTIONARY, out, used + tail);
}

static enum status check_stop(const struct lexical_builder *b) {
    progress_step(b->progress, "write lexical index", "keys", b->frame.keys, -1);
    if (!progress_stop_requested(b->progress)) return STATUS_OK;
    return fail(STATUS_INTERRUPTED, "%s: stopped while the lexical index was written", b->path);
}

static enum status write_share(struct lexical_builder *b, struct entries *e, int part) {
    const struct lexical_share_part p = lexical_share_part(e->share, part);
    const uint64_t before = part == LEXICAL_SHARE_PAIRS ? lexical_share_part(e->share, LEXICAL_SHARE_TOKENS).bytes : 0;
    uint64_t list_at = b->frame.bytes[LEXICAL_POSTINGS];
    TRY(copy_lists(b, e->share, before, p.bytes));
    for (int64_t i = 0; i < p.keys; i++) {
        if (b->frame.keys % KEYS_A_STEP == 0) TRY(check_stop(b));
        TRY(write_entry(b, e, &list_at));
    }
    b->frame.postings += p.postings;
    return STATUS_OK;
}

static enum status write_shares(struct lexical_builder *b) {
    struct entries entries[SHARES_MAX];
    uint8_t *memory;
    enum status s = STATUS_OK;
    TRY(memory_allocate(&memory, (size_t)b->n_shares * COPY_BYTES));
    for (int i = 0; i < b->n_shares; i++) {
        uint8_t *own = memory + (size_t)i * COPY_BYTES;
        entries[i] = (struct entries){.share = b->shares[i], .memory = own, .left = {own, own, false}};
    }
    for (int part = 0; part < LEXICAL_SHARE_PARTS; part++)
        for (int i = 0; i < b->n_shares && s == STATUS_OK; i++)
            s = write_share(b, &entries[i], part);
    memory_free(memory);
    return s;
}

static enum status write_lists(struct lexical_builder *b) {
    TRY(flush_block(b));
    TRY(check_stop(b));
    threads_for(b->threads, b->n_shares, 1, finish_shares, b);
    TRY(shares_status(b));
    TRY(write_shares(b));
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
