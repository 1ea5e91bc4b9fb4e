/* test_memory_ahead.c -- tests/ref/memory_ahead.inc without a GPU: a CPU device that acts as if its memory were its
 * own, with the decode step as plain loops. It also checks how host memory is used that a GPU would still read: nothing
 * changes what was sent until this process has waited for it, or has released it. */
/* No landmarks: top-k of a CPU does not read the fp16 rows of other devices. */
enum { HIDDEN = 64, FFN = 96, KEYS = 80, LAYERS = 8, LANDMARKS = 0 };
#include "kernels/device/device_internal.h"
#include "tests/ref/memory_ahead.inc"
#include "tests/ref/plain_decode.inc"

/* ---- what was sent ---- */

enum { SENDS = 64 };
static struct sent {
    const void *from;
    void *copy;
    size_t bytes;
} sends[SENDS];
static int n_sends;
static int64_t all_sends;
static const struct device_runtime *plain_runtime;

static void watched_send_wait(struct device *dev) {
    (void)dev;
    for (int i = 0; i < n_sends; i++) {
        CHECK(memcmp(sends[i].from, sends[i].copy, sends[i].bytes) == 0);
        free(sends[i].copy);
    }
    n_sends = 0;
}

static void watched_send(struct device *dev, void *to, const void *from, size_t bytes) {
    CHECK(n_sends < SENDS);
    struct sent *s = &sends[n_sends++];
    *s = (struct sent){from, malloc(bytes), bytes};
    CHECK(s->copy != NULL);
    memcpy(s->copy, from, bytes);
    plain_runtime->upload(dev, to, from, bytes);
    all_sends++;
}

/* A release waits by itself. */
static void watched_release_host(struct device *dev, void *memory) {
    watched_send_wait(dev);
    plain_runtime->release_host(dev, memory);
}

static enum status watched_sync(struct device *dev) {
    watched_send_wait(dev);
    return plain_runtime->sync(dev);
}

/* ---- the device ---- */

static void open_engine(const char *of) {
    static struct device_runtime runtime;
    const struct engine_config config = {.model = model,
                                         .store = of,
                                         .where = {.device = "cpu", .dtype = "f32"},
                                         .threads = 2,
                                         .memory = true,
                                         .decoding = true};
    CHECK_OK(engine_open(&engine, &config));
    decoder_free(engine.decoder);
    plain_runtime = engine.device->runtime;
    runtime = *plain_runtime;
    runtime.send = watched_send, runtime.send_wait = watched_send_wait;
    runtime.release_host = watched_release_host, runtime.sync = watched_sync;
    engine.device->runtime = &runtime;
    engine.device->shares_memory = false;
    CHECK_OK(device_keys_create(&engine.device_keys, engine.device, NULL, 0));
    CHECK_OK(decoder_create(&engine.decoder, engine.device, &engine.model.config, &engine.weights, 0));
}

static void close_engine(void) {
    CHECK_OK(device_sync(engine.device));
    engine.device->runtime = plain_runtime;
    engine.device->shares_memory = true; /* as when its weights were opened */
    engine_close(&engine);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    for (int size = 0; size <= 32; size += 32) {
        make_model(size);
        open_engine(NULL);
        make_store(size);
        close_engine();
        open_engine(store);
        check_world(false);
        close_engine();
    }
    CHECK(all_sends > 100);
    check_choice_ends();
    return test_done();
}
