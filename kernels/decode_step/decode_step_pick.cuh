/* decode_step_pick.cuh -- a greedy pick that the step makes itself (decode_step.h): the greatest logit of all blocks,
 * the smallest id of equal ones. A key is a logit's order (pick_rule.h) above the complement of its id, so that one
 * maximum of 64 bits finds both. */
#pragma once
#include "kernels/cuda/cuda.cuh"
extern "C" {
#include "kernels/pick/pick_rule.h"
}

struct step_pick {
    const uint32_t *banned;   /* one bit an id; NULL: none */
    unsigned long long *best; /* [2]: the greatest key so far, and how many blocks it is of; zero between steps */
    int32_t *id;              /* out; NULL: no pick is wanted */
    uint64_t *ticket;         /* out: `number` and the id, one word within reach of the device */
    uint64_t number;
};

/* The greatest of the logits that a lane has, which come in ascending order of their ids. */
struct step_candidate {
    unsigned order;           /* 0: NaN */
    int id;                   /* -1: none */

    __device__ __forceinline__ void add(float logit, int of, const uint32_t *banned) {
        if (banned && banned[of / 32] >> of % 32 & 1) return;
        const unsigned own = logit == logit ? pick_order(logit) : 0;
        if (id < 0 || own > order) order = own, id = of;
    }
    /* The greatest key of the warp, in all lanes. */
    __device__ __forceinline__ unsigned long long key() const {
        const unsigned top = __reduce_max_sync(~0u, order);
        return (unsigned long long)top << 32 | ~__reduce_min_sync(~0u, order == top ? (unsigned)id : ~0u);
    }
};

/* Called by one thread of each block, with the block's key: that of the last block writes the pick. */
static __device__ __forceinline__ void step_pick_join(const step_pick &p, unsigned long long key) {
    unsigned long long before;
    atomicMax(p.best, key);
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(p.best + 1) : "memory");
    if (before + 1 != gridDim.x) return;
    const unsigned id = ~(unsigned)atomicExch(p.best, 0);
    p.best[1] = 0;
    *p.id = (int32_t)id;
    *(volatile uint64_t *)p.ticket = p.number | id;
}
