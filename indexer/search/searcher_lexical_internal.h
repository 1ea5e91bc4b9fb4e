/* searcher_lexical_internal.h -- shared by the kinds that read the query's ids: LEXICAL, and HYBRID, which has one more
 * searcher by landmarks. */
#pragma once
#include "indexer/search/device_hybrid.h"
#include "indexer/search/searcher_internal.h"

struct searcher_lexical {
    struct searcher base;
    const struct lexical *index;         /* the view's */
    struct device_lexical *own;          /* the copy on the device; NULL: config.lexical, or none */
    struct lexical_cache *cache;         /* of searches on the CPU */
    uint64_t device_bytes;
    struct lexical_info info;
    int64_t *ids;                        /* the chunks of one query, with their scores */
    float *landmark_scores, *lexical_scores;
    size_t id_capacity, landmark_capacity, lexical_capacity;
    /* HYBRID */
    struct store_hit *lexical_hits, *landmark_hits;       /* [n, candidates] */
    size_t lexical_hit_capacity, landmark_hit_capacity;
    struct device_hybrid *merged;        /* searches on the device; NULL: this process merges */
};

/* Opens the view's lexical index, or its copy on the device. */
enum status searcher_lexical_create(struct searcher_lexical **out, const struct searcher_config *config,
                                    const struct searcher_ops *ops);
void searcher_lexical_close(struct searcher *s);
struct device_lexical *searcher_lexical_on_device(const struct searcher_lexical *x);         /* NULL: the CPU searches */
struct lexical_search searcher_lexical_how(const struct searcher_lexical *x, int k, const struct store_range *exclude);
enum status searcher_lexical_find(struct searcher_lexical *x, struct store_hit *hits, const struct searcher_query *q,
                                  const struct lexical_search *how);
/* Makes the arrays of one query's chunks and scores at least n long. */
enum status searcher_lexical_reserve(struct searcher_lexical *x, int64_t n);
/* Replaces the scores of all hits by those of their landmarks. */
enum status searcher_lexical_rescore_all(struct searcher_lexical *x, struct store_hit *hits,
                                         const struct searcher_query *q);
void searcher_lexical_prepare(struct searcher *s, const struct searcher_query *q);
void searcher_lexical_describe(const struct searcher *s, struct searcher_description *out, int k, int nprobe);
