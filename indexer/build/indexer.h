/* indexer.h -- a corpus into a store: read, tokenize, cut into chunks, encode, seal shard by shard, publish.
 *
 * Documents flow in input order through a bounded pipeline (tokenizer threads, then the encoder), so memory stays
 * under max_ram whatever the corpus' size. A shard closes at the first document end past shard_chunks; the journal
 * keeps the reader's position with it, so a build that was stopped or killed continues after its last sealed
 * shard. What was read until there must still be what it was; the rest of the inputs may have changed. A build of
 * what a published store holds already does nothing; of anything else it is refused. The same inputs give the same
 * store (chunks, landmarks, search results), however often it was interrupted, on one kind of device: landmarks of
 * another differ in last bits (docs/store-format.md), and both may lie in one store. */
#pragma once
#include "base/progress.h"
#include "data/readers/ids_check.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "encoder/encoder.h"
#include "indexer/build/state_landmarks.h"
#include "indexer/build/update.h"
#include "store/store.h"

/* Landmarks that do not come from `encoder`: of an encoder of others, or made before. */
struct indexer_landmarks {
    struct store_encoder encoder;      /* its fingerprint is the store's */
    int64_t batch;                     /* chunks of a call at most */
    uint64_t bytes;                    /* that it holds, beside the model */
    /* Before the first chunk: so many were encoded by the run that this one resumes. NULL: nothing to do. */
    enum status (*skip)(void *context, int64_t chunks);
    /* After the last chunk, before anything is published. NULL: nothing to do. */
    enum status (*finish)(void *context);
};
struct indexer_config {
    struct reader_config reader; /* with parts: the store becomes that part (store/parts/parts.h) */
    const struct tokenizer *tokenizer; /* NULL only for token formats */
    const struct model_config *model;
    const struct params *params;
    struct device *device;
    struct encoder *encoder;        /* NULL for a Base LM */
    struct state_landmarks *states; /* of a Base LM, in the stead of the encoder */
    const struct indexer_landmarks *landmarks; /* in place of `encoder`; NULL: none */
    const char *store;    /* directory */
    const char *index;    /* NULL: "auto" */
    /* KEEP: a new store gets a lexical index where its vocabulary allows, a published one stays as it is */
    enum store_lexical_choice lexical;
    uint64_t max_ram;     /* 0: 4 GiB */
    int64_t shard_chunks; /* 0: 16384 */
    bool append;          /* add: a published store gets more; false: build a new one (or resume it) */
    bool restart;         /* drop the journal instead of resuming */
    bool update;          /* with append: only what changed, in place of what the store has (update.h) */
    bool dry_run;         /* with update: counts, and changes nothing */
    const char *source;   /* with update: of all documents; NULL: the reader's */
    const struct progress *progress;
};
struct indexer_report {
    int64_t documents, duplicates, empty, chunks, tokens, replaced; /* of this run */
    int64_t passed_over;                                            /* files in folders that are not text */
    int64_t skipped_lines;                                          /* bad lines, of the whole build */
    int64_t resumed_documents, resumed_chunks;                      /* found in the journal */
    uint64_t generation;
    struct update_counts update; /* of an update */
    bool already_built; /* nothing was done: a published store holds these inputs, options and model */
    double seconds, encode_seconds, tokenize_seconds, publish_seconds;
};
/* STATUS_INTERRUPTED after a stop request: everything sealed is kept. */
enum status indexer_run(struct indexer_report *report, const struct indexer_config *config);

/* What is left of max_ram (0: 4 GiB) beside a model and its encoder (NULL: a Base LM). STATUS_INVALID, with the least,
 * when that is too little. */
enum status indexer_free_ram(uint64_t *out, uint64_t max_ram, const struct params *params, const struct device *device,
                             const struct encoder *e);

/* The content hash that a store keeps of a document: XXH3-128 of its text, or of its ids. */
void indexer_document_hash(uint8_t out[16], const struct document *document);

/* What ids of token files must keep to for this model. A reserved id that the tokenizer (NULL is fine) gives to
 * ordinary text is text. */
struct ids_rules indexer_ids_rules(const struct model_config *model, const struct tokenizer *tokenizer);

/* The fingerprint of a model for stores. STATUS_UNSUPPORTED for the decoder variant (its chunks depend on context). */
enum status indexer_fingerprint(struct store_fingerprint *out, const struct model_config *model,
                                const struct params *params, const struct tokenizer *tokenizer);
