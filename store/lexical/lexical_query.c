/* lexical_query.c -- an index of several segments, and the plan of a query over it. */
#include "base/memory.h"
#include "store/lexical/lexical_query_internal.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum status lexical_open(struct lexical **out, const char *const *paths, int64_t n) {
    struct lexical *x = NULL;
    TRY(memory_allocate_zero(&x, 1));
    enum status s = memory_allocate_zero(&x->segments, (size_t)n);
    for (int64_t i = 0, end = 0; i < n && s == STATUS_OK; i++) {
        struct lexical_segment *segment = &x->segments[i];
        s = lexical_segment_open(segment, paths[i]);
        if (s != STATUS_OK) break;
        const struct lexical_frame *f = &segment->frame;
        x->n++;
        if (f->first_chunk < end || f->vocab_size != x->segments[0].frame.vocab_size)
            s = fail(STATUS_MISMATCH, "%s: its chunks or its vocabulary do not follow from %s: run drt-index repair",
                     paths[i], i ? paths[i - 1] : "the store");
        end = f->first_chunk + f->chunks;
        x->chunks += f->chunks;
        x->vocab_size = (int)f->vocab_size;
    }
    if (s != STATUS_OK) {
        lexical_close(x);
        return s;
    }
    *out = x;
    return STATUS_OK;
}

void lexical_close(struct lexical *x) {
    if (!x) return;
    for (int64_t i = 0; i < x->n; i++)
        lexical_segment_close(&x->segments[i]);
    memory_free(x->segments);
    memory_free(x);
}

void lexical_info(const struct lexical *x, struct lexical_info *out) {
    *out = (struct lexical_info){.segments = x->n, .chunks = x->chunks, .vocab_size = x->vocab_size};
    for (int64_t i = 0; i < x->n; i++) {
        out->tokens += x->segments[i].frame.tokens;
        out->keys += x->segments[i].frame.keys;
        out->postings += x->segments[i].frame.postings;
        out->bytes += x->segments[i].map.size;
    }
}

struct lexical_range lexical_segment_range(const struct lexical *x, int64_t segment) {
    assert(segment >= 0 && segment < x->n);
    return (struct lexical_range){x->segments[segment].frame.first_chunk, x->segments[segment].frame.chunks};
}

/* ---- the keys of a query ---- */

struct key {
    uint64_t key;
    double weight;  /* count, times pair_weight for pairs; then times idf */
    int64_t chunks; /* number of chunks that contain the key */
};

/* Sorts numbers up to `most`, a byte at a time from the lowest. spare [n]. Returns where they are: x or spare. */
static uint64_t *sort_numbers(uint64_t *x, uint64_t *spare, int n, uint64_t most) {
    for (int shift = 0; most >> shift; shift += 8) {
        int begin[257] = {0};
        for (int i = 0; i < n; i++)
            begin[(x[i] >> shift & 0xff) + 1]++;
        for (int byte = 1; byte < 257; byte++)
            begin[byte] += begin[byte - 1];
        for (int i = 0; i < n; i++)
            spare[begin[x[i] >> shift & 0xff]++] = x[i];
        uint64_t *const sorted = spare;
        spare = x;
        x = sorted;
    }
    return x;
}

/* Writes the query's keys in ascending order. numbers: [2][2 * q->n]. Returns how many. */
static int query_keys(struct key *out, uint64_t *numbers, int64_t vocab, const struct lexical_query *q,
                      const struct lexical_search *how) {
    int n = 0, kept = 0;
    bool before = false;
    for (int i = 0; i < q->n; i++) {
        int64_t id = q->ids[i];
        bool known = id >= 0 && id < vocab;
        if (known) numbers[n++] = (uint64_t)id;
        if (known && before && how->pair_weight > 0) numbers[n++] = (uint64_t)(vocab + q->ids[i - 1] * vocab + id);
        before = known;
    }
    const uint64_t *sorted = sort_numbers(numbers, numbers + 2 * (size_t)q->n, n, (uint64_t)(vocab + vocab * vocab));
    for (int i = 0; i < n; i++) {
        const double weight = sorted[i] < (uint64_t)vocab ? 1 : (double)how->pair_weight;
        if (kept == 0 || out[kept - 1].key != sorted[i])
            out[kept++] = (struct key){sorted[i], weight, 0};
        else if (how->counted)
            out[kept - 1].weight += weight;
    }
    return kept;
}

static double lexical_query_saturated(double frequency) {
    static const double k1 = 1.2;
    return frequency * (k1 + 1) / (frequency + k1);
}

static int by_weight(const void *a, const void *b) {
    const struct lexical_weighted *x = a, *y = b;
    return (x->weight[LEXICAL_CODES] < y->weight[LEXICAL_CODES]) -
           (x->weight[LEXICAL_CODES] > y->weight[LEXICAL_CODES]);
}

static double postings_a_unit(const struct lexical_weighted *w) {
    return (double)w->list.n / (w->weight[LEXICAL_CODES] > 0 ? (double)w->weight[LEXICAL_CODES] : 1);
}

/* A list in the order of costs: the greatest first, equal ones in the order of their keys. */
struct costly {
    double cost;
    int at;
};
static int by_cost(const void *a, const void *b) {
    const struct costly *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Sorts lists [n]; spare and order [n]. */
static void sort_sparse(struct lexical_weighted *lists, struct lexical_weighted *spare, struct costly *order, int n) {
    for (int i = 0; i < n; i++)
        order[i] = (struct costly){postings_a_unit(&lists[i]), i};
    memcpy(spare, lists, (size_t)n * sizeof *lists);
    qsort(order, (size_t)n, sizeof *order, by_cost);
    for (int i = 0; i < n; i++)
        lists[i] = spare[order[i].at];
}

/* Rounds the weights to integers, so that sums do not depend on their order and equal scores are equal. The unit is the
 * smallest power of two with which the sum of all weights is below 2^30. */
static void plan_weights(struct lexical_plan *p, struct key *keys, int n, int64_t all) {
    double most = 0;
    for (int i = 0; i < n; i++) {
        double have = (double)keys[i].chunks;
        keys[i].weight *= log(1 + ((double)all - have + 0.5) / (have + 0.5));
        most += keys[i].weight * lexical_query_saturated(lexical_frequency(LEXICAL_CODES - 1));
    }
    int exponent = 0;
    if (most > 0) frexp(most, &exponent);
    p->unit = (float)ldexp(1.0, exponent - 29);
}

static void split_lists(struct lexical_plan *p, struct lexical_lists *lists, struct lexical_weighted *at,
                        const struct key *keys, struct costly *order, int n) {
    int dense = 0;
    lists->sparse = at;
    for (int i = 0; i < n; i++) { /* sparse lists move to the front, dense ones to the end */
        struct lexical_weighted w = at[i];
        if (w.list.kind == LEXICAL_ABSENT) continue;
        for (int code = 0; code < LEXICAL_CODES; code++)
            w.weight[code + 1] =
                (int32_t)lround(keys[i].weight * lexical_query_saturated(lexical_frequency(code)) / (double)p->unit);
        if (w.list.kind == LEXICAL_DENSE)
            p->lists[dense++] = w;
        else
            lists->sparse[lists->n_sparse++] = w;
    }
    lists->dense = at + lists->n_sparse;
    lists->n_dense = dense;
    memcpy(lists->dense, p->lists, (size_t)dense * sizeof *p->lists);
    qsort(lists->dense, (size_t)dense, sizeof *lists->dense, by_weight);
    for (int i = 0; i < dense; i++)
        lists->dense_most += lists->dense[i].weight[LEXICAL_CODES];
    sort_sparse(lists->sparse, p->lists, order, lists->n_sparse);
    lists->most_before[0] = lists->dense_most;
    for (int i = 0; i < lists->n_sparse; i++)
        lists->most_before[i + 1] = lists->most_before[i] + lists->sparse[i].weight[LEXICAL_CODES];
    if (lists->n_sparse > p->sparse_most) p->sparse_most = lists->n_sparse;
}

static enum status plan_lists(struct lexical_plan *p, const struct lexical *x, struct key *keys, int n,
                              struct lexical_cache *cache) {
    struct costly *order = NULL;
    lexical_cache_begin(cache);
    /* [0, n): scratch of split_lists, then n for each segment */
    TRY(memory_allocate(&p->lists, (size_t)(x->n + 1) * (size_t)n));
    TRY(memory_allocate_zero(&p->segments, (size_t)x->n));
    TRY(memory_allocate(&p->most, (size_t)x->n * ((size_t)n + 1)));
    for (int64_t s = 0; s < x->n; s++)
        for (int i = 0; i < n; i++) {
            struct lexical_weighted *w = &p->lists[(size_t)(s + 1) * (size_t)n + (size_t)i];
            *w = (struct lexical_weighted){.key = keys[i].key};
            TRY(lexical_cache_find(cache, &x->segments[s], &w->list, keys[i].key));
            keys[i].chunks += w->list.n;
        }
    TRY(memory_allocate(&order, (size_t)n));
    plan_weights(p, keys, n, x->chunks);
    for (int64_t s = 0; s < x->n; s++) {
        p->segments[s].most_before = p->most + (size_t)s * ((size_t)n + 1);
        split_lists(p, &p->segments[s], &p->lists[(size_t)(s + 1) * (size_t)n], keys, order, n);
    }
    memory_free(order);
    return STATUS_OK;
}

enum status lexical_plan_make(struct lexical_plan *out, const struct lexical *x, const struct lexical_query *q,
                              const struct lexical_search *how, struct lexical_cache *cache) {
    assert(q->n >= 0 && q->n <= LEXICAL_QUERY_MAX);
    *out = (struct lexical_plan){.unit = 1};
    struct key *keys = NULL;
    uint64_t *numbers = NULL;
    enum status s;
    TRY_GOTO(s, memory_allocate(&keys, 2 * (size_t)q->n), out);
    TRY_GOTO(s, memory_allocate(&numbers, 4 * (size_t)q->n), out);
    int n = query_keys(keys, numbers, x->vocab_size, q, how);
    s = plan_lists(out, x, keys, n, cache);
out:
    memory_free(keys);
    memory_free(numbers);
    if (s != STATUS_OK) lexical_plan_free(out);
    return s;
}

void lexical_plan_free(struct lexical_plan *p) {
    memory_free(p->lists);
    memory_free(p->segments);
    memory_free(p->most);
    *p = (struct lexical_plan){.unit = 1};
}
