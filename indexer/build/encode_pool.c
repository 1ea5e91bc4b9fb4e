/* encode_pool.c -- see encode_pool.h.
 *
 * Batch number b is in slot b % n_slots. Three numbers rise: `filled` (batches that were submitted), `taken` (by
 * threads) and `stored`. The thread of a GPU issues its next batch before it waits for the one before, whose landmarks
 * are fetched meanwhile, so that the GPU does not wait for the host.
 *
 * Marks that are not stored are limited, because their shards have open files. */
#include "indexer/build/encode_pool.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "kernels/ops.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_MAX = 1024, BUFFERS = 2, SPARE = 8, MARKS = 128 };
enum { SLAB = 16 /* batches whose ids are allocated at once, in large pages if the system has them */ };

struct slot {
    int32_t *ids; /* NULL: none yet */
    float *rows;  /* host memory of the first device, which all others can write; set when a device takes the batch */
    bool halves;  /* whether they are fp16 */
    int64_t n;    /* 0: a mark */
    void *target;
    bool encoded;       /* or failed */
    enum status status; /* of encoding */
};
struct encode_thread {
    struct encode_pool *pool;
    struct encode_device is;
    float *rows_device[BUFFERS]; /* [batch, dim] on the device; NULL where memory is shared */
    void *halves_device[BUFFERS];
    struct slot *running; /* issued, and not complete; NULL: none */
    int next;             /* buffer of the next batch */
    double seconds;
    pthread_t thread;
};
struct encode_pool {
    struct encode_pool_config config;
    struct encode_thread *threads;
    struct slot *slots; /* [n_slots] */
    int64_t n_slots;
    float **rows; /* [n_rows] */
    int n_rows, n_threads;
    int32_t **slabs; /* [n_slots / SLAB + 1]; of the caller's thread */
    int64_t n_slabs;
    pthread_mutex_t lock; /* of all below, and of the slots' states */
    int32_t **free_ids;   /* [n_slots + SLAB]: memory of no batch, the last used one last */
    int64_t n_free_ids;
    pthread_cond_t submitted, encoded, freed;
    int64_t filled, taken, stored;
    double begun;  /* when the first batch was submitted, or later, when devices were open */
    bool opening;  /* devices are not open yet */
    int64_t marks; /* that are not stored */
    bool closing;
    int64_t failed;                   /* the lowest batch whose encoding failed; -1: none */
    char failed_message[MESSAGE_MAX]; /* of it */
    enum status status;               /* the first failure: all batches before it are stored */
    char message[MESSAGE_MAX];
    pthread_t writer, opener;
    bool writing, opens; /* there are these threads */
    bool storing;        /* it calls `store` */
};

/* The caller holds the lock. */
static void pool_fail(struct encode_pool *p, enum status status, const char *message) {
    p->status = status;
    snprintf(p->message, sizeof p->message, "%s", message);
    pthread_cond_broadcast(&p->submitted);
    pthread_cond_broadcast(&p->encoded);
    pthread_cond_broadcast(&p->freed);
}

static bool pool_ended(const struct encode_pool *p) {
    return p->closing || p->status != STATUS_OK;
}

/* ---- the threads that encode ---- */

/* Whether a batch waits, and there is memory for its landmarks. The caller holds the lock. */
static bool can_take(const struct encode_pool *p) {
    return p->taken < p->filled && p->taken - p->stored < p->n_rows;
}

/* NULL: there is none now, or, if `wait`, there will be none. */
static struct slot *encode_thread_take(struct encode_thread *t, bool wait) {
    struct encode_pool *p = t->pool;
    struct slot *slot = NULL;
    pthread_mutex_lock(&p->lock);
    while (wait && !pool_ended(p) && p->failed < 0 && !can_take(p))
        pthread_cond_wait(&p->submitted, &p->lock);
    if (!pool_ended(p) && p->failed < 0 && can_take(p)) {
        slot = &p->slots[p->taken % p->n_slots];
        slot->rows = p->rows[p->taken++ % p->n_rows];
    }
    pthread_mutex_unlock(&p->lock);
    return slot;
}

static void encode_thread_done(struct encode_thread *t, struct slot *slot, enum status status) {
    struct encode_pool *p = t->pool;
    pthread_mutex_lock(&p->lock);
    const int64_t stored = p->stored % p->n_slots, at = slot - p->slots;
    const int64_t number = p->stored + (at - stored + p->n_slots) % p->n_slots;
    slot->encoded = true;
    slot->status = status;
    if (status != STATUS_OK && (p->failed < 0 || number < p->failed)) {
        p->failed = number;
        snprintf(p->failed_message, sizeof p->failed_message, "%s", status_message());
        pthread_cond_broadcast(&p->submitted); /* no batch after it is taken */
    }
    pthread_cond_signal(&p->encoded);
    pthread_mutex_unlock(&p->lock);
}

static struct mat pool_halves(const struct encode_thread *t, const struct slot *slot) {
    return mat_dense(t->halves_device[t->next], DTYPE_F16, slot->n, t->pool->config.dim);
}

/* Issues the batch. The landmarks are in slot->rows when the call returns, or on a GPU with an encoder in the buffer.
 */
static enum status encode_thread_issue(struct encode_thread *t, struct slot *slot) {
    const struct encode_device *is = &t->is;
    if (is->external) return is->external->encode(is->external->context, slot->rows, slot->ids, slot->n);
    if (is->states) return state_landmarks_make(is->states, slot->rows, slot->ids, slot->n);
    const struct encoder_output out = {.landmarks = device_side(is->device, slot->rows, t->rows_device[t->next])};
    encoder_encode(is->encoder, &out, slot->ids, slot->n);
    slot->halves = t->halves_device[t->next] && t->pool->config.halves && t->pool->config.halves(slot->target);
    if (slot->halves)
        is->device->ops->elementwise->convert(is->device, pool_halves(t, slot),
                                              mat_f32(out.landmarks, slot->n, t->pool->config.dim));
    return STATUS_OK;
}

/* Completes the batch that was issued before. */
static void encode_thread_finish(struct encode_thread *t) {
    struct slot *slot = t->running;
    t->running = NULL;
    if (!slot) return;
    device_fetch_wait(t->is.device);
    encode_thread_done(t, slot, device_fault(t->is.device));
}

static void encode_thread_fetch(struct encode_thread *t, struct slot *slot) {
    const struct mat rows =
        slot->halves ? pool_halves(t, slot) : mat_f32(t->rows_device[t->next], slot->n, t->pool->config.dim);
    device_fetch(t->is.device, slot->rows, rows.data, mat_bytes(rows));
    t->running = slot;
    t->next = (t->next + 1) % BUFFERS;
}

static void *encode_thread_body(void *context) {
    struct encode_thread *t = context;
    struct encode_pool *p = t->pool;
    const bool later = t->is.encoder && !t->is.device->shares_memory;
    device_enter(t->is.device);
    for (;;) {
        struct slot *slot = encode_thread_take(t, !t->running);
        if (!slot && !t->running) break;
        const double start = clock_seconds();
        const enum status status = slot && slot->n > 0 ? encode_thread_issue(t, slot) : STATUS_OK;
        encode_thread_finish(t);
        if (slot && slot->n > 0 && later && status == STATUS_OK)
            encode_thread_fetch(t, slot);
        else if (slot)
            encode_thread_done(t, slot, slot->n > 0 && status == STATUS_OK ? device_sync(t->is.device) : status);
        const double seconds = clock_seconds() - start;
        pthread_mutex_lock(&p->lock);
        t->seconds += seconds;
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

/* ---- the thread that stores ---- */

static void *writer_body(void *context) {
    struct encode_pool *p = context;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct slot *slot = &p->slots[p->stored % p->n_slots];
        while (!pool_ended(p) && !(p->stored < p->taken && slot->encoded))
            pthread_cond_wait(&p->encoded, &p->lock);
        if (pool_ended(p)) break;
        if (slot->status != STATUS_OK) {
            pool_fail(p, slot->status, p->failed_message);
            break;
        }
        p->storing = true;
        pthread_mutex_unlock(&p->lock);
        const struct mat rows = mat_dense(slot->rows, slot->halves ? DTYPE_F16 : DTYPE_F32, slot->n, p->config.dim);
        const enum status status = p->config.store(slot->target, rows);
        pthread_mutex_lock(&p->lock);
        p->storing = false;
        if (status != STATUS_OK) pool_fail(p, status, status_message());
        slot->encoded = false;
        if (slot->n > 0) {
            p->free_ids[p->n_free_ids++] = slot->ids;
            slot->ids = NULL;
        }
        p->marks -= slot->n == 0;
        p->stored += status == STATUS_OK;
        pthread_cond_signal(&p->freed);
        pthread_cond_broadcast(&p->submitted);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- calls ---- */

static uint64_t ids_bytes(const struct encode_pool_config *c) {
    return (uint64_t)c->batch * (uint64_t)c->chunk * sizeof(int32_t);
}

uint64_t encode_pool_bytes(const struct encode_pool_config *c) {
    const uint64_t slots = 2 * (uint64_t)c->n_devices + SPARE, rows = (uint64_t)c->batch * (uint64_t)c->dim;
    return slots * (ids_bytes(c) + rows * sizeof(float));
}

static enum status pool_allocate(struct encode_pool *p) {
    const struct encode_pool_config *c = &p->config;
    TRY(memory_allocate_zero(&p->threads, (size_t)c->n_devices));
    TRY(memory_allocate_zero(&p->slots, (size_t)p->n_slots));
    TRY(memory_allocate(&p->free_ids, (size_t)p->n_slots + SLAB));
    TRY(memory_allocate(&p->slabs, (size_t)p->n_slots / SLAB + 1));
    TRY(memory_allocate_zero(&p->rows, (size_t)p->n_rows));
    for (int i = 0; i < c->n_devices; i++) {
        p->threads[i].pool = p;
        if (c->devices) p->threads[i].is = c->devices[i];
    }
    return STATUS_OK;
}

/* Memory on the devices, and beside them. */
static enum status pool_allocate_on_devices(struct encode_pool *p) {
    const struct encode_pool_config *c = &p->config;
    const size_t rows = (size_t)c->batch * (size_t)(c->dim > 0 ? c->dim : 1);
    for (int i = 0; i < p->n_rows; i++)
        TRY(device_allocate_host(p->threads[0].is.device, &p->rows[i], rows));
    for (int i = 0; i < c->n_devices; i++) {
        struct encode_thread *t = &p->threads[i];
        device_enter(t->is.device);
        for (int j = 0; j < BUFFERS && t->is.encoder; j++) {
            void *memory;
            TRY(device_buffer(t->is.device, &memory, rows * sizeof(float)));
            t->rows_device[j] = memory;
            if (t->is.device->shares_memory || !p->config.halves) continue;
            TRY(device_buffer(t->is.device, &t->halves_device[j], rows * sizeof(uint16_t)));
        }
    }
    device_enter(p->threads[0].is.device);
    return STATUS_OK;
}

/* Starts the threads that encode and the one that stores, on open devices. */
static enum status pool_start(struct encode_pool *p) {
    const int n = p->config.n_devices;
    TRY(pool_allocate_on_devices(p));
    while (p->n_threads < n &&
           threads_start(&p->threads[p->n_threads].thread, encode_thread_body, &p->threads[p->n_threads]))
        p->n_threads++;
    p->writing = p->n_threads == n && threads_start(&p->writer, writer_body, p);
    return p->writing ? STATUS_OK
                      : fail(STATUS_NO_MEMORY, "cannot start the threads that encode %d batches at once", n);
}

static void *opener_body(void *context) {
    struct encode_pool *p = context;
    const struct encode_opening *o = &p->config.opening;
    enum status status = o->open(o->context, &p->threads[0].is);
    if (status == STATUS_OK) status = pool_start(p);
    pthread_mutex_lock(&p->lock);
    p->opening = false;
    p->begun = clock_seconds();
    if (status != STATUS_OK && p->status == STATUS_OK) pool_fail(p, status, status_message());
    pthread_cond_broadcast(&p->freed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum status encode_pool_open(struct encode_pool **out, const struct encode_pool_config *config) {
    struct encode_pool *p;
    assert(config->n_devices > 0 && config->batch > 0);
    TRY(memory_allocate_zero(&p, 1));
    p->config = *config;
    p->n_rows = 2 * config->n_devices + SPARE;
    p->n_slots = p->n_rows + (int64_t)(config->ahead_bytes / ids_bytes(config));
    p->failed = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->submitted, NULL);
    pthread_cond_init(&p->encoded, NULL);
    pthread_cond_init(&p->freed, NULL);
    enum status status = pool_allocate(p);
    p->opening = config->opening.open != NULL;
    if (status == STATUS_OK && p->opening) {
        p->opens = threads_start(&p->opener, opener_body, p);
        if (!p->opens) status = fail(STATUS_NO_MEMORY, "cannot start a thread that opens a device");
    } else if (status == STATUS_OK) {
        status = pool_start(p);
    }
    if (status == STATUS_OK)
        *out = p;
    else
        encode_pool_close(p);
    return status;
}

/* Frees the ids of all batches. No thread reads them any more. */
static void free_ids(struct encode_pool *p) {
    for (; p->n_slabs > 0; p->n_slabs--)
        memory_free(p->slabs[p->n_slabs - 1]);
    p->n_free_ids = 0;
}

void encode_pool_close(struct encode_pool *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->submitted);
    pthread_cond_broadcast(&p->encoded);
    pthread_mutex_unlock(&p->lock);
    if (p->opens) pthread_join(p->opener, NULL);
    for (int i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i].thread, NULL);
    if (p->writing) pthread_join(p->writer, NULL);
    for (int i = 0; p->threads && i < p->config.n_devices; i++) {
        struct encode_thread *t = &p->threads[i];
        if (!t->is.device) continue;
        device_enter(t->is.device);
        for (int j = 0; j < BUFFERS; j++)
            device_release(t->is.device, t->rows_device[j]), device_release(t->is.device, t->halves_device[j]);
    }
    struct device *first = p->threads ? p->threads[0].is.device : NULL;
    if (first) device_enter(first);
    free_ids(p);
    for (int i = 0; p->rows && i < p->n_rows; i++)
        if (first) device_release_host(first, p->rows[i]);
    pthread_cond_destroy(&p->freed);
    pthread_cond_destroy(&p->encoded);
    pthread_cond_destroy(&p->submitted);
    pthread_mutex_destroy(&p->lock);
    memory_free(p->slots);
    memory_free(p->free_ids);
    memory_free(p->slabs);
    memory_free(p->rows);
    memory_free(p->threads);
    memory_free(p);
}

/* Whether one more batch, and `more` marks, may wait. The caller holds the lock. */
static bool has_space(const struct encode_pool *p, int more) {
    const int64_t waiting = p->filled - p->stored;
    if (waiting >= p->n_slots || p->marks + more > MARKS) return false;
    if (p->opening) return true;
    return waiting < p->n_rows || (double)(waiting - p->n_rows) * (clock_seconds() - p->begun) < (double)p->stored;
}

static enum status pool_status(struct encode_pool *p) {
    return p->status == STATUS_OK ? STATUS_OK : fail(p->status, "%s", p->message);
}

/* Waits until there is space for a batch or a mark, and sets *ids to unused memory for a batch, if there is some. */
static enum status pool_space(struct encode_pool *p, int marks, int32_t **ids) {
    *ids = NULL;
    pthread_mutex_lock(&p->lock);
    while (p->status == STATUS_OK && !has_space(p, marks))
        pthread_cond_wait(&p->freed, &p->lock);
    if (p->status == STATUS_OK && marks == 0 && p->n_free_ids > 0) *ids = p->free_ids[--p->n_free_ids];
    const enum status status = pool_status(p);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* Sets *ids to memory for a batch, and keeps that of others for later. */
static enum status more_ids(struct encode_pool *p, int32_t **ids) {
    const size_t each = (size_t)p->config.batch * (size_t)p->config.chunk;
    int32_t *slab;
    TRY(memory_allocate_aligned(&slab, SLAB * each));
    p->slabs[p->n_slabs++] = *ids = slab;
    pthread_mutex_lock(&p->lock);
    for (int i = SLAB - 1; i > 0; i--)
        p->free_ids[p->n_free_ids++] = slab + (size_t)i * each;
    pthread_mutex_unlock(&p->lock);
    return STATUS_OK;
}

enum status encode_pool_ids(struct encode_pool *p, int32_t **ids) {
    TRY(pool_space(p, 0, ids));
    if (!*ids) TRY(more_ids(p, ids));
    p->slots[p->filled % p->n_slots].ids = *ids;
    return STATUS_OK;
}

static void pool_add(struct encode_pool *p, int64_t n, void *target) {
    pthread_mutex_lock(&p->lock);
    if (p->filled == 0) p->begun = clock_seconds();
    struct slot *slot = &p->slots[p->filled++ % p->n_slots];
    slot->n = n;
    slot->halves = false;
    slot->target = target;
    p->marks += n == 0;
    pthread_cond_broadcast(&p->submitted);
    pthread_mutex_unlock(&p->lock);
}

void encode_pool_submit(struct encode_pool *p, int64_t n, void *target) {
    assert(n > 0 && n <= p->config.batch);
    pool_add(p, n, target);
}

enum status encode_pool_mark(struct encode_pool *p, void *target) {
    int32_t *none;
    TRY(pool_space(p, 1, &none));
    pool_add(p, 0, target);
    return STATUS_OK;
}

enum status encode_pool_drain(struct encode_pool *p) {
    pthread_mutex_lock(&p->lock);
    while (p->opening || (p->status == STATUS_OK && p->filled > p->stored) || p->storing)
        pthread_cond_wait(&p->freed, &p->lock);
    const enum status status = pool_status(p);
    if (status == STATUS_OK) free_ids(p);
    pthread_mutex_unlock(&p->lock);
    return status;
}

struct device *encode_pool_device(const struct encode_pool *p) {
    return p->threads[0].is.device;
}

enum status encode_pool_group(const struct encode_pool *p, struct device_group *out) {
    *out = (struct device_group){0};
    if (encode_pool_device(p)->shares_memory) return STATUS_OK;
    TRY(memory_allocate(&out->devices, (size_t)p->config.n_devices));
    for (; out->n < p->config.n_devices; out->n++)
        out->devices[out->n] = p->threads[out->n].is.device;
    return STATUS_OK;
}

double encode_pool_seconds(struct encode_pool *p) {
    double seconds = 0;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->config.n_devices; i++)
        seconds += p->threads[i].seconds;
    pthread_mutex_unlock(&p->lock);
    return seconds / p->config.n_devices;
}
