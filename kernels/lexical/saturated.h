/* saturated.h -- s(f) of BM25, as in store/lexical/lexical.h, in float32. */
#pragma once

/* f >= 0: occurrences of an id in a chunk. */
static inline float saturated_count(int f) {
    static const float s[] = {0, 1 * 2.2F / (1 + 1.2F), 2 * 2.2F / (2 + 1.2F), 4 * 2.2F / (4 + 1.2F)};
    return s[f < 3 ? f : 3];
}
