/* machine.h -- a model's towers on a device, for the tests of towers on a GPU. */
#pragma once
#include "decoder/decoder_internal.h"
#include "encoder/encoder.h"
#include "tests/test.h"
#include <math.h>

struct machine {
    struct device *dev;
    struct weights weights;
    struct encoder *encoder;             /* NULL for a Base LM */
    struct decoder *decoder;
};

/* max_tokens: ids of one pass of the decoder; 0: its default. */
static inline void start(struct machine *m, const struct model_config *c, const struct params *p, const char *kind,
                         enum dtype type, int max_tokens) {
    CHECK_OK(device_open(&m->dev, kind, 2));
    CHECK_OK(weights_open(&m->weights, m->dev, p, type));
    CHECK_OK(decoder_create(&m->decoder, m->dev, c, &m->weights, max_tokens));
    m->encoder = NULL;
    if (!c->base_lm) CHECK_OK(encoder_create(&m->encoder, m->dev, c, &m->weights, 40));
}

/* The same with the decoder's weights in 8 bits. If the device or the model cannot have them, the status, and m is
 * stopped. */
static inline enum status start_i8(struct machine *m, const struct model_config *c, const struct params *p,
                                   const char *kind) {
    *m = (struct machine){0};
    CHECK_OK(device_open(&m->dev, kind, 2));
    CHECK_OK(weights_open(&m->weights, m->dev, p, m->dev->shares_memory ? DTYPE_F32 : DTYPE_BF16));
    enum status s = weights_round(&m->weights, m->dev, decoder_rounds);
    if (s == STATUS_OK) s = decoder_create(&m->decoder, m->dev, c, &m->weights, 0);
    if (s == STATUS_OK && !c->base_lm) CHECK_OK(encoder_create(&m->encoder, m->dev, c, &m->weights, 40));
    if (s != STATUS_OK) {
        weights_release(&m->weights, m->dev);
        device_close(m->dev);
    }
    return s;
}

static inline void stop(struct machine *m) {
    CHECK_OK(device_sync(m->dev));
    decoder_free(m->decoder);
    encoder_free(m->encoder);
    weights_release(&m->weights, m->dev);
    device_close(m->dev);
}

/* |a - b| / |b| of n numbers. */
static inline double relative_of(const float *a, const float *b, int64_t n) {
    double squares = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(squares / size);
}

/* Skips the test on a machine without a GPU. */
static inline void need_gpu(void) {
    struct device *gpu;
    enum status s = device_open(&gpu, "cuda", 1);
    if (s == STATUS_UNSUPPORTED) test_skip(status_message());
    CHECK_OK(s);
    device_close(gpu);
}
