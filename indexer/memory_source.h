/* memory_source.h -- chunks of a store as slots of a token memory (kernels/memory/token_memory.h;
 * docs/token-memory.md).
 *
 * A slot is a passage: a chunk with so many chunks before and after it as its document has, at most `before` and
 * `after`, in the order of the document. The decoder itself reads it, without anything before it. Entries are all ids
 * of the passage but the last, which nothing follows. Passages stay encoded until the pool is full; then all are
 * dropped, and encoded again when they are found again. One thread at a time. */
#pragma once
#include "decoder/decoder.h"
#include "kernels/memory/token_memory.h"
#include "store/lexical/lexical.h"
#include "store/store.h"

enum { MEMORY_LOOK_BACK = 128, MEMORY_SPAN_MAX = 8, MEMORY_K_MAX = 1024 };

/* All borrowed until memory_source_free. */
struct memory_source_config {
    struct device *device;
    const struct model_config *model;
    struct decoder *decoder;
    struct store_view *view;
    const struct lexical *lexical;       /* NULL: only random chunks can be found */
    int k, before, after, key_layer;     /* key_layer: as in struct decoder_output */
    int look_back;                       /* tokens of a query; 0: MEMORY_LOOK_BACK */
    int64_t slots;                       /* of the pool; 0: a default that suits the device; at least k */
};
struct memory_source;
/* STATUS_MISMATCH: the lexical index is not of this store. */
enum status memory_source_create(struct memory_source **out, const struct memory_source_config *config);
void memory_source_free(struct memory_source *m);         /* NULL is fine */
int64_t memory_source_slots(const struct memory_source *m);

/* chunks [n*k], best first, -1 where fewer share a token: row i for the text that ends before ids[at[i]]. `exclude`:
 * chunks never to be found; begin == end: none. */
enum status memory_source_find(struct memory_source *m, int64_t *chunks, const int32_t *ids, const int64_t *at,
                               int64_t n,
                               struct store_range exclude);
/* The same of random chunks, distinct in each row; row i depends on seed, at[i] and the store's size alone. */
enum status memory_source_draw(struct memory_source *m, int64_t *chunks, const int64_t *at, int64_t n,
                               struct store_range exclude, uint64_t seed);
/* The range of a document's chunks; document < 0: none. */
enum status memory_source_document(struct memory_source *m, struct store_range *out, int64_t document);

/* Slots of the chunks, encoded where they are not yet. Block b, rows row_begin[b] .. row_begin[b+1]-1, reads chunks
 * [b*k ..] (-1: none). blocks * k is at most memory_source_slots. *out is valid until the next call. */
enum status memory_source_load(struct memory_source *m, struct memory_slots *out, const int64_t *chunks,
                               const int64_t *row_begin, int blocks);

/* Where the value of row `at` of a chunk's slot comes from: its chunk, its document, its offset there in tokens. */
struct memory_origin { int64_t chunk, document, token_offset; };
enum status memory_source_origin(struct memory_source *m, struct memory_origin *out, int64_t chunk, int64_t at);

struct memory_source_stats { int64_t found, encoded, dropped; double find_seconds, encode_seconds; };
struct memory_source_stats memory_source_stats(const struct memory_source *m);
