/* picker.h -- a sampler whose picks are made by a device with memory of its own (kernels/pick/pick.h): the ids it has
 * seen, banned ids and the last two picks are there, and results arrive in pinned memory of this process.
 *
 * The sampler counts: picks of both give the same ids, in any mixture, if each id that a picker gives is passed to
 * sampler_picked. At most two picks are queued: the next one, and one ahead, which reads the id of the next one. Ops of
 * the device run in order, so a queued pick may be dropped: its id is overwritten. One thread at a time; picker_wait
 * uses nothing that pickers of a device share. */
#pragma once
#include "decoder/logits/sampler.h"
#include "kernels/pick/pick.h"

struct picker;
/* For a device that does not share memory. sampler is borrowed until picker_free; `config` as it was given to it. */
enum status picker_create(struct picker **out, struct device *dev, const struct sampler *sampler,
                          const struct sampler_config *config, int vocab_size);
void picker_free(struct picker *p);                       /* NULL is fine */
/* After sampler_configure of its sampler: no pick is queued. After a failure it can only be configured or freed. */
enum status picker_configure(struct picker *p);
/* Drops queued picks. The ids join the list as in sampler_see, which follows this call. */
void picker_see(struct picker *p, const int32_t *ids, int64_t n);

/* Queues a pick; *row is for pick_ops.rows. logits: memory of the device. `n_best` > 0 needs logprob. */
void picker_queue(struct picker *p, struct pick_row *row, const float *logits, bool logprob, int n_best);
int picker_queued(const struct picker *p);                /* 0 to 2 */
void picker_drop(struct picker *p);                       /* what is queued is not wanted */
/* Memory of the device: the id of the pick that was queued last. */
const int32_t *picker_id(const struct picker *p);
/* Waits for the first queued pick, which is then no longer queued. *out: until it is queued again twice. */
enum status picker_wait(struct picker *p, const struct pick_result **out);
