/* clock.h -- the monotonic clock, for durations but not for dates. */
#pragma once
#include <time.h>

/* Returns the seconds since some fixed time. They never decrease. */
static inline double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
