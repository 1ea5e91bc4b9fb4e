/* lexical_search.c -- the best chunks by lexical score, exactly.
 *
 * Each thread takes windows of chunks. In a window the sparse lists are decoded once, list after list, into one sum per
 * chunk. Dense lists are not decoded. They are those of tokens in an eighth of all chunks or more, with a low idf and
 * most of all postings. They add at most dense_most to a score. So their codes are read only for chunks whose sum can
 * still reach the k-th best score, the greatest weights first, and only as long as a chunk can reach it. */
#include "base/memory.h"
#include "store/lexical/lexical_query_internal.h"
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 1 << 14, RANGES_A_WORKER = 8, GROUP = 16, EXCLUDED = INT_MIN / 2 };

struct found {
    int32_t score;
    int64_t chunk;
};

struct cursor {
    struct lexical_block block;
    uint32_t next; /* the block to decode next */
    int at;        /* the current posting of the decoded block */
};

struct worker {
    int32_t *sums;      /* [WINDOW] */
    uint32_t *selected; /* [WINDOW] */
    struct cursor *cursors;
    struct found *heap; /* [k], the worst hit first */
    int32_t *sample;    /* [k] */
    int n;
};

struct search {
    const struct lexical *x;
    const struct lexical_plan *plan;
    const struct store_range *exclude;
    struct store_dropped absent;
    int k;
    struct worker *workers;
    atomic_int reach;     /* a score that at least k chunks have: smaller ones are not needed */
    atomic_llong damaged; /* 1 + the number of the damaged segment */
};

/* ---- the best k ---- */

static bool found_is_worse(struct found a, struct found b) {
    return a.score < b.score || (a.score == b.score && a.chunk > b.chunk);
}

static void heap_offer(struct worker *w, int k, struct found f) {
    int i = 0;
    if (w->n < k) {
        for (i = w->n++; i > 0 && found_is_worse(f, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
            w->heap[i] = w->heap[(i - 1) / 2];
    } else {
        if (!found_is_worse(w->heap[0], f)) return;
        for (int child; (child = 2 * i + 1) < k; i = child) {
            if (child + 1 < k && found_is_worse(w->heap[child + 1], w->heap[child])) child++;
            if (!found_is_worse(w->heap[child], f)) break;
            w->heap[i] = w->heap[child];
        }
    }
    w->heap[i] = f;
}

/* Returns the k-th greatest sum of a window, or 1 if fewer are positive. */
static int32_t kth_sum(struct worker *w, int k, int n) {
    int filled = 0;
    for (int c = 0; c < n; c++) {
        int32_t sum = w->sums[c];
        if (sum <= 0 || (filled == k && sum <= w->sample[0])) continue;
        int i = 0;
        if (filled < k) {
            for (i = filled++; i > 0 && sum < w->sample[(i - 1) / 2]; i = (i - 1) / 2)
                w->sample[i] = w->sample[(i - 1) / 2];
        } else {
            for (int child; (child = 2 * i + 1) < k; i = child) {
                if (child + 1 < k && w->sample[child + 1] < w->sample[child]) child++;
                if (w->sample[child] >= sum) break;
                w->sample[i] = w->sample[child];
            }
        }
        w->sample[i] = sum;
    }
    return filled == k ? w->sample[0] : 1;
}

/* ---- a window ---- */

/* Adds the postings of a list below chunk `end` to the sums, which begin at chunk `begin`. Returns false if the
 * list is damaged. */
static bool add_list(int32_t *sums, struct cursor *c, const struct lexical_weighted *w, uint32_t begin, uint32_t end) {
    for (;;) {
        if (c->at == c->block.n) {
            if (c->next >= w->list.blocks) return true;
            if (!lexical_list_block(&w->list, &c->block, c->next++)) return false;
            for (c->at = 0; c->at < c->block.n && c->block.chunks[c->at] < begin;)
                c->at++;
        }
        const uint32_t *chunks = c->block.chunks;
        int from = c->at, n = c->block.n, to = from;
        int32_t once = w->weight[1];
        if (chunks[n - 1] < end)
            for (; to < n; to++)
                sums[chunks[to] - begin] += once;
        else
            for (; chunks[to] < end; to++)
                sums[chunks[to] - begin] += once;
        for (int half = from / 64; half * 64 < to; half++) {
            uint64_t more = c->block.twice[half];
            if (from > half * 64) more &= ~UINT64_C(0) << (from - half * 64);
            if (to < half * 64 + 64) more &= (UINT64_C(1) << (to - half * 64)) - 1;
            for (; more; more &= more - 1) {
                int i = __builtin_ctzll(more);
                int code = 2 + (int)(c->block.thrice[half] >> i & 1);
                sums[chunks[half * 64 + i] - begin] += w->weight[code] - once;
            }
        }
        c->at = to;
        if (to < n) return true;
    }
}

/* Selects chunks with low <= sum < high. They are rare, so a group without any is skipped at once. */
static int select_sums(uint32_t *out, const int32_t *sums, int n, int32_t low, int32_t high) {
    int found = 0;
    for (int c = 0; c < n; c += GROUP) { /* sums beyond n are EXCLUDED */
        int32_t most = sums[c];
        for (int i = 1; i < GROUP; i++)
            most = sums[c + i] > most ? sums[c + i] : most;
        if (most < low) continue;
        for (int i = 0; i < GROUP; i++)
            if (sums[c + i] >= low && sums[c + i] < high) out[found++] = (uint32_t)(c + i);
    }
    return found;
}

static void raise_reach(struct search *s, const struct worker *w) {
    if (w->n < s->k) return;
    int now = atomic_load_explicit(&s->reach, memory_order_relaxed);
    while (w->heap[0].score > now && !atomic_compare_exchange_weak(&s->reach, &now, w->heap[0].score)) {
    }
}

/* Adds the dense lists to the selected sums, list after list, because a list's codes of a window are contiguous. After
 * each list, chunks that can no longer reach the score of k others are removed. */
static void score_selected(struct search *s, struct worker *w, int64_t segment, uint32_t begin, int n) {
    const struct lexical_lists *l = &s->plan->segments[segment];
    int64_t first = s->x->segments[segment].frame.first_chunk + begin;
    int32_t left = l->dense_most, reach = atomic_load_explicit(&s->reach, memory_order_relaxed);
    for (int d = 0; d < l->n_dense && n > 0; d++) {
        const uint8_t *codes = l->dense[d].list.data + begin / 4; /* a window begins at a byte */
        int32_t weight[LEXICAL_CODES + 1];
        memcpy(weight, l->dense[d].weight, sizeof weight);
        left -= weight[LEXICAL_CODES];
        int kept = 0;
        for (int i = 0; i < n; i++) {
            uint32_t c = w->selected[i];
            int32_t sum = w->sums[c] + weight[lexical_dense_code(codes, c)];
            w->sums[c] = sum;
            w->selected[kept] = c;
            kept += sum + left >= reach;
        }
        n = kept;
    }
    for (int i = 0; i < n; i++)
        if (w->sums[w->selected[i]] > 0)
            heap_offer(w, s->k, (struct found){w->sums[w->selected[i]], first + w->selected[i]});
    raise_reach(s, w);
}

static void leave_out(struct worker *w, int64_t first, int n, int64_t begin, int64_t end) {
    for (int64_t c = begin > first ? begin : first; c < end && c < first + n; c++)
        w->sums[c - first] = EXCLUDED;
}

static void leave_out_absent(const struct search *s, struct worker *w, int64_t first, int n) {
    for (int64_t at = first; s->absent.n > 0 && at < first + n;) {
        struct store_range there = store_dropped_span(s->absent, at, first + n);
        leave_out(w, first, n, at, there.begin);
        at = there.end;
    }
}

static void search_window(struct search *s, struct worker *w, int64_t segment, uint32_t begin, uint32_t end) {
    const struct lexical_lists *l = &s->plan->segments[segment];
    int n = (int)(end - begin);
    memset(w->sums, 0, (size_t)n * sizeof *w->sums);
    for (int i = 0; i < l->n_sparse; i++)
        if (!add_list(w->sums, &w->cursors[i], &l->sparse[i], begin, end)) {
            atomic_store(&s->damaged, segment + 1);
            return;
        }
    int64_t first = s->x->segments[segment].frame.first_chunk + begin;
    if (s->exclude) leave_out(w, first, n, s->exclude->begin, s->exclude->end);
    leave_out_absent(s, w, first, n);
    for (int c = n; c % GROUP; c++)
        w->sums[c] = EXCLUDED;
    int32_t high = INT_MAX, reach = atomic_load_explicit(&s->reach, memory_order_relaxed);
    if (reach <= 1) { /* first the chunks with the greatest sums: the score that they reach excludes most others */
        high = kth_sum(w, s->k, n);
        score_selected(s, w, segment, begin, select_sums(w->selected, w->sums, n, high, INT_MAX));
        reach = atomic_load_explicit(&s->reach, memory_order_relaxed);
    }
    int32_t low = reach - l->dense_most > 0 ? reach - l->dense_most : 0;
    if (low < high) score_selected(s, w, segment, begin, select_sums(w->selected, w->sums, n, low, high));
}

/* ---- all windows ---- */

static int64_t windows_of(const struct lexical *x, int64_t segment) {
    return (x->segments[segment].frame.chunks + WINDOW - 1) / WINDOW;
}

static void search_body(void *context, int64_t begin, int64_t end, int worker) {
    struct search *s = context;
    struct worker *w = &s->workers[worker];
    for (int64_t segment = 0, before = 0; segment < s->x->n && before < end; segment++) {
        int64_t windows = windows_of(s->x, segment), from = begin > before ? begin - before : 0,
                to = end - before < windows ? end - before : windows, chunks = s->x->segments[segment].frame.chunks;
        const struct lexical_lists *l = &s->plan->segments[segment];
        for (int i = 0; i < l->n_sparse && from < to; i++) {
            w->cursors[i].block.n = w->cursors[i].at = 0;
            w->cursors[i].next = lexical_list_seek(&l->sparse[i].list, 0, (uint32_t)(from * WINDOW));
        }
        for (int64_t i = from; i < to && !atomic_load(&s->damaged); i++) {
            int64_t last = (i + 1) * WINDOW < chunks ? (i + 1) * WINDOW : chunks;
            search_window(s, w, segment, (uint32_t)(i * WINDOW), (uint32_t)last);
        }
        before += windows;
    }
}

static int by_score(const void *a, const void *b) {
    return found_is_worse(*(const struct found *)b, *(const struct found *)a) ? -1 : 1;
}

/* The heaps of all workers are contiguous: [workers * k]. */
static void collect(struct store_hit *hits, const struct search *s, int workers) {
    struct found *all = s->workers[0].heap;
    int64_t n = s->workers[0].n;
    for (int i = 1; i < workers; i++) {
        memmove(all + n, s->workers[i].heap, (size_t)s->workers[i].n * sizeof *all);
        n += s->workers[i].n;
    }
    qsort(all, (size_t)n, sizeof *all, by_score);
    for (int64_t i = 0; i < s->k; i++)
        hits[i] = i < n ? (struct store_hit){all[i].chunk, (float)all[i].score * s->plan->unit}
                        : (struct store_hit){-1, -INFINITY};
}

static enum status search_planned(struct search *s, struct store_hit *hits, struct threads *threads) {
    int workers = threads_count(threads);
    int64_t windows = 0;
    for (int64_t i = 0; i < s->x->n; i++)
        windows += windows_of(s->x, i);
    if (windows <= 1) workers = 1;
    size_t count = (size_t)workers, k = (size_t)s->k, lists = (size_t)s->plan->sparse_most;
    int32_t *sums = NULL, *sample = NULL;
    uint32_t *selected = NULL;
    struct cursor *cursors = NULL;
    struct found *heaps = NULL;
    enum status status;
    TRY_GOTO(status, memory_allocate(&s->workers, count), out);
    TRY_GOTO(status, memory_allocate(&sums, count * WINDOW), out);
    TRY_GOTO(status, memory_allocate(&selected, count * WINDOW), out);
    TRY_GOTO(status, memory_allocate(&cursors, count * lists), out);
    TRY_GOTO(status, memory_allocate(&heaps, count * k), out);
    TRY_GOTO(status, memory_allocate(&sample, count * k), out);
    for (size_t i = 0; i < count; i++)
        s->workers[i] = (struct worker){sums + i * WINDOW, selected + i * WINDOW, cursors + i * lists,
                                        heaps + i * k,     sample + i * k,        0};
    int64_t grain = windows / ((int64_t)workers * RANGES_A_WORKER) + 1;
    threads_for(workers > 1 ? threads : NULL, windows, grain, search_body, s);
    collect(hits, s, workers);
out:
    memory_free(s->workers);
    memory_free(sums);
    memory_free(selected);
    memory_free(cursors);
    memory_free(heaps);
    memory_free(sample);
    return status;
}

static enum status search_one(const struct lexical *x, struct store_hit *hits, const struct lexical_query *query,
                              const struct store_range *exclude, const struct lexical_search *how,
                              struct threads *threads) {
    struct lexical_plan plan;
    TRY(lexical_plan_make(&plan, x, query, how, NULL));
    struct search s = {.x = x, .plan = &plan, .exclude = exclude, .absent = how->absent, .k = how->k, .reach = 1};
    enum status status = search_planned(&s, hits, threads);
    lexical_plan_free(&plan);
    TRY(status);
    if (s.damaged)
        return fail(STATUS_CORRUPT, "%s: a list of postings is damaged: run drt-index repair",
                    x->segments[s.damaged - 1].path);
    return STATUS_OK;
}

/* ---- several queries ---- */

struct batch {
    const struct lexical *x;
    struct store_hit *hits;
    const struct lexical_query *queries;
    const struct lexical_search *how;
    atomic_int status;  /* of the first query that failed */
    char message[1024]; /* of its thread */
};

static void batch_body(void *context, int64_t begin, int64_t end, int worker) {
    struct batch *b = context;
    (void)worker;
    for (int64_t q = begin; q < end; q++) {
        const struct store_range *exclude = b->how->exclude ? b->how->exclude + q : NULL;
        enum status s =
            search_one(b->x, b->hits + (size_t)q * (size_t)b->how->k, &b->queries[q], exclude, b->how, NULL);
        int none = STATUS_OK;
        if (s != STATUS_OK && atomic_compare_exchange_strong(&b->status, &none, s))
            snprintf(b->message, sizeof b->message, "%s", status_message());
    }
}

enum status lexical_search(const struct lexical *x, struct store_hit *hits, const struct lexical_query *queries,
                           int64_t n_queries, const struct lexical_search *how) {
    assert(how->k > 0);
    int workers = threads_count(how->threads);
    /* one query per thread; the remaining queries are divided into windows */
    int64_t together = workers > 1 ? n_queries / workers * workers : 0;
    struct batch b = {.x = x, .hits = hits, .queries = queries, .how = how, .status = STATUS_OK};
    threads_for(how->threads, together, 1, batch_body, &b);
    enum status s = (enum status)b.status;
    if (s != STATUS_OK) return fail(s, "%s", b.message);
    for (int64_t q = together; q < n_queries && s == STATUS_OK; q++)
        s = search_one(x, hits + (size_t)q * (size_t)how->k, &queries[q], how->exclude ? how->exclude + q : NULL, how,
                       how->threads);
    return s;
}
