/* bucket_records.c -- see bucket_records_internal.h. A portion is divided in two passes: the first counts the records
 * of each bucket, the second writes each at the end of its bucket's records. */
#include "base/memory.h"
#include "base/system/threads.h"
#include "store/lexical/build/bucket_records_internal.h"
#include "store/lexical/build/spool_internal.h"
#include <stdio.h>
#include <string.h>

enum { SLAB_BYTES = 32 << 20, PADDING = 8, SPILL_BYTES = 1 << 18, SPILL_BUCKETS = 8, AHEAD = 4 };

struct slab {
    uint8_t *data;
    size_t size, used;
};
/* A portion that was divided. */
struct division {
    uint32_t first_chunk;
    const uint8_t *data; /* NULL: it is in a run */
    int64_t run;
    uint32_t *offsets; /* [n_buckets + 1]: bytes of the portion before those of each bucket */
};
struct run {
    int64_t first, end; /* portions */
    uint64_t *offsets;  /* [n_buckets + 1] in the spool */
};
/* Where the next record of a bucket is written. */
struct target {
    uint8_t *at;
    uint64_t begin; /* of the bucket's pairs */
    int32_t bytes;
};
struct scratch { /* of a thread */
    uint16_t *buckets;
    size_t buckets_capacity;
    uint32_t *counts;
    struct target *targets;
};

struct records {
    char folder[FILE_PATH_MAX];
    const struct buckets *buckets;
    uint64_t max_ram, slab_bytes;
    struct slab *slabs;
    size_t n_slabs, slabs_capacity, slab; /* slab: the one that memory is taken from */
    struct division *portions;
    size_t portions_capacity;
    int64_t n_portions, in_runs; /* portions that are in runs */
    struct run *runs;
    size_t runs_capacity;
    int64_t n_runs;
    struct spool *spool;
    int64_t *counts;                        /* [n_buckets] */
    struct scratch *scratches[THREADS_MAX]; /* NULL: not used yet */
    const struct portion *adding;           /* portions of the current loop */
    pthread_mutex_t lock;                   /* of slabs */
    struct threads_failure failure;
};

enum status records_create(struct records **out, const char *folder, const struct buckets *buckets, uint64_t max_ram) {
    struct records *r = NULL;
    TRY(memory_allocate_zero(&r, 1));
    pthread_mutex_init(&r->lock, NULL);
    r->failure = (struct threads_failure)THREADS_FAILURE_NONE;
    snprintf(r->folder, sizeof r->folder, "%s", folder);
    r->buckets = buckets;
    r->max_ram = max_ram;
    r->slab_bytes = max_ram / 8 < SLAB_BYTES ? max_ram / 8 : SLAB_BYTES;
    const enum status s = memory_allocate_zero(&r->counts, (size_t)buckets->n);
    if (s != STATUS_OK)
        records_free(r);
    else
        *out = r;
    return s;
}

static void free_slabs(struct records *r) {
    for (size_t i = 0; i < r->n_slabs; i++)
        memory_free(r->slabs[i].data);
    r->n_slabs = r->slab = 0;
}

static void free_scratches(struct records *r) {
    for (int i = 0; i < THREADS_MAX; i++) {
        struct scratch *s = r->scratches[i];
        if (!s) continue;
        memory_free(s->buckets);
        memory_free(s->counts);
        memory_free(s->targets);
        memory_free(s);
        r->scratches[i] = NULL;
    }
}

void records_free(struct records *r) {
    if (!r) return;
    free_slabs(r);
    free_scratches(r);
    for (int64_t i = 0; i < r->n_portions; i++)
        memory_free(r->portions[i].offsets);
    for (int64_t i = 0; i < r->n_runs; i++)
        memory_free(r->runs[i].offsets);
    memory_free(r->slabs);
    memory_free(r->portions);
    memory_free(r->runs);
    memory_free(r->counts);
    spool_free(r->spool);
    pthread_mutex_destroy(&r->lock);
    memory_free(r);
}

/* ---- threads ---- */

static enum status scratch_of(struct records *r, int worker, struct scratch **out) {
    if (!r->scratches[worker]) {
        struct scratch *s;
        TRY(memory_allocate_zero(&s, 1));
        r->scratches[worker] = s;
        TRY(memory_allocate(&s->counts, (size_t)r->buckets->n));
        TRY(memory_allocate(&s->targets, (size_t)r->buckets->n));
    }
    *out = r->scratches[worker];
    return STATUS_OK;
}

/* ---- memory ---- */

static enum status take_slab(struct records *r, size_t bytes, uint8_t **out) {
    while (r->slab < r->n_slabs && r->slabs[r->slab].size - r->slabs[r->slab].used < bytes)
        r->slab++;
    if (r->slab == r->n_slabs) {
        struct slab fresh = {.size = bytes > r->slab_bytes ? bytes : r->slab_bytes};
        TRY(memory_grow(&r->slabs, &r->slabs_capacity, r->n_slabs + 1));
        TRY(memory_allocate_aligned(&fresh.data, fresh.size));
        r->slabs[r->n_slabs++] = fresh;
    }
    struct slab *slab = &r->slabs[r->slab];
    *out = slab->data + slab->used;
    slab->used += bytes;
    return STATUS_OK;
}

static enum status take_memory(struct records *r, size_t bytes, uint8_t **out) {
    pthread_mutex_lock(&r->lock);
    const enum status s = take_slab(r, bytes, out);
    pthread_mutex_unlock(&r->lock);
    return s;
}

uint64_t records_memory(const struct records *r) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->n_slabs; i++)
        bytes += r->slabs[i].size;
    return bytes;
}

static uint64_t memory_used(const struct records *r) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->n_slabs && i <= r->slab; i++)
        bytes += i < r->slab ? r->slabs[i].size : r->slabs[i].used;
    return bytes;
}

/* ---- dividing a portion ---- */

static void count_portion(const struct buckets *b, struct scratch *s, const struct portion *p) {
    uint16_t *out = s->buckets;
    const int32_t *ids = p->ids;
    memset(s->counts, 0, (size_t)b->n * sizeof *s->counts);
    for (int64_t chunk = 0; chunk < p->n_chunks; chunk++) {
        const int32_t last = p->lengths[chunk] - 1;
        for (int32_t i = 0; i <= last; i++) {
            const uint32_t bucket = bucket_of(b, ids[i], i < last ? ids[i + 1] : (int32_t)b->vocab);
            *out++ = (uint16_t)bucket;
            s->counts[bucket]++;
        }
        ids += last + 1;
    }
}

static void write_portion(const struct buckets *b, struct scratch *s, const struct portion *p) {
    const uint16_t *buckets = s->buckets;
    const int32_t *ids = p->ids;
    for (int64_t chunk = 0; chunk < p->n_chunks; chunk++) {
        const int32_t last = p->lengths[chunk] - 1;
        for (int32_t i = 0; i <= last; i++) {
            struct target *t = &s->targets[*buckets++];
            const uint64_t pair = bucket_pair(b, ids[i], i < last ? ids[i + 1] : (int32_t)b->vocab),
                           record = (pair - t->begin) << BUCKETS_CHUNK_BITS | (uint64_t)chunk;
            const uint32_t low = (uint32_t)record, high = (uint32_t)(record >> (8 * t->bytes - 32));
            memcpy(t->at, &low, sizeof low);
            memcpy(t->at + t->bytes - 4, &high, sizeof high);
            t->at += t->bytes;
        }
        ids += last + 1;
    }
}

static enum status divide_portion(struct records *r, int64_t number, const struct portion *p, int worker) {
    const struct buckets *b = r->buckets;
    struct division *d = &r->portions[number];
    struct scratch *s;
    uint8_t *data;
    TRY(scratch_of(r, worker, &s));
    TRY(memory_grow(&s->buckets, &s->buckets_capacity, (size_t)p->n_ids));
    count_portion(b, s, p);
    uint64_t bytes = 0;
    for (int i = 0; i < b->n; i++) {
        d->offsets[i] = (uint32_t)bytes;
        bytes += (uint64_t)s->counts[i] * (uint64_t)b->list[i].bytes;
    }
    assert(bytes <= UINT32_MAX);
    d->offsets[b->n] = (uint32_t)bytes;
    TRY(take_memory(r, (size_t)bytes + PADDING, &data));
    for (int i = 0; i < b->n; i++)
        s->targets[i] = (struct target){data + d->offsets[i], b->list[i].begin, b->list[i].bytes};
    write_portion(b, s, p);
    memset(data + bytes, 0, PADDING);
    d->data = data;
    return STATUS_OK;
}

static void divide_portions(void *context, int64_t begin, int64_t end, int worker) {
    struct records *r = context;
    for (int64_t i = begin; i < end; i++)
        threads_failed(&r->failure, divide_portion(r, r->n_portions + i, &r->adding[i], worker));
}

/* ---- runs ---- */

struct spill {
    struct records *r;
    const struct run *run;
    uint8_t *buffers; /* [SPILL_BYTES] for each thread */
};

static uint32_t portion_bytes(const struct division *d, int bucket) {
    return d->offsets[bucket + 1] - d->offsets[bucket];
}

/* Writes the records of buckets begin .. end-1, which are contiguous in the spool. */
static enum status spill_range(const struct spill *x, int64_t begin, int64_t end, uint8_t *buffer) {
    struct records *r = x->r;
    uint64_t at = x->run->offsets[begin];
    size_t used = 0;
    for (int64_t bucket = begin; bucket < end; bucket++)
        for (int64_t i = x->run->first; i < x->run->end; i++) {
            const struct division *d = &r->portions[i];
            const uint8_t *from = d->data + d->offsets[bucket];
            for (size_t left = portion_bytes(d, (int)bucket); left > 0;) {
                const size_t some = SPILL_BYTES - used < left ? SPILL_BYTES - used : left;
                memcpy(buffer + used, from, some);
                from += some;
                left -= some;
                used += some;
                if (used < SPILL_BYTES) continue;
                TRY(spool_write_at(r->spool, buffer, used, at));
                at += used;
                used = 0;
            }
        }
    return spool_write_at(r->spool, buffer, used, at);
}

static void spill_buckets(void *context, int64_t begin, int64_t end, int worker) {
    const struct spill *x = context;
    threads_failed(&x->r->failure, spill_range(x, begin, end, x->buffers + (size_t)worker * SPILL_BYTES));
}

static enum status write_run(struct records *r, struct threads *threads) {
    const int n = r->buckets->n;
    if (!r->spool) TRY(spool_create(&r->spool, r->folder, 0));
    TRY(memory_grow(&r->runs, &r->runs_capacity, (size_t)r->n_runs + 1));
    struct run *run = &r->runs[r->n_runs];
    *run = (struct run){.first = r->in_runs, .end = r->n_portions};
    TRY(memory_allocate_zero(&run->offsets, (size_t)n + 1));
    r->n_runs++;
    for (int64_t i = run->first; i < run->end; i++)
        for (int k = 0; k < n; k++)
            run->offsets[k + 1] += portion_bytes(&r->portions[i], k);
    for (int k = 0; k < n; k++)
        run->offsets[k + 1] += run->offsets[k];
    const uint64_t at = spool_extend(r->spool, run->offsets[n]);
    for (int k = 0; k <= n; k++)
        run->offsets[k] += at;
    struct spill spill = {.r = r, .run = run};
    TRY(memory_allocate(&spill.buffers, (size_t)threads_count(threads) * SPILL_BYTES));
    threads_for(threads, n, SPILL_BUCKETS, spill_buckets, &spill);
    memory_free(spill.buffers);
    for (int64_t i = run->first; i < run->end; i++) {
        r->portions[i].data = NULL;
        r->portions[i].run = r->n_runs - 1;
    }
    r->in_runs = r->n_portions;
    for (size_t i = 0; i < r->n_slabs; i++)
        r->slabs[i].used = 0;
    r->slab = 0;
    return threads_failure(&r->failure);
}

/* Bytes that the records of some portions take at most. */
static uint64_t bytes_most(const struct records *r, const struct portion *portions, int n) {
    uint64_t each = 0, bytes = 0;
    for (int i = 0; i < r->buckets->n; i++)
        each = (uint64_t)r->buckets->list[i].bytes > each ? (uint64_t)r->buckets->list[i].bytes : each;
    for (int i = 0; i < n; i++)
        bytes += (uint64_t)portions[i].n_ids * each + PADDING;
    return bytes;
}

enum status records_add(struct records *r, const struct portion *portions, int n, struct threads *threads) {
    if (r->in_runs < r->n_portions && memory_used(r) + bytes_most(r, portions, n) > r->max_ram)
        TRY(write_run(r, threads));
    TRY(memory_grow(&r->portions, &r->portions_capacity, (size_t)(r->n_portions + n)));
    for (int i = 0; i < n; i++) {
        struct division *d = &r->portions[r->n_portions + i];
        *d = (struct division){.first_chunk = portions[i].first_chunk};
        enum status s = memory_allocate(&d->offsets, (size_t)r->buckets->n + 1);
        if (s == STATUS_OK) continue;
        for (int j = 0; j < i; j++)
            memory_free(r->portions[r->n_portions + j].offsets);
        return s;
    }
    r->adding = portions;
    threads_for(threads, n, 1, divide_portions, r);
    r->n_portions += n;
    return threads_failure(&r->failure);
}

enum status records_finish(struct records *r, struct threads *threads) {
    for (int64_t i = 0; i < r->n_portions; i++)
        for (int k = 0; k < r->buckets->n; k++)
            r->counts[k] += portion_bytes(&r->portions[i], k);
    for (int k = 0; k < r->buckets->n; k++)
        r->counts[k] /= r->buckets->list[k].bytes;
    free_scratches(r);
    if (r->n_runs == 0) return STATUS_OK;
    if (r->in_runs < r->n_portions) TRY(write_run(r, threads));
    free_slabs(r);
    return STATUS_OK;
}

bool records_in_memory(const struct records *r) {
    return r->n_runs == 0;
}

int64_t records_count(const struct records *r, int bucket) {
    return r->counts[bucket];
}

/* ---- reading ---- */

void record_reader_begin(struct record_reader *reader, int bucket) {
    reader->bucket = bucket;
    reader->portion = -1;
    reader->run = -1;
    reader->left = 0;
}

/* Fills the buffer with whole records of the run. */
static enum status bucket_records_fill(struct record_reader *reader, int64_t run, size_t bytes) {
    struct records *r = reader->records;
    if (run != reader->run) {
        reader->run = run;
        reader->at = r->runs[run].offsets[reader->bucket];
        reader->end = r->runs[run].offsets[reader->bucket + 1];
        reader->used = reader->filled = 0;
    }
    if (reader->used < reader->filled) return STATUS_OK;
    const uint64_t most = reader->capacity / bytes * bytes, left = reader->end - reader->at;
    reader->filled = (size_t)(left < most ? left : most);
    reader->used = 0;
    TRY(spool_read(r->spool, reader->buffer, reader->filled, reader->at));
    memset(reader->buffer + reader->filled, 0, PADDING);
    reader->at += reader->filled;
    return STATUS_OK;
}

enum status record_reader_next(struct record_reader *reader, struct record_block *block) {
    const struct records *r = reader->records;
    const size_t bytes = (size_t)r->buckets->list[reader->bucket].bytes;
    block->n = 0;
    while (reader->left == 0) {
        if (reader->portion + 1 >= r->n_portions) return STATUS_OK;
        reader->portion++;
        reader->left = portion_bytes(&r->portions[reader->portion], reader->bucket);
    }
    const struct division *d = &r->portions[reader->portion];
    block->first_chunk = d->first_chunk;
    if (d->data) {
        if (reader->portion + AHEAD < r->n_portions && d[AHEAD].data)
            __builtin_prefetch(d[AHEAD].data + d[AHEAD].offsets[reader->bucket]);
        block->bytes = d->data + d->offsets[reader->bucket];
        block->n = reader->left / bytes;
        reader->left = 0;
        return STATUS_OK;
    }
    TRY(bucket_records_fill(reader, d->run, bytes));
    const size_t have = reader->filled - reader->used, some = reader->left < have ? (size_t)reader->left : have;
    block->bytes = reader->buffer + reader->used;
    block->n = some / bytes;
    reader->used += some;
    reader->left -= some;
    return STATUS_OK;
}
