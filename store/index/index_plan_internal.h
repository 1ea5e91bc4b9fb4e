/* index_plan_internal.h -- selects the index of a store and estimates the memory for making it. It only computes and
 * reads no file. */
#pragma once
#include "store/catalog/records_internal.h"

struct index_plan {
    char factory[RECORD_INDEX_MAX];      /* "exact": no index */
    bool chosen;                         /* whether the user chose it */
    bool rebuild;                        /* whether the old index must be replaced completely */
    int64_t sample;                      /* rows to train on */
    int64_t quiet_sample;                /* at least `sample`; with fewer rows than this FAISS prints a warning */
    /* At most `sample`. If the store has fewer rows than `sample`: the least number of rows for which FAISS prints no
     * warning. */
    int64_t quiet_least;
    int64_t segment_rows;                /* rows of one segment under the memory limit */
    int64_t code_bytes, lists;           /* see vectors_plan */
    char reason[200];                    /* why "auto" selected it; empty: the user chose it */
};

/* "auto" makes no index while the landmarks take at most so many bytes (350,000 chunks of 384 fp16 numbers). Two cores
 * scan them in some 10 ms, and every neighbour is found. The rule does not depend on the machine, so that parts of a
 * store that are built on different hosts make equal choices. */
#define INDEX_SCAN_BYTES (INT64_C(256) << 20)

/* STATUS_INVALID, with the nearest choice that works: so few chunks cannot train the plan's lists. */
enum status index_plan_enough(const struct index_plan *p, int64_t chunks);
/* Whether this choice of a user leaves the type to the plan: NULL and "auto". */
bool index_plan_decides(const char *wanted);
/* Makes the plan. STATUS_INVALID, with the nearest choice that works: it needs more memory than max_ram, or more
 * chunks. */
enum status index_plan_make(struct index_plan *out, const char *wanted, const struct index_record *old, int64_t chunks,
                            int dim, enum store_landmarks type, uint64_t max_ram);
/* Computes the number of rows that can be filled in memory under the limit. STATUS_INVALID: too few. */
enum status index_plan_rows(int64_t *out, const char *factory, int dim, uint64_t max_ram);
