/* join_lists.c -- see join_lists_internal.h. Threads write the dictionary of each piece as the segment has it, to
 * spools. They copy the postings of all pieces, and then the dictionaries, to the file at the same time. At last one
 * thread writes the index of the dictionary. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "store/lexical/build/join_lists_internal.h"
#include <string.h>

enum { PORTION_BYTES = 1 << 27 /* copied between two requests to stop */ };

/* A piece of the segment. */
struct part {
    uint64_t list_at;                             /* where its lists begin in the segment */
    int64_t keys_before;                          /* in the segment */
    uint64_t key_before;                          /* the last one of these */
    int worker;                                   /* whose spools have its dictionary and its index */
    uint64_t dictionary_at, dictionary, index_at; /* where these begin; dictionary: its bytes */
};
/* Of a thread. */
struct worker {
    struct spool *dictionary, *index; /* index: offsets in the piece's dictionary */
    uint8_t *memory;                  /* [buffer], entries that were read */
};
struct join {
    const struct join_input *in;
    struct file_writer *file;
    struct lexical_frame *frame;
    struct part *parts;     /* [in->n] */
    struct worker *workers; /* one for each thread */
    bool dictionary;        /* what copy_bytes copies: dictionaries, or postings */
    uint64_t *begins;       /* [in->n + 1] of these, in the segment */
    uint64_t at;            /* of the portion that is being written */
    struct threads_failure failure;
};

static struct spool *entries_of(const struct join *j, int64_t i) {
    return j->in->writers[j->in->pieces[i].writer]->parts[i >= j->in->tokens_end].entries;
}

/* ---- dictionary ---- */

/* The entries of a piece that are being read. */
struct entries {
    struct spool *spool;
    uint8_t *memory;
    size_t capacity;
    uint64_t next, left; /* the next byte to read into memory, and how many follow */
    struct lexical_bytes bytes;
};

/* Reads on, if necessary, until memory has at least one whole entry or the entries end. */
static enum status entries_fill(struct entries *e) {
    const size_t kept = (size_t)(e->bytes.end - e->bytes.at);
    if (kept >= LISTS_ENTRY_BYTES || e->left == 0) return STATUS_OK;
    if (kept) memmove(e->memory, e->bytes.at, kept);
    const size_t some = e->capacity - kept < e->left ? e->capacity - kept : (size_t)e->left;
    TRY(spool_read(e->spool, e->memory + kept, some, e->next));
    e->next += some;
    e->left -= some;
    e->bytes = (struct lexical_bytes){e->memory, e->memory + kept + some, false};
    return STATUS_OK;
}

static enum status write_entries(struct join *j, int64_t i, struct worker *w) {
    const struct lists_piece *piece = &j->in->pieces[i];
    struct part *part = &j->parts[i];
    struct entries e = {.spool = entries_of(j, i),
                        .memory = w->memory,
                        .capacity = j->in->buffer,
                        .next = piece->entries_at,
                        .left = piece->entries,
                        .bytes = {w->memory, w->memory, false}};
    uint64_t key = 0, list_at = part->list_at, last_key = part->key_before;
    part->dictionary_at = spool_bytes(w->dictionary);
    part->index_at = spool_bytes(w->index);
    for (int64_t number = part->keys_before; number < part->keys_before + piece->keys; number++) {
        uint8_t *out;
        TRY(entries_fill(&e));
        key += lexical_get_varint(&e.bytes);
        const uint64_t n = lexical_get_varint(&e.bytes), list = lexical_get_varint(&e.bytes),
                       tail = lexical_get_varint(&e.bytes);
        assert(!e.bytes.bad && tail <= 4 * LEXICAL_VARINT_BYTES);
        if (number % LEXICAL_KEYS == 0) {
            TRY(spool_reserve(w->index, LEXICAL_INDEX_BYTES, &out));
            little_endian_put(out, key, 8);
            little_endian_put(out + 8, spool_bytes(w->dictionary) - part->dictionary_at, 8);
            little_endian_put(out + 16, list_at, 8);
            w->index->buffered += LEXICAL_INDEX_BYTES;
            last_key = key;
        }
        TRY(spool_reserve(w->dictionary, LISTS_ENTRY_BYTES, &out));
        size_t used = (size_t)lexical_put_varint(out, key - last_key);
        used += (size_t)lexical_put_varint(out + used, n);
        for (uint64_t k = 0; k < tail; k++)
            out[used++] = *e.bytes.at++;
        w->dictionary->buffered += used;
        last_key = key;
        list_at += list;
    }
    part->dictionary = spool_bytes(w->dictionary) - part->dictionary_at;
    return STATUS_OK;
}

static enum status worker_begin(const struct join *j, struct worker *w) {
    if (w->memory) return STATUS_OK;
    TRY(spool_create(&w->dictionary, j->in->folder, j->in->buffer));
    TRY(spool_create(&w->index, j->in->folder, j->in->buffer));
    return memory_allocate(&w->memory, j->in->buffer);
}

static enum status write_pieces(struct join *j, int64_t begin, int64_t end, int worker) {
    struct worker *w = &j->workers[worker];
    TRY(worker_begin(j, w));
    for (int64_t i = begin; i < end; i++) {
        j->parts[i].worker = worker;
        TRY(write_entries(j, i, w));
    }
    return STATUS_OK;
}

static void write_entries_of(void *context, int64_t begin, int64_t end, int worker) {
    struct join *j = context;
    threads_failed(&j->failure, write_pieces(j, begin, end, worker));
}

/* ---- the file ---- */

static enum status check_stop(const struct join *j) {
    progress_step(j->in->progress, "write lexical index", "keys", j->frame->keys, -1);
    if (!progress_stop_requested(j->in->progress)) return STATUS_OK;
    return fail(STATUS_INTERRUPTED, "%s: stopped while the lexical index was written", j->in->path);
}

/* Where each piece begins in the segment. */
static void plan_parts(struct join *j) {
    struct lexical_frame *f = j->frame;
    uint64_t key = 0;
    for (int64_t i = 0; i < j->in->n; i++) {
        const struct lists_piece *piece = &j->in->pieces[i];
        j->parts[i] = (struct part){.list_at = f->bytes[LEXICAL_POSTINGS], .keys_before = f->keys, .key_before = key};
        if (piece->keys > 0) key = piece->last_key;
        f->keys += piece->keys;
        f->postings += piece->postings;
        f->bytes[LEXICAL_POSTINGS] += piece->bytes;
    }
}

/* The piece that has a byte of what is copied. */
static int64_t piece_at(const struct join *j, uint64_t at) {
    int64_t low = 0, high = j->in->n;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (j->begins[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum status read_piece(const struct join *j, int64_t i, uint8_t *out, size_t n, uint64_t from) {
    const struct lists_piece *piece = &j->in->pieces[i];
    if (j->dictionary)
        return spool_read(j->workers[j->parts[i].worker].dictionary, out, n, j->parts[i].dictionary_at + from);
    const struct lists_writer *w = j->in->writers[piece->writer];
    return spool_read(w->parts[i >= j->in->tokens_end].lists, out, n, piece->lists_at + from);
}

static void copy_bytes(void *context, uint8_t *out, uint64_t at, size_t n) {
    struct join *j = context;
    at += j->at;
    for (int64_t i = piece_at(j, at); n > 0; i++) {
        const uint64_t from = at - j->begins[i], left = j->begins[i + 1] - at;
        const size_t some = left < n ? (size_t)left : n;
        if (some == 0) continue;
        const enum status s = read_piece(j, i, out, some, from);
        if (s != STATUS_OK) {
            threads_failed(&j->failure, s);
            return;
        }
        out += some;
        at += some;
        n -= some;
    }
}

static enum status copy_part(struct join *j, enum lexical_part part) {
    const uint64_t bytes = j->begins[j->in->n];
    j->frame->bytes[part] = bytes;
    for (j->at = 0; j->at < bytes; j->at += PORTION_BYTES) {
        const uint64_t some = bytes - j->at < PORTION_BYTES ? bytes - j->at : PORTION_BYTES;
        uint32_t crc;
        TRY(check_stop(j));
        TRY(file_write_blocks(j->file, some, j->in->threads, copy_bytes, j, &crc));
        TRY(threads_failure(&j->failure));
        j->frame->crc[part] = crc32c_join(j->frame->crc[part], crc, some);
    }
    return STATUS_OK;
}

/* The offsets in a piece's dictionary become those in the segment's. */
static enum status write_index(struct join *j) {
    uint8_t *memory;
    const size_t most = j->in->buffer / LEXICAL_INDEX_BYTES * LEXICAL_INDEX_BYTES;
    TRY(memory_allocate(&memory, most));
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < j->in->n && s == STATUS_OK; i++) {
        const struct part *p = &j->parts[i];
        const int64_t end = p->keys_before + j->in->pieces[i].keys;
        const uint64_t entries = (uint64_t)((end + LEXICAL_KEYS - 1) / LEXICAL_KEYS -
                                            (p->keys_before + LEXICAL_KEYS - 1) / LEXICAL_KEYS),
                       bytes = entries * LEXICAL_INDEX_BYTES;
        for (uint64_t at = 0, some; at < bytes && s == STATUS_OK; at += some) {
            some = bytes - at < most ? bytes - at : most;
            s = spool_read(j->workers[p->worker].index, memory, (size_t)some, p->index_at + at);
            for (uint8_t *entry = memory; entry < memory + some; entry += LEXICAL_INDEX_BYTES)
                little_endian_put(entry + 8, little_endian_get(entry + 8, 8) + j->begins[i], 8);
            j->frame->crc[LEXICAL_INDEX] = crc32c(j->frame->crc[LEXICAL_INDEX], memory, (size_t)some);
            if (s == STATUS_OK) s = file_write(j->file, memory, (size_t)some);
        }
        j->frame->bytes[LEXICAL_INDEX] += bytes;
    }
    memory_free(memory);
    return s;
}

static enum status write_parts(struct join *j) {
    const int64_t n = j->in->n;
    const int workers = threads_count(j->in->threads);
    plan_parts(j);
    threads_for(j->in->threads, n, n / (8 * workers) + 1, write_entries_of, j);
    TRY(threads_failure(&j->failure));
    for (int i = 0; i < workers; i++) {
        if (!j->workers[i].memory) continue;
        TRY(spool_flush(j->workers[i].dictionary));
        TRY(spool_flush(j->workers[i].index));
    }
    for (int64_t i = 0; i < n; i++)
        j->begins[i + 1] = j->begins[i] + j->in->pieces[i].bytes;
    TRY(copy_part(j, LEXICAL_POSTINGS));
    for (int64_t i = 0; i < n; i++)
        j->begins[i + 1] = j->begins[i] + j->parts[i].dictionary;
    j->dictionary = true;
    TRY(copy_part(j, LEXICAL_DICTIONARY));
    return write_index(j);
}

enum status join_write(struct file_writer *file, struct lexical_frame *frame, const struct join_input *input) {
    struct join j = {.in = input, .file = file, .frame = frame, .failure = THREADS_FAILURE_NONE};
    const int workers = threads_count(input->threads);
    enum status s;
    TRY_GOTO(s, memory_allocate_zero(&j.workers, (size_t)workers), out);
    TRY_GOTO(s, memory_allocate(&j.parts, (size_t)input->n), out);
    TRY_GOTO(s, memory_allocate_zero(&j.begins, (size_t)input->n + 1), out);
    s = write_parts(&j);
out:
    for (int i = 0; j.workers && i < workers; i++) {
        spool_free(j.workers[i].dictionary);
        spool_free(j.workers[i].index);
        memory_free(j.workers[i].memory);
    }
    memory_free(j.workers);
    memory_free(j.parts);
    memory_free(j.begins);
    return s;
}
