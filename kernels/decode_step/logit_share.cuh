/* logit_share.cuh -- shares of logits (logit_share.h) joined over a warp. */
#pragma once
extern "C" {
#include "kernels/decode_step/logit_share.h"
}

/* Every lane gets the result. The greatest logit is found first, so that a lane computes one exponential. */
static __device__ __forceinline__ logit_share logit_share_warp(logit_share s) {
    float top = s.top;
    int token = s.token;
#pragma unroll
    for (int offset = 16; offset; offset /= 2) {
        const float other = __shfl_xor_sync(~0u, top, offset);
        const int of_other = __shfl_xor_sync(~0u, token, offset);
        const bool second = logit_share_second(top, token, other, of_other);
        top = second ? other : top, token = second ? of_other : token;
    }
    s = logit_share_raise(s, top);
#pragma unroll
    for (int offset = 16; offset; offset /= 2) {
        s.sum += __shfl_xor_sync(~0u, s.sum, offset);
        s.moment += __shfl_xor_sync(~0u, s.moment, offset);
    }
    s.token = token;
    return s;
}
