/* vectors_internal.h -- FAISS indexes, through its C API: made, trained, filled, written, mapped, searched.
 *
 * Nothing here knows about shards or the catalog. Ids are chunk ids. FAISS is parallel by OpenMP; `threads` is how
 * many it may use for the call. It aborts the process on some misuses (adding to a mapped index), and does not
 * check its file: callers check recorded sizes and checksums before vectors_open. */
#pragma once
#include "store/store.h"

struct vectors;

/* What a factory string means as far as sizes go. */
struct vectors_plan {
    int64_t lists;                       /* of the inverted file; 0: not one, or not understood */
    int64_t code_bytes;                  /* a vector, without its id; 0: not understood */
    /* dimensions that reach the codes; of product codes: parts they are cut into */
    int64_t width, parts;
    bool rotated;                        /* by an OPQ, which trains product codes of its own */
};
struct vectors_plan vectors_plan(const char *factory, int dim);

/* STATUS_INVALID, with the part, for a string that FAISS certainly cannot read. */
enum status factory_check(const char *factory);
/* An empty index. STATUS_INVALID with FAISS's own reason when it cannot be built, or cannot be served by us. */
enum status vectors_make(struct vectors **out, const char *factory, int dim);
void vectors_free(struct vectors *v);                     /* NULL is fine */

enum status vectors_train(struct vectors *v, const float *rows, int64_t n, int threads);
/* Sets the centroids of an inverted file's lists to those that clustering->fit computes from the first n of `all` rows.
 * Call it before vectors_train, which trains the rest. Where an OPQ rotation comes before the lists, it is trained
 * first, with all rows. STATUS_UNSUPPORTED: there are no such lists, or another transform comes before them. */
enum status vectors_give_centroids(struct vectors *v, const struct store_clustering *clustering, const float *rows,
                                   int64_t n, int64_t all, int threads, const struct progress *progress);
bool vectors_trained(const struct vectors *v);
/* Ids first_id, first_id + 1, ...; each call continues where the last one ended. */
enum status vectors_add(struct vectors *v, const float *rows, int64_t n, int64_t first_id, int threads);
int64_t vectors_count(const struct vectors *v);
int64_t vectors_lists(const struct vectors *v);           /* 0: not an inverted file */
int64_t vectors_visited(const struct vectors *v, int nprobe);                 /* of them, by a query */

/* Writes to a new file, durable and complete when OK (see file_publish). */
enum status vectors_write(const struct vectors *v, const char *path);
/* Reads a file of ours; `mapped`: for searching only, large parts stay on disk. first_id: as it was added. */
enum status vectors_open(struct vectors **out, const char *path, int dim, int64_t count, int64_t first_id, bool mapped);

/* ids[n * k], -1 where there are fewer; never one in `exclude` (NULL: none), which counts for all n queries.
 * Safe from several threads at once. nprobe 0: twice the root of the number of lists, at least 8. nprobe = the number
 * of lists visits all, also those that a graph over the centroids does not reach. */
enum status vectors_search(const struct vectors *v, int64_t *ids, const float *queries, int64_t n, int k, int nprobe,
                           const struct store_range *exclude, int threads);

/* Whether our own loops can search: a mapped inverted file of 8-bit scalar codes (IVF.., SQ8). */
bool vectors_scans(const struct vectors *v);
/* As vectors_search by them, with a range for each query: exclude [n], NULL: none. `threads` share the work. */
enum status vectors_scan(const struct vectors *v, int64_t *ids, const float *queries, int64_t n, int k, int nprobe,
                         const struct store_range *exclude, struct threads *threads);

/* Megabytes of 8-bit codes scanned a second, one thread. */
enum status vectors_scan_rate(double *mb_s, const float *rows, int64_t n, int dim);
/* Whether the linked FAISS scans as fast as a build for AVX2 (its rate against our own loop: faiss_info.c). 10 ms. */
enum status faiss_is_wide(bool *out);
const char *vectors_version(void);
