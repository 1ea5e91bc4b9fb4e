/* lexical_lists.c -- see lexical_lists.h. */
#include "store/lexical/lexical_lists.h"
#include "base/memory.h"
#include "store/lexical/lexical_window_internal.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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
struct kept_list {
    int64_t segment;
    struct lexical_weighted w;
};
struct lexical_cache {
    struct cache_row rows[1 << ROW_BITS];
    int64_t plan, keys, shared; /* number of the last plan, of its keys, and of those that the plan before had, too */
    float kth, pair_weight;     /* kth: score of the k-th hit; 0: there was none */
    int k;
    bool counted;
    /* the kept sums: of `kept` [n_kept], the sparse lists of a plan, in the order of their segments and keys */
    bool whole;
    int32_t *sums;
    struct kept_list *kept, *wanted;
    struct lexical_weighted *change_lists;
    struct lexical_changes *changes;
    size_t sums_capacity, kept_capacity, wanted_capacity, change_capacity, changes_capacity;
    int n_kept;
    /* the last search, if it succeeded */
    const struct lexical *searched; /* NULL: none */
    struct lexical_plan searched_plan;
    int32_t *searched_ids;
    size_t searched_capacity;
    int searched_n;
    float searched_weight;
    bool searched_counted, searched_sums; /* sums: the kept sums are of its plan */
};

enum status lexical_cache_create(struct lexical_cache **out) {
    return memory_allocate_zero(out, 1);
}

void lexical_cache_free(struct lexical_cache *c) {
    if (!c) return;
    memory_free(c->sums);
    memory_free(c->kept);
    memory_free(c->wanted);
    memory_free(c->change_lists);
    memory_free(c->changes);
    lexical_plan_free(&c->searched_plan);
    memory_free(c->searched_ids);
    memory_free(c);
}

void lexical_cache_begin(struct lexical_cache *c) {
    if (!c) return;
    c->searched = NULL;
    c->plan++;
    c->keys = c->shared = 0;
}

enum status lexical_cache_find(struct lexical_cache *c, const struct lexical_segment *s, struct lexical_list *out,
                               uint64_t key) {
    if (!c) return lexical_segment_find(s, out, key);
    const uint64_t mixed = (key ^ (uint64_t)s->frame.first_chunk << 40) * 0x9E3779B97F4A7C15u;
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

/* Whether the last plan shares most keys with the one before. */
static bool cache_continues(const struct lexical_cache *c) {
    return c->shared * 5 >= c->keys * 3;
}

float lexical_cache_kth(const struct lexical_cache *c, const struct lexical_search *how) {
    const bool alike = c && c->k == how->k && c->pair_weight == how->pair_weight && c->counted == how->counted;
    return alike && cache_continues(c) ? c->kth : 0; /* another text has other scores */
}

void lexical_cache_keep_kth(struct lexical_cache *c, const struct lexical_search *how, float kth) {
    if (!c) return;
    c->kth = kth;
    c->k = how->k;
    c->pair_weight = how->pair_weight;
    c->counted = how->counted;
}

/* ---- kept sums ---- */

enum { KEPT_CHUNKS_MAX = 1 << 24 }; /* 64 MiB of sums */

static int by_segment_and_key(const void *a, const void *b) {
    const struct kept_list *x = a, *y = b;
    if (x->segment != y->segment) return x->segment < y->segment ? -1 : 1;
    return (x->w.key > y->w.key) - (x->w.key < y->w.key);
}

/* Sets c->wanted to the sparse lists of the plan. Returns their number. */
static enum status kept_wanted(struct lexical_cache *c, int *n, const struct lexical *x,
                               const struct lexical_plan *plan) {
    *n = 0;
    for (int64_t s = 0; s < x->n; s++)
        *n += plan->segments[s].n_sparse;
    TRY(memory_grow(&c->wanted, &c->wanted_capacity, (size_t)*n + 1));
    *n = 0;
    for (int64_t s = 0; s < x->n; s++)
        for (int i = 0; i < plan->segments[s].n_sparse; i++)
            c->wanted[(*n)++] = (struct kept_list){s, plan->segments[s].sparse[i]};
    qsort(c->wanted, (size_t)*n, sizeof *c->wanted, by_segment_and_key);
    return STATUS_OK;
}

static int64_t kept_change(struct lexical_cache *c, const struct kept_list *l, int sign) {
    struct lexical_changes *of = &c->changes[l->segment];
    struct lexical_weighted *to = &of->lists[of->n++];
    *to = l->w;
    for (int code = 0; code <= LEXICAL_CODES; code++)
        to->weight[code] *= sign;
    return l->w.list.n;
}

/* Lists the changes from kept [n_kept] to wanted [n], both in order. Returns their number of postings. */
static int64_t kept_compare(struct lexical_cache *c, int n_kept, int n, int64_t segments) {
    int64_t postings = 0;
    int i = 0, j = 0;
    struct lexical_weighted *at = c->change_lists;
    for (int64_t s = 0; s < segments; s++) {
        c->changes[s].lists = at;
        c->changes[s].n = 0;
        while ((i < n_kept && c->kept[i].segment == s) || (j < n && c->wanted[j].segment == s)) {
            const struct kept_list *old = i < n_kept && c->kept[i].segment == s ? &c->kept[i] : NULL;
            const struct kept_list *new = j < n && c->wanted[j].segment == s ? &c->wanted[j] : NULL;
            const bool same_key = old && new && old->w.key == new->w.key;
            if (!(same_key && memcmp(old->w.weight, new->w.weight, sizeof old->w.weight) == 0)) {
                if (old && (same_key || !new || old->w.key < new->w.key)) postings += kept_change(c, old, -1);
                if (new && (same_key || !old || new->w.key < old->w.key)) postings += kept_change(c, new, 1);
            }
            i += same_key || (old && (!new || old->w.key < new->w.key));
            j += same_key || (new && (!old || new->w.key < old->w.key));
        }
        at += c->changes[s].n;
    }
    return postings;
}

/* Sets where the sums of each segment are. *fits is false if they are too many. */
static enum status kept_sums(struct lexical_cache *c, bool *fits, const struct lexical *x) {
    int64_t chunks = 0;
    TRY(memory_grow(&c->changes, &c->changes_capacity, (size_t)x->n + 1));
    for (int64_t s = 0; s < x->n; s++)
        chunks += (x->segments[s].frame.chunks + LEXICAL_WINDOW - 1) / LEXICAL_WINDOW * LEXICAL_WINDOW;
    *fits = chunks <= KEPT_CHUNKS_MAX;
    if (!*fits) return STATUS_OK;
    TRY(memory_grow(&c->sums, &c->sums_capacity, (size_t)chunks));
    chunks = 0;
    for (int64_t s = 0; s < x->n; s++) {
        c->changes[s].sums = c->sums + chunks;
        chunks += (x->segments[s].frame.chunks + LEXICAL_WINDOW - 1) / LEXICAL_WINDOW * LEXICAL_WINDOW;
    }
    return STATUS_OK;
}

static enum status changes_make(struct lexical_cache *c, bool *use, bool *fresh, const struct lexical *x,
                                const struct lexical_plan *plan) {
    int n;
    int64_t all = 0;
    TRY(kept_wanted(c, &n, x, plan));
    TRY(memory_grow(&c->change_lists, &c->change_capacity, (size_t)(n + c->n_kept) + 1));
    TRY(kept_sums(c, use, x));
    if (!*use) return STATUS_OK;
    for (int i = 0; i < n; i++)
        all += c->wanted[i].w.list.n;
    *fresh = !c->whole || kept_compare(c, c->n_kept, n, x->n) * 2 > all;
    *use = !*fresh || cache_continues(c);
    if (!*use) return STATUS_OK;
    if (*fresh) kept_compare(c, 0, n, x->n);
    struct kept_list *kept = c->kept;
    const size_t capacity = c->kept_capacity;
    c->kept = c->wanted;
    c->kept_capacity = c->wanted_capacity;
    c->wanted = kept;
    c->wanted_capacity = capacity;
    c->n_kept = n;
    c->whole = false;
    return STATUS_OK;
}

void lexical_changes_begin(struct lexical_cache *c, struct lexical_changes **out, bool *fresh, const struct lexical *x,
                           const struct lexical_plan *plan) {
    bool use = false;
    *out = NULL;
    *fresh = false;
    if (!c || x->n == 0) return;
    c->searched_sums = false;
    if (changes_make(c, &use, fresh, x, plan) == STATUS_OK && use) *out = c->changes;
}

void lexical_changes_end(struct lexical_cache *c) {
    c->whole = c->searched_sums = true;
}

/* ---- the last search ---- */

void lexical_cache_keep_plan(struct lexical_cache *c, struct lexical_plan *plan, const struct lexical *x,
                             const struct lexical_query *q, const struct lexical_search *how) {
    if (!c || memory_grow(&c->searched_ids, &c->searched_capacity, (size_t)q->n + 1) != STATUS_OK) return;
    lexical_plan_free(&c->searched_plan);
    c->searched_plan = *plan;
    *plan = (struct lexical_plan){.unit = 1};
    memcpy(c->searched_ids, q->ids, (size_t)q->n * sizeof *q->ids);
    c->searched_n = q->n;
    c->searched_weight = how->pair_weight;
    c->searched_counted = how->counted;
    c->searched = x;
}

const struct lexical_plan *lexical_cache_plan(struct lexical_cache *c, const struct lexical_changes **changes,
                                              const struct lexical *x, const struct lexical_query *q,
                                              const struct lexical_search *how) {
    *changes = NULL;
    if (!c || c->searched != x || c->searched_n != q->n || c->searched_weight != how->pair_weight ||
        c->searched_counted != how->counted || memcmp(c->searched_ids, q->ids, (size_t)q->n * sizeof *q->ids) != 0)
        return NULL;
    if (c->searched_sums) *changes = c->changes;
    return &c->searched_plan;
}
