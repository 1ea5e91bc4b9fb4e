/* pool.h -- what the queries of a training step choose from (training.md), and the choice made.
 *
 *   POOL_NONE    nothing: GCA gives zero
 *   POOL_OWN     the earlier chunks of the own sequence (the papers' way)
 *   POOL_BATCH   those, and all chunks of the batch's other sequences whose documents are others
 *   POOL_CORPUS  the own past, and `candidates` chunks a query found by exact search in an index of all training
 *                landmarks (refreshed every `refresh` steps), encoded afresh so that gradients reach the encoder */
#pragma once
enum pool_kind { POOL_NONE, POOL_OWN, POOL_BATCH, POOL_CORPUS };

const char *pool_kind_name(enum pool_kind kind);          /* "none", "own", "batch", "corpus" */
/* -1: no such name. */
int pool_kind_find(const char *name);
