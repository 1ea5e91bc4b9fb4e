/* test_generation_on_gpu.c -- tests/ref/generation_picks.inc on a GPU: Base LM and DRT with its own past. */
#include "tests/ref/generation_picks.inc"

static bool open_engine(bool base) {
    const struct engine_config config = {.model = make_model(base),
                                         .where = {.device = "cuda", .dtype = "auto"},
                                         .threads = 2,
                                         .retrieval = !base,
                                         .decoding = true};
    enum status status = engine_open(&engine, &config);
    if (status == STATUS_UNSUPPORTED) return false;
    CHECK_OK(status);
    return true;
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    for (int base = 1; base >= 0; base--) {
        if (!open_engine(base)) test_skip(status_message());
        check_model(base);
        engine_close(&engine);
    }
    CHECK(steps_ahead > 1000);
    return test_done();
}
