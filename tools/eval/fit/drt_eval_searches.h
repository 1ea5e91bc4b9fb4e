/* drt_eval_searches.h -- the searches of drt-eval fit-order: selects them, and collects their samples.
 *
 * A search begins at the first scored token of a window, and then every MEMORY_ORDER_TOKENS. The texts are read twice:
 * eval_run first counts the searches of each document. The selected ones are spread evenly over the files, over the
 * documents of a file, and over a document. The second eval_run collects their samples; it must read the same texts. */
#pragma once
#include "tools/eval/drt_eval_run.h"

struct eval_searches;
/* Collects at most `limit` searches with this many candidates. The program's configuration must have a mixture of the
 * corpus. */
enum status eval_searches_create(struct eval_searches **out, int64_t limit, int candidates);
void eval_searches_free(struct eval_searches *s);         /* NULL is fine */
/* After the first run. Every fifth document of a file that has searches is held out. */
enum status eval_searches_select(struct eval_searches *s);
/* The samples, valid until eval_searches_free; and of how many searches they were selected. */
const struct memory_order_samples *eval_searches_samples(const struct eval_searches *s);
int64_t eval_searches_counted(const struct eval_searches *s);

/* ---- called by eval_run, if engines->searches is not NULL ---- */
enum status eval_searches_prepare(struct eval_run *r);
/* A window of the current document, of which tokens first .. n-1 are scored. */
enum status eval_searches_window(struct eval_run *r, const int32_t *ids, int64_t n, int64_t first);
