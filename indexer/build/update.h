/* update.h -- which documents of a corpus a store has to take to be up to date, and which of its own they replace.
 *
 * A document of the corpus is that of the store with the same source and key. Where the text is the same (by
 * XXH3-128), it stays; else the store's is replaced. The corpus is read twice: by the plan, which hashes texts, and by
 * the indexer, which encodes what the plan takes. The store gets the new documents and loses the replaced ones in one
 * transaction. */
#pragma once
#include "data/readers/reader.h"
#include "store/store.h"

struct update_counts {
    int64_t unchanged;                   /* documents of the corpus that the store has as they are */
    int64_t changed, added;              /* that replace others, or are new: these are encoded */
    int64_t duplicates;                  /* with a text that another document has, which stays or comes before */
    int64_t empty;                       /* without text: what the store has in their stead goes */
    int64_t replaced;                    /* documents of the store that go */
};
struct update_request {
    const char *store;
    const struct store_fingerprint *fingerprint;          /* the store's must equal it */
    const struct reader_config *reader;                   /* no standard input, no parts */
    const char *source;                  /* that all documents have in the store; NULL: as the reader gives it */
    const struct progress *progress;
};
struct update_plan;
/* Opens the store for reading, and closes it. Memory: 64 bytes a document of the corpus. STATUS_INVALID names two
 * documents of the corpus with the same source and key. STATUS_NOT_FOUND: no store. */
enum status update_plan_make(struct update_plan **out, const struct update_request *request);
void update_plan_free(struct update_plan *p);             /* NULL is fine */

struct update_counts update_plan_counts(const struct update_plan *p);
uint64_t update_plan_generation(const struct update_plan *p);   /* of the store that it was made for */
/* Whether document `index` of the corpus (from 0, in reading order) is to be encoded. By any thread. */
bool update_plan_takes(const struct update_plan *p, int64_t index);
/* STATUS_MISMATCH when it is not the document that the plan saw. */
enum status update_plan_check(const struct update_plan *p, int64_t index, const struct store_new_document *d);
/* Documents of the store that go, rising; borrowed. */
const int64_t *update_plan_replaced(const struct update_plan *p, int64_t *n);
