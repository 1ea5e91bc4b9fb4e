/* update.h -- plans an update: which documents of a corpus the store must take, and which of its documents they
 * replace.
 *
 * A document of the corpus corresponds to the document of the store with the same source and key. If the text is equal
 * (by XXH3-128) the store's document stays; otherwise it is replaced. The corpus is read twice: the plan hashes its
 * texts, then the indexer encodes the documents that the plan takes. One transaction adds the new documents and removes
 * the replaced ones. One thread at a time. */
#pragma once
#include "data/readers/reader.h"
#include "store/store.h"

struct update_counts {
    int64_t unchanged;                   /* documents of the corpus that the store has with the same text */
    int64_t changed, added;              /* documents that replace others, and new ones: both are encoded */
    int64_t duplicates;                  /* documents whose text another document has, which stays or comes before */
    /* documents without text: the store's documents with their source and key are removed */
    int64_t empty;
    int64_t replaced;                    /* documents of the store that are removed */
};
struct update_request {
    const char *store;
    const struct store_fingerprint *fingerprint;          /* the store's must equal it */
    const struct reader_config *reader;                   /* must not be standard input or have parts */
    const char *source;                  /* source that all documents get in the store; NULL: as the reader gives it */
    const struct progress *progress;
};
struct update_plan;
/* Makes the plan. Opens the store for reading, and closes it. Needs 64 bytes of memory for each document of the corpus.
 * STATUS_INVALID: two documents of the corpus have the same source and key; the message names both. STATUS_NOT_FOUND:
 * no store. STATUS_INTERRUPTED: `progress` requested a stop. */
enum status update_plan_make(struct update_plan **out, const struct update_request *request);
void update_plan_free(struct update_plan *p);             /* NULL is fine */

struct update_counts update_plan_counts(const struct update_plan *p);
uint64_t update_plan_generation(const struct update_plan *p);   /* the generation of the store that the plan is for */
/* Whether document `index` of the corpus (from 0, in reading order) is to be encoded. Any thread may call it. */
bool update_plan_takes(const struct update_plan *p, int64_t index);
/* STATUS_MISMATCH: it is not the document that the plan read. */
enum status update_plan_check(const struct update_plan *p, int64_t index, const struct store_new_document *d);
/* Ids of the store's documents that are removed, ascending; borrowed from the plan. */
const int64_t *update_plan_replaced(const struct update_plan *p, int64_t *n);
