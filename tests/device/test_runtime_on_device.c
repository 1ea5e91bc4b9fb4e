/* test_runtime_on_device.c -- the promises of device.h for a GPU besides ops: fetches that overlap, recorded ops.
 */
#include "tests/device/on_device.h"

/* A fetch copies the content at the time of the call, although `from` is copied and changed afterwards. */
static void fetches(void) {
    enum { N = 1 << 18, ROUNDS = 20 };
    float *x = normals(N, 1.0f, DTYPE_F32), *pinned, *plain = zeros(N, 4);
    struct mat m = put_plain(x, DTYPE_F32, 64, N / 64), sum = put_plain(x, DTYPE_F32, 64, N / 64);
    CHECK_OK(device_allocate_host(gpu, &pinned, 2 * N));
    for (int i = 1; i <= ROUNDS; i++) {
        gpu->ops->elementwise->add(gpu, sum, sum, m);
        device_fetch(gpu, pinned, sum.data, N * sizeof *pinned);
        device_fetch(gpu, pinned + N, m.data, N * sizeof *pinned);
        gpu->ops->elementwise->add(gpu, put_plain(NULL, DTYPE_F32, 64, N / 64), sum, m); /* reads at the same time */
        device_fetch_wait(gpu);
        for (int64_t j = 0; j < N; j += 997)
            CHECK(fabsf(pinned[j] - (float)(i + 1) * x[j]) <= 1e-4f * fabsf(pinned[j]) && pinned[N + j] == x[j]);
    }
    device_fetch(gpu, plain, m.data, N * sizeof *plain);
    device_fetch_wait(gpu);
    CHECK_SAME(plain, x, N);
    CHECK(device_reach(gpu, plain) == NULL);
    struct mat pinned_device = mat_f32(device_reach(gpu, pinned), 64, N / 64); /* written in place */
    CHECK(pinned_device.data);
    gpu->ops->elementwise->add(gpu, pinned_device, m, m);
    device_fetch(gpu, pinned, pinned_device.data, N * sizeof *pinned);
    device_fetch_wait(gpu);
    for (int64_t j = 0; j < N; j++)
        CHECK(pinned[j] == 2 * x[j]);
    device_fetch(gpu, NULL, NULL, 0);
    device_fetch_wait(gpu);
    device_release_host(gpu, pinned);
    drop_all();
    free(x), free(plain);
}

/* y = rope(x w^T): a product of a library, and a table that another shape replaces. */
struct body {
    struct mat y, x, w;
    int heads, period, calls;
};
static void body_of(void *context, struct device *dev) {
    struct body *b = context;
    b->calls++;
    dev->ops->matmul->forward(dev, b->y, b->x, b->w, false);
    dev->ops->rope->forward(dev, b->y, b->heads, b->period, 10000.0f);
}

static void replays(enum dtype type) {
    enum { ROWS = 64, D = 128 };
    float *x = normals(ROWS * D, 1.0f, type), *w = normals(D * D, 0.1f, type), *want;
    struct device_replay *replay = NULL;
    struct body b = {.x = put_plain(x, type, ROWS, D), .w = put_plain(w, type, D, D), .heads = 2, .period = 64};
    struct mat other = put_plain(x, type, ROWS, D);
    b.y = put_plain(NULL, type, ROWS, D);
    body_of(&b, gpu);
    want = take(b.y);
    for (int i = 0; i < 6; i++) {
        device_clear(gpu, b.y.data, (size_t)(ROWS * D * dtype_bytes(type)));
        if (i == 4) gpu->ops->rope->forward(gpu, other, 4, 32, 500.0f); /* replaces the recorded table */
        device_replay_run(gpu, &replay, body_of, &b);
        float *got = take(b.y);
        CHECK_SAME(got, want, ROWS * D);
        free(got);
    }
    CHECK_EQ(b.calls, 4); /* the expected result, the first run, a recorded one, and after the other table */
    device_replay_free(gpu, replay);
    device_replay_free(gpu, NULL);
    drop_all();
    free(x), free(w), free(want);
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    fetches();
    replays(DTYPE_BF16);
    replays(DTYPE_F32);
    return on_device_close();
}
