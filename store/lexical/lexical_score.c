/* lexical_score.c -- lexical scores of given chunks. After a search of the same query by the same cache the sums of the
 * sparse lists may be there already. Else, of each list, the blocks that contain the chunks are read once. */
#include "base/memory.h"
#include "store/lexical/lexical_query_internal.h"
#include <stdlib.h>
#include <string.h>

struct candidate {
    int64_t chunk, position; /* in the caller's order */
    int32_t sum;
};

static int by_chunk(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    return (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

/* Adds the list's weights to chunks of its segment, which must ascend. Returns false if the list is damaged. */
static bool score_list(struct candidate *chunks, int64_t n, int64_t first, const struct lexical_weighted *w) {
    struct lexical_block block;
    uint32_t at = 0, decoded = UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        uint32_t chunk = (uint32_t)(chunks[i].chunk - first);
        if (w->list.kind == LEXICAL_DENSE) {
            chunks[i].sum += w->weight[lexical_dense_code(w->list.data, chunk)];
            continue;
        }
        at = lexical_list_seek(&w->list, at, chunk);
        if (at >= w->list.blocks) return true;
        if (decoded != at && !lexical_list_block(&w->list, &block, at)) return false;
        decoded = at;
        int low = 0, high = block.n;
        while (low < high) {
            int middle = (low + high) / 2;
            if (block.chunks[middle] < chunk)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < block.n && block.chunks[low] == chunk)
            chunks[i].sum += w->weight[lexical_block_code(&block, low) + 1];
    }
    return true;
}

/* kept [segments]: the sums of the plan's sparse lists; NULL: they are added up here. */
static enum status score_sorted(const struct lexical *x, struct candidate *chunks, int64_t n,
                                const struct lexical_plan *p, const struct lexical_changes *kept) {
    for (int64_t s = 0, at = 0; s < x->n; s++) {
        const struct lexical_frame *f = &x->segments[s].frame;
        const struct lexical_lists *l = &p->segments[s];
        while (at < n && chunks[at].chunk < f->first_chunk)
            at++;
        int64_t end = at;
        while (end < n && chunks[end].chunk < f->first_chunk + f->chunks)
            end++;
        bool good = true;
        for (int64_t i = at; i < end && kept; i++)
            chunks[i].sum = kept[s].sums[chunks[i].chunk - f->first_chunk];
        for (int i = 0; i < l->n_sparse && good && end > at && !kept; i++)
            good = score_list(chunks + at, end - at, f->first_chunk, &l->sparse[i]);
        for (int i = 0; i < l->n_dense && good && end > at; i++)
            good = score_list(chunks + at, end - at, f->first_chunk, &l->dense[i]);
        if (!good)
            return fail(STATUS_CORRUPT, "%s: a list of postings is damaged: run drt-index repair", x->segments[s].path);
        at = end;
    }
    return STATUS_OK;
}

static enum status score_planned(const struct lexical *x, float *scores, const int64_t *chunks, int64_t n,
                                 const struct lexical_plan *plan, const struct lexical_changes *kept) {
    struct candidate *candidates;
    TRY(memory_allocate(&candidates, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        candidates[i] = (struct candidate){chunks[i], i, 0};
    qsort(candidates, (size_t)n, sizeof *candidates, by_chunk);
    enum status s = score_sorted(x, candidates, n, plan, kept);
    for (int64_t i = 0; i < n && s == STATUS_OK; i++)
        scores[candidates[i].position] = (float)candidates[i].sum * plan->unit;
    memory_free(candidates);
    return s;
}

enum status lexical_score(const struct lexical *x, float *scores, const int64_t *chunks, int64_t n,
                          const struct lexical_query *query, const struct lexical_search *how) {
    const struct lexical_changes *kept_sums;
    if (n == 0) return STATUS_OK;
    const struct lexical_plan *kept = lexical_cache_plan(how->cache, &kept_sums, x, query, how);
    if (kept) return score_planned(x, scores, chunks, n, kept, kept_sums);
    struct lexical_plan plan;
    TRY(lexical_plan_make(&plan, x, query, how, how->cache));
    enum status s = score_planned(x, scores, chunks, n, &plan, NULL);
    lexical_plan_free(&plan);
    return s;
}
