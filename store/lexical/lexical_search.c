/* lexical_search.c -- the best chunks by lexical score, exactly.
 *
 * Each thread takes windows of chunks. In a window the sparse lists are decoded, list after list, into one sum per
 * chunk. Two kinds of list are read only for chunks whose sum can still reach the k-th best score, the greatest weights
 * first, and only as long as a chunk can reach it: dense lists, and the sparse lists with the most postings for their
 * weight, as many as together add less than a share of that score. Dense lists are those of tokens in an eighth of all
 * chunks or more, with a low idf and most of all postings.
 *
 * The score that excludes chunks must be there early. It comes from the search before (lexical_cache), or from a sample
 * of the windows. Both are guesses: if fewer than k chunks reach the score, all windows are searched again. */
#include "base/memory.h"
#include "store/lexical/lexical_window_internal.h"
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANGES_A_WORKER = 8,
    /* One window of SAMPLED is in the sample. The score that k chunks are expected to have is that of a rank in the
     * sample: SAMPLE_MORE times the share k / SAMPLED, and SAMPLE_SPARE. */
    SAMPLED = 16,
    SAMPLED_MIN = 2 * SAMPLED,
    SAMPLE_MORE = 3,
    SAMPLE_SPARE = 6,
};
#define EXPECTED_SHARE 0.85 /* of the k-th score of the search before: a score that k chunks are expected to have */
#define PRUNED_SHARE 0.55   /* of the least score of a hit: what the lists may add that are read for selected chunks */

struct found {
    int32_t score;
    int64_t chunk;
};

struct worker {
    int32_t *sums; /* [LEXICAL_WINDOW] */
    struct lexical_selected selected;
    struct lexical_cursor *cursors;
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
    enum lexical_vectors vectors;
    struct lexical_changes *changes; /* [segments]; NULL: sums are made in the workers' memory */
    bool fresh;                      /* the sums that changes apply to are not there yet */
    struct worker *workers;
    atomic_int reach;     /* a score that at least k chunks have: smaller ones are not needed */
    int64_t found;        /* number of hits, at most k */
    int32_t kth;          /* score of the k-th hit; 0: fewer were found */
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
static int32_t kth_sum(struct worker *w, const int32_t *sums, int k, int n) {
    int filled = 0;
    for (int c = 0; c < n; c++) {
        int32_t sum = sums[c];
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

static void raise_reach(struct search *s, const struct worker *w) {
    if (w->n < s->k) return;
    int now = atomic_load_explicit(&s->reach, memory_order_relaxed);
    while (w->heap[0].score > now && !atomic_compare_exchange_weak(&s->reach, &now, w->heap[0].score)) {
    }
}

/* Returns how many sparse lists, the first ones, are read for selected chunks only. */
static int lists_left(const struct lexical_lists *l, int32_t reach) {
    int n = 0;
    const double most = PRUNED_SHARE * (double)reach;
    while (n < l->n_sparse && (double)l->most_before[n + 1] <= most)
        n++;
    return n;
}

/* Adds the lists that are left to the selected sums: `left` sparse lists, the heaviest first, then the dense lists.
 * After each list, chunks that can no longer reach the score of k others are removed. */
static void score_selected(struct search *s, struct worker *w, int64_t segment, uint32_t begin, int left) {
    const struct lexical_lists *l = &s->plan->segments[segment];
    const int64_t first = s->x->segments[segment].frame.first_chunk + begin;
    const int32_t reach = atomic_load_explicit(&s->reach, memory_order_relaxed);
    struct lexical_selected *selected = &w->selected;
    for (int i = left - 1; i >= 0 && selected->n > 0; i--)
        if (!lexical_selected_add_sparse(selected, &w->cursors[i], &l->sparse[i], begin, reach - l->most_before[i])) {
            atomic_store(&s->damaged, segment + 1);
            return;
        }
    int32_t most = l->dense_most;
    for (int d = 0; d < l->n_dense && selected->n > 0; d++) {
        most -= l->dense[d].weight[LEXICAL_CODES];
        lexical_selected_add_dense(selected, &l->dense[d], begin, reach - most, s->vectors);
    }
    for (int i = 0; i < selected->n; i++)
        if (selected->sums[i] > 0) heap_offer(w, s->k, (struct found){selected->sums[i], first + selected->chunks[i]});
    raise_reach(s, w);
}

static void leave_out(struct worker *w, int64_t first, int n, int64_t begin, int64_t end) {
    for (int64_t c = begin > first ? begin : first; c < end && c < first + n; c++)
        w->sums[c - first] = LEXICAL_EXCLUDED;
}

static void leave_out_absent(const struct search *s, struct worker *w, int64_t first, int n) {
    for (int64_t at = first; s->absent.n > 0 && at < first + n;) {
        struct store_range there = store_dropped_span(s->absent, at, first + n);
        leave_out(w, first, n, at, there.begin);
        at = there.end;
    }
}

/* Removes the same chunks from the selected ones: kept sums must not change. */
static void selected_leave_out(const struct search *s, struct lexical_selected *selected, int64_t first) {
    int kept = 0;
    for (int i = 0; i < selected->n; i++) {
        const int64_t chunk = first + selected->chunks[i];
        const bool excluded = s->exclude && chunk >= s->exclude->begin && chunk < s->exclude->end;
        selected->chunks[kept] = selected->chunks[i];
        selected->sums[kept] = selected->sums[i];
        kept += !excluded && store_dropped_live(s->absent, chunk);
    }
    selected->n = kept;
}

/* Sums the sparse lists from `left` on over a window. Returns NULL if a list is damaged. */
static int32_t *sum_window(struct search *s, struct worker *w, int64_t segment, uint32_t begin, uint32_t end,
                           int left) {
    const struct lexical_lists *l = &s->plan->segments[segment];
    const struct lexical_changes *changes = s->changes ? &s->changes[segment] : NULL;
    const struct lexical_weighted *lists = changes ? changes->lists : l->sparse;
    const int n = (int)(end - begin), n_lists = changes ? changes->n : l->n_sparse;
    int32_t *sums = changes ? changes->sums + begin : w->sums;
    bool good = true;
    if (!changes || s->fresh) memset(sums, 0, (size_t)n * sizeof *sums);
    for (int i = changes ? 0 : left; i < n_lists && good; i++)
        good = lexical_window_add(sums, &w->cursors[i], &lists[i], begin, end);
    if (!good) atomic_store(&s->damaged, segment + 1);
    const int64_t first = s->x->segments[segment].frame.first_chunk + begin;
    if (!changes && s->exclude) leave_out(w, first, n, s->exclude->begin, s->exclude->end);
    if (!changes) leave_out_absent(s, w, first, n);
    for (int c = n; c % LEXICAL_GROUP; c++)
        sums[c] = LEXICAL_EXCLUDED;
    return good ? sums : NULL;
}

/* Scores the chunks of a window with low <= sum < high. */
static void score_sums(struct search *s, struct worker *w, int64_t segment, struct store_range window,
                       const int32_t *sums, int left, int32_t low, int32_t high) {
    lexical_window_select(&w->selected, sums, (int)(window.end - window.begin), low, high, s->vectors);
    if (s->changes) selected_leave_out(s, &w->selected, s->x->segments[segment].frame.first_chunk + window.begin);
    score_selected(s, w, segment, (uint32_t)window.begin, left);
}

static void search_window(struct search *s, struct worker *w, int64_t segment, uint32_t begin, uint32_t end) {
    const struct lexical_lists *l = &s->plan->segments[segment];
    const struct store_range window = {begin, end};
    int32_t high = INT_MAX, reach = atomic_load_explicit(&s->reach, memory_order_relaxed);
    const int left = s->changes ? 0 : lists_left(l, reach);
    const int32_t *sums = sum_window(s, w, segment, begin, end, left);
    if (!sums) return;
    reach = atomic_load_explicit(&s->reach, memory_order_relaxed);
    if (reach <= 1) { /* first the chunks with the greatest sums: the score that they reach excludes most others */
        high = kth_sum(w, sums, s->k, (int)(end - begin));
        score_sums(s, w, segment, window, sums, left, high, INT_MAX);
        reach = atomic_load_explicit(&s->reach, memory_order_relaxed);
    }
    const int32_t low = reach > l->most_before[left] ? reach - l->most_before[left] : 0;
    if (low < high) score_sums(s, w, segment, window, sums, left, low, high);
}

/* ---- all windows ---- */

static int64_t windows_of(const struct lexical *x, int64_t segment) {
    return (x->segments[segment].frame.chunks + LEXICAL_WINDOW - 1) / LEXICAL_WINDOW;
}

/* Searches windows from .. to-1 of a segment. */
static void search_segment(struct search *s, struct worker *w, int64_t segment, int64_t from, int64_t to) {
    const struct lexical_weighted *lists = s->changes ? s->changes[segment].lists : s->plan->segments[segment].sparse;
    const int n = s->changes ? s->changes[segment].n : s->plan->segments[segment].n_sparse;
    const int64_t chunks = s->x->segments[segment].frame.chunks;
    for (int i = 0; i < n && from < to; i++)
        lexical_cursor_seek(&w->cursors[i], &lists[i].list, (uint32_t)(from * LEXICAL_WINDOW));
    for (int64_t i = from; i < to && !atomic_load(&s->damaged); i++) {
        int64_t last = (i + 1) * LEXICAL_WINDOW < chunks ? (i + 1) * LEXICAL_WINDOW : chunks;
        search_window(s, w, segment, (uint32_t)(i * LEXICAL_WINDOW), (uint32_t)last);
    }
}

static void search_body(void *context, int64_t begin, int64_t end, int worker) {
    struct search *s = context;
    for (int64_t segment = 0, before = 0; segment < s->x->n && before < end; segment++) {
        const int64_t windows = windows_of(s->x, segment), from = begin > before ? begin - before : 0;
        search_segment(s, &s->workers[worker], segment, from, end - before < windows ? end - before : windows);
        before += windows;
    }
}

/* Windows are in groups of SAMPLED, whose middle one is in the sample. */
static void sample_body(void *context, int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin * SAMPLED + SAMPLED / 2; i < end * SAMPLED; i += SAMPLED)
        search_body(context, i, i + 1, worker);
}

static void rest_body(void *context, int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin * SAMPLED; i < end * SAMPLED; i += SAMPLED) {
        search_body(context, i, i + SAMPLED / 2, worker);
        search_body(context, i + SAMPLED / 2 + 1, i + SAMPLED, worker);
    }
}

static int by_score(const void *a, const void *b) {
    return found_is_worse(*(const struct found *)b, *(const struct found *)a) ? -1 : 1;
}

/* The heaps of all workers are contiguous: [workers * k]. */
static void lexical_search_collect(struct store_hit *hits, struct search *s, int workers) {
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
    s->found = n < s->k ? n : s->k;
    s->kth = s->found == s->k ? all[s->k - 1].score : 0;
}

/* Calls the body for n windows or groups of them, and collects the hits. */
static void search_windows(struct search *s, struct store_hit *hits, struct threads *threads, int64_t n,
                           threads_body *body) {
    threads_for(threads, n, n / ((int64_t)threads_count(threads) * RANGES_A_WORKER) + 1, body, s);
    lexical_search_collect(hits, s, threads_count(threads));
}

/* After search_windows: the hits become those of the first thread, in ascending order, which is a heap. */
static void keep_hits(struct search *s, struct threads *threads) {
    struct found *heap = s->workers[0].heap;
    for (int64_t i = 0, j = s->found - 1; i < j; i++, j--) {
        const struct found other = heap[i];
        heap[i] = heap[j];
        heap[j] = other;
    }
    for (int i = 0; i < threads_count(threads); i++)
        s->workers[i].n = i == 0 ? (int)s->found : 0;
    raise_reach(s, &s->workers[0]);
}

/* Before another search: k chunks have at least the score of the k-th hit, if there is one. */
static void drop_hits(struct search *s, struct threads *threads) {
    for (int i = 0; i < threads_count(threads); i++)
        s->workers[i].n = 0;
    s->reach = s->kth > 0 ? s->kth : 1;
}

/* Searches all windows. If there are many and no score is expected, those of a sample are first. Their hits give a
 * score that probably k chunks have, from which the others start. If the expected score was too high, fewer than k
 * chunks have it, and nothing is known about the others: then all are searched again. */
static void search_all(struct search *s, struct store_hit *hits, struct threads *threads, int64_t windows) {
    const int64_t groups = (windows + SAMPLED - 1) / SAMPLED, rank = SAMPLE_SPARE + SAMPLE_MORE * s->k / SAMPLED;
    int expected = s->reach;
    if (expected <= 1 && !s->changes && windows >= SAMPLED_MIN && rank <= s->k) {
        search_windows(s, hits, threads, groups, sample_body);
        const double score = s->found >= rank ? (double)hits[rank - 1].score / (double)s->plan->unit : 1;
        keep_hits(s, threads);
        expected = score > s->reach ? (int)score : s->reach;
        s->reach = expected;
        search_windows(s, hits, threads, groups, rest_body);
    } else {
        search_windows(s, hits, threads, windows, search_body);
    }
    if (s->kth >= expected || expected <= 1 || s->damaged) return;
    drop_hits(s, threads);
    s->fresh = false;
    for (int64_t i = 0; s->changes && i < s->x->n; i++)
        s->changes[i].n = 0;
    search_windows(s, hits, threads, windows, search_body);
}

static enum status search_planned(struct search *s, struct store_hit *hits, struct threads *threads) {
    int64_t windows = 0;
    for (int64_t i = 0; i < s->x->n; i++)
        windows += windows_of(s->x, i);
    if (windows <= 1) threads = NULL;
    size_t count = (size_t)threads_count(threads), k = (size_t)s->k, lists = (size_t)s->plan->sparse_most;
    for (int64_t i = 0; s->changes && i < s->x->n; i++)
        lists = (size_t)s->changes[i].n > lists ? (size_t)s->changes[i].n : lists;
    enum { SELECTED = LEXICAL_WINDOW + LEXICAL_GROUP };
    int32_t *sums = NULL, *selected = NULL, *sample = NULL;
    uint32_t *chunks = NULL;
    struct lexical_cursor *cursors = NULL;
    struct found *heaps = NULL;
    enum status status;
    TRY_GOTO(status, memory_allocate(&s->workers, count), out);
    TRY_GOTO(status, memory_allocate(&sums, count * LEXICAL_WINDOW), out);
    TRY_GOTO(status, memory_allocate(&chunks, count * SELECTED), out);
    TRY_GOTO(status, memory_allocate(&selected, count * SELECTED), out);
    TRY_GOTO(status, memory_allocate(&cursors, count * lists), out);
    TRY_GOTO(status, memory_allocate(&heaps, count * k), out);
    TRY_GOTO(status, memory_allocate(&sample, count * k), out);
    for (size_t i = 0; i < count; i++)
        s->workers[i] = (struct worker){.sums = sums + i * LEXICAL_WINDOW,
                                        .selected = {chunks + i * SELECTED, selected + i * SELECTED, 0},
                                        .cursors = cursors + i * lists,
                                        .heap = heaps + i * k,
                                        .sample = sample + i * k};
    search_all(s, hits, threads, windows);
out:
    memory_free(s->workers);
    memory_free(sums);
    memory_free(chunks);
    memory_free(selected);
    memory_free(cursors);
    memory_free(heaps);
    memory_free(sample);
    return status;
}

static enum status search_one(const struct lexical *x, struct store_hit *hits, const struct lexical_query *query,
                              const struct store_range *exclude, const struct lexical_search *how,
                              struct threads *threads, struct lexical_cache *cache) {
    struct lexical_plan plan;
    TRY(lexical_plan_make(&plan, x, query, how, cache));
    const double expected = EXPECTED_SHARE * (double)lexical_cache_kth(cache, how) / (double)plan.unit;
    struct search s = {.x = x,
                       .plan = &plan,
                       .exclude = exclude,
                       .absent = how->absent,
                       .k = how->k,
                       .vectors = lexical_vectors_widest(),
                       .reach = expected > 1 && expected < INT_MAX ? (int)expected : 1};
    lexical_changes_begin(cache, &s.changes, &s.fresh, x, &plan);
    enum status status = search_planned(&s, hits, threads);
    if (s.changes && !s.damaged && status == STATUS_OK) lexical_changes_end(cache);
    if (!s.damaged && status == STATUS_OK) lexical_cache_keep_plan(cache, &plan, x, query, how);
    lexical_plan_free(&plan);
    TRY(status);
    if (s.damaged)
        return fail(STATUS_CORRUPT, "%s: a list of postings is damaged: run drt-index repair",
                    x->segments[s.damaged - 1].path);
    lexical_cache_keep_kth(cache, how, s.found == how->k ? hits[how->k - 1].score : 0);
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
            search_one(b->x, b->hits + (size_t)q * (size_t)b->how->k, &b->queries[q], exclude, b->how, NULL, NULL);
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
                       how->threads, n_queries == 1 ? how->cache : NULL);
    return s;
}
