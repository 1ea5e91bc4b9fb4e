/* clock.h -- the monotonic clock: for durations, not for dates. */
#pragma once
#include <time.h>

/* Seconds since some fixed time; never decreases. */
static inline double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
