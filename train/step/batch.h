/* batch.h -- one micro-batch, the input of a training step, in host memory (model.md §1.4-1.7). */
#pragma once
#include <stdint.h>

/* N sequences of C chunks of S = chunk + 1 positions; n = N*C*S rows (a Base LM without landmarks: chunks = L positions
 * of one row each). */
struct batch {
    int sequences;
    int64_t chunks;
    const int32_t *ids;                  /* [n]: landmark_id in every chunk's last row */
    /* [n]: the next real id; -1 (not scored) at landmarks and at a sequence's end */
    const int32_t *targets;
    /* [N*B]: first and last document that the ids of each enc_chunk_size ids belong to (B: C; Base LM: L / chunk, with
     * a token memory; else NULL) */
    const int32_t (*documents)[2];
    int64_t scored;                      /* targets >= 0 */
    const int32_t *mask;                 /* [n]: the encoder reads mask_id where != 0; NULL: a random mask */
    const int64_t *starts;               /* [N]: where each sequence begins in the text of all files */
    /* Token memory: of each block of enc_chunk_size ids (in order), P passages: ids [N*B*P][span*chunk + 1], the last
     * one that which follows the passage (-1: none); document [N*B*P], -1: there is no passage. NULL: no passages. */
    const int32_t *passages, *passage_documents;
};
