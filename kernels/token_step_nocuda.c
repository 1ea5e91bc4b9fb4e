/* token_step_nocuda.c -- stands in for token_step_cuda.cu in a build without CUDA: no device has the kernel. */
#include "kernels/token_step.h"
#include <assert.h>

enum status token_step_create(struct token_step **out, struct device *dev, const struct token_step_config *config) {
    (void)dev, (void)config;
    *out = NULL;
    return STATUS_OK;
}

void token_step_free(struct token_step *t) {
    assert(!t);
}

void token_step_run(struct token_step *t, float *logits, void *inputs, int32_t id, int64_t position,
                    const struct token_step_fusion *fusions) {
    (void)t, (void)logits, (void)inputs, (void)id, (void)position, (void)fusions;
    assert(!"token_step_create gave none");
}
