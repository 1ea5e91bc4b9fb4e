/* landmark_load.c -- see landmark_load.h. */
#include "indexer/search/landmark_load.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "kernels/device/device_group.h"

enum { BLOCK_BYTES = 1 << 21, BLOCK_ROWS_MIN = 16, BLOCKS_PER_THREAD = 4 };

struct load_target {
    const struct landmark_load *load;
    pthread_mutex_t turn; /* held by the thread that uploads to the device */
    int64_t blocks;
};

struct loading {
    struct load_target *targets;
    int n;
    int64_t rows; /* of a block */
    void **slots; /* pinned memory, one block for each thread; not used for devices that share memory */
    pthread_mutex_t view;
    struct threads_failure failure;
};

static enum status load_block(struct loading *l, struct load_target *t, int64_t block, int worker) {
    const struct landmark_source *from = t->load->source;
    struct device *dev = t->load->device;
    const int64_t at = block * l->rows, n = from->rows - at < l->rows ? from->rows - at : l->rows;
    const struct mat to = mat_rows(t->load->to, at, n);
    struct mat host = to;
    if (!dev->shares_memory) host.data = l->slots[worker];
    TRY(from->copy(from->context, &l->view, host, from->first + at));
    if (dev->shares_memory) return STATUS_OK;
    pthread_mutex_lock(&t->turn);
    device_enter(dev);
    device_upload(dev, to.data, host.data, mat_bytes(to));
    const enum status s = device_sync(dev);
    pthread_mutex_unlock(&t->turn);
    return s;
}

/* Block i is of device i % n, as long as that device has more blocks: the devices receive at the same time. */
static void load_blocks(void *context, int64_t begin, int64_t end, int worker) {
    struct loading *l = context;
    for (int64_t i = begin; i < end && !threads_any_failed(&l->failure); i++) {
        struct load_target *t = &l->targets[i % l->n];
        if (i / l->n >= t->blocks) continue;
        threads_failed(&l->failure, load_block(l, t, i / l->n, worker));
    }
}

static enum status load_parallel(struct loading *l, const struct landmark_load *all, struct threads *pool) {
    const int threads = threads_count(pool);
    int64_t most = 0;
    TRY(memory_allocate_zero(&l->targets, (size_t)l->n));
    TRY(memory_allocate_zero(&l->slots, (size_t)threads));
    for (int i = 0; i < l->n; i++) {
        struct load_target *t = &l->targets[i];
        pthread_mutex_init(&t->turn, NULL);
        t->load = &all[i];
        t->blocks = (all[i].source->rows + l->rows - 1) / l->rows;
        most = t->blocks > most ? t->blocks : most;
    }
    device_enter(all[0].device);
    if (!all[0].device->shares_memory)
        for (int i = 0; i < threads; i++)
            TRY(device_allocate_host_bytes(all[0].device, &l->slots[i], BLOCK_BYTES));
    threads_for(pool, most * l->n, 1, load_blocks, l);
    return threads_failure(&l->failure);
}

static enum status load_in_turn(const struct landmark_load *all, int n) {
    for (int i = 0; i < n; i++) {
        device_enter(all[i].device);
        TRY(all[i].source->read(all[i].source->context, all[i].device, all[i].to, all[i].source->first));
        TRY(device_sync(all[i].device));
    }
    return STATUS_OK;
}

enum status landmark_load(const struct landmark_load *all, int n, struct threads *pool, int64_t least_bytes) {
    struct loading l = {.n = n, .view = PTHREAD_MUTEX_INITIALIZER, .failure = THREADS_FAILURE_NONE};
    int64_t bytes = 0, row = all[0].to.cols * dtype_bytes(all[0].to.type);
    bool copies = true;
    for (int i = 0; i < n; i++) {
        bytes += (int64_t)mat_bytes(all[i].to);
        copies = copies && all[i].source->copy;
    }
    const bool few = bytes < (least_bytes < 0 ? LANDMARK_LOAD_BYTES : least_bytes);
    const int64_t share = bytes / row / (BLOCKS_PER_THREAD * threads_count(pool));
    l.rows = share < BLOCK_ROWS_MIN ? BLOCK_ROWS_MIN : share;
    if (l.rows > BLOCK_BYTES / row) l.rows = BLOCK_BYTES / row;
    const enum status s =
        !copies || few || threads_count(pool) < 2 || l.rows == 0 ? load_in_turn(all, n) : load_parallel(&l, all, pool);
    device_enter(all[0].device);
    for (int i = 0; l.slots && i < threads_count(pool); i++)
        device_release_host(all[0].device, l.slots[i]);
    for (int i = 0; l.slots && i < n; i++)
        pthread_mutex_destroy(&l.targets[i].turn);
    memory_free(l.targets);
    memory_free(l.slots);
    return s;
}
