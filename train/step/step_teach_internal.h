/* step_teach_internal.h -- the retriever is taught what its reader gains (docs/training.md, "A taught retriever").
 *
 * The query of chunk r ranks candidates: the passages of chunk r + 1 that a batch has, read or not, and as many of a
 * chunk of another sequence, whose gain counts as 0. The teacher is p = softmax(gain / temperature) with the gains of
 * memory_loss_gains; the student is softmax(score), as GCA weights neighbours. loss = KL(p || student), of each query
 * and group. A candidate's landmark is that of the passage's first chunk, the one that was found. */
#pragma once
#include "train/step/step_internal.h"

/* Over the taught queries of all groups: of the loss, of queries whose best candidate is one that gains most, of the
 * gains of that candidate, and of the most that any gains (nats a chunk). */
struct step_teach_sums { double loss, hits, gain, best; };

struct step_teach;
enum status step_teach_create(struct step_teach **out, const struct step *s);
void step_teach_free(struct step_teach *t, struct device *dev);              /* NULL is fine */
size_t step_teach_bytes(const struct step_teach *t);
/* Chunks that the encoder encodes for a micro-batch of so many queries. */
int64_t step_teach_chunks(const struct step_config *c, int64_t queries);
/* Queries of a batch that have a candidate. */
int64_t step_teach_count(const struct step *s, const struct batch *batch);
/* After the mixture's backward pass: encodes the candidates after the chunks that are encoded, and adds the gradients
 * of queries and landmarks. */
struct step_teach_sums step_teach_run(struct step *s, const struct step_task *task);
