/* sampler.c -- one pick from the logits, by the rule of kernels/pick/pick_rule.h.
 *
 * A draw finds a block in the running sums of units, and its id in that block. Whether top-p accepts the id depends on
 * the ids before it, which are in few blocks unless the logits are flat. Of the ids that a small top-k or min-p alone
 * keep, only those are looked at. */
#include "decoder/logits/sampler.h"
#include "base/memory.h"
#include "decoder/logits/logit_scan.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    struct sampler_config config;
    struct pick_rule rule; /* of the next pick */
    struct logit_scan scan;
    int32_t *banned;   /* [n_banned], ascending */
    float *candidates; /* [LOGIT_BEST_MAX] logits of the scan's keys */
    uint32_t *units;   /* [LOGIT_BEST_MAX] of the same */
    int32_t *seen;     /* [repeat_last], a ring; NULL: no penalty */
    int32_t *marked;   /* the same of sampler_mark */
    size_t marked_capacity;
    int64_t marked_seen; /* n_seen of the rule */
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

static enum status sampler_allocate_seen(struct sampler *s) {
    if (s->rule.penalty == 1) return STATUS_OK;
    return memory_allocate(&s->seen, (size_t)s->config.repeat_last);
}

static enum status sampler_allocate(struct sampler *s, int vocab_size) {
    struct sampler_config *c = &s->config;
    TRY(memory_allocate_aligned(&s->candidates, LOGIT_BEST_MAX));
    TRY(memory_allocate_aligned(&s->units, LOGIT_BEST_MAX));
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
    return sampler_allocate_seen(s);
}

static struct pick_rule sampler_make_rule(const struct sampler_config *c) {
    const bool penalises = c->repeat_penalty != 0 && c->repeat_penalty != 1 && c->repeat_last != 0;
    const double least = ceil((double)c->min_p * 0x1p29);
    return (struct pick_rule){.scale = c->temperature > 0 ? logit_scale(c->temperature) : 0,
                              .penalty = penalises ? c->repeat_penalty : 1,
                              .repeat_last = penalises ? c->repeat_last : 0,
                              .top_k = c->top_k,
                              .share = (uint64_t)((double)c->top_p * 0x1p32),
                              .least = least > 1 ? (uint32_t)least : 1,
                              .seed = c->seed};
}

enum status sampler_create(struct sampler **out, const struct sampler_config *config, int vocab_size) {
    assert(vocab_size > 0 && config->n_banned >= 0);
    TRY(sampler_check_config(config));
    struct sampler *s;
    TRY(memory_allocate_zero(&s, 1));
    s->config = *config;
    s->rule = sampler_make_rule(config);
    enum status status = sampler_allocate(s, vocab_size);
    if (status != STATUS_OK) {
        sampler_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

enum status sampler_configure(struct sampler *s, const struct sampler_config *config) {
    const int64_t n_banned = s->config.n_banned;
    TRY(sampler_check_config(config));
    memory_free(s->seen);
    s->seen = NULL;
    s->config = *config;
    s->config.banned = s->banned;
    s->config.n_banned = n_banned;
    s->rule = sampler_make_rule(config);
    return sampler_allocate_seen(s);
}

void sampler_free(struct sampler *s) {
    if (!s) return;
    logit_scan_release(&s->scan);
    memory_free(s->candidates);
    memory_free(s->units);
    memory_free(s->banned);
    memory_free(s->seen);
    memory_free(s->marked);
    memory_free(s);
}

enum status sampler_mark(struct sampler *s) {
    s->marked_seen = s->rule.n_seen;
    if (!s->seen) return STATUS_OK;
    TRY(memory_grow(&s->marked, &s->marked_capacity, (size_t)s->config.repeat_last));
    memcpy(s->marked, s->seen, (size_t)s->config.repeat_last * sizeof *s->seen);
    return STATUS_OK;
}

void sampler_rewind(struct sampler *s, uint64_t seed) {
    s->config.seed = seed;
    s->rule = sampler_make_rule(&s->config);
    s->rule.n_seen = s->marked_seen;
    if (s->seen) memcpy(s->seen, s->marked, (size_t)s->config.repeat_last * sizeof *s->seen);
}

void sampler_see(struct sampler *s, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; s->seen && i < n; i++)
        s->seen[(s->rule.n_seen + i) % s->config.repeat_last] = ids[i];
    s->rule.n_seen += n;
}

/* An id that was seen twice is penalised once: after the first time its logit differs (or the penalty does not change
 * it). */
static void sampler_penalise(struct sampler *s, const float *logits) {
    const float by = s->rule.penalty;
    int64_t n = s->rule.n_seen < s->config.repeat_last ? s->rule.n_seen : s->config.repeat_last;
    for (int64_t i = 0; s->seen && i < n; i++) {
        const int32_t id = s->seen[i];
        assert(id >= 0);
        if (id >= s->scan.n) continue; /* banned */
        float *logit = &logit_scan_change(&s->scan, id / LOGIT_BLOCK)[id % LOGIT_BLOCK];
        if (*logit == logits[id]) *logit = pick_penalise(*logit, by);
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
static int32_t sampler_draw_infinite(const struct sampler *s) {
    int64_t n = 0;
    (void)sampler_nth(s, s->scan.top, INT64_MAX, &n);
    if (n == 0) return sampler_nth(s, NAN, 0, &n);
    const uint64_t draw = pick_random(s->rule.seed, s->rule.number, 0);
    return sampler_nth(s, s->scan.top, (int64_t)pick_part(draw, pick_equals((uint64_t)n, &s->rule)), &n);
}

/* ---- few ids ---- */

/* The sum of units of at least `least` of the scan's n keys before `before` (keys sort as ids do). */
static uint64_t sampler_few_sum(const struct sampler *s, int64_t n, uint32_t least, int64_t before) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += s->scan.keys[i] < before && s->units[i] >= least ? s->units[i] : 0;
    return sum;
}

static int64_t sampler_few_find(const struct sampler *s, int64_t before, uint64_t draw) {
    for (int64_t i = 0;; i++) {
        const uint32_t unit = s->scan.keys[i] < before && s->units[i] >= s->rule.least ? s->units[i] : 0;
        if (draw < unit) return s->scan.keys[i];
        draw -= unit;
    }
}

/* From the scan's n keys, ascending by id. */
static int32_t sampler_draw_few(struct sampler *s, int64_t n) {
    const int64_t end = (n + LOGIT_BLOCK - 1) / LOGIT_BLOCK * LOGIT_BLOCK;
    int64_t before = INT64_MAX;
    for (int64_t i = 0; i < end; i++)
        s->candidates[i] = i < n ? logit_key_logit(s->scan.keys[i]) : -INFINITY;
    logit_units(s->units, s->candidates, end, s->scan.top, s->rule.scale);
    const bool some = s->config.top_p < 1;
    const uint64_t goal = some ? pick_goal(sampler_few_sum(s, n, 1, before), s->rule.share) : 0;
    uint64_t total = sampler_few_sum(s, n, s->rule.least, before);
    for (uint64_t draw = 0;; draw++) {
        const uint64_t r = pick_random(s->rule.seed, s->rule.number, draw);
        before = sampler_few_find(s, before, pick_part(r, total));
        if (!some) break;
        total = sampler_few_sum(s, n, s->rule.least, before);
        if (total < goal) break;
    }
    return logit_key_id(before);
}

/* Gathers every id that min-p keeps, and maybe more. -1: too many. */
static int64_t sampler_min_p_ids(struct sampler *s) {
    const float below = 0.01F - logf(s->config.min_p);
    const float least = s->scan.top - below * s->config.temperature;
    return logit_scan_gather(&s->scan, least > -FLT_MAX ? least : -FLT_MAX, LOGIT_BEST_MAX);
}

/* ---- many ids, by running sums ---- */

static int32_t sampler_draw_from_many(struct sampler *s) {
    const struct sampler_config *c = &s->config;
    const bool some = c->top_k > 0 && c->top_k < s->scan.n;
    const float kth = some ? logit_scan_kth(&s->scan, c->top_k) : -FLT_MAX;
    uint64_t total = logit_scan_units(&s->scan, s->rule.scale);
    if (some) total = logit_scan_narrow(&s->scan, kth, s->scan.n - 1, 1);
    const uint64_t goal = c->top_p < 1 ? pick_goal(total, s->rule.share) : 0;
    if (s->rule.least > 1) total = logit_scan_narrow(&s->scan, kth, s->scan.n - 1, s->rule.least);
    for (uint64_t draw = 0;; draw++) {
        const uint64_t r = pick_random(s->rule.seed, s->rule.number, draw);
        const int64_t id = logit_scan_find(&s->scan, pick_part(r, total));
        if (c->top_p == 1) return (int32_t)id;
        /* Those before it: greater logits, and equal ones of smaller ids. */
        const float logit = logit_scan_at(&s->scan, id);
        for (int64_t after = id; after < s->scan.n && after / LOGIT_BLOCK == id / LOGIT_BLOCK; after++)
            if (logit_scan_at(&s->scan, after) == logit) logit_scan_hide(&s->scan, after);
        total = logit_scan_narrow(&s->scan, logit, id, s->rule.least);
        if (total < goal) return (int32_t)id;
    }
}

static int32_t sampler_draw(struct sampler *s) {
    const struct sampler_config *c = &s->config;
    int64_t n = -1;
    if (c->top_k > 0 && c->top_k < s->scan.n)
        n = c->top_k <= LOGIT_BEST_MAX ? logit_scan_few(&s->scan, c->top_k) : -1;
    else if (c->top_p == 1 && c->min_p > 0)
        n = sampler_min_p_ids(s);
    return n > 0 ? sampler_draw_few(s, n) : sampler_draw_from_many(s);
}

int32_t sampler_pick(struct sampler *s, const float *logits) {
    int32_t id;
    sampler_begin(s, logits);
    if (!isfinite(s->scan.top))
        id = sampler_draw_infinite(s);
    else if (s->rule.scale == 0)
        id = (int32_t)logit_scan_first_top(&s->scan);
    else
        id = sampler_draw(s);
    assert(id >= 0);
    sampler_picked(s, id);
    return id;
}

void sampler_picked(struct sampler *s, int32_t id) {
    sampler_see(s, &id, 1);
    s->rule.number++;
}

struct pick_rule sampler_rule(const struct sampler *s) {
    return s->rule;
}
