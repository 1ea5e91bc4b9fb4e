/* assignment.c -- see assignment.h. */
#include "indexer/search/assignment.h"
#include "base/half.h"
#include "base/memory.h"
#include "kernels/search/kmeans.h"
#include <assert.h>
#include <string.h>

enum { SLOTS = 3, BLOCK = STORE_ASSIGN_BLOCK }; /* slots: blocks of a device that are being read or computed */

struct assign_device {
    struct device *device;
    pthread_mutex_t lock; /* held by the thread that uses the device */
    struct mat centroids;
    void *rows; /* [BLOCK, width]; of the device, as all that follows; NULL: memory is shared */
    int64_t *list, *visible;
    float *score;
};

struct assign_slot {
    struct assign_device *device;
    void *rows;    /* [BLOCK, width], host memory of the device */
    int64_t *list; /* [BLOCK], the same */
    struct assign_slot *next;
};

struct assigner {
    int n, dim;
    int width; /* numbers of a row on the device: dim rounded up to 8, for tensor cores; the rest is 0 */
    enum dtype type;
    struct assign_device *devices;
    struct assign_slot *slots, *unused, *last; /* a queue, so that the devices take turns */
    pthread_mutex_t lock;
    pthread_cond_t freed;
};

/* ---- slots ---- */

static void slot_give(struct assigner *a, struct assign_slot *slot) {
    pthread_mutex_lock(&a->lock);
    slot->next = NULL;
    if (a->unused)
        a->last->next = slot;
    else
        a->unused = slot;
    a->last = slot;
    pthread_cond_signal(&a->freed);
    pthread_mutex_unlock(&a->lock);
}

static struct assign_slot *slot_take(struct assigner *a) {
    pthread_mutex_lock(&a->lock);
    while (!a->unused)
        pthread_cond_wait(&a->freed, &a->lock);
    struct assign_slot *slot = a->unused;
    a->unused = slot->next;
    pthread_mutex_unlock(&a->lock);
    return slot;
}

/* ---- opening ---- */

static enum status assign_device_centroids(struct assign_device *d, const struct assigner *a, const float *centroids) {
    const size_t bytes = mat_bytes(d->centroids), number = (size_t)dtype_bytes(a->type);
    uint8_t *padded;
    TRY(memory_allocate_zero(&padded, bytes));
    for (int64_t i = 0; i < d->centroids.rows; i++) {
        const float *from = centroids + i * a->dim;
        uint8_t *to = padded + (size_t)(i * a->width) * number;
        if (a->type == DTYPE_F16)
            half_to_f16_row((uint16_t *)(void *)to, from, (size_t)a->dim);
        else
            memcpy(to, from, (size_t)a->dim * number);
    }
    device_upload(d->device, d->centroids.data, padded, bytes);
    const enum status s = device_sync(d->device);
    memory_free(padded);
    return s;
}

static enum status assign_device_visible(struct assign_device *d) {
    int64_t *visible;
    TRY(memory_allocate(&visible, BLOCK));
    for (int i = 0; i < BLOCK; i++)
        visible[i] = d->centroids.rows;
    device_upload(d->device, d->visible, visible, BLOCK * sizeof *visible);
    const enum status s = device_sync(d->device);
    memory_free(visible);
    return s;
}

static enum status assign_device_open(struct assigner *a, struct assign_device *d, struct assign_slot *slots,
                                      const float *centroids, int64_t lists) {
    const size_t row_bytes = (size_t)(a->width * dtype_bytes(a->type));
    struct device *dev = d->device;
    device_enter(dev);
    d->centroids = mat_dense(NULL, a->type, lists, a->width);
    TRY(device_allocate(dev, &d->centroids.data, (size_t)lists * row_bytes));
    TRY(device_allocate(dev, &d->list, BLOCK));
    TRY(device_allocate(dev, &d->visible, BLOCK));
    TRY(device_allocate(dev, &d->score, BLOCK));
    TRY(device_buffer(dev, &d->rows, BLOCK * row_bytes));
    for (int i = 0; i < SLOTS; i++) {
        slots[i].device = d;
        TRY(device_allocate_host(dev, &slots[i].rows, BLOCK * row_bytes));
        TRY(device_allocate_host(dev, &slots[i].list, BLOCK));
    }
    TRY(assign_device_centroids(d, a, centroids));
    return assign_device_visible(d);
}

static void assign_device_close(struct assign_device *d, struct assign_slot *slots) {
    struct device *dev = d->device;
    device_enter(dev);
    for (int i = 0; i < SLOTS; i++) {
        device_release_host(dev, slots[i].rows);
        device_release_host(dev, slots[i].list);
    }
    device_release(dev, d->centroids.data);
    device_release(dev, d->list);
    device_release(dev, d->visible);
    device_release(dev, d->score);
    device_release(dev, d->rows);
    pthread_mutex_destroy(&d->lock);
}

static void assign_close(void *context) {
    struct assigner *a = context;
    for (int i = 0; i < a->n; i++)
        assign_device_close(&a->devices[i], a->slots + (ptrdiff_t)i * SLOTS);
    device_enter(a->devices[0].device);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->freed);
    memory_free(a->devices);
    memory_free(a->slots);
    memory_free(a);
}

static enum status assign_open(void *context, void **out, const float *centroids, int64_t lists, int dim) {
    const struct device_group *group = context;
    struct assigner *a;
    assert(group->n > 0 && lists > 0 && lists <= INT32_MAX);
    TRY(memory_allocate_zero(&a, 1));
    a->dim = dim;
    a->type = group->devices[0]->shares_memory ? DTYPE_F32 : DTYPE_F16;
    a->width = (dim + 7) / 8 * 8;
    enum status s = memory_allocate_zero(&a->devices, (size_t)group->n);
    if (s == STATUS_OK) s = memory_allocate_zero(&a->slots, (size_t)group->n * SLOTS);
    if (s != STATUS_OK) {
        memory_free(a->devices);
        memory_free(a);
        return s;
    }
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->freed, NULL);
    while (a->n < group->n && s == STATUS_OK) {
        struct assign_slot *slots = a->slots + (ptrdiff_t)a->n * SLOTS;
        struct assign_device *d = &a->devices[a->n];
        d->device = group->devices[a->n++];
        pthread_mutex_init(&d->lock, NULL);
        s = assign_device_open(a, d, slots, centroids, lists);
    }
    if (s != STATUS_OK) {
        assign_close(a);
        return s;
    }
    for (int i = 0; i < SLOTS; i++)
        for (int device = 0; device < a->n; device++)
            slot_give(a, &a->slots[device * SLOTS + i]);
    *out = a;
    return STATUS_OK;
}

/* ---- a block ---- */

/* Rows of the block before and after the call's are zero. */
static void slot_read(const struct assigner *a, struct assign_slot *slot, struct store_assign_rows rows, int64_t first,
                      int64_t n) {
    const size_t number = (size_t)dtype_bytes(a->type), row_bytes = (size_t)a->width * number;
    const size_t at = (size_t)(first % BLOCK) * row_bytes, dim_bytes = (size_t)a->dim * number;
    uint8_t *to = slot->rows, *from = to + at + (size_t)n * (row_bytes - dim_bytes);
    memset(to, 0, at);
    rows.read(rows.context, from, a->type == DTYPE_F16, first, n);
    for (int64_t i = 0; i < n && row_bytes != dim_bytes; i++) { /* each row moves to the front, or stays */
        uint8_t *row = to + at + (size_t)i * row_bytes;
        memmove(row, from + (size_t)i * dim_bytes, dim_bytes);
        memset(row + dim_bytes, 0, row_bytes - dim_bytes);
    }
    memset(to + at + (size_t)n * row_bytes, 0, (size_t)(BLOCK - first % BLOCK - n) * row_bytes);
}

static enum status slot_compute(const struct assigner *a, struct assign_slot *slot) {
    struct assign_device *d = slot->device;
    struct mat rows = mat_dense(device_side(d->device, slot->rows, d->rows), a->type, BLOCK, a->width);
    pthread_mutex_lock(&d->lock);
    device_enter(d->device);
    device_upload(d->device, rows.data, slot->rows, mat_bytes(rows));
    kmeans_assign(d->device, d->list, d->score, rows, d->centroids, d->visible);
    device_download(d->device, slot->list, d->list, BLOCK * sizeof *slot->list);
    const enum status s = device_fault(d->device);
    pthread_mutex_unlock(&d->lock);
    return s;
}

static enum status assign_block(void *context, int32_t *list, struct store_assign_rows rows, int64_t first, int64_t n) {
    struct assigner *a = context;
    assert(n > 0 && first / BLOCK == (first + n - 1) / BLOCK);
    struct assign_slot *slot = slot_take(a);
    slot_read(a, slot, rows, first, n);
    const enum status s = slot_compute(a, slot);
    const int64_t *found = slot->list + first % BLOCK;
    for (int64_t i = 0; i < n; i++)
        list[i] = found[i] < 0 ? 0 : (int32_t)found[i]; /* a row that contains NaN has no best list */
    slot_give(a, slot);
    return s;
}

struct store_assignment assignment_on(const struct device_group *group) {
    if (group->n == 0) return (struct store_assignment){0};
    return (struct store_assignment){.method = group->devices[0]->shares_memory ? STORE_ASSIGN_F32 : STORE_ASSIGN_F16,
                                     .open = assign_open,
                                     .assign = assign_block,
                                     .close = assign_close,
                                     .context = (void *)(uintptr_t)group};
}
