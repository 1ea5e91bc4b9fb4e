/* batch.h -- one micro-batch, the input of a training step, in host memory (model.md §1.4-1.7). */
#pragma once
#include <stdint.h>

/* N sequences of C chunks of S = chunk + 1 positions; n = N*C*S rows (Base LM: chunks = L positions of one row
 * each). */
struct batch {
    int sequences;
    int64_t chunks;
    const int32_t *ids;                  /* [n]: landmark_id in every chunk's last row */
    /* [n]: the next real id; -1 (not scored) at landmarks and at a sequence's end */
    const int32_t *targets;
    const int32_t (*documents)[2];       /* [N*C]: first and last document that the chunk's ids belong to */
    int64_t scored;                      /* targets >= 0 */
    const int32_t *mask;                 /* [n]: the encoder reads mask_id where != 0; NULL: a random mask */
};
