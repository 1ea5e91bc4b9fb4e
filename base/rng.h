/* rng.h -- counter-based random numbers (Philox 4x32-10, Salmon et al. 2011). The stream is the same on every device,
 * and each element can be computed without the ones before it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct rng { uint64_t seed, stream, counter; };           /* a value: copy it to save it */

struct rng rng_make(uint64_t seed, uint64_t stream);
uint32_t rng_u32(struct rng *rng);
uint64_t rng_u64(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t n);          /* uniform in [0, n), without modulo bias; n > 0 */
float rng_uniform(struct rng *rng);                       /* in [0, 1), 24 bits */
float rng_normal(struct rng *rng);                        /* mean 0, variance 1 (Box-Muller) */
void rng_philox(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t counter);
