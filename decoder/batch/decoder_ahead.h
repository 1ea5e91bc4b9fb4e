/* decoder_ahead.h -- queues passes on a GPU before this process knows the ids that they read. The logits stay there.
 *
 * A pick (kernels/pick/pick.h) that is queued before a pass writes the pass' id to memory of the device. So passes and
 * picks are queued without a wait between them, and this process learns the ids later. For each such pass the caller
 * then calls decoder_ahead_known or decoder_ahead_undo, before any other call for that state. Calls of one decoder must
 * not run at the same time, except decoder_ahead_known for different states. */
#pragma once
#include "decoder/decoder.h"
#include "kernels/decode_step/decode_step.h"

/* Whether the state's next position can be queued now, without its id and without a wait. alone: by decoder_ahead_step,
 * which does not compute the landmark at the end of a chunk. */
bool decoder_ahead_takes(const struct decoder_state *s, bool alone);
/* Retrieves after a chunk that a batch completed, if that was not done yet; waits for the chunk's landmark. Until this
 * call decoder_ahead_takes is false. After a failure the state can only be freed. */
enum status decoder_ahead_settle(struct decoder_state *s);
/* Queues the next position of one text; id: memory of the device. Of `out` it takes what decoder_forward takes of an id
 * that one kernel computes: logits_device, keys that the decoder does not project, and `pick` or `then`, which is
 * called after the step is queued and before work of the retriever that is not urgent: to queue the pick. */
enum status decoder_ahead_step(struct decoder_state *s, const struct decoder_output *out, const int32_t *id);
/* As decoder_batch_forward on a GPU, but waits only for retrievals that are due. logits[i]: memory of the device.
 * `then` is called once, after the pass is queued and before landmarks are: to queue the picks. At most
 * DECODE_ROWS_CALLS calls may be queued whose picks this process has not received. */
struct decoder_ahead_batch {
    struct decoder_state *const *states;
    float *const *logits;
    const struct decode_step_id *ids;
    int n;
    device_ops *then; void *context;
};
enum status decoder_ahead_forward(const struct decoder_ahead_batch *batch);
/* Passes the id of the last position that was queued without one, and does the work that needs the id. */
void decoder_ahead_known(struct decoder_state *s, int32_t id);
/* Removes that position from the text, instead of decoder_ahead_known. */
void decoder_ahead_undo(struct decoder_state *s);
