/* test_device.c -- views, memory, worker devices; BLAS held to one thread. */
#include "kernels/device/device.h"
#include "kernels/ops.h"
#include "tests/test.h"
#include <cblas.h>

static void views(void) {
    float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    struct mat m = mat_f32(data, 3, 4), part = mat_cols(mat_rows(m, 1, 2), 2, 2);
    CHECK_EQ(m.stride, 4);
    CHECK_EQ(part.rows, 2);
    CHECK_EQ(part.cols, 2);
    CHECK(mat_row(part, 1)[1] == 11.0f);
    CHECK(mat_rows(mat_f32(NULL, 3, 1), 1, 2).data == NULL);
    struct mat far = {.data = NULL, .rows = INT64_C(1) << 33, .cols = 4, .stride = INT64_C(1) << 20};
    CHECK((uintptr_t)mat_row(far, INT64_C(1) << 24) == (uintptr_t)1 << 46); /* beyond 32 bits: nothing is truncated */
}

static void memory(struct device *dev) {
    static const size_t sizes[] = {0, 1, 63, 64, 4096, 1 << 20};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        unsigned char *p;
        CHECK_OK(device_allocate(dev, &p, sizes[i]));
        CHECK_EQ((uintptr_t)p % 64, 0);
        for (size_t j = 0; j < sizes[i]; j++)
            CHECK(p[j] == 0);
        memset(p, 7, sizes[i]);
        device_release(dev, p);
    }
    void *p;
    CHECK_FAILS(device_allocate(dev, &p, SIZE_MAX - 10), STATUS_NO_MEMORY, "");
    device_release(dev, NULL);
}

static void count(void *context, struct device *dev) {
    CHECK_STR(dev->name, "cpu");
    ++*(int *)context;
}

/* With shared memory a fetch is an immediate copy, and a body runs each time. */
static void fetched(struct device *dev) {
    float from[4] = {1, 2, 3, 4}, to[4] = {0};
    struct device_replay *replay = NULL;
    int calls = 0;
    device_fetch(dev, to, from, sizeof to);
    CHECK(memcmp(to, from, sizeof to) == 0);
    device_fetch(dev, from, from, sizeof from);
    device_fetch_wait(dev);
    CHECK(device_reach(dev, from) == from);
    for (int i = 0; i < 3; i++)
        device_replay_run(dev, &replay, count, &calls);
    CHECK_EQ(calls, 3);
    CHECK(replay == NULL);
    device_replay_free(dev, replay);
    CHECK_OK(device_fault(dev));
}

int main(void) {
    struct device *dev;
    views();
    CHECK_FAILS(device_open(&dev, "cuda", 1), STATUS_UNSUPPORTED, "--device cpu");
    CHECK_FAILS(device_open(&dev, "abacus", 1), STATUS_UNSUPPORTED, "\"abacus\"");
    CHECK_OK(device_open(&dev, "cpu", 3));
    CHECK_STR(dev->name, "cpu");
    CHECK_EQ(threads_count(dev->threads), 3);
    CHECK_EQ(openblas_get_num_threads(), 1);
    CHECK(dev->ops == &ops_cpu);
    memory(dev);
    fetched(dev);
    for (int w = 0; w < 3; w++) {
        struct device *own = device_worker(dev, w);
        CHECK(own->ops == dev->ops && own->threads == NULL && own->state != dev->state);
        CHECK(device_worker(own, 0) == own);
        CHECK(w == 0 || own->state != device_worker(dev, w - 1)->state);
    }
    CHECK_OK(device_sync(dev));
    device_close(dev);
    device_close(NULL);
    CHECK_OK(device_open(&dev, "cpu", 0));
    device_close(dev);
    return test_done();
}
