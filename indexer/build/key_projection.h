/* key_projection.h -- fits a projection of key states, with which a token memory has short keys (docs/model.md §9.5).
 *
 * Its rows are an orthonormal basis of the subspace in which the key states of a store's text vary most, without the
 * direction of their mean. So distances of projected keys are nearly those of the states, and projected keys have mean
 * 0. */
#pragma once
#include "indexer/build/key_windows.h"

struct key_projection_report {
    int64_t states;                      /* from which it was fitted */
    double kept;                         /* share of the states' variance in the subspace */
};
/* out [size, hidden], from the states of windows that are spread over the store; size is 2 to hidden - 1. The same bits
 * each time on one device. STATUS_INVALID: the store has fewer states than hidden. */
enum status key_projection_fit(float *out, int size, struct key_projection_report *report,
                               const struct key_windows_config *config);
