/* step_teach_internal.h -- trains the retriever to find what its reader gains from (docs/training.md, "A taught
 * retriever").
 *
 * The query of chunk r ranks two sets of candidates: the passages of chunk r + 1 in the batch, read or not, and the
 * passages of one chunk of another sequence, whose gain counts as 0. The teacher is p = softmax(gain / temperature)
 * with the gains of memory_loss_gains. The student is softmax(score), as GCA weights neighbours. The loss is KL(p ||
 * student) for each query and group. The landmark of a candidate is that of the passage's first chunk, which the search
 * found. */
#pragma once
#include "train/step/step_internal.h"

/* Sums over the taught queries of all groups: the loss; queries whose best candidate has the largest gain; that
 * candidate's gain; the largest gain (nats a chunk). */
struct step_teach_sums { double loss, hits, gain, best; };

struct step_teach;
enum status step_teach_create(struct step_teach **out, const struct step *s);
void step_teach_free(struct step_teach *t, struct device *dev);              /* NULL is fine */
size_t step_teach_bytes(const struct step_teach *t);
/* Number of chunks that the encoder encodes for the candidates of a micro-batch of so many queries. */
int64_t step_teach_chunks(const struct step_config *c, int64_t queries);
/* Number of queries of a batch that have a candidate. */
int64_t step_teach_count(const struct step *s, const struct batch *batch);
/* Call after the mixture's backward pass. Encodes the candidates after the chunks that are encoded already, and adds to
 * the gradients of queries and landmarks. */
struct step_teach_sums step_teach_run(struct step *s, const struct step_task *task);
