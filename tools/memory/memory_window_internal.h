/* memory_window_internal.h -- for memory_window.c (the model, the searches), memory_read.c (a memory's results for
 * rows) and memory_window_order.c (what each candidate of a search gives). */
#pragma once
#include "tools/memory/memory_window.h"

enum { MEMORY_STATS = 5 };               /* number of members of struct token_memory_stats */

struct memory_window {
    struct memory_window_config config;
    struct memory_read *reads;
    int n_reads;
    struct memory_source *source;        /* NULL: only the text's own past */
    struct mat keys;                     /* [context, m] */
    struct mat states;                   /* [context, d]: what they are projections of; data NULL: keys are states */
    struct mat vectors;                  /* [context, d] on the device: of searches; data NULL: not made of states */
    int32_t *next, *next_device;         /* [context] the id after each */
    float *square;                       /* [context] in memory of the device, like the next two */
    float *stats_device;                 /* [MEMORY_STATS * context] */
    float *tau_device;                   /* [n_reads] the largest of each */
    float *nearest;                      /* [context], in memory of this process */
    float *logits;                       /* [context, vocabulary] */
    float *log_p, *entropy, *largest;    /* of scored tokens, like the next two */
    double *log_sum;                     /* log of the sum of exponentials */
    int32_t *top;
    int64_t *at, *drawn_at, *row_begin, *chunks;           /* of the searches of a window */
    float *scores;
    size_t chunks_capacity;              /* also of scores */
    float *weights, *weights_device;     /* [rows, columns] of the rows being read: both sides */
    float *scaled, *spread;              /* a row of weights and a distribution of each thread */
    size_t weights_capacity, scaled_capacity, spread_capacity;
    struct store_hit *hits;              /* [candidates] of the search being read */
};

/* Computes what does not depend on a memory: key states of ids 0 .. n-2, and the model's results for tokens first ..
 * n-1. */
enum status memory_window_trunk(struct memory_window *w, const int32_t *ids, int64_t n, int64_t first);
/* Returns the query vectors of the searches at w->at, made of the text's last states; data NULL: the source makes them,
 * if there are any. */
struct mat memory_window_vectors(struct memory_window *w, const int32_t *ids, int64_t searches);
/* Allocates memory for weights [weights] of rows, and for one row of columns per thread. */
enum status memory_window_reserve(struct memory_window *w, size_t weights, size_t columns);

/* Reads rows begin .. end-1 of the window with one memory, whose tau it sets: columns of the scored tokens, and the
 * nearest distance. */
enum status memory_window_read(struct memory_window *w, struct memory_read *read, struct token_memory *memory,
                               int64_t first, int64_t begin, int64_t end);
/* The same from entries that were found before, [end - begin, of.m]. */
enum status memory_window_nearest(struct memory_window *w, struct memory_read *read, struct memory_nearest of,
                                  int64_t first, int64_t begin, int64_t end);
