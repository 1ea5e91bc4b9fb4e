/* sampler.h -- logits to the next id: greedy, or temperature with top-k, top-p and min-p, from a seeded stream.
 *
 * Order as in Hugging Face transformers: repetition penalty, temperature, top-k, top-p, min-p, then one draw. Ties
 * at the edge of top-k go to smaller ids. Banned ids (landmark, pad, mask, those without text) are never picked.
 * NaN ranks below all numbers, and -infinity is picked only when no logit is above it. The same logits and seed give
 * the same ids on every target, and on a GPU (kernels/pick/pick.h): weights are integers. An id that is less likely
 * than 2^-29 of the likeliest one is never picked. One thread at a time per sampler. */
#pragma once
#include "base/status.h"
#include "kernels/pick/pick_rule.h"
#include <stdint.h>

struct sampler_config {
    float temperature;                   /* 0: greedy */
    int top_k;                           /* 0: off */
    float top_p;                         /* 1: off */
    /* excludes ids less likely than this fraction of the likeliest's probability; 0: off */
    float min_p;
    /* The logit of each id among the last `repeat_last` ids is divided by it where positive, else multiplied, once each
     * (Keskar et al. 2019, CTRL, 4.1). 0, 1: off. */
    float repeat_penalty;
    int repeat_last;
    uint64_t seed;
    const int32_t *banned; int64_t n_banned;              /* below vocab_size, not all ids of it; copied */
};
struct sampler;
enum status sampler_create(struct sampler **out, const struct sampler_config *config, int vocab_size);
void sampler_free(struct sampler *s);
/* Begins again as sampler_create does, with the same vocabulary and banned ids; `banned` is not read. After a failure
 * the sampler can only be configured or freed. */
enum status sampler_configure(struct sampler *s, const struct sampler_config *config);
/* Ids of the text so far, for the penalty; sampler_pick adds its result itself. */
void sampler_see(struct sampler *s, const int32_t *ids, int64_t n);
int32_t sampler_pick(struct sampler *s, const float *logits);
/* Keeps which ids were seen. _rewind: as after the last mark, with random numbers from a seed on. */
enum status sampler_mark(struct sampler *s);
void sampler_rewind(struct sampler *s, uint64_t seed);
/* The rule of the next pick, for a device that makes it, and the id that came of it. */
struct pick_rule sampler_rule(const struct sampler *s);
void sampler_picked(struct sampler *s, int32_t id);
