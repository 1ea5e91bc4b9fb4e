/* lexical_build.c -- see lexical_build.h.
 *
 * Chunks are collected in a block. The vocabulary is divided into shares, at most one for each thread
 * (lexical_share_internal.h), and the threads add each block to all shares. At the end they sort the shares and make
 * their lists. Then the shares are joined. Threads write the dictionary of each part of a share as the segment has it,
 * to spools. They copy the postings of all shares, and then the dictionaries, to the file at the same time. At last one
 * thread writes the index of the dictionary. */
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
    RAM_MIN = 1 << 20,
    SHARES_MAX = 32,
    BLOCK_IDS = 1 << 18, /* ids that the shares receive at once */
    COPY_BYTES = 1 << 18,
    PORTION_BYTES = 1 << 27, /* copied between two requests to stop */
    ENTRY_BYTES = 6 * LEXICAL_VARINT_BYTES,
    MESSAGE_MAX = 1024
};
static const uint64_t max_ram_default = UINT64_C(1) << 30, share_ram_min = UINT64_C(16) << 20;

struct lexical_builder {
    struct file_writer *file;
    struct lexical_share *shares[SHARES_MAX];
    int n_shares;
    struct threads *threads;
    int shares_wanted; /* 0: one for each thread */
    uint64_t max_ram;
    struct lexical_frame frame;
    const struct progress *progress;
    int32_t *ids; /* ids of the chunks in the block: [BLOCK_IDS], or more if one chunk is longer */
    size_t ids_capacity, n_ids;
    int32_t *lengths; /* lengths of these chunks */
    size_t lengths_capacity, n_lengths;
    uint8_t *copy;                  /* [COPY_BYTES] */
    enum status status[SHARES_MAX]; /* the results of the shares' threads */
    char messages[SHARES_MAX][MESSAGE_MAX];
    pthread_mutex_t lock; /* of the next member, and of its message, messages[0] */
    enum status joined;   /* the first failure of the threads that join */
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
    pthread_mutex_init(&b->lock, NULL);
    uint8_t header[LEXICAL_HEADER_BYTES];
    b->max_ram = how->max_ram ? how->max_ram : max_ram_default;
    b->threads = how->threads;
    b->shares_wanted = how->shares;
    b->frame = (struct lexical_frame){.vocab_size = how->vocab_size, .first_chunk = how->first_chunk};
    b->progress = how->progress;
    enum status s;
    TRY_GOTO(s, file_create(&b->file, path), out); /* first, because it refuses a path that is too long */
    snprintf(b->path, sizeof b->path, "%s", path);
    folder_of(b->folder, path);
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
    pthread_mutex_destroy(&b->lock);
    memory_free(b->ids);
    memory_free(b->lengths);
    memory_free(b->copy);
    memory_free(b);
}

void lexical_builder_continue(struct lexical_builder *b, struct threads *threads, const struct progress *progress) {
    b->threads = threads;
    b->progress = progress;
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
    int64_t wanted = b->shares_wanted > 0 ? b->shares_wanted : threads_count(b->threads), seen = 0;
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

static enum status check_stop(const struct lexical_builder *b) {
    progress_step(b->progress, "write lexical index", "keys", b->frame.keys, -1);
    if (!progress_stop_requested(b->progress)) return STATUS_OK;
    return fail(STATUS_INTERRUPTED, "%s: stopped while the lexical index was written", b->path);
}

/* Lists of one part of one share, in the order of the segment: first the tokens of all shares, then the pairs. */
struct join {
    struct lexical_builder *builder;
    struct lexical_share *share;
    struct lexical_share_part part;
    uint64_t entries_at, entry_key;   /* where its entries begin, and the share's key before the first one */
    uint64_t postings_at;             /* where its lists begin: in the share, */
    uint64_t list_at;                 /* and in the segment */
    int64_t keys_before;              /* in the segment */
    uint64_t key_before;              /* the last one of these */
    struct spool *dictionary, *index; /* index: offsets in `dictionary` */
    uint8_t *memory;                  /* [COPY_BYTES], entries that were read */
    uint64_t next;                    /* the next byte of the entries to read into memory */
    struct lexical_bytes left;
};

/* Reads on, if necessary, until memory has at least one whole entry or the entries end. */
static enum status entries_fill(struct join *j) {
    size_t kept = (size_t)(j->left.end - j->left.at), got;
    if (kept >= 2 * ENTRY_BYTES) return STATUS_OK;
    if (kept) memmove(j->memory, j->left.at, kept);
    TRY(lexical_share_entries(j->share, j->memory + kept, COPY_BYTES - kept, j->next, &got));
    j->next += got;
    j->left = (struct lexical_bytes){j->memory, j->memory + kept + got, false};
    return STATUS_OK;
}

/* i: number of the key in the segment. */
static enum status write_entry(struct join *j, int64_t i, uint64_t *list_at, uint64_t *last_key) {
    uint8_t out[ENTRY_BYTES];
    TRY(entries_fill(j));
    j->entry_key += lexical_get_varint(&j->left);
    const uint64_t n = lexical_get_varint(&j->left), list = lexical_get_varint(&j->left),
                   tail = lexical_get_varint(&j->left);
    assert(!j->left.bad && tail <= 4 * LEXICAL_VARINT_BYTES);
    if (i % LEXICAL_KEYS == 0) {
        uint8_t at[LEXICAL_INDEX_BYTES];
        little_endian_put(at, j->entry_key, 8);
        little_endian_put(at + 8, spool_bytes(j->dictionary), 8);
        little_endian_put(at + 16, *list_at, 8);
        TRY(spool_write(j->index, at, sizeof at));
        *last_key = j->entry_key;
    }
    size_t used = (size_t)lexical_put_varint(out, j->entry_key - *last_key);
    used += (size_t)lexical_put_varint(out + used, n);
    memcpy(out + used, j->left.at, tail);
    j->left.at += tail;
    *last_key = j->entry_key;
    *list_at += list;
    return spool_write(j->dictionary, out, used + tail);
}

static enum status write_entries(struct join *j) {
    uint64_t list_at = j->list_at, last_key = j->key_before;
    TRY(spool_create(&j->dictionary, j->builder->folder));
    TRY(spool_create(&j->index, j->builder->folder));
    TRY(memory_allocate(&j->memory, COPY_BYTES));
    j->next = j->entries_at;
    j->left = (struct lexical_bytes){j->memory, j->memory, false};
    for (int64_t i = 0; i < j->part.keys; i++)
        TRY(write_entry(j, j->keys_before + i, &list_at, &last_key));
    memory_free(j->memory);
    j->memory = NULL;
    TRY(spool_flush(j->index));
    return spool_flush(j->dictionary);
}

static void write_entries_of(void *context, int64_t begin, int64_t end, int worker) {
    struct join *joins = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        struct lexical_builder *b = joins[i].builder;
        const enum status s = write_entries(&joins[i]);
        pthread_mutex_lock(&b->lock);
        if (b->joined == STATUS_OK && s != STATUS_OK) {
            snprintf(b->messages[0], MESSAGE_MAX, "%s", status_message());
            b->joined = s;
        }
        pthread_mutex_unlock(&b->lock);
    }
}

static enum status joined_status(const struct lexical_builder *b) {
    return b->joined == STATUS_OK ? STATUS_OK : fail(b->joined, "%s", b->messages[0]);
}

/* Computes where each part of each share begins. */
static void plan_joins(struct lexical_builder *b, struct join *joins) {
    struct lexical_frame *f = &b->frame;
    uint64_t key = 0;
    for (int part = 0; part < LEXICAL_SHARE_PARTS; part++)
        for (int i = 0; i < b->n_shares; i++) {
            struct join *j = &joins[part * b->n_shares + i];
            const struct lexical_share_part tokens = lexical_share_part(b->shares[i], LEXICAL_SHARE_TOKENS);
            *j = (struct join){.builder = b,
                               .share = b->shares[i],
                               .part = lexical_share_part(b->shares[i], part),
                               .list_at = f->bytes[LEXICAL_POSTINGS],
                               .keys_before = f->keys,
                               .key_before = key};
            if (part == LEXICAL_SHARE_PAIRS) {
                j->entries_at = tokens.entries;
                j->entry_key = tokens.last_key;
                j->postings_at = tokens.bytes;
            }
            if (j->part.keys > 0) key = j->part.last_key;
            f->keys += j->part.keys;
            f->postings += j->part.postings;
            f->bytes[LEXICAL_POSTINGS] += j->part.bytes;
        }
}

/* Bytes of the segment's postings, or of its dictionary, that threads copy from the shares. */
struct join_copy {
    struct lexical_builder *builder;
    struct join *joins;
    int n;
    bool dictionary;
    uint64_t at; /* of the portion that is being written */
};

static uint64_t join_bytes(const struct join *j, bool dictionary) {
    return dictionary ? spool_bytes(j->dictionary) : j->part.bytes;
}

static void copy_bytes(void *context, uint8_t *out, uint64_t at, size_t n) {
    const struct join_copy *c = context;
    uint64_t begin = 0;
    at += c->at;
    for (int i = 0; i < c->n && n > 0; i++) {
        const struct join *j = &c->joins[i];
        const uint64_t bytes = join_bytes(j, c->dictionary);
        if (at < begin + bytes) {
            const uint64_t from = at - begin, left = bytes - from;
            const size_t some = left < n ? (size_t)left : n;
            const enum status s = c->dictionary ? spool_read(j->dictionary, out, some, from)
                                                : lexical_share_lists(j->share, out, some, j->postings_at + from);
            if (s != STATUS_OK) {
                pthread_mutex_lock(&c->builder->lock);
                snprintf(c->builder->messages[0], MESSAGE_MAX, "%s", status_message());
                c->builder->joined = s;
                pthread_mutex_unlock(&c->builder->lock);
                return;
            }
            out += some;
            at += some;
            n -= some;
        }
        begin += bytes;
    }
}

static enum status copy_part(struct join_copy *c, enum lexical_part part, uint64_t bytes) {
    struct lexical_builder *b = c->builder;
    b->frame.bytes[part] = bytes;
    for (c->at = 0; c->at < bytes; c->at += PORTION_BYTES) {
        const uint64_t some = bytes - c->at < PORTION_BYTES ? bytes - c->at : PORTION_BYTES;
        uint32_t crc;
        TRY(check_stop(b));
        TRY(file_write_blocks(b->file, some, b->threads, copy_bytes, c, &crc));
        TRY(joined_status(b));
        b->frame.crc[part] = crc32c_join(b->frame.crc[part], crc, some);
    }
    return STATUS_OK;
}

/* The offsets in a share's dictionary become those in the segment's. */
static enum status write_index(struct lexical_builder *b, struct join *joins, int n) {
    uint64_t dictionary_at = 0;
    for (int i = 0; i < n; i++) {
        const uint64_t bytes = spool_bytes(joins[i].index),
                       most = COPY_BYTES / LEXICAL_INDEX_BYTES * LEXICAL_INDEX_BYTES;
        for (uint64_t at = 0, some; at < bytes; at += some) {
            some = bytes - at < most ? bytes - at : most;
            TRY(spool_read(joins[i].index, b->copy, (size_t)some, at));
            for (uint8_t *entry = b->copy; entry < b->copy + some; entry += LEXICAL_INDEX_BYTES)
                little_endian_put(entry + 8, little_endian_get(entry + 8, 8) + dictionary_at, 8);
            b->frame.crc[LEXICAL_INDEX] = crc32c(b->frame.crc[LEXICAL_INDEX], b->copy, (size_t)some);
            TRY(file_write(b->file, b->copy, (size_t)some));
        }
        b->frame.bytes[LEXICAL_INDEX] += bytes;
        dictionary_at += spool_bytes(joins[i].dictionary);
    }
    return STATUS_OK;
}

static enum status write_joins(struct lexical_builder *b, struct join *joins, int n) {
    struct join_copy copy = {.builder = b, .joins = joins, .n = n};
    uint64_t dictionary = 0;
    threads_for(b->threads, n, 1, write_entries_of, joins);
    TRY(joined_status(b));
    TRY(copy_part(&copy, LEXICAL_POSTINGS, b->frame.bytes[LEXICAL_POSTINGS]));
    for (int i = 0; i < n; i++)
        dictionary += spool_bytes(joins[i].dictionary);
    copy.dictionary = true;
    TRY(copy_part(&copy, LEXICAL_DICTIONARY, dictionary));
    return write_index(b, joins, n);
}

static enum status write_shares(struct lexical_builder *b) {
    const int n = LEXICAL_SHARE_PARTS * b->n_shares;
    struct join *joins;
    TRY(memory_allocate_zero(&joins, (size_t)n));
    plan_joins(b, joins);
    const enum status s = write_joins(b, joins, n);
    for (int i = 0; i < n; i++) {
        spool_free(joins[i].dictionary);
        spool_free(joins[i].index);
        memory_free(joins[i].memory);
    }
    memory_free(joins);
    return s;
}

static enum status write_lists(struct lexical_builder *b) {
    TRY(flush_block(b));
    TRY(check_stop(b));
    threads_for(b->threads, b->n_shares, 1, finish_shares, b);
    TRY(shares_status(b));
    TRY(write_shares(b));
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
