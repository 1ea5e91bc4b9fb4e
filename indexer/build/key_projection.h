/* key_projection.h -- fits a projection of key states, with which a token memory has short keys (docs/model.md §9.5).
 *
 * States that are followed by the same token should be near each other, and others far. So directions in which states
 * of one token vary count less: with S the states' covariance, W that within tokens (its mean eigenvalue w), M the
 * removal of the direction of the mean state,
 *
 *   B = (W + 0.1 w)^(-1/4)      P = V B M      V: the eigenvectors of the `size` greatest eigenvalues of B M S M B
 *
 * scaled so that the variance of keys is that of the `size` first principal components. Keys have mean 0. */
#pragma once
#include "indexer/build/key_windows.h"

struct key_projection_report {
    int64_t states;                      /* from which it was fitted */
    double kept;                         /* share of the states' variance in as many principal components */
};
/* out [size, hidden], from the states of windows that are spread over the store; size is 2 to hidden. The same bits
 * each time on one machine. STATUS_INVALID: the store has too few states. */
enum status key_projection_fit(float *out, int size, struct key_projection_report *report,
                               const struct key_windows_config *config);
