/* memory_gate_fit.h -- the loss of a gate over rows, its gradient, and its minimum by Adam. */
#pragma once
#include "base/system/threads.h"
#include "decoder/memory_config.h"

/* What is fitted: w1, b1, w2 and b2 of struct memory_gate, as one array. */
enum { MEMORY_GATE_PARAMETERS = MEMORY_GATE_HIDDEN * (MEMORY_FEATURES + 1 + MEMORY_SIDES) + MEMORY_SIDES };

/* One token with one set of memories. */
struct memory_gate_row {
    double x[MEMORY_FEATURES];           /* standardised */
    double p[1 + MEMORY_SIDES];          /* the token's probability by the model and each side, largest 1 */
    double share;                        /* of the loss; rows of share 0 are not used */
    bool there[MEMORY_SIDES];            /* whether the side has entries */
};

/* Writes the sum over rows of share * -log(g . p) to *loss. gradient [MEMORY_GATE_PARAMETERS]; NULL: not wanted.
 * STATUS_NO_MEMORY. Any number of threads gives the same bits. */
enum status memory_gate_loss(double *loss, double *gradient, const double *parameters,
                             const struct memory_gate_row *rows, int64_t n, struct threads *threads);
/* Draws the weights, then runs `steps` steps of Adam on the loss plus penalty * half the squares of w1 and w2. mean
 * and deviation of *gate do not change. */
enum status memory_gate_fit(struct memory_gate *gate, const struct memory_gate_row *rows, int64_t n, double penalty,
                            struct threads *threads);
