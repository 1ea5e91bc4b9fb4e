/* sampler.c -- one draw from the logits.
 *
 * The vocabulary is sorted only as far as needed: greedy and a draw from all ids scan it, top-k keeps a heap of k, and
 * top-p sorts only ids that can be in its set. Weights are summed in double, so that 100,000 small ones sum to one.
 */
#include "decoder/sampler.h"
#include "base/memory.h"
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct sampler_candidate {
    float logit;
    int32_t id;
};

struct sampler {
    struct sampler_config config;
    struct rng rng;
    int vocab_size;
    struct sampler_candidate *candidates; /* [vocab_size] */
    double *weights;                      /* [vocab_size] */
    float *penalised;                     /* [vocab_size]; this and the next NULL: no penalty */
    int32_t *seen;                        /* [repeat_last], a ring */
    int64_t n_seen;                       /* ever */
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

static enum status sampler_allocate_penalty(struct sampler *s) {
    const struct sampler_config *c = &s->config;
    if (c->repeat_penalty == 0 || c->repeat_penalty == 1 || c->repeat_last == 0) return STATUS_OK;
    TRY(memory_allocate(&s->penalised, (size_t)s->vocab_size));
    TRY(memory_allocate(&s->seen, (size_t)c->repeat_last));
    return STATUS_OK;
}

enum status sampler_create(struct sampler **out, const struct sampler_config *config, int vocab_size) {
    assert(vocab_size > 0 && config->n_banned >= 0 && (size_t)config->n_banned <= ARRAY_LEN(config->banned));
    TRY(sampler_check_config(config));
    struct sampler *s;
    TRY(memory_allocate_zero(&s, 1));
    s->config = *config;
    s->rng = rng_make(config->seed, 0);
    s->vocab_size = vocab_size;
    enum status status;
    TRY_GOTO(status, memory_allocate(&s->candidates, (size_t)vocab_size), out);
    TRY_GOTO(status, memory_allocate(&s->weights, (size_t)vocab_size), out);
    TRY_GOTO(status, sampler_allocate_penalty(s), out);
    *out = s;
    return STATUS_OK;
out:
    sampler_free(s);
    return status;
}

void sampler_free(struct sampler *s) {
    if (!s) return;
    memory_free(s->candidates);
    memory_free(s->weights);
    memory_free(s->penalised);
    memory_free(s->seen);
    memory_free(s);
}

static bool sampler_is_banned(const struct sampler *s, int32_t id) {
    for (int i = 0; i < s->config.n_banned; i++)
        if (s->config.banned[i] == id) return true;
    return false;
}

/* NaN ranks below all numbers: it is picked only when every logit is NaN. */
static bool sampler_is_better(struct sampler_candidate a, struct sampler_candidate b) {
    if (isnan(a.logit) || isnan(b.logit)) return isnan(b.logit) && (!isnan(a.logit) || a.id < b.id);
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static int sampler_compare(const void *a, const void *b) {
    const struct sampler_candidate *x = a, *y = b;
    return sampler_is_better(*x, *y) ? -1 : sampler_is_better(*y, *x) ? 1 : 0;
}

/* Restores the heap from `at` down; the root is the worst candidate kept. */
static void sampler_sift_down(struct sampler_candidate *heap, int64_t n, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && sampler_is_better(heap[child], heap[child + 1])) child++;
        if (!sampler_is_better(heap[at], heap[child])) return;
        struct sampler_candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* The `keep` best ids that are not banned, best first, into s->candidates. Returns how many there are. */
static int64_t sampler_top_k(struct sampler *s, const float *logits, int64_t keep) {
    struct sampler_candidate *c = s->candidates;
    int64_t n = 0;
    for (int32_t id = 0; id < s->vocab_size; id++) {
        if (sampler_is_banned(s, id)) continue;
        struct sampler_candidate next = {.logit = logits[id], .id = id};
        if (n < keep) {
            c[n++] = next;
            if (n == keep && keep < s->vocab_size)
                for (int64_t i = n / 2; i-- > 0;)
                    sampler_sift_down(c, n, i);
        } else if (sampler_is_better(next, c[0])) {
            c[0] = next;
            sampler_sift_down(c, n, 0);
        }
    }
    qsort(c, (size_t)n, sizeof *c, sampler_compare);
    return n;
}

static int32_t sampler_greedy(const struct sampler *s, const float *logits) {
    struct sampler_candidate best = {.id = -1};
    for (int32_t id = 0; id < s->vocab_size; id++) {
        struct sampler_candidate next = {.logit = logits[id], .id = id};
        if (!sampler_is_banned(s, id) && (best.id < 0 || sampler_is_better(next, best))) best = next;
    }
    return best.id;
}

/* Weight relative to the best; NaN and -inf have weight 0. Where the best is infinite all other weights are 0. */
static double sampler_weight(const struct sampler *s, float logit, float best) {
    float weight = logit == best ? 1 : expf((logit - best) / s->config.temperature);
    return weight > 0 ? (double)weight : 0;
}

/* The weight of every id into s->weights. Returns their sum. */
static double sampler_all_weights(struct sampler *s, const float *logits, int32_t best) {
    double sum = 0;
    for (int32_t id = 0; id < s->vocab_size; id++) {
        s->weights[id] = sampler_is_banned(s, id) ? 0 : sampler_weight(s, logits[id], logits[best]);
        sum += s->weights[id];
    }
    return sum;
}

static int32_t sampler_draw_from_all(struct sampler *s, const float *logits) {
    int32_t best = sampler_greedy(s, logits);
    double draw = (double)rng_uniform(&s->rng) * sampler_all_weights(s, logits, best);
    for (int32_t id = 0; id < s->vocab_size; id++) {
        draw -= s->weights[id];
        if (draw < 0) return id;
    }
    return best; /* rounding: the draw was not below the sum */
}

/* Every id that may be in the set of top-p, best first; *total is the weight of all ids. An id lighter than the share
 * (1 - p) / n of the total is in no smallest set: the sum of all such ids is less than 1 - p of it. Ids that min-p
 * excludes are left out as well: they rank below all that it keeps. */
static int64_t sampler_top_p_candidates(struct sampler *s, const float *logits, double *total) {
    struct sampler_candidate *c = s->candidates;
    int32_t best = sampler_greedy(s, logits);
    double sum = sampler_all_weights(s, logits, best), least = (1 - (double)s->config.top_p) * sum / s->vocab_size;
    if (least < (double)s->config.min_p) least = (double)s->config.min_p;
    int64_t n = 0;
    for (int32_t id = 0; id < s->vocab_size; id++)
        if (id == best || (s->weights[id] >= least && !sampler_is_banned(s, id)))
            c[n++] = (struct sampler_candidate){.logit = logits[id], .id = id};
    qsort(c, (size_t)n, sizeof *c, sampler_compare);
    *total = sum;
    return n;
}

void sampler_see(struct sampler *s, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; s->seen && i < n; i++)
        s->seen[s->n_seen++ % s->config.repeat_last] = ids[i];
}

/* An id that was seen twice is penalised once: after the first time its logit differs (or the penalty does not change
 * it). */
static const float *sampler_penalise(struct sampler *s, const float *logits) {
    float by = s->config.repeat_penalty;
    if (!s->seen) return logits;
    memcpy(s->penalised, logits, (size_t)s->vocab_size * sizeof *logits);
    int64_t n = s->n_seen < s->config.repeat_last ? s->n_seen : s->config.repeat_last;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = s->seen[i];
        assert(id >= 0 && id < s->vocab_size);
        if (s->penalised[id] == logits[id]) s->penalised[id] = logits[id] > 0 ? logits[id] / by : logits[id] * by;
    }
    return s->penalised;
}

static int32_t sampler_draw(struct sampler *s, const float *logits) {
    double total = 0;
    bool some = s->config.top_k > 0 && s->config.top_k < s->vocab_size;
    if (!some && s->config.top_p == 1 && s->config.min_p == 0) return sampler_draw_from_all(s, logits);
    int64_t n = some ? sampler_top_k(s, logits, s->config.top_k) : sampler_top_p_candidates(s, logits, &total);
    assert(n > 0);
    for (int64_t i = 0; i < n; i++)
        s->weights[i] = sampler_weight(s, s->candidates[i].logit, s->candidates[0].logit);
    if (some)
        for (int64_t i = 0; i < n; i++)
            total += s->weights[i];
    /* The smallest set of best ids whose share reaches top_p. */
    double sum = 0, goal = (double)s->config.top_p * total;
    int64_t kept = 0;
    while (kept < n && (kept == 0 || (s->config.top_p < 1 ? sum < goal : true)))
        sum += s->weights[kept++];
    while (kept > 1 && s->weights[kept - 1] < (double)s->config.min_p) /* the best has weight 1 */
        sum -= s->weights[--kept];

    double left = (double)rng_uniform(&s->rng) * sum;
    for (int64_t i = 0; i < kept; i++) {
        left -= s->weights[i];
        if (left < 0) return s->candidates[i].id;
    }
    return s->candidates[0].id; /* rounding: the draw was not below the sum */
}

int32_t sampler_pick(struct sampler *s, const float *logits) {
    const float *penalised = sampler_penalise(s, logits);
    int32_t id = s->config.temperature == 0 ? sampler_greedy(s, penalised) : sampler_draw(s, penalised);
    sampler_see(s, &id, 1);
    return id;
}
