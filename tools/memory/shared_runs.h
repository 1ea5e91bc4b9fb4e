/* shared_runs.h -- how long a run of tokens around each token of some texts also stands in a store.
 *
 * Runs lie within one text and one document of the store. Memory grows with the texts (some 100 bytes a token), not
 * with the store, which is read once. Runs are compared by hashes of 64 bits. One thread at a time. */
#pragma once
#include "base/progress.h"
#include "store/store.h"

/* A token's class: how many of these lengths a shared run around it reaches. */
enum { RUN_CLASSES = 5 };
extern const int run_lengths[RUN_CLASSES - 1];            /* 9, 13, 17, 33 */

struct shared_runs;
enum status shared_runs_create(struct shared_runs **out);
void shared_runs_free(struct shared_runs *r);             /* NULL is fine */
/* One text; the number of its first token is returned in *first: texts follow each other. Negative ids match nothing.
 */
enum status shared_runs_add(struct shared_runs *r, int64_t *first, const int32_t *ids, int64_t n);
/* A document of the store whose runs do not count: a text that is in the store too. */
enum status shared_runs_exclude(struct shared_runs *r, int64_t document);
/* Reads the store; then classes are known. STATUS_INTERRUPTED on a stop request. */
enum status shared_runs_find(struct shared_runs *r, struct store_view *view, const struct progress *progress);
int shared_runs_class(const struct shared_runs *r, int64_t token);
