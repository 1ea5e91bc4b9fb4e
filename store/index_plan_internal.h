/* index_plan_internal.h -- which index a store gets, and how much memory making it takes. Arithmetic only. */
#pragma once
#include "store/records_internal.h"

struct index_plan {
    char factory[RECORD_INDEX_MAX];      /* "exact": none */
    bool chosen;                         /* by the user */
    bool rebuild;                        /* nothing of the old index is of use */
    int64_t sample;                      /* rows to train on */
    int64_t quiet_sample;                /* as many as FAISS asks for; fewer, and it prints a warning; >= sample */
    int64_t segment_rows;                /* as many as one segment may hold under the memory limit */
    int64_t code_bytes, lists;           /* see vectors_plan */
};

/* Chunks. A scan loses nothing and uses all threads; an inverted file reads less, but one query on one thread: measured
 * (BENCHMARKS.md), two cores break even near this size, sixteen near a million chunks. */
enum { INDEX_EXACT_BELOW = 100000 };

/* STATUS_INVALID, with the nearest choice that works, when its lists cannot be trained from so few chunks. */
enum status index_plan_enough(const struct index_plan *p, int64_t chunks);
/* STATUS_INVALID, with the nearest choice that works, when it cannot be made within max_ram or from so few chunks. */
enum status index_plan_make(struct index_plan *out, const char *wanted, const struct index_record *old, int64_t chunks,
                            int dim, uint64_t max_ram);
