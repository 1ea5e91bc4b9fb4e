/* memory_source.h -- chunks of a store as slots of a token memory (kernels/memory/token_memory.h;
 * docs/token-memory.md).
 *
 * A slot is a passage: a chunk with so many chunks before and after it as its document has, at most `before` and
 * `after`, in the order of the document. The decoder itself reads it, without anything before it. Entries are all ids
 * of the passage but the last, which nothing follows. Passages stay encoded until the pool is full; then all are
 * dropped, and encoded again when they are found again. One thread at a time. */
#pragma once
#include "decoder/decoder.h"
#include "indexer/search/searcher.h"
#include "kernels/memory/memory_gate.h"
#include "kernels/memory/token_memory.h"
#include "store/lexical/lexical.h"
#include "store/store.h"

enum { MEMORY_LOOK_BACK = 128, MEMORY_SPAN_MAX = 8, MEMORY_K_MAX = 1024 };

/* How chunks are found: session/memory_search.h makes one. The searcher is of the view; NULL: nothing can be found,
 * only drawn. vectors: out [n, dim] of the searches for what follows these texts; not called where none ranks. */
struct memory_finder {
    struct searcher *searcher;
    enum status (*vectors)(void *context, float *out, const struct lexical_query *texts, int64_t n);
    void *context;
};
/* All borrowed until memory_source_free. */
struct memory_source_config {
    struct device *device;
    const struct model_config *model;
    struct decoder *decoder;
    struct store_view *view;
    struct memory_finder finder;
    int k, before, after, key_layer;     /* key_layer: as in struct decoder_output */
    int look_back;                       /* tokens of a query; 0: MEMORY_LOOK_BACK */
    int64_t slots;                       /* of the pool; 0: a default that suits the device; at least k */
};
struct memory_source;
/* STATUS_MISMATCH: the searcher's lexical index is not of this store. */
enum status memory_source_create(struct memory_source **out, const struct memory_source_config *config);
void memory_source_free(struct memory_source *m);         /* NULL is fine */
int64_t memory_source_slots(const struct memory_source *m);
int64_t memory_source_chunks(const struct memory_source *m);        /* of the store */

/* What a search must not find: chunks of `exclude` (begin == end: none) and, as if the store were smaller, those from
 * `end` on (0: none of them). Scores by words count the whole store's chunks all the same. */
struct memory_scope { struct store_range exclude; int64_t end; };
/* chunks [n*k], best first, -1 where fewer are found, and their scores [n*k] (0 for -1; NULL: not wanted): BM25's, or
 * where landmarks alone rank, theirs. Row i is for the text that ends before ids[at[i]]. */
enum status memory_source_find(struct memory_source *m, int64_t *chunks, float *scores, const int32_t *ids,
                               const int64_t *at, int64_t n, struct memory_scope scope);
/* The oracle: the same with the tokens of the chunk to come, those from ids[at[i]] of ids [length] on, as the query. */
enum status memory_source_find_ahead(struct memory_source *m, int64_t *chunks, float *scores, const int32_t *ids,
                                     int64_t length, const int64_t *at, int64_t n, struct memory_scope scope);
/* Random chunks, distinct in each row; row i depends on seed, at[i] and the store's size alone. */
enum status memory_source_draw(struct memory_source *m, int64_t *chunks, const int64_t *at, int64_t n,
                               struct store_range exclude, uint64_t seed);
/* The scores [n*k] that a search would give to these chunks (-1: 0). */
enum status memory_source_score(struct memory_source *m, float *scores, const int64_t *chunks, const int32_t *ids,
                                const int64_t *at, int64_t n);
/* What a gate sees of the chunks of one search. */
struct memory_marks memory_source_marks(const struct memory_source *m, const int64_t *chunks, const float *scores,
                                        int64_t query_tokens);
/* Tokens of the query of a search for the text that ends before ids[at]. */
int64_t memory_source_query(const struct memory_source *m, int64_t at);
/* The range of a document's chunks; document < 0: none. */
enum status memory_source_document(struct memory_source *m, struct store_range *out, int64_t document);

/* Slots of the chunks, encoded where they are not yet. Block b, rows row_begin[b] .. row_begin[b+1]-1, reads chunks
 * [b*k ..] (-1: none). blocks * k is at most memory_source_slots. *out is valid until the next call. */
enum status memory_source_load(struct memory_source *m, struct memory_slots *out, const int64_t *chunks,
                               const int64_t *row_begin, int blocks);

/* slot and value of what the last memory_source_load gave, in memory of this process; valid as that is. */
struct memory_slots_here { const int32_t *slot, *value; };
struct memory_slots_here memory_source_here(const struct memory_source *m);

/* Where the value of row `at` of a chunk's slot comes from: its chunk, its document, its offset there in tokens. */
struct memory_origin { int64_t chunk, document, token_offset; };
enum status memory_source_origin(struct memory_source *m, struct memory_origin *out, int64_t chunk, int64_t at);

struct memory_source_stats { int64_t found, encoded, dropped; double find_seconds, encode_seconds; };
struct memory_source_stats memory_source_stats(const struct memory_source *m);
