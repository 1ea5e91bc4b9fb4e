/* logit_share.h -- what a mixture needs of a share of the logits, so that it need not read all logits before it
 * writes: the greatest one and sums relative to it. For programs in C and for kernels.
 *
 * A share of no logits has top -infinity and sums of 0. NaN among the logits reaches `sum`. */
#pragma once
#include <limits.h>
#include <math.h>
#include <stdint.h>
#ifdef __CUDACC__
#define LOGIT_SHARE_FUNCTION static __host__ __device__ inline
#else
#define LOGIT_SHARE_FUNCTION static inline
#endif

struct logit_share {
    float top;                           /* the greatest logit */
    int32_t token;                       /* its id, the first of equal ones */
    float sum, moment;                   /* of e^(logit - top), and of that times (logit - top) */
};

LOGIT_SHARE_FUNCTION struct logit_share logit_share_none(void) {
    struct logit_share none = {-INFINITY, INT32_MAX, 0.0f, 0.0f};
    return none;
}
/* The same share, relative to `top`, which is not below its own. */
LOGIT_SHARE_FUNCTION struct logit_share logit_share_raise(struct logit_share s, float top) {
    if (s.top == top) return s;
    const float below = s.top - top, by = expf(below);
    s.moment = by > 0.0f ? by * (s.moment + s.sum * below) : 0.0f;
    s.sum *= by;
    s.top = top;
    return s;
}
LOGIT_SHARE_FUNCTION struct logit_share logit_share_add(struct logit_share s, float logit, int32_t token) {
    if (logit > s.top) {
        s = logit_share_raise(s, logit);
        s.token = token;
    }
    const float below = logit - s.top, e = logit == -INFINITY ? 0.0f : expf(below);
    s.sum += e;
    if (e > 0.0f) s.moment += e * below;
    return s;
}
/* Whether the greatest logit of b precedes that of a. */
LOGIT_SHARE_FUNCTION int logit_share_second(float top, int32_t token, float of_b, int32_t token_b) {
    return of_b > top || (of_b == top && token_b < token);
}
LOGIT_SHARE_FUNCTION struct logit_share logit_share_join(struct logit_share a, struct logit_share b) {
    const int second = logit_share_second(a.top, a.token, b.top, b.token);
    const float top = second ? b.top : a.top;
    const int32_t token = second ? b.token : a.token;
    a = logit_share_raise(a, top), b = logit_share_raise(b, top);
    a.sum += b.sum, a.moment += b.moment, a.token = token;
    return a;
}
