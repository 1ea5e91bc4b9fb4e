/* searcher.h -- finds the chunks of a store for queries, one interface for all kinds of search.
 *
 * A query carries all that a kind may need: the vector, and the last ids of the text. Each kind takes its part. A
 * caller opens a searcher and does not know its kind. A searcher is for one thread at a time, as its view. */
#pragma once
#include "base/formats/json.h"
#include "indexer/search/device_lexical.h"
#include "indexer/search/flat_index.h"
#include "indexer/search/list_index.h"
#include "indexer/search/slices/slices.h"
#include "store/lexical/lexical.h"

/* Corpora up to this size are scanned whole on a GPU unless nprobe requests lists: at the speed of a GPU's memory
 * a scan takes less than a millisecond then. */
#define SEARCHER_FLAT_BYTES (UINT64_C(2) << 30)

enum searcher_kind {
    /* on a GPU FLAT, or LISTS where nprobe > 0 or there are more bytes; else STORE */
    SEARCHER_AUTO,
    SEARCHER_STORE,                      /* on the CPU: the store's FAISS index, or a scan of all landmarks */
    SEARCHER_FLAT,                       /* all landmarks in memory of the device ("gpu-flat") */
    SEARCHER_LISTS,                      /* the same by lists ("gpu-ivf") */
    SEARCHER_LEXICAL,                    /* BM25 over the query's ids, by the store's lexical index; on a GPU a copy */
    SEARCHER_HYBRID,                     /* LEXICAL and AUTO, merged */
    SEARCHER_KINDS
};
enum { SEARCHER_TOKENS = 128 };          /* ids of a query that LEXICAL and HYBRID read */

struct searcher_config {
    enum searcher_kind kind;
    struct device *device;               /* open until searcher_close, as `view` */
    struct store_view *view;
    bool exact;                          /* AUTO and STORE: all landmarks, no index */
    bool exact_fallback;                 /* scan for a query whose hits are missing (store_view_missing) */
    int nprobe;                          /* lists to visit, of STORE and LISTS; 0: their default */
    /* of the index before exact scores, of each part of HYBRID; 0: at least 4 * k */
    int candidates;
    uint64_t reserve;                    /* bytes of device memory that copies of the store leave free */
    struct slices *slices;               /* STORE (which AUTO is then): searched by these, borrowed; NULL: here */
    struct flat_index *flat;             /* FLAT: searches this one, borrowed; NULL: makes one */
    struct list_index *lists;            /* LISTS: the same */
    /* LEXICAL and HYBRID: the words are searched by this one, borrowed; NULL: on a GPU makes one, else the CPU's */
    struct device_lexical *lexical;
    float landmark_weight;               /* HYBRID: ranks by BM25 + this * landmark score; 0: by reciprocal rank */
};
struct searcher;
/* FLAT and LISTS become STORE where the landmarks do not fit into the device; LEXICAL and HYBRID search words on the
 * CPU where the lexical index does not fit there (searcher_fallback).
 * LEXICAL and HYBRID fail as store_view_lexical does where the store has no lexical index, or a damaged one. */
enum status searcher_open(struct searcher **out, const struct searcher_config *config);
void searcher_close(struct searcher *s);                  /* before the device and the view; NULL is fine */
/* Why landmarks, or words, are searched on the CPU instead of the GPU; NULL: it is what was requested. */
const char *searcher_fallback(const struct searcher *s);
/* How many of a text's last ids a query should have: 0 or SEARCHER_TOKENS. */
int searcher_tokens(const struct searcher *s);
/* Whether a query with `bm25` needs a vector: of every kind but LEXICAL. */
bool searcher_ranks_vectors(const struct searcher *s);

struct searcher_query {
    int64_t n;                           /* queries */
    int k;                               /* hits of each */
    int nprobe;                          /* 0: that of the config */
    const float *vectors;                /* [n, dim] in memory of this process; NULL: only on the device */
    struct mat device_vectors;           /* [n, dim] float32, dense, in memory of the device; data NULL: only above */
    const struct lexical_query *tokens;  /* [n]; NULL where searcher_tokens is 0 */
    const struct store_range *exclude;   /* [n] chunk ids never to be found; NULL: none */
    bool bm25;                           /* LEXICAL and HYBRID: hits have BM25 scores; LEXICAL then takes no vectors */
};
/* hits[n * k]. The score of each is q.l / sqrt(dim) of its stored row, whatever the kind (but see bm25); on a GPU its
 * last bits differ. The order is that of the kind, best first: by score (ties: smaller id), by BM25, or merged. Chunk
 * -1 fills the rest. */
enum status searcher_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q);

/* Of all searches so far. Missing: the index found fewer than the store has, before a scan found the rest. */
struct searcher_counts { int64_t queries, missing, missing_hits; };
struct searcher_counts searcher_counts(const struct searcher *s);

/* What a search for `k` hits with `nprobe` (0: the config's) does. text, for people: "exact scan", "gpu-flat, exact",
 * "gpu-ivf, 32 of 256 lists", "index IVF64,SQ8, 16 of 64 lists", "lexical, 3 segments", "lexical, 3 segments, BM25 on
 * the GPU". */
struct searcher_description {
    const char *kind;                    /* "exact", "index", "gpu-flat", "gpu-ivf", "lexical", "hybrid" */
    char text[400];
    bool exact;                          /* no neighbour can be lost */
    int64_t visited, lists;              /* 0 of 0: no lists */
    uint64_t device_bytes;               /* of landmarks and lists of words on the device */
};
struct searcher_description searcher_describe(const struct searcher *s, int k, int nprobe);
/* One object with these members. */
void searcher_describe_json(struct json_writer *w, const struct searcher_description *d);
