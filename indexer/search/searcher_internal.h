/* searcher_internal.h -- what a kind of search implements. */
#pragma once
#include "indexer/search/searcher.h"

struct searcher_ops {
    /* As searcher_search, without the fallback. */
    enum status (*search)(struct searcher *s, struct store_hit *hits, const struct searcher_query *q);
    void (*describe)(const struct searcher *s, struct searcher_description *out, int k, int nprobe);
    void (*close)(struct searcher *s);   /* frees what the kind has, and s */
    bool index;                          /* can lose neighbours unless describe says `exact` */
    int tokens;                          /* ids of a query that it reads */
    bool words_alone;                    /* vectors rank nothing */
};
/* The first member of each kind's struct. */
struct searcher {
    const struct searcher_ops *ops;
    struct searcher_config config;
    struct searcher_counts counts;
    struct searcher *part;               /* of HYBRID: its own searcher by landmarks */
    char *fallback;                      /* NULL: none */
    float *vectors; size_t capacity;     /* queries copied from the device */
};
/* Each allocates *out zeroed and sets `ops`; the caller sets the rest. */
enum status searcher_store_open(struct searcher **out, const struct searcher_config *config);
enum status searcher_flat_open(struct searcher **out, const struct searcher_config *config);
enum status searcher_lists_open(struct searcher **out, const struct searcher_config *config);
enum status searcher_lexical_open(struct searcher **out, const struct searcher_config *config);
enum status searcher_hybrid_open(struct searcher **out, const struct searcher_config *config);

/* Whether the CPU can search after the device failed with this status. */
bool searcher_may_fall_back(enum status status);

/* store_view_search of the config's view, by its slices where it has some. */
enum status searcher_in_store(const struct searcher *s, struct store_hit *hits, const float *vectors, int64_t n,
                              const struct store_search *how);

/* The query's vectors in memory of this process, valid until the next call. */
enum status searcher_vectors(struct searcher *s, const float **out, const struct searcher_query *q);
