/* test_memory_gradients.c -- gradients of the loss with a token memory, and of a retriever that learns from it, equal
 * finite differences of the losses. */
#include "tests/gradient_fixture.h"

static void check_memory(const struct memory_case *c, uint64_t seed) {
    struct model m;
    struct memory_text t;
    make_memory_model(&m, c, seed);
    make_memory_text(&t, c, 0, c->sequences);
    struct device *dev = open_device(1);
    struct subject of = {c->name, &m, make_memory_step(dev, &m, c, c->sequences), &t.t.batch, memory_now(c, 0.6F), NULL,
                         false,   3};
    differences(&of);
    step_free(of.s), free_memory_text(&t), params_free(m.params), device_close(dev);
}

static void check_taught(const struct memory_case *c, uint64_t seed) {
    struct model m;
    struct memory_text t;
    make_memory_model(&m, c, seed);
    make_memory_text(&t, c, 0, c->sequences);
    struct device *dev = open_device(1);
    struct subject of = {c->name, &m, make_memory_step(dev, &m, c, c->sequences), &t.t.batch, teach_now(c, 0.4F), NULL,
                         true,    1};
    differences(&of);
    step_free(of.s), free_memory_text(&t), params_free(m.params), device_close(dev);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 11);
    for (size_t i = 0; i < ARRAY_LEN(memory_cases); i++)
        check_memory(&memory_cases[i], test_seed() + i);
    for (size_t i = 0; i < ARRAY_LEN(teach_cases); i++)
        check_taught(&teach_cases[i], test_seed() + i);
    return test_done();
}
