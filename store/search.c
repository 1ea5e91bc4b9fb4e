/* search.c -- finds the best chunks for queries: the segments give candidates, and the stored rows their scores. */
#include "base/memory.h"
#include "store/index/list_scan_internal.h"
#include "store/view_internal.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY_BATCH = 256, CANDIDATES_MIN = 64, WIDEN = 4 };

struct candidate_search {
    const struct store_view *v;
    int64_t *ids; /* [query][segment][candidates] */
    const float *queries;
    const struct store_range *exclude; /* [query] */
    int candidates, nprobe;
    struct store_range rows; /* searches the segments whose middle is in this range */
    enum status *statuses;   /* [query] */
};

/* Returns the chunks of a slice. All slices have equal numbers of existing chunks. */
static struct store_range slice_rows(const struct store_view *v, struct store_slice slice) {
    const struct store_range all = {0, v->generation.chunks};
    const struct store_dropped dropped = landmarks_dropped(&v->landmarks);
    const int64_t live = store_dropped_rank(dropped, all.end);
    if (slice.of <= 1 || live == 0) return slice.number == 0 ? all : (struct store_range){0};
    const int64_t begin = (int64_t)((__int128)live * slice.number / slice.of),
                  end = (int64_t)((__int128)live * (slice.number + 1) / slice.of);
    return (struct store_range){slice.number == 0 ? 0
                                : begin < live    ? store_dropped_nth(dropped, begin)
                                                  : all.end,
                                end < live ? store_dropped_nth(dropped, end) : all.end};
}

static bool searches_segment(const struct candidate_search *c, const struct segment_record *r) {
    const int64_t middle = r->first_chunk + r->chunks / 2;
    return middle >= c->rows.begin && middle < c->rows.end;
}

static void no_candidates(int64_t *ids, int n) {
    for (int i = 0; i < n; i++)
        ids[i] = -1;
}

static int by_id(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Removes ids that cannot exist or that occur twice for a query: the part of a segment's file with ids and codes is not
 * checksummed at opening. The order of candidates does not matter, because all are scored again. */
static void keep_valid(int64_t *ids, int n, const struct segment_record *r) {
    qsort(ids, (size_t)n, sizeof *ids, by_id);
    int64_t before = -1;
    for (int i = 0; i < n; i++) {
        bool valid = ids[i] >= r->first_chunk && ids[i] < r->first_chunk + r->chunks && ids[i] != before;
        before = ids[i];
        if (!valid) ids[i] = -1;
    }
}

static enum status search_one(const struct candidate_search *c, int64_t q) {
    int dim = c->v->store->fingerprint.dim;
    const struct store_range *range = c->exclude[q].end > c->exclude[q].begin ? &c->exclude[q] : NULL;
    for (int64_t i = 0; i < c->v->n_segments; i++) {
        const struct segment *segment = &c->v->segments[i];
        int64_t *out = c->ids + (q * c->v->n_segments + i) * c->candidates;
        if (!searches_segment(c, &segment->record)) {
            no_candidates(out, c->candidates);
            continue;
        }
        TRY(vectors_search(segment->vectors, out, c->queries + (size_t)q * (size_t)dim, 1, c->candidates, c->nprobe,
                           range, 1));
        keep_valid(out, c->candidates, &segment->record);
    }
    return STATUS_OK;
}

static void search_body(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    struct candidate_search *c = context;
    for (int64_t q = begin; q < end; q++)
        c->statuses[q] = search_one(c, q);
}

/* A filter of FAISS applies to a whole call. So queries with different ranges are searched one by one, in parallel. */
static enum status search_filtered(struct candidate_search *c, int64_t n, struct threads *threads) {
    TRY(memory_allocate(&c->statuses, (size_t)n));
    threads_for(threads, n, 1, search_body, c);
    enum status s = STATUS_OK;
    /* A worker's message belongs to its thread, so this thread fails again with the same text. */
    for (int64_t q = 0; q < n && s == STATUS_OK; q++)
        if (c->statuses[q] != STATUS_OK) s = search_one(c, q);
    memory_free(c->statuses);
    return s;
}

/* All segments of a store are of one type. */
static bool scans_lists(const struct store_view *v) {
    return vectors_scans(v->segments[0].vectors);
}

/* Searches all queries segment by segment. FAISS distributes the queries over its threads. list_scan gets a range
 * for each query. */
static enum status search_together(struct candidate_search *c, int64_t n, struct threads *threads) {
    int64_t *found;
    TRY(memory_allocate(&found, (size_t)n * (size_t)c->candidates));
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < c->v->n_segments && s == STATUS_OK; i++) {
        const struct segment *segment = &c->v->segments[i];
        if (!searches_segment(c, &segment->record)) {
            for (int64_t q = 0; q < n; q++)
                no_candidates(c->ids + (q * c->v->n_segments + i) * c->candidates, c->candidates);
            continue;
        }
        s = vectors_scans(segment->vectors)
                ? vectors_scan(segment->vectors, found, c->queries, n, c->candidates, c->nprobe, c->exclude, threads)
                : vectors_search(segment->vectors, found, c->queries, n, c->candidates, c->nprobe, NULL,
                                 threads_count(threads));
        if (s != STATUS_OK) break;
        for (int64_t q = 0; q < n; q++) {
            int64_t *mine = found + q * c->candidates;
            keep_valid(mine, c->candidates, &segment->record);
            memcpy(c->ids + (q * c->v->n_segments + i) * c->candidates, mine, (size_t)c->candidates * sizeof *mine);
        }
    }
    memory_free(found);
    return s;
}

/* Number of rows that a segment returns for a query. */
static int candidates_of(const struct store_view *v, const struct store_search *how) {
    int n = how->candidates > 0 ? how->candidates : how->k > INT32_MAX / 4 ? how->k : 4 * how->k;
    if (how->candidates <= 0 && n < CANDIDATES_MIN) n = CANDIDATES_MIN;
    if (n < how->k) n = how->k;
    return n > v->generation.chunks ? (int)v->generation.chunks : n;
}

static enum status search_index(struct store_view *v, struct store_hit *hits, const float *queries, int64_t n,
                                const struct store_range *exclude, const struct store_search *how) {
    struct candidate_search c = {
        .v = v, .queries = queries, .exclude = exclude, .nprobe = how->nprobe, .rows = slice_rows(v, how->slice)};
    c.candidates = candidates_of(v, how);
    int64_t each = v->n_segments * c.candidates;
    TRY(memory_allocate(&c.ids, (size_t)n * (size_t)each));
    enum status s =
        exclude && !scans_lists(v) ? search_filtered(&c, n, how->threads) : search_together(&c, n, how->threads);
    if (s == STATUS_OK)
        s = exact_rescore(&v->landmarks, hits, queries, n, how->k, (struct exact_candidates){c.ids, each}, exclude,
                          how->threads);
    memory_free(c.ids);
    return s;
}

/* Number of ids in begin .. end-1 that exist in the view. */
static int64_t live_chunks(const struct store_view *v, int64_t begin, int64_t end) {
    struct store_dropped dropped = landmarks_dropped(&v->landmarks);
    if (begin < 0) begin = 0;
    if (end > v->generation.chunks) end = v->generation.chunks;
    return end > begin ? store_dropped_rank(dropped, end) - store_dropped_rank(dropped, begin) : 0;
}

int store_view_missing(const struct store_view *v, const struct store_hit *hits, int k,
                       const struct store_range *exclude) {
    int64_t there = live_chunks(v, 0, v->generation.chunks);
    if (exclude) there -= live_chunks(v, exclude->begin, exclude->end);
    int found = 0, wanted = there < k ? (int)there : k;
    while (found < wanted && hits[found].chunk >= 0)
        found++;
    return wanted - found;
}

/* ---- lists that several processes share ---- */

/* Whether one segment has most of the chunks, so that slices of whole segments would be too unequal. */
static bool shares_lists(const struct store_view *v, const struct store_search *how,
                         const struct store_passes *passes) {
    int64_t largest = 0;
    for (int64_t i = 0; i < v->n_segments; i++)
        largest = v->segments[i].record.chunks > largest ? v->segments[i].record.chunks : largest;
    return scans_lists(v) && candidates_of(v, how) <= passes->k_max && 2 * largest > v->generation.chunks;
}

/* The candidates of one segment, merged over all slices, and the scores of their codes are the same as
 * in one process. */
static enum status search_shared(struct store_view *v, struct store_hit *hits, const float *queries, int64_t n,
                                 const struct store_range *exclude, const struct store_search *how,
                                 const struct store_passes *passes) {
    struct store_search pass = *how;
    struct store_hit *found = NULL;
    int64_t *ids = NULL;
    const int64_t each = candidates_of(v, how);
    enum status s;
    pass.k = (int)each;
    pass.exclude = exclude;
    TRY_GOTO(s, memory_allocate(&found, (size_t)(n * each)), out);
    TRY_GOTO(s, memory_allocate(&ids, (size_t)(n * each * v->n_segments)), out);
    for (int64_t i = 0; i < v->n_segments; i++) {
        pass.segment = (int)i + 1;
        TRY_GOTO(s, passes->search(passes->context, found, queries, n, &pass), out);
        for (int64_t q = 0; q < n; q++) {
            int64_t *mine = ids + (q * v->n_segments + i) * each;
            for (int64_t j = 0; j < each; j++)
                mine[j] = found[q * each + j].chunk;
            keep_valid(mine, (int)each, &v->segments[i].record);
        }
    }
    s = exact_rescore(&v->landmarks, hits, queries, n, how->k, (struct exact_candidates){ids, v->n_segments * each},
                      exclude, how->threads);
out:
    memory_free(found);
    memory_free(ids);
    return s;
}

/* Finds the candidates that one slice contributes to search_shared. */
static enum status search_candidates(const struct store_view *v, struct store_hit *hits, const float *queries,
                                     int64_t n, const struct store_search *how) {
    if (how->segment > v->n_segments || !scans_lists(v))
        return fail(STATUS_INVALID, "%s: the index has no segment %d of 8-bit codes", v->store->dir, how->segment);
    const struct vectors *vectors = v->segments[how->segment - 1].vectors;
    const struct list_scan_search scan = {.n = n,
                                          .queries = queries,
                                          .k = how->k,
                                          .nprobe = how->nprobe,
                                          .exclude = how->exclude,
                                          .threads = how->threads};
    int64_t *ids = NULL;
    float *scores = NULL;
    enum status s;
    TRY_GOTO(s, memory_allocate(&ids, (size_t)(n * how->k)), out);
    TRY_GOTO(s, memory_allocate(&scores, (size_t)(n * how->k)), out);
    TRY_GOTO(s, vectors_scan_slice(vectors, ids, scores, &scan, how->slice), out);
    for (int64_t i = 0; i < n * how->k; i++)
        hits[i] = (struct store_hit){ids[i], scores[i]};
out:
    memory_free(ids);
    memory_free(scores);
    return s;
}

/* Searches the index once: in this process, or by a pass over all slices. */
static enum status search_pass(struct store_view *v, struct store_hit *hits, const float *queries, int64_t n,
                               const struct store_range *exclude, const struct store_search *how,
                               const struct store_passes *passes) {
    struct store_search pass = *how;
    pass.exclude = exclude;
    if (passes && shares_lists(v, how, passes)) return search_shared(v, hits, queries, n, exclude, how, passes);
    return passes ? passes->search(passes->context, hits, queries, n, &pass)
                  : search_index(v, hits, queries, n, exclude, &pass);
}

/* Visits more lists for a query with too few hits. If many landmarks are nearly equal, the lists nearest to a query can
 * be empty; visiting more lists is then cheap, because they have few rows. */
static enum status search_wider(struct store_view *v, struct store_hit *hits, const float *query,
                                const struct store_range *exclude, const struct store_search *how,
                                const struct store_passes *passes) {
    const struct vectors *first = v->segments[0].vectors;
    struct store_search wider = *how;
    int64_t lists = vectors_lists(first), visited = vectors_visited(first, how->nprobe);
    while (visited < lists && store_view_missing(v, hits, how->k, exclude) > 0) {
        visited = visited > lists / WIDEN ? lists : visited * WIDEN;
        wider.nprobe = (int)visited;
        TRY(search_pass(v, hits, query, 1, exclude, &wider, passes));
    }
    /* Rows of deleted documents are candidates, too, and are removed from the hits. If there are many, they can
     * displace other chunks. */
    while (v->deleted.n > 0 && candidates_of(v, &wider) < v->generation.chunks &&
           store_view_missing(v, hits, how->k, exclude) > 0) {
        wider.candidates = candidates_of(v, &wider) > INT32_MAX / WIDEN ? INT32_MAX : WIDEN * candidates_of(v, &wider);
        TRY(search_pass(v, hits, query, 1, exclude, &wider, passes));
    }
    return STATUS_OK;
}

/* If k exceeds the store's size, the heaps would have slots for hits that cannot exist. */
static bool scans_all(const struct store_view *v, const struct store_search *how) {
    return how->exact || v->n_segments == 0 || how->k >= live_chunks(v, 0, v->generation.chunks);
}

struct store_search_method store_view_search_method(const struct store_view *v, const struct store_search *how) {
    if (scans_all(v, how)) return (struct store_search_method){.exact = true};
    const struct vectors *first = v->segments[0].vectors; /* all segments have the same template */
    return (struct store_search_method){.visited = vectors_visited(first, how->nprobe), .lists = vectors_lists(first)};
}

static enum status search_all(struct store_view *v, struct store_hit *hits, const float *queries, int64_t n_queries,
                              const struct store_search *how, const struct store_passes *passes) {
    struct store_search exact = *how;
    exact.exact = true;
    return passes ? passes->search(passes->context, hits, queries, n_queries, &exact)
                  : exact_scan(&v->landmarks, hits, queries, n_queries, how->k, how->exclude, slice_rows(v, how->slice),
                               how->threads);
}

static enum status search_view(struct store_view *v, struct store_hit *hits, const float *queries, int64_t n_queries,
                               const struct store_search *how, const struct store_passes *passes) {
    const size_t k = (size_t)how->k, dim = (size_t)v->store->fingerprint.dim;
    if (how->segment > 0) return search_candidates(v, hits, queries, n_queries, how);
    if (scans_all(v, how)) return search_all(v, hits, queries, n_queries, how, passes);
    for (int64_t q = 0; q < n_queries; q += QUERY_BATCH) {
        int64_t n = n_queries - q < QUERY_BATCH ? n_queries - q : QUERY_BATCH;
        TRY(search_pass(v, hits + (size_t)q * k, queries + (size_t)q * dim, n, how->exclude ? how->exclude + q : NULL,
                        how, passes));
    }
    for (int64_t q = 0; q < n_queries && how->slice.of == 0; q++)
        TRY(search_wider(v, hits + (size_t)q * k, queries + (size_t)q * dim, how->exclude ? how->exclude + q : NULL,
                         how, passes));
    return STATUS_OK;
}

enum status store_view_search_passes(struct store_view *v, struct store_hit *hits, const float *queries,
                                     int64_t n_queries, const struct store_search *how,
                                     const struct store_passes *passes) {
    assert(how->k > 0 && n_queries >= 0 && how->slice.number >= 0 && how->slice.number <= how->slice.of);
    enum status s;
    TRY(store_view_needs_landmarks(v));
    do
        s = search_view(v, hits, queries, n_queries, how, passes);
    while (view_follow_shards(v, &s));
    return s;
}

enum status store_view_search(struct store_view *v, struct store_hit *hits, const float *queries, int64_t n_queries,
                              const struct store_search *how) {
    return store_view_search_passes(v, hits, queries, n_queries, how, NULL);
}

static int by_chunk(const void *a, const void *b) {
    const struct store_hit *x = a, *y = b;
    return (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

/* Sorts the hits [n], which end with chunks -1, by their chunks, and writes the score of each chunk. */
static void scores_of_hits(float *scores, const int64_t *chunks, int64_t n, struct store_hit *hits) {
    int64_t found = 0;
    while (found < n && hits[found].chunk >= 0)
        found++;
    qsort(hits, (size_t)found, sizeof *hits, by_chunk);
    for (int64_t i = 0; i < n; i++) {
        const struct store_hit wanted = {.chunk = chunks[i]};
        const struct store_hit *hit = bsearch(&wanted, hits, (size_t)found, sizeof *hits, by_chunk);
        scores[i] = hit ? hit->score : -INFINITY;
    }
}

enum status store_view_scores(struct store_view *v, float *scores, const float *query, const int64_t *chunks,
                              int64_t n) {
    struct store_hit *hits;
    if (n == 0) return STATUS_OK;
    TRY(store_view_needs_landmarks(v));
    TRY(memory_allocate(&hits, (size_t)n));
    enum status s;
    do
        s = exact_rescore(&v->landmarks, hits, query, 1, (int)n, (struct exact_candidates){chunks, n}, NULL, NULL);
    while (view_follow_shards(v, &s));
    if (s == STATUS_OK) scores_of_hits(scores, chunks, n, hits);
    memory_free(hits);
    return s;
}
