/* lexical_lists.c -- see lexical_lists.h. */
#include "store/lexical/lexical_lists.h"
#include "base/memory.h"
#include "store/lexical/lexical_query_internal.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static_assert((int)LEXICAL_LIST_CODES == (int)LEXICAL_CODES);

struct lexical_postings lexical_segment_postings(const struct lexical *x, int64_t segment) {
    assert(segment >= 0 && segment < x->n);
    const struct lexical_segment *s = &x->segments[segment];
    return (struct lexical_postings){s->parts[LEXICAL_POSTINGS], s->frame.bytes[LEXICAL_POSTINGS]};
}

/* ---- check ---- */

enum { CHECK_ENTRIES = 256 }; /* entries of the dictionary's index that a thread takes at a time */

struct lists_check {
    const struct lexical *x;
    atomic_llong *postings; /* [segments] number of postings that were found */
    atomic_int status;      /* of the first part that failed */
    char message[1024];     /* of the thread that checked that part */
};

static int64_t check_parts(const struct lexical *x, int64_t segment) {
    return (lexical_segment_entries(&x->segments[segment]) + CHECK_ENTRIES - 1) / CHECK_ENTRIES;
}

static void check_part(struct lists_check *c, int64_t part) {
    int64_t segment = 0, postings = 0;
    for (; part >= check_parts(c->x, segment); segment++)
        part -= check_parts(c->x, segment);
    const struct lexical_segment *s = &c->x->segments[segment];
    int64_t from = part * CHECK_ENTRIES, entries = lexical_segment_entries(s);
    int64_t end = from + CHECK_ENTRIES < entries ? from + CHECK_ENTRIES : entries;
    int none = STATUS_OK;
    enum status status = lexical_segment_check(s, &postings, from, end, NULL);
    atomic_fetch_add(&c->postings[segment], postings);
    if (status != STATUS_OK && atomic_compare_exchange_strong(&c->status, &none, status))
        snprintf(c->message, sizeof c->message, "%s", status_message());
}

static void check_body(void *context, int64_t begin, int64_t end, int worker) {
    struct lists_check *c = context;
    (void)worker;
    for (int64_t i = begin; i < end && c->status == STATUS_OK; i++)
        check_part(c, i);
}

enum status lexical_check(const struct lexical *x, struct threads *threads) {
    struct lists_check c = {.x = x, .status = STATUS_OK};
    int64_t parts = 0;
    for (int64_t s = 0; s < x->n; s++)
        parts += check_parts(x, s);
    TRY(memory_allocate_zero(&c.postings, (size_t)x->n + 1));
    threads_for(threads, parts, 1, check_body, &c);
    enum status status = (enum status)c.status;
    if (status != STATUS_OK) status = fail(status, "%s", c.message);
    for (int64_t s = 0; s < x->n && status == STATUS_OK; s++)
        status = lexical_segment_check_count(&x->segments[s], c.postings[s]);
    memory_free(c.postings);
    return status;
}

/* ---- the lists of a query ---- */

static void take_lists(const struct lexical_segment *s, int64_t segment, const struct lexical_weighted *lists, int n,
                       lexical_take_list *take, void *context) {
    for (int i = 0; i < n; i++) {
        const struct lexical_list *l = &lists[i].list;
        struct lexical_query_list out = {.segment = segment,
                                         .begin = (uint64_t)(l->data - s->parts[LEXICAL_POSTINGS]),
                                         .bytes = (uint32_t)l->bytes,
                                         .n = (uint32_t)l->n,
                                         .form = l->form,
                                         .dense = l->kind == LEXICAL_DENSE};
        struct lexical_block block;
        if (l->kind == LEXICAL_SHORT && lexical_list_block(l, &block, 0)) {
            out.from = block.chunks[0];
            out.until = block.chunks[block.n - 1] + 1;
        }
        memcpy(out.weight, lists[i].weight + 1, sizeof out.weight);
        take(context, &out);
    }
}

enum status lexical_query_lists(const struct lexical *x, const struct lexical_query *q,
                                const struct lexical_search *how, struct lexical_cache *cache, float *unit,
                                lexical_take_list *take, void *context) {
    struct lexical_plan plan;
    TRY(lexical_plan_make(&plan, x, q, how, cache));
    *unit = plan.unit;
    for (int64_t s = 0; s < x->n; s++) {
        const struct lexical_lists *l = &plan.segments[s];
        take_lists(&x->segments[s], s, l->sparse, l->n_sparse, take, context);
        take_lists(&x->segments[s], s, l->dense, l->n_dense, take, context);
    }
    lexical_plan_free(&plan);
    return STATUS_OK;
}

/* ---- lists that were looked up before ---- */

/* A key replaces the one that had its row. */
enum { ROW_BITS = 12 };

struct cache_row {
    const struct lexical_segment *segment; /* NULL: free */
    uint64_t key;
    int64_t plan; /* number of the last plan that has it */
    struct lexical_list list;
};
struct lexical_cache {
    struct cache_row rows[1 << ROW_BITS];
    int64_t plan, keys, shared; /* number of the last plan, of its keys, and of those that the plan before had, too */
    float kth, pair_weight;     /* kth: score of the k-th hit; 0: there was none */
    int k;
    bool counted;
};

enum status lexical_cache_create(struct lexical_cache **out) {
    return memory_allocate_zero(out, 1);
}

void lexical_cache_free(struct lexical_cache *c) {
    memory_free(c);
}

void lexical_cache_begin(struct lexical_cache *c) {
    if (!c) return;
    c->plan++;
    c->keys = c->shared = 0;
}

enum status lexical_cache_find(struct lexical_cache *c, const struct lexical_segment *s, struct lexical_list *out,
                               uint64_t key) {
    if (!c) return lexical_segment_find(s, out, key);
    const uint64_t mixed = (key ^ s->frame.first_chunk << 40) * 0x9E3779B97F4A7C15u;
    struct cache_row *row = &c->rows[mixed >> (64 - ROW_BITS)];
    c->keys++;
    if (row->segment != s || row->key != key) {
        row->segment = NULL;
        TRY(lexical_segment_find(s, &row->list, key));
        row->segment = s;
        row->key = key;
    } else {
        c->shared += row->plan == c->plan - 1;
    }
    row->plan = c->plan;
    *out = row->list;
    return STATUS_OK;
}

float lexical_cache_kth(const struct lexical_cache *c, const struct lexical_search *how) {
    const bool alike = c && c->k == how->k && c->pair_weight == how->pair_weight && c->counted == how->counted;
    return alike && c->shared * 5 >= c->keys * 3 ? c->kth : 0; /* another text has other scores */
}

void lexical_cache_keep_kth(struct lexical_cache *c, const struct lexical_search *how, float kth) {
    if (!c) return;
    c->kth = kth;
    c->k = how->k;
    c->pair_weight = how->pair_weight;
    c->counted = how->counted;
}
