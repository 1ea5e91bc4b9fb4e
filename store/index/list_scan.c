/* list_scan.c -- see list_scan_internal.h.
 *
 *   few queries    are searched one after another: the threads share the coded centroids, then the lists, best first
 *   many queries   are divided into blocks, one for a thread. Visits are ordered by list, so that a list's rows are
 *                  read once for all queries of the block. The best lists of each query are visited in a first round,
 *                  because their scores exclude most rows of the later lists.
 *
 * Rows are scored in blocks that stay in the first-level cache. One comparison skips a group of 16 sums if the largest
 * of them cannot enter the query's list. */
#include "base/memory.h"
#include "base/top_list.h"
#include "store/index/list_scan_internal.h"
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    ROWS = 64,           /* a block of rows */
    GROUP = 16,          /* sums that one comparison can skip */
    TOGETHER = 8,        /* queries that read the coded centroids together */
    BLOCK_QUERIES = 512, /* queries in the block of one thread */
    VISITS = 1 << 20,    /* visits of a block, approximately */
    FIRST_VISITS = 4,    /* visits of a query in the first round */
    BUCKETS = 1024,
    CENTROIDS_AHEAD = 3,  /* rows of centroids that are prefetched */
    CENTROIDS_GRAIN = 32, /* of them that a thread takes at a time */
    LINE = 64,
    BYTES_ALONE = 1 << 19 /* with fewer bytes of codes a second thread makes the search slower */
};

struct list_scan {
    int dim;
    int64_t lists;
    const float *centroids;
    struct list_scan_list *list;
    struct code_range rows, coarse; /* how rows and centroids are coded: their ranges */
    float *ranges;                  /* the memory of `rows` and `coarse` */
    uint8_t *coded;                 /* [lists, dim]: centroids */
    bool residual;
    code_sums *sums;
};

/* ---- making ---- */

/* Makes the codes of centroids: 255 steps between the least and the greatest value of each dimension. */
static void code_centroids(struct list_scan *x, float *low, float *step) {
    const size_t dim = (size_t)x->dim;
    memcpy(low, x->centroids, dim * sizeof *low);
    memcpy(step, x->centroids, dim * sizeof *step);
    for (int64_t l = 1; l < x->lists; l++)
        for (size_t i = 0; i < dim; i++) {
            float value = x->centroids[(size_t)l * dim + i];
            low[i] = value < low[i] ? value : low[i];
            step[i] = value > step[i] ? value : step[i];
        }
    for (size_t i = 0; i < dim; i++)
        step[i] = (step[i] - low[i]) / 255;
    for (int64_t l = 0; l < x->lists; l++)
        for (size_t i = 0; i < dim; i++) {
            float code = step[i] > 0 ? (x->centroids[(size_t)l * dim + i] - low[i]) / step[i] + 0.5f : 0;
            x->coded[(size_t)l * dim + i] = code > 0 ? code < 255 ? (uint8_t)code : 255 : 0;
        }
}

enum status list_scan_make(struct list_scan **out, const struct list_scan_source *source) {
    const size_t dim = (size_t)source->dim, lists = (size_t)source->lists;
    struct list_scan *x;
    enum status s;
    assert(source->dim >= 1 && source->lists >= 1);
    TRY(memory_allocate_zero(&x, 1));
    *x = (struct list_scan){.dim = source->dim,
                            .lists = source->lists,
                            .centroids = source->centroids,
                            .residual = source->residual,
                            .sums = code_sums_best()};
    TRY_GOTO(s, memory_allocate(&x->list, lists), out);
    TRY_GOTO(s, memory_allocate(&x->ranges, 4 * dim), out);
    TRY_GOTO(s, memory_allocate_aligned(&x->coded, lists * dim), out);
    memcpy(x->list, source->list, lists * sizeof *x->list);
    memcpy(x->ranges, source->low, dim * sizeof *x->ranges);
    memcpy(x->ranges + dim, source->step, dim * sizeof *x->ranges);
    code_centroids(x, x->ranges + 2 * dim, x->ranges + 3 * dim);
    x->rows = (struct code_range){x->ranges, x->ranges + dim};
    x->coarse = (struct code_range){x->ranges + 2 * dim, x->ranges + 3 * dim};
    *out = x;
    return STATUS_OK;
out:
    list_scan_free(x);
    return s;
}

void list_scan_free(struct list_scan *x) {
    if (!x) return;
    memory_free(x->list);
    memory_free(x->ranges);
    memory_free(x->coded);
    memory_free(x);
}

void list_scan_use(struct list_scan *x, code_sums *sums) {
    x->sums = sums;
}

/* ---- rows ---- */

/* A query and its best rows, to which rows of one list are offered. */
struct target {
    const struct code_query *query;
    struct top_list best;
    const struct store_range *exclude; /* NULL: none */
    _Atomic float *reach;              /* lower bound of the k-th best score over all threads; NULL: one thread */
    double bias;                       /* of the list; it is added to the score of every row */
};

/* The least sum whose score may enter the list. Scores are rounded to float32, so the bound is one step below the worst
 * score in the list. */
static int32_t least_sum(const struct target *t) {
    float worst = t->best.score[0];
    if (t->reach) {
        float reach = atomic_load_explicit(t->reach, memory_order_relaxed);
        worst = reach > worst ? reach : worst;
    }
    double least = floor(((double)nextafterf(worst, -INFINITY) - t->bias) / t->query->unit) - 1;
    return !(least > INT32_MIN) ? INT32_MIN : least < INT32_MAX ? (int32_t)least : INT32_MAX;
}

static void raise_reach(const struct target *t) {
    float now = atomic_load_explicit(t->reach, memory_order_relaxed);
    while (t->best.score[0] > now && !atomic_compare_exchange_weak(t->reach, &now, t->best.score[0])) {
    }
}

static void offer_group(const struct target *t, const int32_t *sums, int n, const void *ids, int64_t first) {
    for (int i = 0; i < n; i++) {
        int64_t id;
        float score = (float)(t->bias + (double)sums[i] * t->query->unit);
        if (!(score >= t->best.score[0])) continue;
        memcpy(&id, (const char *)ids + (size_t)(first + i) * sizeof id, sizeof id);
        if (t->exclude && id >= t->exclude->begin && id < t->exclude->end) continue;
        top_list_offer(t->best, score, id);
    }
}

static void offer_sums(const struct target *t, const int32_t *sums, int n, const void *ids, int64_t first) {
    int32_t least = least_sum(t);
    for (int at = 0; at < n; at += GROUP) {
        int some = n - at < GROUP ? n - at : GROUP;
        int32_t most = sums[at];
        for (int i = 1; i < some; i++)
            most = sums[at + i] > most ? sums[at + i] : most;
        if (most < least) continue;
        offer_group(t, sums + at, some, ids, first + at);
        least = least_sum(t);
    }
    if (t->reach) raise_reach(t);
}

static void scan_list(const struct list_scan *x, const struct list_scan_list *list, const struct target *targets,
                      int n_targets) {
    int32_t sums[ROWS];
    for (int64_t at = 0; at < list->n; at += ROWS) {
        int n = (int)(list->n - at < ROWS ? list->n - at : ROWS);
        for (int t = 0; t < n_targets; t++) {
            x->sums(sums, list->codes + (size_t)at * (size_t)x->dim, n, targets[t].query, x->dim);
            offer_sums(&targets[t], sums, n, list->ids, at);
        }
    }
}

/* ---- which lists ---- */

typedef float v8 __attribute__((vector_size(32)));
typedef float v8u __attribute__((vector_size(32), aligned(4)));

static float list_scan_dot(const float *a, const float *b, int dim) {
    v8 x = {0}, y = {0};
    int i = 0;
    for (; i + 16 <= dim; i += 16) {
        x += *(const v8u *)(a + i) * *(const v8u *)(b + i);
        y += *(const v8u *)(a + i + 8) * *(const v8u *)(b + i + 8);
    }
    x += y;
    float sum = ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
    for (; i < dim; i++)
        sum += a[i] * b[i];
    return sum;
}

static bool visits_by_codes(const struct list_scan *x, int nprobe) {
    return 2 * (int64_t)nprobe + 16 < x->lists;
}

/* Moves the numbers of at least `wanted` lists with the largest sums to the front of `sums`; returns their number. */
static int64_t greatest_sums(int32_t *sums, int64_t n, int64_t wanted) {
    int32_t low = sums[0], high = sums[0], count[BUCKETS] = {0};
    for (int64_t i = 1; i < n; i++) {
        low = sums[i] < low ? sums[i] : low;
        high = sums[i] > high ? sums[i] : high;
    }
    int shift = 0;
    while (((uint32_t)high - (uint32_t)low) >> shift >= BUCKETS)
        shift++;
    for (int64_t i = 0; i < n; i++)
        count[((uint32_t)sums[i] - (uint32_t)low) >> shift]++;
    int bucket = BUCKETS - 1;
    for (int64_t seen = count[bucket]; seen < wanted && bucket > 0;)
        seen += count[--bucket];
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if ((int)(((uint32_t)sums[i] - (uint32_t)low) >> shift) >= bucket) sums[kept++] = (int32_t)i;
    return kept;
}

/* Sets numbers [lists], which are the sums of the coded centroids if these are used, to the lists whose centroids'
 * products are computed. Returns how many these are. */
static int64_t near_lists(const struct list_scan *x, int32_t *numbers, int nprobe) {
    if (visits_by_codes(x, nprobe)) return greatest_sums(numbers, x->lists, 2 * (int64_t)nprobe + 16);
    for (int64_t i = 0; i < x->lists; i++)
        numbers[i] = (int32_t)i;
    return x->lists;
}

static const float *centroid_of(const struct list_scan *x, int64_t list) {
    return x->centroids + (size_t)list * (size_t)x->dim;
}

/* products[i] of the lists numbers[i], begin .. end-1. Their centroids are anywhere in main memory. */
static void list_products(const struct list_scan *x, float *products, const int32_t *numbers, const float *query,
                          int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        for (int64_t next = i == begin ? i + 1 : i + CENTROIDS_AHEAD; next <= i + CENTROIDS_AHEAD && next < end; next++)
            for (int at = 0; at < x->dim; at += LINE / (int)sizeof(float))
                __builtin_prefetch(centroid_of(x, numbers[next]) + at, 0, 2);
        products[i] = list_scan_dot(query, centroid_of(x, numbers[i]), x->dim);
    }
}

/* Selects lists[nprobe], best first, of those with products. */
static void order_lists(struct top_list lists, const int32_t *numbers, const float *products, int64_t n) {
    top_list_clear(lists);
    for (int64_t i = 0; i < n; i++)
        top_list_offer(lists, products[i], numbers[i]);
    top_list_sort(lists);
}

/* Sets the lists that other slices scan to -1. */
static void skip_lists(const struct list_scan_search *how, struct top_list lists) {
    for (int i = 0; how->lists.end > 0 && i < lists.k; i++)
        if (lists.id[i] < how->lists.begin || lists.id[i] >= how->lists.end) lists.id[i] = -1;
}

/* A list belongs to the slice that contains its middle row. */
struct store_range list_scan_share(const struct list_scan *x, struct store_slice slice) {
    int64_t rows = 0, before = 0;
    struct store_range share = {0, 0};
    if (slice.of <= 1) return (struct store_range){0, x->lists};
    for (int64_t l = 0; l < x->lists; l++)
        rows += x->list[l].n;
    for (int64_t l = 0; l < x->lists; before += x->list[l++].n) {
        const __int128 middle = (__int128)(2 * before + x->list[l].n) * slice.of;
        if (middle < (__int128)2 * rows * slice.number) share.begin = l + 1;
        if (middle < (__int128)2 * rows * (slice.number + 1)) share.end = l + 1;
    }
    if (slice.number == slice.of - 1) share.end = x->lists;
    return share.end > share.begin ? share : (struct store_range){x->lists, x->lists};
}

/* ---- searching ---- */

struct visit {
    int32_t list, query; /* query: number within the block */
    float product;
};

struct worker {
    uint8_t *weights; /* [block + TOGETHER][code_query_bytes] */
    struct code_query *queries;
    struct target *targets; /* [block] */
    int32_t *sums;          /* [TOGETHER][lists] */
    float *products;        /* [lists] */
    int64_t *list_ids;      /* [nprobe] */
    float *list_scores;
    struct visit *visits, *ordered; /* [block * nprobe] */
    int64_t *starts;                /* [lists + 1] */
};

struct search {
    const struct list_scan *x;
    const struct list_scan_search *how;
    int64_t *ids; /* [n * k] */
    float *scores;
    int block; /* queries */
    struct worker *workers;
    /* for few queries: the query that is searched now */
    int64_t *own_ids; /* [worker][k] */
    float *own_scores;
    _Atomic float reach;
    int64_t query;
};

static struct top_list result_of(const struct search *s, int64_t query) {
    const int64_t at = query * s->how->k;
    return (struct top_list){s->ids + at, s->scores + at, s->how->k};
}

static const float *query_of(const struct search *s, int64_t query) {
    return s->how->queries + (size_t)query * (size_t)s->x->dim;
}

static uint8_t *weights_at(const struct search *s, const struct worker *w, int i) {
    return w->weights + (size_t)i * code_query_bytes(s->x->dim);
}

static struct target target_of(const struct search *s, const struct worker *w, int in_block, int64_t query,
                               float product) {
    const struct code_query *q = &w->queries[in_block];
    return (struct target){.query = q,
                           .best = result_of(s, query),
                           .exclude = s->how->exclude ? s->how->exclude + query : NULL,
                           .bias = q->base + (s->x->residual ? (double)product : 0)};
}

/* ---- many queries ---- */

static void block_lists(const struct search *s, struct worker *w, int64_t first, int n) {
    const struct list_scan *x = s->x;
    const int nprobe = s->how->nprobe;
    struct top_list lists = {w->list_ids, w->list_scores, nprobe};
    for (int q = 0; q < n; q += TOGETHER) {
        int some = n - q < TOGETHER ? n - q : TOGETHER;
        struct code_query coarse[TOGETHER];
        for (int i = 0; i < some; i++)
            code_query_make(&coarse[i], weights_at(s, w, s->block + i), query_of(s, first + q + i), x->coarse, x->dim);
        for (int64_t at = 0; at < x->lists && visits_by_codes(x, nprobe); at += ROWS)
            for (int i = 0; i < some; i++)
                x->sums(w->sums + i * x->lists + at, x->coded + (size_t)at * (size_t)x->dim,
                        x->lists - at < ROWS ? x->lists - at : ROWS, &coarse[i], x->dim);
        for (int i = 0; i < some; i++) {
            int32_t *numbers = w->sums + i * x->lists;
            const int64_t near = near_lists(x, numbers, nprobe);
            list_products(x, w->products, numbers, query_of(s, first + q + i), 0, near);
            order_lists(lists, numbers, w->products, near);
            skip_lists(s->how, lists);
            for (int j = 0; j < nprobe; j++)
                w->visits[(int64_t)(q + i) * nprobe + j] = (struct visit){(int32_t)lists.id[j], q + i, lists.score[j]};
        }
    }
}

/* Orders visits from .. to-1 of every query by list. */
static void block_round(const struct search *s, struct worker *w, int64_t first, int n, int from, int to) {
    const struct list_scan *x = s->x;
    const int nprobe = s->how->nprobe;
    memset(w->starts, 0, (size_t)(x->lists + 1) * sizeof *w->starts);
    for (int q = 0; q < n; q++)
        for (int j = from; j < to; j++) {
            int32_t list = w->visits[(int64_t)q * nprobe + j].list;
            if (list >= 0) w->starts[list + 1]++;
        }
    for (int64_t l = 0; l < x->lists; l++)
        w->starts[l + 1] += w->starts[l];
    for (int q = 0; q < n; q++)
        for (int j = from; j < to; j++) {
            struct visit v = w->visits[(int64_t)q * nprobe + j];
            if (v.list >= 0) w->ordered[w->starts[v.list]++] = v;
        }
    for (int64_t l = 0, at = 0; l < x->lists; l++) { /* at this point starts[l] is the end of list l */
        int targets = 0;
        for (; at < w->starts[l]; at++) {
            const struct visit *v = &w->ordered[at];
            w->targets[targets++] = target_of(s, w, v->query, first + v->query, v->product);
        }
        if (targets > 0) scan_list(x, &x->list[l], w->targets, targets);
    }
}

static void search_block(struct search *s, struct worker *w, int64_t first, int n) {
    const int nprobe = s->how->nprobe, before = nprobe < FIRST_VISITS ? nprobe : FIRST_VISITS;
    for (int q = 0; q < n; q++) {
        code_query_make(&w->queries[q], weights_at(s, w, q), query_of(s, first + q), s->x->rows, s->x->dim);
        w->queries[q].alone = n == 1;
        top_list_clear(result_of(s, first + q));
    }
    block_lists(s, w, first, n);
    block_round(s, w, first, n, 0, before);
    if (before < nprobe) block_round(s, w, first, n, before, nprobe);
    for (int q = 0; q < n; q++)
        top_list_sort(result_of(s, first + q));
}

static void search_blocks(void *context, int64_t begin, int64_t end, int worker) {
    struct search *s = context;
    for (int64_t b = begin; b < end; b++) {
        int64_t first = b * s->block, left = s->how->n - first;
        search_block(s, &s->workers[worker], first, (int)(left < s->block ? left : s->block));
    }
}

/* ---- few queries ---- */

static struct top_list own_list(const struct search *s, int worker) {
    return (struct top_list){s->own_ids + (size_t)worker * (size_t)s->how->k,
                             s->own_scores + (size_t)worker * (size_t)s->how->k, s->how->k};
}

static void coarse_body(void *context, int64_t begin, int64_t end, int worker) {
    struct search *s = context;
    struct worker *w = &s->workers[0]; /* the state of the first worker describes the query */
    (void)worker;
    s->x->sums(w->sums + begin, s->x->coded + (size_t)begin * (size_t)s->x->dim, end - begin, &w->queries[1],
               s->x->dim);
}

static void products_body(void *context, int64_t begin, int64_t end, int worker) {
    struct search *s = context;
    struct worker *w = &s->workers[0];
    (void)worker;
    list_products(s->x, w->products, w->sums, query_of(s, s->query), begin, end);
}

static void visits_body(void *context, int64_t begin, int64_t end, int worker) {
    struct search *s = context;
    const struct worker *w = &s->workers[0];
    for (int64_t i = begin; i < end; i++) {
        int64_t list = w->list_ids[i];
        if (list < 0) continue;
        struct target t = target_of(s, w, 0, s->query, w->list_scores[i]);
        t.best = own_list(s, worker);
        t.reach = &s->reach;
        scan_list(s->x, &s->x->list[list], &t, 1);
    }
}

static void search_by_lists(struct search *s, int64_t query) {
    const struct list_scan *x = s->x;
    struct worker *w = &s->workers[0];
    struct threads *threads = s->how->threads;
    const int workers = threads_count(threads), nprobe = s->how->nprobe;
    struct top_list best = result_of(s, query), lists = {w->list_ids, w->list_scores, nprobe};
    int64_t rows = 0;
    s->query = query;
    atomic_store(&s->reach, -INFINITY);
    code_query_make(&w->queries[0], weights_at(s, w, 0), query_of(s, query), x->rows, x->dim);
    code_query_make(&w->queries[1], weights_at(s, w, 1), query_of(s, query), x->coarse, x->dim);
    w->queries[0].alone = w->queries[1].alone = true;
    if (visits_by_codes(x, nprobe)) threads_for(threads, x->lists, x->lists / workers + 1, coarse_body, s);
    const int64_t near = near_lists(x, w->sums, nprobe);
    threads_for(threads, near, CENTROIDS_GRAIN, products_body, s);
    order_lists(lists, w->sums, w->products, near);
    skip_lists(s->how, lists);
    for (int i = 0; i < nprobe; i++)
        rows += lists.id[i] >= 0 ? x->list[lists.id[i]].n : 0;
    for (int i = 0; i < workers; i++)
        top_list_clear(own_list(s, i));
    threads_for(rows * x->dim > BYTES_ALONE ? threads : NULL, nprobe, 1, visits_body, s);
    memcpy(best.id, s->own_ids, (size_t)best.k * sizeof *best.id); /* those of the first thread */
    memcpy(best.score, s->own_scores, (size_t)best.k * sizeof *best.score);
    for (int i = 1; i < workers; i++) {
        struct top_list found = own_list(s, i);
        for (int j = 0; j < s->how->k; j++)
            if (found.id[j] >= 0) top_list_offer(best, found.score[j], found.id[j]);
    }
    top_list_sort(best);
}

/* ---- both ---- */

static void workers_free(struct worker *workers, int n) {
    for (int i = 0; workers && i < n; i++) {
        memory_free(workers[i].weights);
        memory_free(workers[i].queries);
        memory_free(workers[i].targets);
        memory_free(workers[i].sums);
        memory_free(workers[i].products);
        memory_free(workers[i].list_ids);
        memory_free(workers[i].list_scores);
        memory_free(workers[i].visits);
        memory_free(workers[i].ordered);
        memory_free(workers[i].starts);
    }
    memory_free(workers);
}

static enum status worker_make(struct worker *w, const struct search *s, bool few) {
    const size_t block = (size_t)s->block, lists = (size_t)s->x->lists, nprobe = (size_t)s->how->nprobe;
    TRY(memory_allocate_aligned(&w->weights, (block + TOGETHER) * code_query_bytes(s->x->dim)));
    TRY(memory_allocate(&w->queries, block + TOGETHER));
    TRY(memory_allocate(&w->list_ids, nprobe));
    TRY(memory_allocate(&w->list_scores, nprobe));
    TRY(memory_allocate(&w->sums, few ? lists : TOGETHER * lists));
    TRY(memory_allocate(&w->products, lists));
    if (few) return STATUS_OK;
    TRY(memory_allocate(&w->targets, block));
    TRY(memory_allocate(&w->visits, block * nprobe));
    TRY(memory_allocate(&w->ordered, block * nprobe));
    return memory_allocate(&w->starts, lists + 1);
}

/* Divides the queries into blocks of equal size. The number of blocks is a multiple of the threads, unless the blocks
 * would be too large. */
static int block_size(const struct list_scan_search *how, int workers) {
    int64_t most = VISITS / how->nprobe < BLOCK_QUERIES ? VISITS / how->nprobe : BLOCK_QUERIES;
    if (most < 1) most = 1;
    int64_t blocks = ((how->n + most - 1) / most + workers - 1) / workers * workers;
    return (int)((how->n + blocks - 1) / blocks);
}

static enum status search_all(struct search *s) {
    const struct list_scan_search *how = s->how;
    const int count = threads_count(how->threads);
    const bool few = count > 1 && how->n < 2 * (int64_t)count;
    const int workers = few ? 1 : count;
    enum status status;
    s->block = few ? 1 : block_size(how, count);
    TRY(memory_allocate_zero(&s->workers, (size_t)workers));
    for (int i = 0; i < workers; i++)
        TRY_GOTO(status, worker_make(&s->workers[i], s, few), out);
    if (few) {
        TRY_GOTO(status, memory_allocate(&s->own_ids, (size_t)count * (size_t)how->k), out);
        TRY_GOTO(status, memory_allocate(&s->own_scores, (size_t)count * (size_t)how->k), out);
        for (int64_t q = 0; q < how->n; q++)
            search_by_lists(s, q);
    } else {
        threads_for(how->threads, (how->n + s->block - 1) / s->block, 1, search_blocks, s);
    }
    status = STATUS_OK;
out:
    workers_free(s->workers, workers);
    memory_free(s->own_ids);
    memory_free(s->own_scores);
    return status;
}

enum status list_scan_find(const struct list_scan *x, int64_t *ids, float *scores, const struct list_scan_search *how) {
    struct search s = {.x = x, .how = how, .ids = ids, .scores = scores};
    float *own = NULL;
    assert(how->k >= 1 && how->nprobe >= 1 && how->nprobe <= x->lists);
    if (how->n == 0) return STATUS_OK;
    if (!scores) TRY(memory_allocate(&own, (size_t)how->n * (size_t)how->k));
    if (!scores) s.scores = own;
    enum status status = search_all(&s);
    memory_free(own);
    return status;
}
