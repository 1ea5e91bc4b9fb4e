/* decoder_ahead.h -- passes on a GPU that leave their logits there, and that may read an id which this process does
 * not know yet: a pick (kernels/pick/pick.h) has been queued that writes it to memory of the device.
 *
 * So passes and picks are queued without a wait between them, and this process learns the ids as they come. What needs
 * an id is done when it is known (decoder_ahead_known), before any other call for that state. A pass that turns out
 * not to be wanted is part of the text: it was queued for the id that was picked. Not two at a time, as all calls of
 * one decoder, except decoder_ahead_known for different states. */
#pragma once
#include "decoder/decoder.h"
#include "kernels/decode_step/decode_step.h"

/* Whether the state's next position can be queued now without an id and without a wait. alone: by decoder_ahead_step,
 * which computes no end of a chunk. */
bool decoder_ahead_takes(const struct decoder_state *s, bool alone);
/* Retrieves after a chunk that a batch completed, if that is still to be done: waits for the chunk's landmark. Without
 * it decoder_ahead_takes is false. On failure the state is spent. */
enum status decoder_ahead_settle(struct decoder_state *s);
/* Queues the next position of one text. logits [V], id: memory of the device. `then` is called once the step is queued,
 * before work of the retriever that can wait is: for the pick. */
enum status decoder_ahead_step(struct decoder_state *s, float *logits, const int32_t *id, device_ops *then,
                               void *context);
/* As decoder_batch_forward on a GPU, without a wait but for retrievals that are due. logits[i]: memory of the device.
 * `then` is called once, after the pass is queued and before landmarks are: for the picks. At most DECODE_ROWS_CALLS
 * calls whose logits this process has not seen the picks of. */
struct decoder_ahead_batch {
    struct decoder_state *const *states;
    float *const *logits;
    const struct decode_step_id *ids;
    int n;
    device_ops *then; void *context;
};
enum status decoder_ahead_forward(const struct decoder_ahead_batch *batch);
/* The id of the last position that was queued with a picked one. */
void decoder_ahead_known(struct decoder_state *s, int32_t id);
/* Instead of it: that position leaves the text. */
void decoder_ahead_undo(struct decoder_state *s);
