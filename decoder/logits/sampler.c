/* sampler.c -- one draw from the logits.
 *
 * Few ids are sorted: those that top-k and min-p keep, up to LOGIT_BEST_MAX, or top-p, up to TOP_P_SORTED_MAX. They are
 * drawn from best first. From more ids, and from all, the draw is by id: it finds a block in the running sums of
 * weights. Top-p then needs no order of all ids. A draw from all ids is in the set of top-p if the ids before it have
 * less than the goal. If not, the next draw is from those, so that each id of the set keeps its share. That takes about
 * 1 / p draws. */
#include "decoder/logits/sampler.h"
#include "base/memory.h"
#include "decoder/logits/logit_scan.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* To sort more takes longer than the draws by id that replace it. */
enum { TOP_P_SORTED_MAX = 128 };

struct sampler {
    struct sampler_config config;
    struct rng rng;
    struct logit_scan scan;
    int32_t *banned;   /* [n_banned], ascending */
    float *candidates; /* [2, LOGIT_BEST_MAX] logits, then weights, of the scan's keys */
    int32_t *seen;     /* [repeat_last], a ring; NULL: no penalty */
    int64_t n_seen;    /* ever */
};

static enum status sampler_check_config(const struct sampler_config *config) {
    if (!(config->temperature >= 0) || !isfinite(config->temperature))
        return fail(STATUS_INVALID, "temperature %g: give 0 (greedy) or more", (double)config->temperature);
    if (!(config->top_p > 0 && config->top_p <= 1))
        return fail(STATUS_INVALID, "top-p %g: give more than 0 and at most 1", (double)config->top_p);
    if (config->top_k < 0) return fail(STATUS_INVALID, "top-k %d: give 0 (off) or more", config->top_k);
    if (!(config->min_p >= 0 && config->min_p <= 1))
        return fail(STATUS_INVALID, "min-p %g: give 0 (off) to 1", (double)config->min_p);
    if (!(config->repeat_penalty >= 0) || !isfinite(config->repeat_penalty))
        return fail(STATUS_INVALID, "repeat-penalty %g: give 1 (off) or more", (double)config->repeat_penalty);
    if (config->repeat_last < 0)
        return fail(STATUS_INVALID, "repeat-last-n %d: give 0 (off) or more", config->repeat_last);
    return STATUS_OK;
}

static int sampler_compare_ids(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static enum status sampler_allocate(struct sampler *s, int vocab_size) {
    struct sampler_config *c = &s->config;
    TRY(memory_allocate_aligned(&s->candidates, (size_t)2 * LOGIT_BEST_MAX));
    TRY(memory_allocate(&s->banned, (size_t)c->n_banned));
    if (c->n_banned) memcpy(s->banned, c->banned, (size_t)c->n_banned * sizeof *s->banned);
    qsort(s->banned, (size_t)c->n_banned, sizeof *s->banned, sampler_compare_ids);
    c->banned = s->banned;
    /* Banned ids at the end, of a vocabulary that is larger than its tokenizer, are not read at all. */
    while (c->n_banned > 0 && vocab_size > 1 && s->banned[c->n_banned - 1] >= vocab_size - 1) {
        if (s->banned[c->n_banned - 1] == vocab_size - 1) vocab_size--;
        c->n_banned--;
    }
    TRY(logit_scan_create(&s->scan, vocab_size));
    if (c->repeat_penalty == 0 || c->repeat_penalty == 1 || c->repeat_last == 0) return STATUS_OK;
    return memory_allocate(&s->seen, (size_t)c->repeat_last);
}

enum status sampler_create(struct sampler **out, const struct sampler_config *config, int vocab_size) {
    assert(vocab_size > 0 && config->n_banned >= 0);
    TRY(sampler_check_config(config));
    struct sampler *s;
    TRY(memory_allocate_zero(&s, 1));
    s->config = *config;
    s->rng = rng_make(config->seed, 0);
    enum status status = sampler_allocate(s, vocab_size);
    if (status != STATUS_OK) {
        sampler_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void sampler_free(struct sampler *s) {
    if (!s) return;
    logit_scan_release(&s->scan);
    memory_free(s->candidates);
    memory_free(s->banned);
    memory_free(s->seen);
    memory_free(s);
}

void sampler_see(struct sampler *s, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; s->seen && i < n; i++)
        s->seen[s->n_seen++ % s->config.repeat_last] = ids[i];
}

/* An id that was seen twice is penalised once: after the first time its logit differs (or the penalty does not change
 * it). */
static void sampler_penalise(struct sampler *s, const float *logits) {
    const float by = s->config.repeat_penalty;
    int64_t n = s->n_seen < s->config.repeat_last ? s->n_seen : s->config.repeat_last;
    for (int64_t i = 0; s->seen && i < n; i++) {
        const int32_t id = s->seen[i];
        assert(id >= 0);
        if (id >= s->scan.n) continue; /* banned */
        float *logit = &logit_scan_change(&s->scan, id / LOGIT_BLOCK)[id % LOGIT_BLOCK];
        if (*logit == logits[id]) *logit = *logit > 0 ? *logit / by : *logit * by;
    }
}

/* The logits as they count, and the largest of each block. */
static void sampler_begin(struct sampler *s, const float *logits) {
    logit_scan_begin(&s->scan, logits);
    sampler_penalise(s, logits);
    for (int64_t i = 0; i < s->config.n_banned; i++)
        logit_scan_hide(&s->scan, s->banned[i]);
    logit_scan_tops(&s->scan);
}

/* ---- logits without a finite best ---- */

/* The id at `index` of those that are not banned and have this logit, or are NaN if `logit` is; -1 if there are fewer,
 * and then *count is how many there are. */
static int32_t sampler_nth(const struct sampler *s, float logit, int64_t index, int64_t *count) {
    int64_t n = 0, at = 0;
    for (int64_t id = 0; id < s->scan.n; id++) {
        while (at < s->config.n_banned && s->banned[at] < id)
            at++;
        if (at < s->config.n_banned && s->banned[at] == id) continue;
        const float x = logit_scan_at(&s->scan, id);
        if (x != logit && !(isnan(x) && isnan(logit))) continue;
        if (n++ == index) return (int32_t)id;
    }
    *count = n;
    return -1;
}

/* The ids that share an infinite best are equally likely; the others have no weight. If all are NaN: the first id. */
static int32_t sampler_draw_infinite(struct sampler *s, double draw) {
    int64_t n = 0;
    (void)sampler_nth(s, s->scan.top, INT64_MAX, &n);
    if (n == 0) return sampler_nth(s, NAN, 0, &n);
    if (s->config.top_k > 0 && s->config.top_k < n) n = s->config.top_k;
    int64_t kept = s->config.top_p < 1 ? (int64_t)ceil((double)s->config.top_p * (double)n) : n;
    if (s->config.temperature == 0 || kept < 1) kept = 1;
    return sampler_nth(s, s->scan.top, (int64_t)(draw * (double)kept), &n);
}

/* ---- few ids, sorted ---- */

/* Weights of the scan's n keys. Returns their sum. */
static double sampler_candidate_weights(struct sampler *s, int64_t n) {
    const int64_t end = (n + LOGIT_BLOCK - 1) / LOGIT_BLOCK * LOGIT_BLOCK;
    float *logits = s->candidates, *weights = s->candidates + LOGIT_BEST_MAX;
    double sum = 0;
    for (int64_t i = 0; i < end; i++)
        logits[i] = i < n ? logit_key_logit(s->scan.keys[i]) : -INFINITY;
    logit_weights(weights, logits, end, s->scan.top, s->config.temperature);
    for (int64_t i = 0; i < n; i++)
        sum += (double)weights[i];
    return sum;
}

/* The smallest set of best ids whose share of `total` reaches top_p, without those that min-p excludes; one of it. */
static int32_t sampler_draw_sorted(struct sampler *s, int64_t n, double total) {
    const int64_t *keys = s->scan.keys;
    const float *weights = s->candidates + LOGIT_BEST_MAX;
    double sum = 0, goal = s->config.top_p < 1 ? (double)s->config.top_p * total : INFINITY;
    int64_t kept = 0;
    while (kept < n && (kept == 0 || sum < goal))
        sum += (double)weights[kept++];
    while (kept > 1 && weights[kept - 1] < s->config.min_p) /* the best has weight 1 */
        sum -= (double)weights[--kept];
    double left = (double)rng_uniform(&s->rng) * sum;
    for (int64_t i = 0; i < kept; i++) {
        left -= (double)weights[i];
        if (left < 0) return logit_key_id(keys[i]);
    }
    return logit_key_id(keys[0]); /* rounding: the draw was not below the sum */
}

/* Sorts every id that top-p and min-p can keep, and maybe more, into the scan's keys, with weights. -1: too many.
 * `goal` is the weight that top-p needs, INFINITY without it. Levels are in units of the temperature below the best. */
static int64_t sampler_candidates(struct sampler *s, double goal) {
    static const struct {
        float below, weight; /* e^-below, or somewhat more */
    } levels[] = {{3, 0.0498F}, {5, 0.00674F}, {7, 0.000912F}, {10, 4.55e-5F}, {14, 8.4e-7F}, {INFINITY, 0}};
    const int64_t most = goal == INFINITY ? LOGIT_BEST_MAX : TOP_P_SORTED_MAX;
    double found = 0, each = 1; /* weight of those found; the most that another one can have */
    int64_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        const bool all = levels[i].below == INFINITY || levels[i].weight < s->config.min_p;
        if (!all && goal == INFINITY) continue;
        if (!all && (double)n + (goal - found) / each > (double)most) return -1;
        const float least = s->scan.top - levels[i].below * s->config.temperature;
        n = logit_scan_gather(&s->scan, least > -FLT_MAX ? least : -FLT_MAX, most);
        if (n < 0) return -1;
        found = sampler_candidate_weights(s, n);
        each = (double)levels[i].weight;
        if (!all && found < goal) continue;
        logit_keys_sort(s->scan.keys, s->scan.keys + LOGIT_BEST_MAX, n);
        (void)sampler_candidate_weights(s, n);
        return n;
    }
    return -1;
}

/* ---- many ids, by running sums ---- */

/* One of the ids that the scan's sums are of, or of the smallest set of best ones whose weight reaches `goal`. */
static int32_t sampler_draw_by_id(struct sampler *s, double total, double goal, float least) {
    for (;;) {
        const int64_t id = logit_scan_find(&s->scan, (double)rng_uniform(&s->rng) * total);
        if (goal == INFINITY) return (int32_t)id;
        /* Those before it: greater logits, and equal ones of smaller ids. */
        const float logit = logit_scan_at(&s->scan, id);
        for (int64_t after = id; after < s->scan.n && after / LOGIT_BLOCK == id / LOGIT_BLOCK; after++)
            if (logit_scan_at(&s->scan, after) == logit) logit_scan_hide(&s->scan, after);
        total = logit_scan_narrow(&s->scan, logit, id, least);
        if (total < goal) return (int32_t)id;
    }
}

static int32_t sampler_draw_from_many(struct sampler *s) {
    const struct sampler_config *c = &s->config;
    const bool some = c->top_k > 0 && c->top_k < s->scan.n;
    if (!some && c->top_p == 1) {
        int64_t n = c->min_p > 0 ? sampler_candidates(s, INFINITY) : -1;
        if (n > 0) return sampler_draw_sorted(s, n, INFINITY);
    }
    const float kth = some ? logit_scan_kth(&s->scan, c->top_k) : -FLT_MAX;
    double total = logit_scan_weigh(&s->scan, c->temperature);
    if (some) total = logit_scan_narrow(&s->scan, kth, s->scan.n - 1, 0);
    const double goal = c->top_p < 1 ? (double)c->top_p * total : INFINITY;
    if (!some && c->top_p < 1) {
        int64_t n = sampler_candidates(s, goal);
        if (n > 0) return sampler_draw_sorted(s, n, total);
    }
    if (c->min_p > 0) total = logit_scan_narrow(&s->scan, kth, s->scan.n - 1, c->min_p);
    return sampler_draw_by_id(s, total, goal, c->min_p);
}

int32_t sampler_pick(struct sampler *s, const float *logits) {
    const struct sampler_config *c = &s->config;
    int32_t id;
    sampler_begin(s, logits);
    if (!isfinite(s->scan.top)) {
        id = sampler_draw_infinite(s, c->temperature == 0 ? 0 : (double)rng_uniform(&s->rng));
    } else if (c->temperature == 0) {
        id = (int32_t)logit_scan_first_top(&s->scan);
    } else if (c->top_k > 0 && c->top_k <= LOGIT_BEST_MAX && c->top_k < s->scan.n) {
        int64_t n = logit_scan_best(&s->scan, c->top_k);
        id = sampler_draw_sorted(s, n, sampler_candidate_weights(s, n));
    } else {
        id = sampler_draw_from_many(s);
    }
    assert(id >= 0);
    sampler_see(s, &id, 1);
    return id;
}
