/* pick.h -- logits to the next id on a device, for several texts at once: what decoder/logits/sampler.h does, with the
 * same ids, bit for bit.
 *
 * Temperature, top-k, top-p, min-p, repetition penalty, banned ids and seeds are each row's own (pick_rule.h has the
 * arithmetic). Sums are of integers, so that they have no order. The ids a text has seen and the id that was picked are
 * memory of the device: the next pass can read the id there before this process knows it.
 *
 * Log-probabilities are those of the logits before any setting applies. They equal the host's
 * (session/generation_scores.c) up to rounding: float32 weights are summed in units of 2^-40.
 *
 * Bound (GPU): logits are read once, twice with log-probabilities; then the time of the barriers of a cluster. */
#pragma once
#include "kernels/device/device.h"
#include "kernels/pick/pick_rule.h"

enum { PICK_ROWS_MAX = 64, PICK_BEST_MAX = 64 };

/* What this process gets of a pick. Before it: id -1, n_best 0. ticket comes last, or just before id with logprob. */
struct pick_result {
    uint64_t ticket;                     /* upper half: the row's ticket; lower half: the id */
    int32_t id;                          /* with logprob: written together with it */
    float logprob;                       /* if it was requested */
    int32_t n_best;                      /* -1: logits whose log-probabilities the host must compute (not finite) */
    int32_t reserved;
    struct pick_best { int32_t id; float logprob; } best[PICK_BEST_MAX];   /* best first, equal ones by id */
};

struct pick_row {
    const float *logits;                 /* [V] */
    struct pick_rule rule;
    const uint32_t *banned;              /* bit id % 32 of word id / 32: never picked; NULL: none. Not all ids */
    /* The ids of the text: number i is in seen[i % seen_rows]. The pick adds its own as number rule.n_seen. NULL: no
     * penalty. seen_rows > rule.repeat_last. */
    int32_t *seen;
    int64_t seen_rows;
    int32_t *id;                         /* out [1] */
    struct pick_result *result;          /* out: memory of the device or within its reach (device_reach) */
    uint64_t ticket;                     /* lower half: 0 */
    bool logprob;
    int32_t n_best;                      /* best log-probabilities, at most PICK_BEST_MAX; with logprob */
};

struct pick_ops {
    /* 1 <= n <= PICK_ROWS_MAX rows. Pointers in rows: memory of the device; `rows` itself: of this process, copied. */
    void (*rows)(struct device *dev, const struct pick_row *rows, int n, int64_t vocab);
};
extern const struct pick_ops pick_cpu;
