/* retriever_internal.h -- the two sources of candidates of indexer/retrieve/retriever.c, which alone includes it. */
#pragma once
#include "decoder/neighbours.h"
#include "indexer/search/device_search.h"
#include "indexer/retrieve/retriever.h"

/* ---- own past (retriever_self.c) -------------------------------------------------------------------------------
 * Landmarks, ids and (decoder variant) K and V of the running text's chunks. All of them lie in blocks that never
 * move: a context of millions of ids grows without ever being copied. Only the ids are memory of this process. */
enum { OWN_BLOCK = 2048, OWN_STATES = 32, CHUNK_RETRIEVER_TOPK_MAX = 1024 };

struct own_states { struct mat keys, values; };           /* [OWN_STATES * slot_rows, dim] */

struct own_past {
    struct device *dev;
    struct encoder *encoder;
    int dim, chunk, slot_rows;
    int32_t pad_id;
    bool hidden, wide;                   /* decoder variant; ids of 32 bits */
    int64_t count;
    float **landmarks; void **ids; int64_t blocks;        /* [blocks] of [OWN_BLOCK, dim] and [OWN_BLOCK, chunk] */
    size_t landmark_capacity, id_capacity;
    struct own_states *states; size_t state_capacity; int64_t state_blocks;        /* hidden only */
    int64_t max_queries; int k;
    struct hit_buffer found;             /* by blocks: [blocks, n, k] */
    /* of the device: 0 max_queries times, 1 .. OWN_BLOCK, OWN_BLOCK max_queries times */
    int64_t *counts;
};
enum status own_past_open(struct own_past *p, const struct chunk_retriever_config *config, int64_t max_queries, int k);
void own_past_close(struct own_past *p);                  /* a zeroed one is fine */
void own_past_clear(struct own_past *p);                  /* another text; memory is kept */
enum status own_past_append(struct own_past *p, int64_t first, const int32_t *ids, struct mat hidden, int64_t n);
/* One chunk whose landmark is there when encoder_finish has been called, and no search sees it before: begins it
 * with the encoder (encoder.h). `states`: where its K and V go besides (encoder-decoder variant; data NULL:
 * nowhere). */
struct own_target { struct mat keys, values; const int32_t *slot; };
enum status own_past_begin(struct own_past *p, int64_t chunk, const int32_t *ids, struct mat hidden,
                           struct own_target states);
/* ids [chunk] of a chunk; ids that were negative come back as pad_id, which is what they mean. */
void own_past_ids(const struct own_past *p, int32_t *ids, int64_t chunk);
int64_t own_past_candidates_max(const struct own_past *p, int k);         /* of one query, now */
/* Starts the search for the best k of each block, for queries that see the chunks before first + i. own_past_found
 * waits for it and adds the hits to the lists: list i starts at lists + i * stride and has used[i] entries.
 * Another search may run in between. */
enum status own_past_search(struct own_past *p, int64_t first, struct mat queries, int k);
void own_past_found(struct own_past *p, struct neighbour_candidate *lists, int64_t *used, int64_t stride, int64_t first,
                    int64_t n, int k);

/* ---- corpus (retriever_corpus.c) ------------------------------------------------------------------------------- */
/* retriever_external.c */
struct corpus_external {
    float *vectors;                      /* [max_queries, the other encoder's dim] */
    int64_t first, n;                    /* the chunks that they are of; n 0: none */
    int32_t *query_ids, *ids;            /* [max_queries, chunk], [max_queries * k, chunk] */
    float *rows, *device_rows;           /* [max_queries * k, d] landmarks, of this process and of the device */
    float *queries;                      /* as corpus_side.queries */
};
struct corpus_side {
    struct store_view *view;
    struct chunk_retriever_config config;
    struct store_range document;         /* chunk ids of the excluded document, once it was looked up */
    bool document_known;
    int64_t chunks;
    struct store_hit *hits; struct store_range *exclude; float *landmark;
    /* random: [max_queries, d] copied from the device; NULL where memory is shared */
    float *queries;
    /* The text's last ids, for a searcher that reads them: ids [tail_end - tail_count, tail_end) of the text. */
    int32_t *tail; int64_t tail_capacity, tail_count, tail_end;
    struct lexical_query *tokens;        /* [max_queries], into the tail; NULL: the searcher reads none */
    struct corpus_external external;     /* zeroed without config.external */
    int64_t *before;                     /* [max_queries] entries of each list before a search */
};
enum status corpus_external_open(struct corpus_external *x, const struct chunk_retriever_config *config,
                                 int64_t max_queries, int k);
void corpus_external_close(struct corpus_external *x, struct device *dev);
/* c->external.vectors of chunks first .. first+n-1, whose ids are in the tail. */
enum status corpus_external_vectors(struct corpus_side *c, int64_t first, int64_t n);
enum status corpus_side_open(struct corpus_side *c, const struct chunk_retriever_config *config, int64_t max_queries,
                             int k);
void corpus_side_close(struct corpus_side *c);            /* a zeroed one is fine */
/* -1: none; the text's first chunk in it */
void corpus_side_exclude(struct corpus_side *c, int64_t document, int64_t from);
void corpus_side_append(struct corpus_side *c, int64_t first, const int32_t *ids, int64_t n);   /* chunks of the text */
/* Adds up to k candidates a query, as own_past_found does. */
struct corpus_lists { struct neighbour_candidate *lists; int64_t *used, stride; };
/* Scores, by our own encoder, of the candidates from entry before[i] of list i on. */
enum status corpus_external_score(struct corpus_side *c, struct corpus_lists to, const int64_t *before,
                                  struct mat queries, int64_t n);
enum status corpus_side_search(struct corpus_side *c, struct corpus_lists to, int group, int64_t first,
                               struct mat queries, int64_t n, int k);
