/* test_generation_on_gpu.c -- tests/ref/generation_picks.inc on a GPU: Base LM and DRT with its own past. */
enum { HIDDEN = 128, FFN = 256, TOKENS = 150 };
#include "tests/device/on_device.h"
#include "tests/ref/generation_picks.inc"

static void open_engine(bool base) {
    const struct engine_config config = {.model = make_model(base),
                                         .where = {.device = "cuda", .dtype = "auto"},
                                         .threads = 2,
                                         .retrieval = !base,
                                         .decoding = true};
    CHECK_OK(engine_open(&engine, &config));
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    device_close(open_gpu(1));
    for (int base = 1; base >= 0; base--) {
        open_engine(base);
        check_model(base);
        engine_close(&engine);
    }
    CHECK(steps_ahead > 1000);
    return test_done();
}
