/* memory_source.h -- chunks of a store as slots of a token memory (docs/token-memory.md).
 *
 * A slot (kernels/memory/token_memory.h) has a passage: a chunk with at most `before` chunks before it and `after`
 * chunks after it in its document. The decoder reads the passage, without text before it, or its keys are copied from
 * the store (store/keys/store_keys.h). On a GPU slots of stored keys are packed: rows of the pool, or of the device's
 * copy of all keys (device_keys.h). The entries of a slot are all ids of the passage except the last, which no id
 * follows. Passages stay in the pool until it is full. Then all are dropped. They are read again when a search finds
 * them again. For one thread at a time. */
#pragma once
#include "decoder/decoder.h"
#include "decoder/memory_config.h"
#include "indexer/retrieve/device_keys.h"
#include "indexer/search/searcher.h"
#include "kernels/memory/memory_gate.h"
#include "kernels/memory/token_memory.h"
#include "store/lexical/lexical.h"
#include "store/store.h"

enum { MEMORY_LOOK_BACK = 128, MEMORY_SPAN_MAX = 8, MEMORY_STATES = 16 };

struct state_text;
/* How chunks are found; session/memory_search.h makes one. searcher: of the view; NULL: chunks can be drawn, but not
 * found. vectors: makes the query vectors out [n, dim] of texts; not called if the searcher does not rank by landmarks.
 * from_states: NULL, or queues the making of the query vector [dim] of a running text, on the device, from its ids and
 * the key states of the last MEMORY_STATES of them, or fewer (indexer/landmarks/state_landmarks.h). idf: for an order,
 * borrowed. landmark_weight: as in struct searcher_query. */
struct memory_finder {
    struct searcher *searcher;
    enum status (*vectors)(void *context, float *out, const struct lexical_query *texts, int64_t n);
    void (*from_states)(void *context, float *out, const struct state_text *text);
    enum status (*idf)(void *context, const float **out);
    void *context;
    float landmark_weight;
};
/* Everything is borrowed until memory_source_free. */
struct memory_source_config {
    struct device *device;
    const struct model_config *model;
    struct decoder *decoder;
    struct store_view *view;
    struct memory_finder finder;
    int k, before, after, key_layer;     /* key_layer: as in struct decoder_output */
    int look_back;                       /* number of tokens of a query; 0: MEMORY_LOOK_BACK */
    int64_t slots;                       /* of the pool, at least k; 0: a default for the device */
    bool rounded;                        /* products of passages in bf16, as in decoder/decoder_passages.h */
    enum memory_keys from;
    struct device_keys *copies;          /* for MEMORY_KEYS_DEVICE; NULL: as MEMORY_KEYS_STORED */
    bool numbers;                        /* slots are not packed: every op of token_memory.h can read them */
    const struct order_weights *order;   /* copied; NULL, or 0 candidates: chunks are read as found */
    const uint8_t *weights;              /* [16] params_fingerprint; NULL: keys are computed, whatever `from` says */
    const char *name;                    /* of the model, for messages */
};
struct memory_source;
/* STATUS_MISMATCH: the searcher's lexical index is not that of this store. With keys from the store, also the failures
 * of stored_passages_open (stored_passages.h). */
enum status memory_source_create(struct memory_source **out, const struct memory_source_config *config);
void memory_source_free(struct memory_source *m);         /* NULL is fine */
int64_t memory_source_slots(const struct memory_source *m);
int64_t memory_source_chunks(const struct memory_source *m);        /* of the store */
int memory_source_candidates(const struct memory_source *m);        /* of a search with an order; 0: no order */
bool memory_source_stored(const struct memory_source *m);           /* keys come from the store */

/* Limits what searches find: never chunks of `exclude` (begin == end: none), and only chunks before `end` (0: all), as
 * if the store were smaller. BM25's counts still include all chunks of the store. */
struct memory_scope { struct store_range exclude; int64_t end; };
/* Searches for the texts that end before ids[at[i]], one row of results for each. chunks [n*k]: best first, -1 if
 * fewer are found. scores [n*k] (NULL: not wanted): by BM25, or of landmarks if the searcher ranks by landmarks
 * only; 0 for -1. vectors [n, dim] float32 on the device: of the queries; data NULL: the finder makes them of the
 * texts' ids. */
enum status memory_source_find(struct memory_source *m, int64_t *chunks, float *scores, const int32_t *ids,
                               const int64_t *at, struct mat vectors, int64_t n, struct memory_scope scope);
/* With an order: the candidates of one text as found, [memory_source_candidates], with features (candidate_order.h). */
enum status memory_source_find_candidates(struct memory_source *m, struct store_hit *hits, float *features,
                                          const int32_t *ids, int64_t at, struct mat vector, struct store_range out);
/* The same for one text, without a scope, in two parts, between which the caller may queue ops of the device, but no
 * other search. _queue: *queued is false if the searcher has no parts (searcher_queue), and nothing was done. _collect:
 * waits for what was found. */
enum status memory_source_queue(struct memory_source *m, bool *queued, const int32_t *ids, int64_t at);
enum status memory_source_collect(struct memory_source *m, int64_t *chunks, float *scores);
/* The same without _collect: from then on the device needs nothing of this process for the search, nor for the keys of
 * what it finds. *out is valid until the next call with the same `turn`, 0 or 1. Only if memory_source_finds_on_device
 * holds: the device searches, has all keys, and `vector`, the query's [1, dim], if the searcher ranks by landmarks.
 * chunks: on the host, after device_fetch_wait. */
struct memory_found { struct memory_slots slots; const struct memory_marks *marks; const int64_t *chunks; };
bool memory_source_finds_on_device(const struct memory_source *m, struct mat vector);
enum status memory_source_find_on_device(struct memory_source *m, int turn, struct memory_found *out,
                                         const int32_t *ids, int64_t at, struct mat vector);
/* While the device computes: prepares a search for a text that continues this one by a few ids (searcher_prepare). */
enum status memory_source_prepare(struct memory_source *m, const int32_t *ids, int64_t at);
/* As memory_source_find, but the query is the chunk to come, ids [length] from ids[at[i]] on: an oracle. */
enum status memory_source_find_ahead(struct memory_source *m, int64_t *chunks, float *scores, const int32_t *ids,
                                     int64_t length, const int64_t *at, int64_t n, struct memory_scope scope);
/* Draws random chunks, distinct in each row. Row i depends only on seed, at[i] and the size of the store. */
enum status memory_source_draw(struct memory_source *m, int64_t *chunks, const int64_t *at, int64_t n,
                               struct store_range exclude, uint64_t seed);
/* Computes the scores [n*k] that a search would give these chunks; 0 for -1. vectors: as in memory_source_find. */
enum status memory_source_score(struct memory_source *m, float *scores, const int64_t *chunks, const int32_t *ids,
                                const int64_t *at, struct mat vectors, int64_t n);
/* Returns the input of a gate: the hits of one search (struct memory_marks). */
struct memory_marks memory_source_marks(const struct memory_source *m, const int64_t *chunks, const float *scores,
                                        int64_t query_tokens);
int64_t memory_source_query(const struct memory_source *m, int64_t at);   /* tokens of the query before ids[at] */
enum status memory_source_document(struct memory_source *m, struct store_range *out, int64_t document); /* < 0: empty */

/* Finds the slots of chunks, and encodes those that are not in the pool; packed slots need no pool. Block b, which is
 * rows row_begin[b] .. row_begin[b+1]-1, reads chunks [b*k ..] (-1: none). Without packed slots blocks * k must be at
 * most memory_source_slots. *out is valid until the next call. */
enum status memory_source_load(struct memory_source *m, struct memory_slots *out, const int64_t *chunks,
                               const int64_t *row_begin, int blocks);

/* Slots and values of the last memory_source_load, not packed, on the host; valid as long as its result. */
struct memory_slots_host { const int32_t *slot, *value; };
struct memory_slots_host memory_source_slots_host(const struct memory_source *m);

/* Where the value of row `at` of a chunk's slot comes from; token_offset: in the document. */
struct memory_origin { int64_t chunk, document, token_offset; };
enum status memory_source_origin(struct memory_source *m, struct memory_origin *out, int64_t chunk, int64_t at);

struct memory_source_stats { int64_t found, encoded, copied, dropped; double find_seconds, encode_seconds; };
struct memory_source_stats memory_source_stats(const struct memory_source *m);
