/* index_plan.c -- see index_plan_internal.h. The rules are FAISS's recommendations: as many lists as 4 times the square
 * root of the number of vectors, and at least 39 training vectors per list. PQ gets the suffix "np", since polysemous
 * training takes 26 times as long. */
#include "store/index/index_plan_internal.h"
#include "store/index/vectors_internal.h"
#include "store/store.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TRAIN_PER_LIST = 64,
    TRAIN_PER_LIST_MIN = 39,
    CODE_CENTROIDS = 256, /* centroids of each part of a product code */
    LISTS_MIN = 16,
    SEGMENTS_NEW_MAX = 16,
    ADD_BLOCK_BYTES = 32 << 20,
    SEGMENT_ROWS_MIN = 4096,
    PROBE_LISTS_MAX = 1 << 16, /* FAISS allocates all lists */
    TRAIN_MIN = 16384
};

/* Returns the memory for training: the sample, FAISS's transformed copy of it and its residuals, the centroids
 * and their graph. */
static uint64_t train_bytes(int64_t sample, int64_t lists, int dim) {
    return (uint64_t)sample * (uint64_t)dim * 12 + (uint64_t)lists * ((uint64_t)dim * 12 + 512);
}

/* Returns the number of vectors that fit into one segment. Its lists grow by doubling, so twice their
 * size is counted. */
static int64_t rows_within(uint64_t max_ram, const struct index_plan *p, int dim) {
    uint64_t fixed = (uint64_t)p->lists * ((uint64_t)dim * 8 + 512) + ADD_BLOCK_BYTES;
    uint64_t code = p->code_bytes ? (uint64_t)p->code_bytes : (uint64_t)dim * 4 + 512;
    return max_ram > fixed ? (int64_t)((max_ram - fixed) / (2 * (code + 8))) : 0;
}

static int64_t lists_for(int64_t chunks) {
    int64_t lists = LISTS_MIN;
    while (lists * 2 <= (int64_t)(4 * sqrt((double)chunks) * 1.4143))
        lists *= 2;
    while (lists > LISTS_MIN && lists * TRAIN_PER_LIST_MIN > chunks)
        lists /= 2;
    return lists;
}

static void set_factory(struct index_plan *p, const char *factory, int dim) {
    if (factory != p->factory) snprintf(p->factory, sizeof p->factory, "%s", factory);
    struct vectors_plan v = vectors_plan(p->factory, dim);
    p->lists = v.lists;
    p->code_bytes = v.code_bytes;
}

/* 8-bit scalars lose almost no accuracy. Product codes are used if scalars would need too many segments under the
 * limit. */
static enum status index_plan_choose(struct index_plan *p, int64_t chunks, int dim, uint64_t max_ram) {
    int64_t lists = lists_for(chunks);
    while (lists > LISTS_MIN && train_bytes(lists * TRAIN_PER_LIST_MIN, lists, dim) > max_ram)
        lists /= 2;
    char factory[96];
    snprintf(factory, sizeof factory, "IVF%lld_HNSW32,SQ8", (long long)lists);
    set_factory(p, factory, dim);
    if (rows_within(max_ram, p, dim) * SEGMENTS_NEW_MAX >= chunks) return STATUS_OK;
    int width = dim <= 256 ? dim : 256, m = 64;
    while (m > 1 && width % m)
        m /= 2;
    snprintf(factory, sizeof factory, "OPQ%d_%d,IVF%lld_HNSW32,PQ%dnp", m, width, (long long)lists, m);
    set_factory(p, factory, dim);
    return STATUS_OK;
}

enum status index_plan_enough(const struct index_plan *p, int64_t chunks) {
    if (chunks >= (p->lists > 0 ? p->lists : 1)) return STATUS_OK;
    return fail(STATUS_INVALID, "index %s: %lld lists cannot be trained from %lld chunks, use exact or IVF%lld,SQ8",
                p->factory, (long long)p->lists, (long long)chunks, (long long)(chunks / TRAIN_PER_LIST_MIN + 1));
}

static enum status size_sample(struct index_plan *p, int64_t chunks, int dim, uint64_t max_ram) {
    int64_t least = p->lists > 0 ? p->lists : 1;
    p->sample = p->lists * TRAIN_PER_LIST;
    if (p->sample < TRAIN_MIN) p->sample = TRAIN_MIN; /* product codes train 256 centroids of their own */
    if (p->sample > chunks) p->sample = chunks;
    while (p->sample > least && train_bytes(p->sample, p->lists, dim) > max_ram)
        p->sample = p->sample * 3 / 4;
    if (p->sample < least) p->sample = least;
    if (train_bytes(p->sample, p->lists, dim) > max_ram)
        return fail(STATUS_INVALID,
                    "index %s: training it takes about %llu MiB, more than the limit of %llu MiB; raise the "
                    "limit, or use fewer lists or exact",
                    p->factory, (unsigned long long)(train_bytes(p->sample, p->lists, dim) >> 20),
                    (unsigned long long)(max_ram >> 20));
    int64_t centroids = p->lists;
    struct vectors_plan v = vectors_plan(p->factory, dim);
    if ((v.parts > 0 || v.rotated) && centroids < CODE_CENTROIDS) centroids = CODE_CENTROIDS;
    p->quiet_sample = p->quiet_least = centroids * TRAIN_PER_LIST_MIN;
    if (p->quiet_sample < p->sample || train_bytes(p->quiet_sample, p->lists, dim) > max_ram)
        p->quiet_sample = p->sample;
    if (p->quiet_least > p->quiet_sample) p->quiet_least = p->quiet_sample;
    return STATUS_OK;
}

/* Applies "auto" to a store with an index. An index that the user chose stays. One that "auto" chose stays until the
 * store has outgrown it. */
static enum status index_plan_decide(struct index_plan *p, const struct index_record *old, int64_t chunks, int dim,
                                     enum store_landmarks type, uint64_t max_ram) {
    const int row_bytes = type == STORE_LANDMARKS_I8 ? dim : 2 * dim;
    const bool scans = chunks <= INDEX_SCAN_BYTES / row_bytes;
    p->chosen = old->chosen;
    if (old->chosen) {
        set_factory(p, old->factory, dim);
        return STATUS_OK;
    }
    bool usable = old->template_number > 0;
    if (usable) set_factory(p, old->factory, dim);
    if (usable && !scans && chunks < 16 * old->trained_chunks) return STATUS_OK;
    snprintf(p->reason, sizeof p->reason, "the landmarks take %.0f MB, and up to %.0f MB are scanned",
             (double)chunks * row_bytes / 1e6, INDEX_SCAN_BYTES / 1e6);
    if (scans) {
        set_factory(p, "exact", dim);
        return STATUS_OK;
    }
    return index_plan_choose(p, chunks, dim, max_ram);
}

static enum status enough_rows(const struct index_plan *p, int64_t rows, uint64_t max_ram) {
    if (rows >= SEGMENT_ROWS_MIN) return STATUS_OK;
    return fail(STATUS_INVALID,
                "index %s: its centroids alone fill the limit of %llu MiB; raise the limit, or use fewer lists or "
                "exact",
                p->factory, (unsigned long long)(max_ram >> 20));
}

bool index_plan_decides(const char *wanted) {
    return !wanted || strcmp(wanted, "auto") == 0;
}

/* FAISS's own reason for a refusal. */
static enum status faiss_makes(const char *factory, int dim) {
    struct vectors *probe;
    TRY(vectors_make(&probe, factory, dim));
    vectors_free(probe);
    return STATUS_OK;
}

enum status store_index_check(const char *wanted, int dim) {
    if (index_plan_decides(wanted) || strcmp(wanted, "exact") == 0) return STATUS_OK;
    if (dim == 0)
        return fail(STATUS_INVALID, "index %s: the store has no landmarks (--landmarks none) to index", wanted);
    if (strlen(wanted) >= RECORD_INDEX_MAX) return fail(STATUS_INVALID, "index %.40s...: the name is too long", wanted);
    TRY(factory_check(wanted));
    return vectors_plan(wanted, dim).lists > PROBE_LISTS_MAX ? STATUS_OK : faiss_makes(wanted, dim);
}

enum status index_plan_make(struct index_plan *out, const char *wanted, const struct index_record *old, int64_t chunks,
                            int dim, enum store_landmarks type, uint64_t max_ram) {
    struct index_plan p = {0};
    TRY(store_index_check(wanted, dim));
    if (dim == 0) {
        set_factory(&p, "exact", dim);
    } else if (index_plan_decides(wanted)) {
        TRY(index_plan_decide(&p, old, chunks, dim, type, max_ram));
    } else {
        p.chosen = true;
        set_factory(&p, wanted, dim);
    }
    if (strcmp(p.factory, "exact") == 0) {
        p.rebuild = old->factory[0] && strcmp(old->factory, "exact") != 0;
        *out = p;
        return STATUS_OK;
    }
    p.rebuild = strcmp(p.factory, old->factory) != 0;
    TRY(index_plan_enough(&p, chunks)); /* before vectors_make, which would allocate all lists */
    /* Of fewer lists store_index_check has made what is wanted: FAISS takes a millisecond to read a name. */
    if (index_plan_decides(wanted) || p.lists > PROBE_LISTS_MAX) TRY(faiss_makes(p.factory, dim));
    TRY(size_sample(&p, chunks, dim, max_ram));
    p.segment_rows = rows_within(max_ram, &p, dim);
    if (p.segment_rows < chunks) TRY(enough_rows(&p, p.segment_rows, max_ram));
    *out = p;
    return STATUS_OK;
}

enum status index_plan_rows(int64_t *out, const char *factory, int dim, uint64_t max_ram) {
    struct index_plan p = {0};
    set_factory(&p, factory, dim);
    *out = rows_within(max_ram, &p, dim);
    return enough_rows(&p, *out, max_ram);
}
