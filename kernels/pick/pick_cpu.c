/* pick_cpu.c -- plain loops over the vocabulary, for comparison: programs on a CPU use decoder/logits/sampler.h, which
 * gives the same ids. Nothing is kept between loops: each computes a row's numbers again. */
#include "kernels/pick/pick.h"
#include <assert.h>
#include <float.h>
#include <math.h>

enum { PICK_SEEN = 4096 };

/* One row. An id is in K if its order is greater than `kth`, or equal to it and the id is at most kth_id. */
struct pick_scan {
    const struct pick_row *row;
    int64_t vocab;
    float top; /* -INFINITY: no number is above it */
    uint32_t kth;
    int64_t kth_id;
    bool seen[PICK_SEEN]; /* whether the penalty's list has an id with this remainder */
};

static bool pick_is_banned(const struct pick_row *row, int64_t id) {
    return row->banned && (row->banned[id / 32] >> (id % 32) & 1);
}

/* How many ids the penalty reads. */
static int64_t pick_seen_ids(const struct pick_row *row) {
    if (!row->seen || row->rule.penalty == 1) return 0;
    return row->rule.n_seen < row->rule.repeat_last ? row->rule.n_seen : row->rule.repeat_last;
}

/* The logit as it counts: NaN if the id is banned. */
static float pick_logit(const struct pick_scan *s, int64_t id) {
    const struct pick_row *row = s->row;
    const float x = row->logits[id];
    if (pick_is_banned(row, id)) return NAN;
    if (!s->seen[id % PICK_SEEN]) return x;
    for (int64_t i = 1; i <= pick_seen_ids(row); i++)
        if (row->seen[(row->rule.n_seen - i) % row->seen_rows] == id) return pick_penalise(x, row->rule.penalty);
    return x;
}

static bool pick_is_kept(const struct pick_scan *s, float x, int64_t id) {
    const uint32_t order = pick_order(x);
    return x > -INFINITY && (order > s->kth || (order == s->kth && id <= s->kth_id));
}

/* Finds K: the order of its last id, and that id. */
static void pick_find_kth(struct pick_scan *s, int64_t k) {
    uint32_t low = PICK_ORDER_INFINITE + 1; /* at least k ids have an order of `low` or more, if so many are finite */
    int64_t left = k;
    for (uint32_t step = 1U << 31; step; step /= 2) {
        int64_t n = 0;
        if (low + step < low) continue;
        for (int64_t id = 0; id < s->vocab; id++) {
            const float x = pick_logit(s, id);
            n += x > -INFINITY && pick_order(x) >= low + step;
        }
        if (n >= k) low += step;
    }
    s->kth = low;
    for (int64_t id = 0; id < s->vocab; id++) {
        const float x = pick_logit(s, id);
        left -= x > -INFINITY && pick_order(x) > low;
    }
    for (int64_t id = 0; id < s->vocab && left > 0; id++) {
        const float x = pick_logit(s, id);
        if (!(x > -INFINITY) || pick_order(x) != low) continue;
        s->kth_id = id;
        left--;
    }
}

/* The unit of an id in R, of those whose order is greater than `order`, or equal and the id smaller than `before`. */
static uint32_t pick_unit_of(const struct pick_scan *s, int64_t id, uint32_t least, uint32_t order, int64_t before) {
    const float x = pick_logit(s, id);
    if (!pick_is_kept(s, x, id)) return 0;
    const uint32_t own = pick_order(x);
    if (own < order || (own == order && id >= before)) return 0;
    const uint32_t unit = pick_unit(x, s->top, s->row->rule.scale);
    return unit >= least ? unit : 0;
}

static uint64_t pick_sum(const struct pick_scan *s, uint32_t least, uint32_t order, int64_t before) {
    uint64_t sum = 0;
    for (int64_t id = 0; id < s->vocab; id++)
        sum += pick_unit_of(s, id, least, order, before);
    return sum;
}

static int64_t pick_draw(const struct pick_scan *s) {
    const struct pick_rule *rule = &s->row->rule;
    const bool some = rule->share < 1ULL << 32;
    const uint64_t goal = some ? pick_goal(pick_sum(s, 1, 0, s->vocab), rule->share) : 0;
    uint64_t total = pick_sum(s, rule->least, 0, s->vocab);
    uint32_t order = 0;
    int64_t before = s->vocab;
    for (uint64_t draw = 0;; draw++) {
        uint64_t left = pick_part(pick_random(rule->seed, rule->number, draw), total);
        int64_t id = 0;
        for (uint32_t unit; (unit = pick_unit_of(s, id, rule->least, order, before)) <= left; id++)
            left -= unit;
        if (!some) return id;
        order = pick_order(pick_logit(s, id)), before = id;
        total = pick_sum(s, rule->least, order, before);
        if (total < goal) return id;
    }
}

/* The id at `index` of those with this logit; of those that are not banned if it is NaN. -1: *n are fewer. */
static int64_t pick_nth(const struct pick_scan *s, float logit, uint64_t index, uint64_t *n) {
    *n = 0;
    for (int64_t id = 0; id < s->vocab; id++) {
        const float x = pick_logit(s, id);
        const bool is = isnan(logit) ? !pick_is_banned(s->row, id) : x == logit;
        if (is && (*n)++ == index) return id;
    }
    return -1;
}

static int64_t pick_infinite(const struct pick_scan *s) {
    uint64_t n;
    (void)pick_nth(s, s->top, UINT64_MAX, &n);
    if (n == 0) return pick_nth(s, NAN, 0, &n);
    const uint64_t r = pick_random(s->row->rule.seed, s->row->rule.number, 0);
    return pick_nth(s, s->top, pick_part(r, pick_equals(n, &s->row->rule)), &n);
}

static float pick_top(const struct pick_scan *s, int64_t *id) {
    float top = -INFINITY;
    *id = -1;
    for (int64_t v = 0; v < s->vocab; v++) {
        const float x = pick_logit(s, v);
        if (x > top) top = x, *id = v;
    }
    return top;
}

/* ---- log-probabilities ---- */

static int pick_best_before(const struct pick_scan *raw, int64_t a, int64_t b) {
    const uint32_t x = pick_order(raw->row->logits[a]), y = pick_order(raw->row->logits[b]);
    return x > y || (x == y && a < b);
}

static void pick_scores(struct pick_result *out, const struct pick_row *row, int64_t vocab) {
    const struct pick_row plain = {.logits = row->logits, .rule = {.penalty = 1}};
    const struct pick_scan raw = {.row = &plain, .vocab = vocab};
    int64_t id, numbers = 0;
    uint64_t total = 0;
    const float top = pick_top(&raw, &id);
    out->n_best = -1;
    if (!isfinite(top)) return;
    for (id = 0; id < vocab; id++) {
        total += pick_fine_unit(row->logits[id], top);
        numbers += row->logits[id] > -INFINITY;
    }
    if (numbers < row->n_best) return;
    const double log_sum = log((double)total * 0x1p-40);
    out->logprob = (float)((double)(row->logits[out->id] - top) - log_sum);
    out->n_best = row->n_best;
    for (int64_t last = -1, i = 0; i < row->n_best; i++) {
        int64_t best = -1;
        for (id = 0; id < vocab; id++) {
            if (!(row->logits[id] > -INFINITY) || (last >= 0 && !pick_best_before(&raw, last, id))) continue;
            if (best < 0 || pick_best_before(&raw, id, best)) best = id;
        }
        last = best;
        out->best[i] = (struct pick_best){(int32_t)best, (float)((double)(row->logits[best] - top) - log_sum)};
    }
}

static void pick_one(const struct pick_row *row, int64_t vocab) {
    struct pick_scan s = {.row = row, .vocab = vocab, .kth = PICK_ORDER_INFINITE};
    int64_t id;
    for (int64_t i = 1; i <= pick_seen_ids(row); i++)
        s.seen[row->seen[(row->rule.n_seen - i) % row->seen_rows] % PICK_SEEN] = true;
    s.top = pick_top(&s, &id);
    if (!isfinite(s.top)) {
        id = pick_infinite(&s);
    } else if (row->rule.scale > 0) {
        if (row->rule.top_k > 0 && row->rule.top_k < vocab) pick_find_kth(&s, row->rule.top_k);
        id = pick_draw(&s);
    }
    *row->id = (int32_t)id;
    if (row->seen) row->seen[row->rule.n_seen % row->seen_rows] = (int32_t)id;
    row->result->id = (int32_t)id;
    row->result->n_best = 0;
    if (row->logprob) pick_scores(row->result, row, vocab);
    row->result->ticket = row->ticket | (uint32_t)id;
}

static void pick_rows(struct device *dev, const struct pick_row *rows, int n, int64_t vocab) {
    (void)dev;
    assert(n >= 1 && n <= PICK_ROWS_MAX && vocab > 0);
    for (int i = 0; i < n; i++) {
        assert(rows[i].n_best <= PICK_BEST_MAX && (!rows[i].seen || rows[i].seen_rows > rows[i].rule.repeat_last));
        pick_one(&rows[i], vocab);
    }
}

const struct pick_ops pick_cpu = {.rows = pick_rows};
