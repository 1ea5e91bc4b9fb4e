/* retriever_internal.h -- the two sources of candidates of retriever.c. Only files of this folder include it. */
#pragma once
#include "decoder/neighbours.h"
#include "indexer/search/device_search.h"
#include "indexer/retrieve/retriever.h"
#include "kernels/device/device_pair.h"

/* ---- own past (retriever_own_past.c) -------------------------------------------------------------------------------
 * Landmarks, ids and (decoder variant) K and V of the running text's chunks. They are stored in blocks that never move,
 * so that a context of millions of ids can grow without a copy. Only the ids are in host memory. A block of landmarks
 * has twice the rows of the one before: a search is a few calls, however long the text is. */
enum { OWN_PAST_BLOCK = 2048, OWN_PAST_STATES = 32, CHUNK_RETRIEVER_TOPK_MAX = 1024 };

/* Memory of the device: landmarks [rows, dim], and the counts that searches read: 0 max_queries times, then 1 .. rows,
 * then rows max_queries times. */
struct own_past_landmarks { int64_t base, rows; float *landmarks; int64_t *counts; };

struct own_past_states { struct mat keys, values; };      /* [OWN_PAST_STATES * slot_rows, dim] */

struct own_past {
    struct device *dev;
    struct encoder *encoder;
    int dim, chunk, slot_rows;
    int32_t pad_id;
    bool hidden, wide;                   /* hidden: decoder variant; wide: ids have 32 bits */
    int64_t count;
    struct own_past_landmarks *blocks; size_t block_capacity; int64_t n_blocks;
    void **ids; size_t id_capacity; int64_t id_blocks;    /* each [OWN_PAST_BLOCK, chunk] */
    struct own_past_states *states; size_t state_capacity; int64_t state_blocks; /* decoder variant only */
    int64_t max_queries; int k;
    struct hit_buffer found;             /* hits in each block: [n_blocks, n, k] */
};
enum status own_past_open(struct own_past *p, const struct chunk_retriever_config *config, int64_t max_queries, int k);
void own_past_close(struct own_past *p);                  /* a zeroed one is fine */
void own_past_clear(struct own_past *p);                  /* removes the text, keeps the memory */
int64_t own_past_bytes(const struct own_past *p);         /* bytes of the text's chunks, without reserved memory */
enum status own_past_append(struct own_past *p, int64_t first, const int32_t *ids, struct mat hidden, int64_t n);
/* Begins to encode one chunk. Its landmark exists after encoder_finish, and no search finds it earlier. `states`: where
 * its K and V are also written (encoder-decoder variant; data NULL: nowhere). */
struct own_past_target { struct mat keys, values; const int32_t *slot; };
enum status own_past_begin(struct own_past *p, int64_t chunk, const int32_t *ids, struct mat hidden,
                           struct own_past_target states);
/* Gets the ids [chunk] from id `offset` of a chunk on. Negative ids were stored as pad_id, which has the same
 * meaning. */
void own_past_ids(const struct own_past *p, int32_t *ids, int64_t chunk, int offset);
int64_t own_past_candidates_max(const struct own_past *p, int k); /* number of candidates of one query at present */
/* own_past_search starts the search for the best k of each block, for queries that see the chunks before first + i.
 * own_past_found waits for it and adds the hits to the lists: list i starts at lists + i * stride and has used[i]
 * entries. Another search may run in between. */
enum status own_past_search(struct own_past *p, int64_t first, struct mat queries, int k);
void own_past_found(struct own_past *p, struct neighbour_candidate *lists, int64_t *used, int64_t stride, int64_t first,
                    int64_t n, int k);

/* ---- continuations that overlap (retriever_passages.c) ---------------------------------------------------------- */
struct passage_score { struct neighbour_candidate *candidate; int64_t query; };
struct passages {
    struct device *dev;                  /* NULL: not open */
    struct encoder *encoder;
    int chunk, dim;
    int64_t n, most;                     /* passages to score */
    int32_t *ids; struct passage_score *scored;           /* [most, chunk], [most] */
    struct device_pair rows; float *queries;              /* [most, dim]; queries NULL: the device shares memory */
};
enum status passages_open(struct passages *p, const struct chunk_retriever_config *config, int64_t most);
void passages_close(struct passages *p);                  /* a zeroed one is fine */
/* Replaces the n candidates of the own past by the best k of them and their continuations, whose score is NaN for the
 * moment: PASSAGES_PER_HIT * k at most. The query sees `chunks` chunks. */
enum { PASSAGES_PER_HIT = 2 };
void passages_of_own_past(struct neighbour_candidate *list, int64_t *n, int k, int64_t chunks,
                     const struct chunk_retriever_config *config);
/* Adds a candidate to list [most], if n < most and it is not in the list. Returns the number of candidates. */
int passages_put(struct neighbour_candidate *list, int n, int most, struct neighbour_candidate one);
/* Requests the score of a candidate for row `query` of passages_score. The caller fills the ids [chunk]. */
int32_t *passages_add(struct passages *p, struct neighbour_candidate *one, int64_t query);
/* Scores the candidates that were added, and removes them. Waits for the device. */
enum status passages_score(struct passages *p, struct mat queries);

/* ---- corpus (retriever_corpus.c) ------------------------------------------------------------------------------- */
/* retriever_external.c */
struct corpus_external {
    float *vectors;                      /* [max_queries, the other encoder's dim] */
    int64_t first, n;                    /* the chunks whose vectors these are; n 0: none */
    int32_t *query_ids, *ids;            /* [max_queries, chunk], [max_queries * k, chunk] */
    struct device_pair rows;             /* [max_queries * k, d]: landmarks */
    float *queries;                      /* as corpus_side.queries */
};
struct corpus_side {
    struct store_view *view;
    struct chunk_retriever_config config;
    struct store_range document;         /* chunk ids of the excluded document, after they were looked up */
    bool document_known;
    int64_t chunks;
    struct store_hit *hits; struct store_range *exclude; float *landmark; int32_t *chunk_ids;
    /* random, continuation: [max_queries, d] copied from the device; NULL if the device shares memory */
    float *queries;
    /* The last ids of the text, [tail_end - tail_count, tail_end), for a searcher that reads ids. */
    int32_t *tail; int64_t tail_capacity, tail_count, tail_end;
    struct lexical_query *tokens;        /* [max_queries], which point into the tail; NULL: the searcher reads no ids */
    struct corpus_external external;     /* zeroed if config.external is NULL */
    int64_t *before;                     /* [max_queries]: number of entries of each list before a search */
};
enum status corpus_external_open(struct corpus_external *x, const struct chunk_retriever_config *config,
                                 int64_t max_queries, int k);
void corpus_external_close(struct corpus_external *x, struct device *dev);
/* Makes c->external.vectors of chunks first .. first+n-1, whose ids must be in the tail. */
enum status corpus_external_vectors(struct corpus_side *c, int64_t first, int64_t n);
enum status corpus_side_open(struct corpus_side *c, const struct chunk_retriever_config *config, int64_t max_queries,
                             int k);
void corpus_side_close(struct corpus_side *c);            /* a zeroed one is fine */
/* document: the excluded one; -1: none. from: the document's chunk with which the text begins. */
void corpus_side_exclude(struct corpus_side *c, int64_t document, int64_t from);
/* Adds the ids [n, chunk] of the text's chunks first .. first + n - 1. */
void corpus_side_append(struct corpus_side *c, int64_t first, const int32_t *ids, int64_t n);
/* Adds up to k candidates for each query, as own_past_found does. */
struct corpus_lists { struct neighbour_candidate *lists; int64_t *used, stride; };
/* Scores the candidates from entry before[i] of list i on, with landmarks of this model's encoder. */
enum status corpus_external_score(struct corpus_side *c, struct corpus_lists to, const int64_t *before,
                                  struct mat queries, int64_t n);
enum status corpus_side_search(struct corpus_side *c, struct corpus_lists to, int group, int64_t first,
                               struct mat queries, int64_t n, int k);
