/* encode_pool.h -- encodes batches of chunks by several devices at once, and stores their landmarks in the order of the
 * batches.
 *
 * Each device has a thread, which takes the batch with the lowest number that no thread has. One more thread gives the
 * landmarks to `store`, batch after batch. A batch is encoded whole by one device. So the number of devices changes no
 * result if they are of one kind. Memory: 2 * devices + 8 batches of ids and landmarks (encode_pool_bytes), and up to
 * `ahead_bytes` of ids of more batches that wait for a device. These are no more than are encoded in a second, so that
 * a build can be stopped soon. A device may be opened by the pool, while the first batches are collected; until then
 * they are limited by `ahead_bytes` alone.
 *
 * The failure of the first batch that fails, on a device or in `store`, is returned by each later call. All batches
 * before it are stored, and none after it. One thread makes the calls. */
#pragma once
#include "encoder/encoder.h"
#include "indexer/landmarks/state_landmarks.h"
#include "kernels/device/device_group.h"
#include "store/store.h"

/* One of encoder, states and external makes landmarks; the others are NULL. All are used by the device's thread alone
 * until encode_pool_close; `device` may occur twice only if it is the CPU and makes external landmarks. */
struct encode_device {
    struct device *device;
    struct encoder *encoder;
    struct state_landmarks *states;
    const struct store_encoder *external;
};
/* Opens one device, with its encoder. Called by a thread of the pool; the context is used by no other thread until
 * encode_pool_drain has returned, or encode_pool_close. open NULL: devices are open already. */
struct encode_opening { enum status (*open)(void *context, struct encode_device *out); void *context; };
struct encode_pool_config {
    const struct encode_device *devices; int n_devices;   /* copied; of an opening: NULL, 1 */
    struct encode_opening opening;
    int64_t batch;                       /* most chunks of a batch */
    int chunk, dim;                      /* ids of a chunk; numbers of a landmark */
    uint64_t ahead_bytes;
    /* landmarks [n, dim] of the next batch, in host memory, and its target; n 0: encode_pool_mark. Called by one
     * thread. */
    enum status (*store)(void *target, struct mat rows);
    /* Whether a GPU converts the landmarks of this target to fp16, which are then the type of its rows, otherwise
     * float32. Called by the threads of devices. NULL: never. */
    bool (*halves)(void *target);
};
struct encode_pool;
enum status encode_pool_open(struct encode_pool **out, const struct encode_pool_config *config);
/* Drops batches that are not stored, and waits for the threads. NULL is fine. */
void encode_pool_close(struct encode_pool *p);
uint64_t encode_pool_bytes(const struct encode_pool_config *config);

/* Memory for the ids of the next batch [batch, chunk]; waits until a batch is stored, if all of it is used. It is the
 * caller's until the batch is submitted. */
enum status encode_pool_ids(struct encode_pool *p, int32_t **ids);
/* The first n chunks of these ids are the next batch. */
void encode_pool_submit(struct encode_pool *p, int64_t n, void *target);
/* `store` is called with this target, and no rows, after the batches so far. */
enum status encode_pool_mark(struct encode_pool *p, void *target);
/* Waits until devices are open and every batch is stored, or `store` has failed or a device has; `store` does not run
 * then. Memory of ids is freed. */
enum status encode_pool_drain(struct encode_pool *p);
/* After encode_pool_drain: the first device; the GPUs, whose array the caller frees (on the CPU: none). */
struct device *encode_pool_device(const struct encode_pool *p);
enum status encode_pool_group(const struct encode_pool *p, struct device_group *out);
/* Seconds during which a device encoded, the mean over devices. */
double encode_pool_seconds(struct encode_pool *p);
