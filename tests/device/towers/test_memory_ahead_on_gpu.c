/* test_memory_ahead_on_gpu.c -- tests/ref/memory_ahead.inc on a GPU. A second argument: few checks, for memcheck. */
enum { HIDDEN = 128, FFN = 256, LANDMARKS = 1 };
#include "tests/device/on_device.h"
#include "tests/ref/memory_ahead.inc"

static void open_engine(const char *of) {
    const struct engine_config config = {.model = model,
                                         .store = of,
                                         .where = {.device = "cuda", .dtype = "auto"},
                                         .threads = 2,
                                         .memory = true,
                                         .decoding = true};
    CHECK_OK(engine_open(&engine, &config));
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    device_close(open_gpu(1));
    for (int size = 0; size <= 64; size += 64) {
        make_model(size);
        open_engine(NULL);
        make_store(size);
        engine_close(&engine);
        open_engine(store);
        check_world(argc > 2);
        engine_close(&engine);
    }
    if (argc <= 2) check_choice_ends();
    return test_done();
}
