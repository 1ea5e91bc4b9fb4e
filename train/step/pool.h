/* pool.h -- kinds of pools: the chunks that the queries of a training step retrieve from (training-keys.md, pool).
 *
 *   POOL_NONE      no chunks: GCA gives zero
 *   POOL_OWN_PAST  the earlier chunks of the same sequence, as in the papers
 *   POOL_BATCH     those, and the chunks of the batch's other sequences that belong to other documents
 *   POOL_CORPUS    the earlier chunks of the same sequence, and `candidates` chunks for each query. An exact search in
 *                  an index of the landmarks of all training text finds these (refreshed every `refresh` steps). The
 *                  step encodes them again, so that gradients reach the encoder. */
#pragma once
enum pool_kind { POOL_NONE, POOL_OWN_PAST, POOL_BATCH, POOL_CORPUS };

const char *pool_kind_name(enum pool_kind kind);          /* "none", "own", "batch", "corpus" */
/* -1: no such name. */
int pool_kind_find(const char *name);
