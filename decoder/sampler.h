/* sampler.h -- logits to the next id: greedy, or temperature with top-k and top-p, from a seeded stream.
 *
 * Order as in Hugging Face transformers: temperature, top-k, top-p, then one draw. Ties at the edge of top-k go to
 * smaller ids. Banned ids (landmark, pad, mask) never come out. */
#pragma once
#include "base/rng.h"
#include "base/status.h"
#include <stdint.h>

struct sampler_config {
    float temperature;                   /* 0: greedy */
    int top_k;                           /* 0: off */
    float top_p;                         /* 1: off */
    uint64_t seed;
    int32_t banned[4]; int n_banned;
};
struct sampler;
enum status sampler_create(struct sampler **out, const struct sampler_config *config, int vocab_size);
void sampler_free(struct sampler *s);
int32_t sampler_pick(struct sampler *s, const float *logits);
