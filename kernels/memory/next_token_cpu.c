/* next_token_cpu.c -- the CPU twin: ops of token_memory.h for each side, then one pass over the vocabulary.
 *
 * Exponentials, logarithms and probabilities are float32, LANES at a time; sums of a few vectors of them, and the gate,
 * are double. */
#include "kernels/device/device_internal.h"
#include "kernels/memory/next_token.h"
#include "kernels/memory/token_memory_internal.h"
#include "kernels/ops.h"
#include "kernels/pointwise/simd_internal.h"
#include <assert.h>

enum { SHARE = 2048 /* ids that a thread takes at a time */ };

/* log x within 2 ulp for normal x > 0; others: any number. x = m 2^n with m in [1/sqrt 2, sqrt 2), log m by its minimax
 * polynomial (Cephes logf). */
SIMD vf log_lanes(vf x) {
    vi bits = (vi)x, n = (bits - 0x3f3504f3) >> 23;
    vf r = (vf)(bits - (n << 23)) - 1.0f, e = __builtin_convertvector(n, vf), square = r * r;
    vf p = r * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r - 1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r - 1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r - 2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    vf y = p * r * square - e * 2.12194440e-4f - 0.5f * square;
    return r + y + e * 0.693359375f;
}

struct next_stats {
    float lse, nearest, squares, largest;
};

/* The key of the state; `memory` has m numbers. */
static struct mat next_token_key(const struct next_token_task *t, struct device *dev, float *memory) {
    if (!t->projection.data) return t->state;
    const struct mat key = mat_dense(memory, DTYPE_F32, 1, t->projection.rows);
    assert(key.cols <= WIDTH_MAX);
    dev->ops->matmul->forward(dev, key, t->state, t->projection, false);
    return key;
}

static void next_token_append(const struct next_token_task *t, struct device *dev, struct mat key) {
    const struct next_token_append *a = &t->append;
    if (a->key) {
        const struct mat to = mat_dense(a->key, t->side[0].memory.past.keys.type, 1, key.cols);
        dev->ops->elementwise->convert(dev, to, key);
    }
    if (a->square) token_memory_cpu.squares(dev, a->square, key);
    if (a->value) *a->value = a->picked ? *a->picked : a->id;
}

static void next_token_read(struct device *dev, struct next_stats *stats, const struct next_token_side *side,
                            const struct next_token_task *t, struct mat key) {
    const struct token_memory_stats out = {
        .lse = &stats->lse, .nearest = &stats->nearest, .squares = &stats->squares, .largest = &stats->largest};
    token_memory_row(dev, out, side->weights, key, &side->memory);
    token_memory_cpu.distribution(dev, mat_f32(side->p, 1, t->vocab), side->weights, &side->memory);
}

/* The greatest, the first of equal ones; 0 if none is above -infinity. */
static int64_t largest_of(const float *x, int64_t n) {
    vf best = v_set(-INFINITY);
    vi at = {0}, index;
    int64_t v = 0, first = 0;
    float most = -INFINITY;
    for (int i = 0; i < LANES; i++)
        index[i] = i;
    for (; v + LANES <= n; v += LANES, index += LANES) {
        const vf part = v_load(x + v);
        const vi more = part > best;
        best = v_select(more, part, best);
        at = (more & index) | (~more & at);
    }
    for (int i = 0; i < LANES; i++)
        if (best[i] > most || (best[i] == most && at[i] < first)) most = best[i], first = at[i];
    for (; v < n; v++)
        if (x[v] > most) most = x[v], first = v;
    return first;
}

/* Sum of e^(logit - largest), and of that times the exponent. */
struct next_sums {
    double sum, moment;
};

static void next_token_add(struct next_sums *s, const struct next_token_task *t, float largest, int64_t v, int64_t n) {
    vf sum = {0}, moment = {0};
    for (; n >= LANES; n -= LANES, v += LANES) {
        const vf below = v_load(t->logits + v) - largest, e = v_exp(below);
        sum += e;
        moment += v_select(e == 0.0f, (vf){0}, e * below); /* below may be -infinity, or NaN */
    }
    const vf below = v_load_part(t->logits + v, n) - largest, e = v_exp(below);
    for (int64_t i = 0; i < LANES; i++) {
        s->sum += (double)sum[i] + (i < n ? (double)e[i] : 0);
        s->moment += (double)moment[i] + (i < n && e[i] != 0 ? (double)(e[i] * below[i]) : 0);
    }
}

static struct next_sums next_token_sum(const struct next_token_task *t, float largest) {
    enum { VECTORS = 8 }; /* that are added in float32 */
    struct next_sums s = {0};
    for (int64_t v = 0; v < t->vocab; v += VECTORS * LANES)
        next_token_add(&s, t, largest, v, t->vocab - v < VECTORS * LANES ? t->vocab - v : VECTORS * LANES);
    return s;
}

static struct memory_evidence next_token_evidence(const struct next_token_task *t, const struct next_token_side *side,
                                                  const struct next_stats *stats, int64_t top, double log_sum) {
    const struct memory_marks marks = side->found ? *side->found : side->marks;
    if (!side->memory.tau || !(marks.entries > 0)) return (struct memory_evidence){0};
    const int64_t best = largest_of(side->p, t->vocab);
    return (struct memory_evidence){.entries = marks.entries,
                                    .lse = stats->lse,
                                    .nearest = stats->nearest,
                                    .squares = stats->squares,
                                    .top = logf(side->p[best]),
                                    .of_top = logf(side->p[top]),
                                    .lm_of_top = (float)((double)t->logits[best] - log_sum),
                                    .token = (float)best,
                                    .best = marks.best,
                                    .kth = marks.kth,
                                    .mean = marks.mean};
}

struct mix_call {
    const struct next_token_task *task;
    float *log_p;
    const double *g;
    double log_sum; /* of the exponentials of all logits */
};

/* If float32 cannot represent the sum, it is computed from logarithms. */
static float next_token_small(const struct mix_call *c, int64_t v) {
    double log_p[MEMORY_SIDES];
    for (int side = 0; side < MEMORY_SIDES; side++)
        log_p[side] = c->g[1 + side] > 0 ? log((double)c->task->side[side].p[v]) : -INFINITY;
    return (float)memory_mixed(c->g, (double)c->task->logits[v] - c->log_sum, log_p);
}

static void next_token_mix_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct mix_call *c = context;
    const struct next_token_task *t = c->task;
    const float log_sum = (float)c->log_sum, least = 1e-30F;
    float g[1 + MEMORY_SIDES];
    (void)worker;
    for (int i = 0; i <= MEMORY_SIDES; i++)
        g[i] = (float)c->g[i];
    for (int64_t v = begin; v < end; v += LANES) {
        const int64_t n = end - v < LANES ? end - v : LANES;
        vf p = g[0] * v_exp((n == LANES ? v_load(t->logits + v) : v_load_part(t->logits + v, n)) - log_sum);
        for (int side = 0; side < MEMORY_SIDES; side++)
            if (g[1 + side] > 0)
                p += g[1 + side] * (n == LANES ? v_load(t->side[side].p + v) : v_load_part(t->side[side].p + v, n));
        const vf log_p = log_lanes(p);
        if (n == LANES)
            v_store(c->log_p + v, log_p);
        else
            v_store_part(c->log_p + v, log_p, n);
        if (v_sum(v_select(p >= least, (vf){0}, v_set(1.0f))) == 0.0f) continue;
        for (int64_t i = 0; i < n; i++) /* NaN is in no order */
            if (!(p[i] >= least)) c->log_p[v + i] = isnan(p[i]) ? p[i] : next_token_small(c, v + i);
    }
}

static void next_token_mix(struct device *dev, float *log_p, double *g, const struct next_token_task *task) {
    struct next_stats stats[MEMORY_SIDES];
    struct memory_evidence of[MEMORY_SIDES];
    float memory[WIDTH_MAX];
    const struct mat key = next_token_key(task, dev, memory);
    next_token_append(task, dev, key);
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (task->side[side].memory.tau) next_token_read(dev, &stats[side], &task->side[side], task, key);
    const int64_t top = largest_of(task->logits, task->vocab);
    const double largest = (double)task->logits[top];
    const struct next_sums s = next_token_sum(task, task->logits[top]);
    const struct memory_lm_evidence lm = {(float)(log(s.sum) - s.moment / s.sum), (float)-log(s.sum)};
    for (int side = 0; side < MEMORY_SIDES; side++)
        of[side] = next_token_evidence(task, &task->side[side], &stats[side], top, largest + log(s.sum));
    memory_gate_weights(g, task->gate, &lm, of);
    struct mix_call call = {task, log_p, g, largest + log(s.sum)};
    threads_for(dev->threads, task->vocab, SHARE, next_token_mix_range, &call);
}

static void next_token_marks(struct device *dev, struct memory_marks *out, const int64_t *chunk, const float *score,
                             int k, float tokens) {
    (void)dev;
    assert(k >= 1 && k <= NEXT_TOKEN_HITS_MAX);
    *out = memory_marks_of(chunk, score, k, tokens);
}

const struct next_token_ops next_token_cpu = {.mix = next_token_mix, .marks = next_token_marks};
