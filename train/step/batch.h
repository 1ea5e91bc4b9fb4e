/* batch.h -- one micro-batch, the input of a training step, in host memory (model.md §1.4-1.7). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* N sequences of C chunks of S = chunk + 1 positions; n = N*C*S rows (a Base LM without landmarks: chunks = L positions
 * of one row each). */
struct batch {
    int sequences;
    int64_t chunks;
    const int32_t *ids;                  /* [n]: landmark_id in every chunk's last row */
    /* [n]: the next real id; -1 (not scored) at landmarks and at a sequence's end */
    const int32_t *targets;
    /* [N*B][2]: first and last document that each run of enc_chunk_size ids overlaps. B is C; for a Base LM L / chunk,
     * if it has a token memory, else documents is NULL */
    const int32_t (*documents)[2];
    int64_t scored;                      /* targets >= 0 */
    bool samples;                        /* a sequence is a sample: its targets are those of its answer, in a row */
    /* [n]: the encoder reads mask_id where it is not 0; NULL: the step draws a random mask */
    const int32_t *mask;
    const int64_t *starts;               /* [N]: position of each sequence's first id in the text of all files */
    /* Token memory: P passages for each run of enc_chunk_size ids, in order. passages [N*B*P][span*chunk + 1]: ids,
     * the last of which follows the passage (-1: none). passage_documents [N*B*P]; -1: no passage. Both NULL: no
     * passages. */
    const int32_t *passages, *passage_documents;
};
