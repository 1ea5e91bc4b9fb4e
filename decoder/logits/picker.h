/* picker.h -- a sampler whose picks are made by a device with memory of its own (kernels/pick/pick.h). The device has
 * the ids of the text, the banned ids and the last two picks. Results arrive in pinned memory of this process.
 *
 * The host's sampler numbers the picks. Picks of sampler and picker give the same ids, in any mixture, if each id of a
 * picker is passed to sampler_picked. At most two picks are queued: the next one, and the one after it, which reads the
 * id of the first. A queued pick may be dropped: ops of the device run in order, and a later pick overwrites its id.
 * One thread at a time; picker_wait uses nothing that pickers of a device share. */
#pragma once
#include "decoder/logits/sampler.h"
#include "kernels/pick/pick.h"

struct picker;
/* For a device that does not share memory. sampler is borrowed until picker_free; `config` as it was given to it. */
enum status picker_create(struct picker **out, struct device *dev, const struct sampler *sampler,
                          const struct sampler_config *config, int vocab_size);
void picker_free(struct picker *p);                       /* NULL is fine */
/* Call it after sampler_configure of its sampler. Queued picks are dropped. After a failure the picker can only be
 * configured or freed. */
enum status picker_configure(struct picker *p);
/* Drops queued picks. The ids join the list as in sampler_see, which follows this call. */
void picker_see(struct picker *p, const int32_t *ids, int64_t n);

/* Queues a pick; *row is for pick_ops.rows. logits: memory of the device. `n_best` > 0 needs logprob. */
void picker_queue(struct picker *p, struct pick_row *row, const float *logits, bool logprob, int n_best);
int picker_queued(const struct picker *p);                /* 0 to 2 */
void picker_drop(struct picker *p);                       /* drops all queued picks */
/* Memory of the device: the id of the pick that was queued last. */
const int32_t *picker_id(const struct picker *p);
/* Waits for the first queued pick, which is then no longer queued. *out is valid until two more picks are queued. */
enum status picker_wait(struct picker *p, const struct pick_result **out);
