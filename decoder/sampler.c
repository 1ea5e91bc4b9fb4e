/* sampler.c -- one draw from the logits.
 *
 * The vocabulary is sorted only as far as needed: greedy and a draw among all scan it, top-k keeps a heap of k, and
 * top-p sorts what can be in its set at all. Weights are summed in double, so that 100,000 small ones still sum to one.
 */
#include "decoder/sampler.h"
#include "base/memory.h"
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct choice {
    float logit;
    int32_t id;
};

struct sampler {
    struct sampler_config config;
    struct rng rng;
    int vocab_size;
    struct choice *choices; /* [vocab_size] */
    double *weights;        /* [vocab_size] */
    float *penalised;       /* [vocab_size]; this and the next NULL: no penalty */
    int32_t *seen;          /* [repeat_last], a ring */
    int64_t n_seen;         /* ever */
};

static enum status check(const struct sampler_config *config) {
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

static enum status allocate_penalty(struct sampler *s) {
    const struct sampler_config *c = &s->config;
    void *memory;
    if (c->repeat_penalty == 0 || c->repeat_penalty == 1 || c->repeat_last == 0) return STATUS_OK;
    TRY(memory_allocate_bytes(&memory, (size_t)s->vocab_size, sizeof *s->penalised));
    s->penalised = memory;
    TRY(memory_allocate_bytes(&memory, (size_t)c->repeat_last, sizeof *s->seen));
    s->seen = memory;
    return STATUS_OK;
}

enum status sampler_create(struct sampler **out, const struct sampler_config *config, int vocab_size) {
    assert(vocab_size > 0 && config->n_banned >= 0 && (size_t)config->n_banned <= ARRAY_LEN(config->banned));
    void *memory;
    TRY(check(config));
    TRY(memory_allocate_zero_bytes(&memory, 1, sizeof(struct sampler)));
    struct sampler *s = memory;
    s->config = *config;
    s->rng = rng_make(config->seed, 0);
    s->vocab_size = vocab_size;
    enum status status;
    TRY_GOTO(status, memory_allocate_bytes(&memory, (size_t)vocab_size, sizeof *s->choices), failed);
    s->choices = memory;
    TRY_GOTO(status, memory_allocate_bytes(&memory, (size_t)vocab_size, sizeof *s->weights), failed);
    s->weights = memory;
    TRY_GOTO(status, allocate_penalty(s), failed);
    *out = s;
    return STATUS_OK;
failed:
    sampler_free(s);
    return status;
}

void sampler_free(struct sampler *s) {
    if (!s) return;
    memory_free(s->choices);
    memory_free(s->weights);
    memory_free(s->penalised);
    memory_free(s->seen);
    memory_free(s);
}

static bool is_banned(const struct sampler *s, int32_t id) {
    for (int i = 0; i < s->config.n_banned; i++)
        if (s->config.banned[i] == id) return true;
    return false;
}

/* NaN ranks below everything: a broken logit is never picked while a sound one is left. */
static bool is_better(struct choice a, struct choice b) {
    if (isnan(a.logit) || isnan(b.logit)) return isnan(b.logit) && (!isnan(a.logit) || a.id < b.id);
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static int compare(const void *a, const void *b) {
    const struct choice *x = a, *y = b;
    return is_better(*x, *y) ? -1 : is_better(*y, *x) ? 1 : 0;
}

/* Lets the worst of the heap's first n sink to where it belongs: the root is the worst choice kept. */
static void sink(struct choice *heap, int64_t n, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_better(heap[child], heap[child + 1])) child++;
        if (!is_better(heap[at], heap[child])) return;
        struct choice swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* The `keep` best ids that are not banned, best first, into s->choices. Returns how many there are. */
static int64_t best_choices(struct sampler *s, const float *logits, int64_t keep) {
    struct choice *c = s->choices;
    int64_t n = 0;
    for (int32_t id = 0; id < s->vocab_size; id++) {
        if (is_banned(s, id)) continue;
        struct choice next = {.logit = logits[id], .id = id};
        if (n < keep) {
            c[n++] = next;
            if (n == keep && keep < s->vocab_size)
                for (int64_t i = n / 2; i-- > 0;)
                    sink(c, n, i);
        } else if (is_better(next, c[0])) {
            c[0] = next;
            sink(c, n, 0);
        }
    }
    qsort(c, (size_t)n, sizeof *c, compare);
    return n;
}

static int32_t greedy(const struct sampler *s, const float *logits) {
    struct choice best = {.id = -1};
    for (int32_t id = 0; id < s->vocab_size; id++) {
        struct choice next = {.logit = logits[id], .id = id};
        if (!is_banned(s, id) && (best.id < 0 || is_better(next, best))) best = next;
    }
    return best.id;
}

/* Weight relative to the best; a logit that is NaN or -inf weighs nothing. An infinite best takes all. */
static double weight_of(const struct sampler *s, float logit, float best) {
    float weight = logit == best ? 1 : expf((logit - best) / s->config.temperature);
    return weight > 0 ? (double)weight : 0;
}

/* The weight of every id into s->weights. Returns their sum. */
static double weigh_all(struct sampler *s, const float *logits, int32_t best) {
    double sum = 0;
    for (int32_t id = 0; id < s->vocab_size; id++) {
        s->weights[id] = is_banned(s, id) ? 0 : weight_of(s, logits[id], logits[best]);
        sum += s->weights[id];
    }
    return sum;
}

static int32_t draw_among_all(struct sampler *s, const float *logits) {
    int32_t best = greedy(s, logits);
    double draw = (double)rng_uniform(&s->rng) * weigh_all(s, logits, best);
    for (int32_t id = 0; id < s->vocab_size; id++) {
        draw -= s->weights[id];
        if (draw < 0) return id;
    }
    return best; /* rounding left a hair of the sum over */
}

/* Every id that may be in the set of top-p, best first; *total is the weight of all ids. An id lighter than the share
 * (1 - p) / n of the total is in no smallest set: all such ids together weigh less than 1 - p. What min-p shuts out is
 * not there either: it is behind all that it lets in. */
static int64_t likely_choices(struct sampler *s, const float *logits, double *total) {
    struct choice *c = s->choices;
    int32_t best = greedy(s, logits);
    double sum = weigh_all(s, logits, best), least = (1 - (double)s->config.top_p) * sum / s->vocab_size;
    if (least < (double)s->config.min_p) least = (double)s->config.min_p;
    int64_t n = 0;
    for (int32_t id = 0; id < s->vocab_size; id++)
        if (id == best || (s->weights[id] >= least && !is_banned(s, id)))
            c[n++] = (struct choice){.logit = logits[id], .id = id};
    qsort(c, (size_t)n, sizeof *c, compare);
    *total = sum;
    return n;
}

void sampler_see(struct sampler *s, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; s->seen && i < n; i++)
        s->seen[s->n_seen++ % s->config.repeat_last] = ids[i];
}

/* An id that was seen twice is not moved twice: its logit differs by then (a logit that a penalty leaves as it is may
 * be left again). */
static const float *penalise(struct sampler *s, const float *logits) {
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

static int32_t draw(struct sampler *s, const float *logits) {
    double total = 0;
    bool some = s->config.top_k > 0 && s->config.top_k < s->vocab_size;
    if (!some && s->config.top_p == 1 && s->config.min_p == 0) return draw_among_all(s, logits);
    int64_t n = some ? best_choices(s, logits, s->config.top_k) : likely_choices(s, logits, &total);
    assert(n > 0);
    for (int64_t i = 0; i < n; i++)
        s->weights[i] = weight_of(s, s->choices[i].logit, s->choices[0].logit);
    if (some)
        for (int64_t i = 0; i < n; i++)
            total += s->weights[i];
    /* The smallest set of best ids whose share reaches top_p. */
    double sum = 0, goal = (double)s->config.top_p * total;
    int64_t kept = 0;
    while (kept < n && (kept == 0 || (s->config.top_p < 1 ? sum < goal : true)))
        sum += s->weights[kept++];
    while (kept > 1 && s->weights[kept - 1] < (double)s->config.min_p) /* the best weighs 1 */
        sum -= s->weights[--kept];

    double left = (double)rng_uniform(&s->rng) * sum;
    for (int64_t i = 0; i < kept; i++) {
        left -= s->weights[i];
        if (left < 0) return s->choices[i].id;
    }
    return s->choices[0].id; /* rounding left a hair of the sum over */
}

int32_t sampler_pick(struct sampler *s, const float *logits) {
    const float *penalised = penalise(s, logits);
    int32_t id = s->config.temperature == 0 ? greedy(s, penalised) : draw(s, penalised);
    sampler_see(s, &id, 1);
    return id;
}
