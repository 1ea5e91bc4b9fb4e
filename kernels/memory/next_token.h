/* next_token.h -- the distribution of the next token of one text: the model's, mixed with those of up to two token
 * memories by a gate (docs/token-memory.md, "Temperature and gate"). One op does what generation needs for an id.
 *
 *   p = g_0 p_lm + sum over sides of g_(1+side) p_side     p_lm = softmax(logits), p_side as in token_memory.h,
 *                                                           g: memory_gate.h, from model and memories
 *
 * With a projection P the key of a state is P s, of m numbers, rounded to the type of the keys. Distances are then
 * those of projected keys.
 *
 * The same bits each time. Bound (GPU): keys are read once, 2 m bytes of bf16 or m of codes an entry, and the logits
 * once; with few entries the latency of a launch and of the gate's chain. */
#pragma once
#include "kernels/decode_step/decode_step.h"
#include "kernels/memory/memory_gate.h"
#include "kernels/memory/token_memory.h"

enum { NEXT_TOKEN_COLUMNS_MAX = 1 << 18, NEXT_TOKEN_HITS_MAX = 1024 }; /* columns: of a side on a GPU */
/* All pointers: memory of the device. */
struct next_token_side {
    struct token_memory memory;          /* of one row, the first of its block; tau NULL: this side is not read */
    struct memory_marks marks;           /* entries 0: there is nothing to read yet */
    const struct memory_marks *found;    /* memory of the device: replaces `marks`; NULL: `marks` */
    struct mat weights;                  /* out [1, token_memory_columns], float32: as token_memory_ops.weights */
    float *p;                            /* out [V]: p_side */
};
/* The newest position is added to the text's own past: *square = |its key|^2, *value = id. The value belongs to the
 * position before, which the newest id follows. key: where the projected key is stored, m numbers of the type of the
 * keys; without a projection the state is already there. Each may be NULL. picked: where the device has the id; NULL:
 * `id`. */
struct next_token_append { float *square; int32_t *value; int32_t id; void *key; const int32_t *picked; };
struct next_token_task {
    const struct memory_gate *gate;
    const float *logits;                 /* [V] */
    int64_t vocab;
    struct mat state;                    /* [1, d] */
    struct mat projection;               /* [m, d], of the state's type; data NULL: the state is the key, m is d */
    struct next_token_append append;
    struct next_token_side side[MEMORY_SIDES];
    /* Of the decode step that made logits and state (decoder_state_step); zeroed: none. ready: only if that step is the
     * device's last op. A GPU then reads the memories while the step still computes the logits. */
    struct decode_step_result step;
};

struct next_token_ops {
    /* log_p [V]: log p, -infinity where it is 0; g [1 + MEMORY_SIDES]. Both memory of the device, or within its reach
     * (device_reach). NaN in logits, state or a key that is read reaches log_p of every id. */
    void (*mix)(struct device *dev, float *log_p, double *g, const struct next_token_task *task);
    /* *out = memory_marks_of(chunk, score, k, tokens), k <= NEXT_TOKEN_HITS_MAX. Pointers: memory of the device. */
    void (*marks)(struct device *dev, struct memory_marks *out, const int64_t *chunk, const float *score, int k,
                  float tokens);
};
extern const struct next_token_ops next_token_cpu;

/* The marks of a search: of its k hits, chunk -1 where fewer were found. tokens: of the query. */
MEMORY_GATE_FUNCTION struct memory_marks memory_marks_of(const int64_t *chunk, const float *score, int k,
                                                         float tokens) {
    struct memory_marks out = {0, 0, 0, 0};
    double sum = 0;
    for (int i = 0; i < k; i++) {
        const float x = chunk[i] >= 0 ? score[i] : 0;
        out.entries += chunk[i] >= 0 ? 1.0F : 0.0F;
        out.best = i == 0 || x > out.best ? x : out.best;
        out.kth = i == 0 || x < out.kth ? x : out.kth;
        sum += (double)x;
    }
    out.best /= tokens;
    out.kth /= tokens;
    out.mean = (float)(sum / k) / tokens;
    return out;
}

/* log of the mixed probability of a token, from its log-probabilities (those of sides may be -infinity). */
MEMORY_GATE_FUNCTION double memory_mixed(const double g[1 + MEMORY_SIDES], double log_lm,
                                         const double log_p[MEMORY_SIDES]) {
    double part[1 + MEMORY_SIDES], top = -INFINITY, sum = 0;
    for (int i = 0; i <= MEMORY_SIDES; i++) {
        part[i] = g[i] > 0 ? log(g[i]) + (i == 0 ? log_lm : log_p[i - 1]) : -INFINITY;
        if (part[i] > top) top = part[i];
    }
    if (top == -INFINITY) return top;
    for (int i = 0; i <= MEMORY_SIDES; i++)
        sum += exp(part[i] - top);
    return top + log(sum);
}
