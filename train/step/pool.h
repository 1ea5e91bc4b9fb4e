/* pool.h -- the chunks that the queries of a training step retrieve from (training-keys.md, pool).
 *
 *   POOL_NONE    nothing: GCA gives zero
 *   POOL_OWN     the earlier chunks of the own sequence, as in the papers
 *   POOL_BATCH   those, and all chunks of the batch's other sequences that belong to other documents
 *   POOL_CORPUS  the own past, and `candidates` chunks for each query, found by exact search in an index of all
 *                training
 *                landmarks (refreshed every `refresh` steps) and encoded again, so that gradients reach the encoder */
#pragma once
enum pool_kind { POOL_NONE, POOL_OWN, POOL_BATCH, POOL_CORPUS };

const char *pool_kind_name(enum pool_kind kind);          /* "none", "own", "batch", "corpus" */
/* -1: no such name. */
int pool_kind_find(const char *name);
