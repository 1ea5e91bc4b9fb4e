/* token_step_nocuda.c -- stands in for token_step_cuda.cu in a build without CUDA: no device has the kernel. */
#include "kernels/token_step.h"
#include <assert.h>

enum status token_weights_create(struct token_weights **out, struct device *dev,
                                 const struct token_weights_config *config) {
    (void)dev, (void)config;
    *out = NULL;
    return STATUS_OK;
}

void token_weights_free(struct token_weights *w) {
    assert(!w);
}

enum status token_step_create(struct token_step **out, const struct token_weights *weights, const struct mat *rings) {
    (void)out, (void)weights, (void)rings;
    assert(!"token_weights_create gave none");
    return STATUS_UNSUPPORTED;
}

void token_step_free(struct token_step *t) {
    assert(!t);
}

void token_step_run(struct token_step *t, float *logits, void *inputs, int32_t id, int64_t position,
                    const struct token_step_fusion *fusions) {
    (void)t, (void)logits, (void)inputs, (void)id, (void)position, (void)fusions;
    assert(!"token_weights_create gave none");
}
