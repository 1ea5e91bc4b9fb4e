/* decode_step_nocuda.c -- stands in for decode_step_cuda.cu in a build without CUDA: no device has the kernel. */
#include "kernels/decode_step/decode_step.h"
#include <assert.h>

enum status decode_step_weights_create(struct decode_step_weights **out, struct device *dev,
                                       const struct decode_step_config *config) {
    (void)dev, (void)config;
    *out = NULL;
    return STATUS_OK;
}

void decode_step_weights_free(struct decode_step_weights *w) {
    assert(!w);
}

enum status decode_step_create(struct decode_step **out, const struct decode_step_weights *weights,
                               const struct mat *rings) {
    (void)out, (void)weights, (void)rings;
    assert(!"decode_step_weights_create gave none");
    return STATUS_UNSUPPORTED;
}

void decode_step_free(struct decode_step *t) {
    assert(!t);
}

void decode_step_run(struct decode_step *t, const struct decode_step_output *out, int32_t id, int64_t position,
                     const struct decode_step_fusion *fusions) {
    (void)t, (void)out, (void)id, (void)position, (void)fusions;
    assert(!"decode_step_weights_create gave none");
}

void decode_step_wait(struct decode_step *t) {
    (void)t;
    assert(!"decode_step_weights_create gave none");
}

struct decode_step_result decode_step_result(const struct decode_step *t) {
    (void)t;
    assert(!"decode_step_weights_create gave none");
    return (struct decode_step_result){0};
}

void decode_step_run_id(struct decode_step *t, const struct decode_step_output *out, struct decode_step_id id,
                        int64_t position, const struct decode_step_fusion *fusions) {
    (void)t, (void)out, (void)id, (void)position, (void)fusions;
    assert(!"decode_step_weights_create gave none");
}
