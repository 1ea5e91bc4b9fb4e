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

/* Rates of the two kinds of search, by which "auto" selects an index. A scan is exact and uses all threads. An inverted
 * file reads less, but uses one thread for a query, and Debian's FAISS (SSE2) reads codes ten times more slowly than a
 * build for AVX2. */
struct index_rates {
    double rows;                         /* bytes of stored rows that a scan with all threads reads per second */
    int number_bytes;                    /* bytes of one number of a stored row: 2, or 1 for 8-bit landmarks */
    /* what one thread of FAISS compares per second: 8-bit codes, and values of centroids */
    double codes, floats;
};
/* The rates come from measurements (BENCHMARKS.md). They are not measured at run time, so that equal machines make
 * equal choices. */
struct index_rates index_rates_of(bool faiss_is_wide, int threads, enum store_landmarks type);
/* "auto" makes no index below INDEX_EXACT_BELOW chunks. Above, it makes one if a query is INDEX_FASTER times faster
 * with it. The estimate assumes lists of equal length, but queries fall where chunks are dense: in measurements they
 * read up to four times as many rows. */
enum { INDEX_EXACT_BELOW = 100000, INDEX_FASTER = 3 };
/* Milliseconds for one query over a number of chunks: by a scan, and by the index that "auto" would make. */
struct index_costs { double exact, index; };
struct index_costs index_costs_of(const struct index_rates *rates, int64_t chunks, int dim);

/* STATUS_INVALID, with the nearest choice that works: so few chunks cannot train the plan's lists. */
enum status index_plan_enough(const struct index_plan *p, int64_t chunks);
/* Whether the plan for this choice of a user depends on the rates: NULL and "auto". */
bool index_plan_decides(const char *wanted);
/* Makes the plan. STATUS_INVALID, with the nearest choice that works: it needs more memory than max_ram, or more
 * chunks. */
enum status index_plan_make(struct index_plan *out, const char *wanted, const struct index_record *old, int64_t chunks,
                            int dim, uint64_t max_ram, const struct index_rates *rates);
/* Computes the number of rows that can be filled in memory under the limit. STATUS_INVALID: too few. */
enum status index_plan_rows(int64_t *out, const char *factory, int dim, uint64_t max_ram);
