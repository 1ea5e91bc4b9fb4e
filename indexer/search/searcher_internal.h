/* searcher_internal.h -- the functions that a kind of search implements. */
#pragma once
#include "indexer/search/device_hybrid.h"

struct searcher_ops {
    /* searches as searcher_search does, without the fallback */
    enum status (*search)(struct searcher *s, struct store_hit *hits, const struct searcher_query *q);
    /* the parts of a search for one query; NULL: it has none */
    enum status (*queue)(struct searcher *s, bool *queued, const struct searcher_query *q);
    enum status (*queue_on_device)(struct searcher *s, struct searcher_found out, const struct searcher_query *q);
    bool (*finds_on_device)(const struct searcher *s, int k, float landmark_weight);
    enum status (*collect)(struct searcher *s, struct store_hit *hits);
    void (*prepare)(struct searcher *s, const struct searcher_query *q);
    void (*describe)(const struct searcher *s, struct searcher_description *out, int k, int nprobe);
    /* what the device has of its landmarks, for HYBRID; STATUS_UNSUPPORTED or NULL: nothing that ops can read */
    enum status (*lists)(struct searcher *s, struct landmark_lists *out);
    void (*close)(struct searcher *s);   /* frees the memory of the kind, and s */
    bool index;                          /* may miss neighbours unless describe sets `exact` */
    int tokens;                          /* number of ids of a query that it reads */
    bool words_alone;                    /* it does not rank by vectors */
};
/* The first member of each kind's struct. */
struct searcher {
    const struct searcher_ops *ops;
    struct searcher_config config;
    struct searcher_counts counts;
    struct searcher *part;               /* HYBRID: its searcher by landmarks */
    char *fallback;                      /* NULL: none */
    float *vectors; size_t capacity;     /* queries copied from the device */
};
/* Each function allocates *out zeroed and sets `ops`. The caller sets the rest. */
enum status searcher_store_open(struct searcher **out, const struct searcher_config *config);
enum status searcher_flat_open(struct searcher **out, const struct searcher_config *config);
enum status searcher_lists_open(struct searcher **out, const struct searcher_config *config);
enum status searcher_lexical_open(struct searcher **out, const struct searcher_config *config);
enum status searcher_hybrid_open(struct searcher **out, const struct searcher_config *config);

/* Whether the CPU can search after the device failed with this status. */
bool searcher_may_fall_back(enum status status);

/* Searches by store_view_search in the config's view, or by its slices if it has some. */
enum status searcher_in_store(const struct searcher *s, struct store_hit *hits, const float *vectors, int64_t n,
                              const struct store_search *how);

/* Gets the query's vectors in memory of this process, valid until the next call. */
enum status searcher_vectors(struct searcher *s, const float **out, const struct searcher_query *q);

/* ---- the kinds that read the query's ids: LEXICAL, and HYBRID, which has one more searcher by landmarks ---- */

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
/* NULL: the CPU searches */
struct device_lexical *searcher_lexical_on_device(const struct searcher_lexical *x);
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
