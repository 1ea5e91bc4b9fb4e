/* lexical_runs.c -- see lexical_runs_internal.h.
 *
 * A run has for each key: the difference from the previous key, the number of chunks, then for each chunk (difference
 * from the previous chunk) * 4 + code. All numbers are varints. Runs are in chunk order, so a key's postings are those
 * of the first run, then of the second, ... A heap orders the runs by their next key. */
#include "base/memory.h"
#include "store/lexical/lexical_format_internal.h"
#include "store/lexical/lexical_runs_internal.h"
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- spool ---- */

enum { SPOOL_BUFFER = 1 << 16 };

struct spool {
    int fd;
    uint64_t written; /* bytes that are in the file; the buffer follows them */
    size_t buffered;
    char folder[FILE_PATH_MAX];
    uint8_t buffer[SPOOL_BUFFER];
};

enum status spool_create(struct spool **out, const char *folder) {
    struct spool *s = NULL;
    TRY(memory_allocate(&s, 1));
    s->written = 0;
    s->buffered = 0;
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    s->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd < 0) { /* the file system has no files without names */
        char name[FILE_PATH_MAX];
        int n = snprintf(name, sizeof name, "%s/lexical.XXXXXX", folder);
        s->fd = n < (int)sizeof name ? mkostemp(name, O_CLOEXEC) : -1;
        if (s->fd >= 0) unlink(name);
    }
    if (s->fd < 0) {
        enum status status = fail_errno("%s: cannot make a temporary file in this folder", folder);
        memory_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void spool_free(struct spool *s) {
    if (!s) return;
    close(s->fd);
    memory_free(s);
}

static enum status spool_flush(struct spool *s) {
    for (size_t done = 0; done < s->buffered;) {
        ssize_t n = pwrite(s->fd, s->buffer + done, s->buffered - done, (off_t)(s->written + done));
        if (n < 0) return fail_errno("%s: cannot write a temporary file in this folder", s->folder);
        done += (size_t)n;
    }
    s->written += s->buffered;
    s->buffered = 0;
    return STATUS_OK;
}

enum status spool_write(struct spool *s, const void *data, size_t bytes) {
    for (const uint8_t *p = data; bytes > 0;) {
        size_t n = SPOOL_BUFFER - s->buffered < bytes ? SPOOL_BUFFER - s->buffered : bytes;
        memcpy(s->buffer + s->buffered, p, n);
        s->buffered += n;
        p += n;
        bytes -= n;
        if (s->buffered == SPOOL_BUFFER) TRY(spool_flush(s));
    }
    return STATUS_OK;
}

uint64_t spool_bytes(const struct spool *s) {
    return s->written + s->buffered;
}

enum status spool_read(struct spool *s, void *out, size_t bytes, uint64_t offset) {
    TRY(spool_flush(s));
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(s->fd, (uint8_t *)out + done, bytes - done, (off_t)(offset + done));
        if (n < 0) return fail_errno("%s: cannot read a temporary file in this folder", s->folder);
        if (n == 0) return fail(STATUS_IO, "%s: a temporary file in this folder was cut short", s->folder);
        done += (size_t)n;
    }
    return STATUS_OK;
}

enum status spool_copy(struct spool *s, struct file_writer *to) {
    static const uint64_t part = 1 << 15;
    uint8_t *bytes;
    TRY(memory_allocate(&bytes, part));
    uint64_t all = spool_bytes(s);
    enum status status = STATUS_OK;
    for (uint64_t at = 0; at < all && status == STATUS_OK; at += part) {
        size_t n = (size_t)(all - at < part ? all - at : part);
        status = spool_read(s, bytes, n, at);
        if (status == STATUS_OK) status = file_write(to, bytes, n);
    }
    memory_free(bytes);
    return status;
}

/* ---- collecting and sorting ---- */

enum { RECORD_BYTES = 2 * sizeof(uint64_t), RECORDS_MIN = 1 << 12, DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

struct run {
    uint64_t at, end;    /* in the spool: the bytes that are to be read next */
    uint64_t key;        /* the next key */
    uint32_t left, last; /* left: postings of the key that were not read; last: chunk of the last one that was read */
    uint8_t *buffer;
    size_t used, filled;
};

struct runs {
    struct spool *spool;
    uint64_t *records; /* key << 24 | chunk */
    size_t n_records, capacity, records_max;
    uint64_t max_ram, keys_or; /* keys_or: the bits that any key has */
    struct run *list;
    size_t n_runs, runs_capacity, buffer_bytes;
    uint8_t *buffers;
    size_t *heap; /* of runs, by key, then by number */
    size_t n_heap;
    size_t *current; /* runs that have the current key, in order */
    size_t n_current, at_current;
};

enum status runs_create(struct runs **out, const char *folder, uint64_t max_ram) {
    struct runs *r = NULL;
    TRY(memory_allocate_zero(&r, 1));
    r->max_ram = max_ram;
    uint64_t records = max_ram / RECORD_BYTES / 4 * 3;
    r->records_max = records < RECORDS_MIN ? RECORDS_MIN : (size_t)records;
    enum status s = spool_create(&r->spool, folder);
    if (s != STATUS_OK) {
        memory_free(r);
        return s;
    }
    *out = r;
    return STATUS_OK;
}

void runs_free(struct runs *r) {
    if (!r) return;
    spool_free(r->spool);
    memory_free(r->records);
    memory_free(r->list);
    memory_free(r->buffers);
    memory_free(r->heap);
    memory_free(r->current);
    memory_free(r);
}

/* A stable radix sort by key, lowest digit first. Records were added in chunk order and keep it. */
static enum status sort_records(struct runs *r) {
    uint64_t *from = r->records, *to = NULL;
    size_t *counts = NULL;
    enum status s;
    TRY_GOTO(s, memory_allocate(&to, r->capacity), out);
    TRY_GOTO(s, memory_allocate(&counts, DIGITS), out);
    for (int shift = RUNS_CHUNK_BITS; shift < 64 && r->keys_or >> (shift - RUNS_CHUNK_BITS); shift += DIGIT_BITS) {
        memset(counts, 0, DIGITS * sizeof *counts);
        for (size_t i = 0; i < r->n_records; i++)
            counts[from[i] >> shift & (DIGITS - 1)]++;
        for (size_t d = 0, sum = 0; d < DIGITS; d++) {
            size_t n = counts[d];
            counts[d] = sum;
            sum += n;
        }
        for (size_t i = 0; i < r->n_records; i++)
            to[counts[from[i] >> shift & (DIGITS - 1)]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    r->records = from;
out:
    memory_free(to);
    memory_free(counts);
    return s;
}

static enum status write_number(struct runs *r, uint64_t value) {
    uint8_t bytes[LEXICAL_VARINT_BYTES];
    return spool_write(r->spool, bytes, (size_t)lexical_put_varint(bytes, value));
}

static enum status write_run(struct runs *r) {
    uint64_t before = 0;
    for (size_t i = 0, end; i < r->n_records; i = end) {
        uint64_t key = r->records[i] >> RUNS_CHUNK_BITS, postings = 0;
        for (end = i; end < r->n_records && r->records[end] >> RUNS_CHUNK_BITS == key; end++)
            postings += end == i || r->records[end] != r->records[end - 1];
        TRY(write_number(r, key - before));
        TRY(write_number(r, postings));
        before = key;
        uint64_t last = key << RUNS_CHUNK_BITS;
        for (size_t at = i, same; at < end; at = same) {
            for (same = at; same < end && r->records[same] == r->records[at]; same++) {
            }
            TRY(write_number(r, (r->records[at] - last) << 2 | (uint64_t)lexical_code((int64_t)(same - at))));
            last = r->records[at];
        }
    }
    return STATUS_OK;
}

static enum status spill(struct runs *r) {
    if (r->n_records == 0) return STATUS_OK;
    TRY(memory_grow(&r->list, &r->runs_capacity, r->n_runs + 1));
    struct run *run = &r->list[r->n_runs];
    *run = (struct run){.at = spool_bytes(r->spool)};
    TRY(sort_records(r));
    TRY(write_run(r));
    run->end = spool_bytes(r->spool);
    r->n_runs++;
    r->n_records = 0;
    return STATUS_OK;
}

enum status runs_add(struct runs *r, const uint64_t *keys, int n, uint32_t chunk) {
    assert(chunk < 1u << RUNS_CHUNK_BITS);
    /* all keys of a chunk are in one run */
    if (r->n_records && r->n_records + (size_t)n > r->records_max) TRY(spill(r));
    if (r->n_records + (size_t)n > r->capacity) { /* doubled, but at most to records_max */
        size_t want = r->capacity * 2 < r->records_max ? r->capacity * 2 : r->records_max;
        if (want < r->n_records + (size_t)n) want = r->n_records + (size_t)n;
        if (want < RECORDS_MIN) want = RECORDS_MIN;
        uint64_t *larger;
        TRY(memory_allocate(&larger, want));
        if (r->n_records) memcpy(larger, r->records, r->n_records * sizeof *larger);
        memory_free(r->records);
        r->records = larger;
        r->capacity = want;
    }
    for (int i = 0; i < n; i++) {
        r->keys_or |= keys[i];
        r->records[r->n_records++] = keys[i] << RUNS_CHUNK_BITS | chunk;
    }
    return STATUS_OK;
}

/* ---- merging ---- */

static enum status read_number(struct runs *r, struct run *run, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (run->used == run->filled) {
            uint64_t left = run->end - run->at;
            run->filled = left < r->buffer_bytes ? (size_t)left : r->buffer_bytes;
            run->used = 0;
            assert(run->filled > 0);
            TRY(spool_read(r->spool, run->buffer, run->filled, run->at));
            run->at += run->filled;
        }
        uint8_t byte = run->buffer[run->used++];
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    *out = value;
    return STATUS_OK;
}

static bool heap_less(const struct runs *r, size_t a, size_t b) {
    return r->list[a].key < r->list[b].key || (r->list[a].key == r->list[b].key && a < b);
}

static void heap_push(struct runs *r, size_t run) {
    size_t i = r->n_heap++;
    for (; i > 0 && heap_less(r, run, r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = run;
}

static size_t heap_pop(struct runs *r) {
    size_t top = r->heap[0], run = r->heap[--r->n_heap], i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= r->n_heap) break;
        if (child + 1 < r->n_heap && heap_less(r, r->heap[child + 1], r->heap[child])) child++;
        if (!heap_less(r, r->heap[child], run)) break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    r->heap[i] = run;
    return top;
}

/* Reads the run's next key. If there is one, puts the run into the heap. */
static enum status advance(struct runs *r, size_t number) {
    struct run *run = &r->list[number];
    if (run->at == run->end && run->used == run->filled) return STATUS_OK;
    uint64_t step, n;
    TRY(read_number(r, run, &step));
    TRY(read_number(r, run, &n));
    run->key += step;
    run->left = (uint32_t)n;
    run->last = 0;
    heap_push(r, number);
    return STATUS_OK;
}

enum status runs_finish(struct runs *r) {
    TRY(spill(r));
    memory_free(r->records);
    r->records = NULL;
    r->capacity = 0;
    size_t runs = r->n_runs ? r->n_runs : 1;
    /* a quarter, because the allocator may not have returned the memory of the records */
    uint64_t each = r->max_ram / 4 / runs;
    r->buffer_bytes = each < 1 << 9 ? 1 << 9 : each > 1 << 20 ? 1 << 20 : (size_t)each;
    TRY(memory_allocate_bytes((void **)&r->buffers, runs, r->buffer_bytes));
    TRY(memory_allocate(&r->heap, runs));
    TRY(memory_allocate(&r->current, runs));
    for (size_t i = 0; i < r->n_runs; i++) {
        r->list[i].buffer = r->buffers + i * r->buffer_bytes;
        TRY(advance(r, i));
    }
    return STATUS_OK;
}

static enum status read_posting(struct runs *r, struct run *run, uint32_t *chunk, uint8_t *code) {
    uint64_t value;
    TRY(read_number(r, run, &value));
    run->last += (uint32_t)(value >> 2);
    run->left--;
    *chunk = run->last;
    *code = (uint8_t)(value & 3);
    return STATUS_OK;
}

enum status runs_next_key(struct runs *r, bool *more, uint64_t *key, int64_t *n) {
    uint32_t chunk;
    uint8_t code;
    for (size_t i = 0; i < r->n_current; i++) {
        struct run *run = &r->list[r->current[i]];
        while (run->left > 0)
            TRY(read_posting(r, run, &chunk, &code));
        TRY(advance(r, r->current[i]));
    }
    r->n_current = r->at_current = 0;
    *more = r->n_heap > 0;
    if (!*more) return STATUS_OK;
    *key = r->list[r->heap[0]].key;
    *n = 0;
    while (r->n_heap > 0 && r->list[r->heap[0]].key == *key) {
        size_t run = heap_pop(r);
        r->current[r->n_current++] = run;
        *n += r->list[run].left;
    }
    return STATUS_OK;
}

enum status runs_next_postings(struct runs *r, uint32_t *chunks, uint8_t *codes, int capacity, int *n) {
    *n = 0;
    while (*n < capacity && r->at_current < r->n_current) {
        struct run *run = &r->list[r->current[r->at_current]];
        if (run->left == 0) {
            r->at_current++;
            continue;
        }
        TRY(read_posting(r, run, &chunks[*n], &codes[*n]));
        ++*n;
    }
    return STATUS_OK;
}
