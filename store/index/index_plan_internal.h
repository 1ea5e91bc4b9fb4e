/* index_plan_internal.h -- which index a store gets, and how much memory making it takes. Arithmetic only. */
#pragma once
#include "store/catalog/records_internal.h"

struct index_plan {
    char factory[RECORD_INDEX_MAX];      /* "exact": none */
    bool chosen;                         /* by the user */
    bool rebuild;                        /* nothing of the old index is of use */
    int64_t sample;                      /* rows to train on */
    int64_t quiet_sample;                /* with fewer rows FAISS prints a warning; >= sample */
    int64_t quiet_least;                 /* the same, where there are fewer rows than sample; <= quiet_sample */
    int64_t segment_rows;                /* as many as one segment may hold under the memory limit */
    int64_t code_bytes, lists;           /* see vectors_plan */
    char reason[200];                    /* why "auto" selected it; empty: "auto" did not */
};

/* Rates of the two kinds of search, from which "auto" selects one. A scan is exact and uses all threads; an
 * inverted file reads less, but one query on one thread, and Debian's FAISS (SSE2) reads codes ten times slower than
 * one for AVX2. */
struct index_rates {
    double rows;                         /* bytes of fp16 rows that a scan reads a second, with all threads */
    /* 8-bit codes, and numbers of centroids, that one thread of FAISS compares a second */
    double codes, floats;
};
/* From measurements (BENCHMARKS.md), not measured here: machines of one kind always get the same choice. */
struct index_rates index_rates_of(bool faiss_is_wide, int threads);
/* "auto" makes no index below INDEX_EXACT_BELOW chunks. Above, it makes one where a query is INDEX_FASTER times faster
 * with it. The costs assume lists of equal length, but queries fall where chunks are dense: measured, they read up to
 * four times as many rows. */
enum { INDEX_EXACT_BELOW = 100000, INDEX_FASTER = 3 };
/* Milliseconds of one query over so many chunks: by scanning them, and by the index that "auto" would make. */
struct index_costs { double exact, index; };
struct index_costs index_costs_of(const struct index_rates *rates, int64_t chunks, int dim);

/* STATUS_INVALID, with the nearest choice that works, when its lists cannot be trained from so few chunks. */
enum status index_plan_enough(const struct index_plan *p, int64_t chunks);
/* STATUS_INVALID, with the nearest choice that works, when it cannot be made within max_ram or from so few chunks. */
enum status index_plan_make(struct index_plan *out, const char *wanted, const struct index_record *old, int64_t chunks,
                            int dim, uint64_t max_ram, const struct index_rates *rates);
