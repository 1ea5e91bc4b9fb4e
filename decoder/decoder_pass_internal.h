/* decoder_pass_internal.h -- functions for the files that compute layers: key states, the step of one position, rows of
 * several texts on a GPU. */
#pragma once
#include "decoder/decoder_internal.h"

/* Makes the keys of the pass's ids whose rows are in h, if `layer` (from 0) is their layer: normed, and projected if
 * the model has a projection for it and the pass wants that. h begins at row `begin` of the pass and is the input of
 * the layer's MLP. */
void decoder_keys_keep(struct decoder *d, const struct decoder_pass *p, int layer, struct mat h, int64_t begin);
/* Frees the weights that decoder_passages.c packed. */
void decoder_packed_free(struct decoder *d);

/* decoder_step.c: computes one id in one kernel (two positions at a chunk's end). *done false: the device cannot. */
enum status decoder_step_weights(struct decoder *d), decoder_step_create(struct decoder_state *s);
enum status decoder_step(bool *done, struct decoder_state *s, const struct decoder_output *out,
                         const struct decoder_pass *p, const int32_t *ids);
/* The blocks that the pass's positions read. After a chunk's last id: computes the landmark's position; retrieves. */
enum status decoder_step_fusions(struct decode_step_fusion *out, struct decoder_state *s, const struct decoder_pass *p);
void decoder_step_landmark(struct decoder_state *s, const struct decoder_pass *p,
                           const struct decode_step_fusion *fusions);
enum status decoder_step_retrieve(struct decoder_state *s, const struct decoder_pass *p);

/* decoder_rows.c: decoder_batch_takes and decoder_batch_forward on a GPU, for at most DECODE_ROWS_MAX states. */
bool decoder_rows_takes(const struct decoder_state *s);
enum status decoder_rows_forward(struct decoder_state *const *states, float *const *logits, const int32_t *ids, int n);
/* Retrieves after a chunk that a batch completed, if that is still to be done. On failure the state is spent. */
enum status decoder_rows_settle(struct decoder_state *s);
void decoder_rows_free(struct decoder *d);                /* frees what decoder_rows.c allocated */
