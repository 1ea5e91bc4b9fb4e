/* indexer.h -- builds a store from a corpus: reads, tokenizes, cuts into chunks, encodes, seals shard by shard,
 * publishes.
 *
 * Documents pass in input order through a bounded pipeline (tokenizer threads, then the encoder), so memory stays below
 * max_ram whatever the size of the corpus. A shard ends with the first document that reaches shard_chunks chunks. The
 * journal keeps the reader's position with each sealed shard, so a build that was stopped or killed continues after its
 * last one. The inputs up to that position must be unchanged; the rest may have changed. A build does nothing if the
 * published store already holds the same inputs; with other inputs it is refused.
 *
 * The same inputs give the same store (chunks, landmarks, search results), however often the build was interrupted, on
 * any number of devices of one kind. Landmarks of another kind differ in their last bits (docs/store-format.md); both
 * may be in one store. */
#pragma once
#include "base/progress.h"
#include "data/readers/ids_check.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "indexer/build/encode_pool.h"
#include "indexer/build/update.h"
#include "store/store.h"

/* Landmarks that do not come from `encoder`: an external encoder makes them, or they exist already. */
struct indexer_landmarks {
    struct store_encoder encoder;      /* its fingerprint is the store's */
    int64_t batch;                     /* most chunks of a call */
    uint64_t bytes;                    /* memory that it holds, beside the model */
    /* Called before the first chunk with the number of chunks that the resumed runs encoded. NULL: no call. */
    enum status (*skip)(void *context, int64_t chunks);
    /* Called after the last chunk, before anything is published. NULL: no call. */
    enum status (*finish)(void *context);
};
/* Of a store without landmarks (STORE_LANDMARKS_NONE), whose chunks are found by words: nothing is encoded, and any
 * model with this tokenizer and this size of chunks can read it. The store is of type NONE, whatever
 * indexer_config.type. */
struct indexer_landmarks indexer_no_landmarks(const struct model_config *model, const struct tokenizer *tokenizer);
/* Whether a published store has none: what is added to it has none either. false if there is no such store. */
enum status indexer_store_without_landmarks(bool *out, const char *store);

struct indexer_config {
    struct reader_config reader; /* with parts: the store becomes that part (store/parts/parts.h) */
    const struct tokenizer *tokenizer; /* NULL only for token formats */
    const struct model_config *model;
    const struct params *params;
    /* NULL: `opening` opens a GPU and an encoder on it, while the first documents are read already */
    struct device *device;
    struct encode_opening opening;
    int threads;                    /* of the device that is opened; 0: one for each processor */
    struct encoder *encoder;        /* NULL for a Base LM */
    struct state_landmarks *states; /* makes the landmarks of a Base LM instead of the encoder */
    const struct encode_device *more; int n_more;  /* the same model on further devices, which share the batches */
    const struct indexer_landmarks *landmarks; /* makes the landmarks instead of `encoder`; NULL: `encoder` does */
    const char *store;    /* directory */
    const char *index;    /* NULL: "auto" */
    enum store_landmarks type; /* of a new store's landmarks; KEEP: F16, or that of the build that is resumed */
    /* KEEP: a new store gets a lexical index if its vocabulary allows one; a published store stays as it is */
    enum store_lexical_choice lexical;
    uint64_t max_ram;     /* 0: 4 GiB */
    int64_t shard_chunks; /* 0: 16384 */
    bool append;          /* adds to a published store; false: builds a new store, or resumes its build */
    bool restart;         /* discards the journal instead of resuming */
    bool update;          /* with append: adds only what changed, and replaces the store's version of it (update.h) */
    bool dry_run;         /* with update: only counts */
    const char *source;   /* with update: the source of all documents; NULL: as the reader gives it */
    const struct progress *progress;
};
struct indexer_report {
    int64_t documents, duplicates, empty, chunks, tokens, replaced; /* of this run */
    int64_t passed_over;                                            /* files in folders that are not text */
    int64_t skipped_lines;                                          /* bad lines of the whole build */
    int64_t resumed_documents, resumed_chunks;                      /* found in the journal */
    uint64_t generation;
    struct update_counts update; /* of an update */
    /* nothing was done: the published store holds these inputs, with these options and this model */
    bool already_built;
    bool encoded; /* whether chunks have landmarks */
    double seconds, encode_seconds, tokenize_seconds, publish_seconds;
};
/* STATUS_INTERRUPTED: stopped on request; everything sealed is kept. */
enum status indexer_run(struct indexer_report *report, const struct indexer_config *config);

/* Computes what a model and its encoder (NULL: a Base LM) leave of max_ram (0: 4 GiB). STATUS_INVALID: max_ram is too
 * small; the message names the least. device: of the encoder. */
enum status indexer_free_ram(uint64_t *out, uint64_t max_ram, const struct params *params, const struct device *device,
                             const struct encoder *e);

/* Computes the content hash that a store keeps of a document: XXH3-128 of its text, or of its ids. */
void indexer_document_hash(uint8_t out[16], const struct document *document);

/* The rules that ids of token files must follow for this model. A reserved id that the tokenizer (NULL is fine) uses
 * for ordinary text is allowed. */
struct ids_rules indexer_ids_rules(const struct model_config *model, const struct tokenizer *tokenizer);

/* Computes a model's fingerprint for stores. STATUS_UNSUPPORTED: the decoder variant, whose chunks depend on their
 * context. */
enum status indexer_fingerprint(struct store_fingerprint *out, const struct model_config *model,
                                const struct params *params, const struct tokenizer *tokenizer);
