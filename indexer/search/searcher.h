/* searcher.h -- finds the chunks of a store for queries, with one interface for all kinds of search.
 *
 * A query has the input of every kind: the vector, and the last ids of the text. Each kind reads what it needs, so
 * callers need not distinguish the kinds. A searcher is for one thread at a time, as its view is. */
#pragma once
#include "base/formats/json.h"
#include "indexer/search/device_lexical.h"
#include "indexer/search/flat_slices.h"
#include "indexer/search/list_index.h"
#include "indexer/search/slices/slices.h"
#include "store/lexical/lexical.h"

/* A GPU scans corpora of up to this size completely, unless nprobe requests lists: at the speed of its memory that
 * takes less than a millisecond. */
#define SEARCHER_FLAT_BYTES (UINT64_C(2) << 30)

enum searcher_kind {
    /* on GPUs: FLAT if `exact`, or if nprobe is 0 and each GPU's share of the landmarks has at most
     * SEARCHER_FLAT_BYTES; otherwise LISTS. On the CPU: STORE */
    SEARCHER_AUTO,
    SEARCHER_STORE,                      /* on the CPU: the store's FAISS index, or a scan of all landmarks */
    SEARCHER_FLAT,                       /* all landmarks in device memory ("gpu-flat") */
    SEARCHER_LISTS,                      /* all landmarks in device memory, by lists ("gpu-ivf") */
    SEARCHER_LEXICAL, /* BM25 over the query's ids, by the store's lexical index, or by its copy on a GPU */
    SEARCHER_HYBRID,                     /* LEXICAL and AUTO, merged */
    SEARCHER_KINDS
};
enum { SEARCHER_TOKENS = 128 };          /* ids of a query that LEXICAL and HYBRID read */

struct searcher_config {
    enum searcher_kind kind;
    struct device *device;               /* must be open until searcher_close, as `view` must */
    struct store_view *view;
    bool exact;                          /* AUTO and STORE: scans all landmarks, without an index */
    bool exact_fallback;                 /* scans for queries whose hits are missing (store_view_missing) */
    int nprobe;                          /* lists to visit, of STORE and LISTS; 0: their default */
    /* candidates from the index for exact scores, and from each part of HYBRID; 0: at least 4 * k, but
     * 64 by landmarks for a query with landmark_weight */
    int candidates;
    uint64_t reserve;                    /* bytes of device memory that copies of the store leave free */
    struct slices *slices; /* STORE (AUTO then is STORE): these processes search; borrowed; NULL: this process */
    struct flat_index *flat;             /* FLAT: uses this index, borrowed; NULL: makes one */
    /* FLAT: each of these devices holds a slice; the first one is `device`; borrowed; NULL: `device` alone */
    const struct device_group *group;
    struct list_index *lists;            /* LISTS: the same */
    /* LEXICAL and HYBRID: searches words with this copy, borrowed; NULL: makes one on a GPU, otherwise uses the CPU */
    struct device_lexical *lexical;
    float landmark_weight; /* HYBRID: ranks by BM25 + landmark_weight * landmark score; 0: by reciprocal ranks */
};
struct searcher;
/* Opens a searcher. If the landmarks do not fit into the device, FLAT and LISTS become STORE. If the lexical index does
 * not fit, LEXICAL and HYBRID search words on the CPU (searcher_fallback). If the store has no lexical index or a
 * damaged one, LEXICAL and HYBRID fail as store_view_lexical does. */
enum status searcher_open(struct searcher **out, const struct searcher_config *config);
void searcher_close(struct searcher *s); /* call before the device and the view are closed; NULL is fine */
/* Returns why the CPU searches landmarks or words instead of the GPU; NULL: the search is as requested. */
const char *searcher_fallback(const struct searcher *s);
/* Returns how many of a text's last ids a query should have: 0 or SEARCHER_TOKENS. */
int searcher_tokens(const struct searcher *s);
/* Whether a query with `bm25` needs a vector. Queries of every kind except LEXICAL do. */
bool searcher_ranks_vectors(const struct searcher *s);

struct searcher_query {
    int64_t n;                           /* number of queries */
    int k;                               /* number of hits of each query */
    int nprobe;                          /* 0: that of the config */
    const float *vectors;                /* [n, dim] in memory of this process; NULL: only on the device */
    struct mat device_vectors;           /* [n, dim] float32, dense, in device memory; data NULL: only `vectors` */
    const struct lexical_query *tokens;  /* [n]; may be NULL if searcher_tokens is 0 */
    const struct store_range *exclude;   /* [n] chunk ids that are never found; NULL: none */
    bool bm25;                           /* LEXICAL and HYBRID: hits have BM25 scores; LEXICAL then needs no vectors */
    float landmark_weight;               /* as in the configuration, for a searcher whose configuration has 0 */
};
/* Writes hits[n * k]. The score of a hit is q.l / sqrt(dim) of its stored row for every kind (except with bm25); on a
 * GPU its last bits differ. The kind determines the order, best first: by score (ties: smaller id), by BM25, or merged.
 * Chunk -1 fills the remaining slots. */
enum status searcher_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q);

/* A search for one query in two parts, between which the caller may queue ops of the device, but no other search.
 * _queue: *queued is false for kinds without parts, and nothing was done: only LEXICAL on a GPU, with bm25, has parts.
 * _collect: waits for the hits [k] of that query. They are those of searcher_search. */
enum status searcher_queue(struct searcher *s, bool *queued, const struct searcher_query *q);
enum status searcher_collect(struct searcher *s, struct store_hit *hits);
/* Hits in memory of the device [k], in the order of searcher_search; chunk -1 where fewer were found. landmark: the
 * scores of their landmarks, -infinity without one, which HYBRID writes; NULL: not wanted. */
struct searcher_found { int64_t *chunk; float *score, *landmark; };
/* Whether searches with bm25 for k hits can be queued with hits that stay on the device: of LEXICAL, and of HYBRID with
 * a weight, if the device has all that they read. */
bool searcher_finds_on_device(const struct searcher *s, int k, float landmark_weight);
/* Queues a search for one query whose hits ops of the device read: they are written to `out`, in the order of ops. Of
 * a searcher for which searcher_finds_on_device holds. HYBRID reads the vector when the ops run. */
enum status searcher_queue_on_device(struct searcher *s, struct searcher_found out, const struct searcher_query *q);
/* While the device computes: makes what a search for a query of most of these ids needs of this process. */
void searcher_prepare(struct searcher *s, const struct searcher_query *q);

/* Counts over all searches so far. Missing: hits that the index did not find although the store has them; a scan may
 * have found them later. */
struct searcher_counts { int64_t queries, missing, missing_hits; };
struct searcher_counts searcher_counts(const struct searcher *s);

/* Describes a search for `k` hits with `nprobe` (0: the config's). `text` is for users: "exact scan", "gpu-flat,
 * exact", "gpu-ivf, 32 of 256 lists", "index IVF64,SQ8, 16 of 64 lists", "lexical, 3 segments", "lexical, 3 segments,
 * BM25 on the GPU". */
struct searcher_description {
    const char *kind;                    /* "exact", "index", "gpu-flat", "gpu-ivf", "lexical", "hybrid" */
    char text[400];
    bool exact;                          /* no neighbour can be missed */
    int64_t visited, lists;              /* 0 of 0: the search uses no lists */
    uint64_t device_bytes;               /* of landmarks and posting lists on the device */
};
struct searcher_description searcher_describe(const struct searcher *s, int k, int nprobe);
/* Writes one object with these members. */
void searcher_describe_json(struct json_writer *w, const struct searcher_description *d);
