/* vectors_internal.h -- FAISS indexes through its C API: make, train, fill, write, map, search.
 *
 * This interface does not use shards or the catalog. Ids are chunk ids. FAISS uses OpenMP; `threads` limits its threads
 * for a call. FAISS aborts the process on some misuses (adding to a mapped index) and does not check its files: callers
 * must check the recorded sizes and checksums before vectors_open. */
#pragma once
#include "store/store.h"

struct vectors;

/* The sizes that a factory string implies. */
struct vectors_plan {
    int64_t lists;                       /* lists of the inverted file; 0: not an inverted file, or unknown */
    int64_t code_bytes;                  /* bytes of a vector without its id; 0: unknown */
    /* width: dimensions of the coded vector; parts: number of parts of a product code */
    int64_t width, parts;
    bool rotated;                        /* by an OPQ transform, whose training trains product codes, too */
};
struct vectors_plan vectors_plan(const char *factory, int dim);

/* STATUS_INVALID, naming the wrong part: FAISS cannot parse the string. STATUS_OK does not mean that it can. */
enum status factory_check(const char *factory);
/* Makes an empty index. STATUS_INVALID: FAISS cannot make it (with FAISS's own reason), or this program cannot search
 * it. */
enum status vectors_make(struct vectors **out, const char *factory, int dim);
void vectors_free(struct vectors *v);                     /* NULL is fine */

enum status vectors_train(struct vectors *v, const float *rows, int64_t n, int threads);
/* Sets the centroids of an inverted file's lists to those that clustering->fit computes from the first n of `all` rows.
 * Call it before vectors_train, which trains everything else. If an OPQ rotation comes before the lists, it is trained
 * first, with all rows. The result does not depend on `threads`. STATUS_UNSUPPORTED: there are no such lists, or
 * another transform comes before them. */
enum status vectors_give_centroids(struct vectors *v, const struct store_clustering *clustering, const float *rows,
                                   int64_t n, int64_t all, struct threads *threads, const struct progress *progress);
/* Adds rows with the ids first_id, first_id + 1, ...; each call must continue where the last one ended. The list and
 * the code of a row do not depend on `threads`. They can depend on the other rows of the call, except for the types of
 * vectors_adds_apart. */
enum status vectors_add(struct vectors *v, const float *rows, int64_t n, int64_t first_id, int threads);
/* Whether the list and the code of a row depend on that row only. */
bool vectors_adds_apart(const struct vectors *v);
/* The centroids [vectors_lists, dim] by which rows may be assigned to lists; NULL: the type is not an inverted file of
 * flat or scalar codes whose centroids are float32 numbers. Borrowed. */
const float *vectors_centroids(const struct vectors *v);
/* Codes of rows [n, dim], n up to 1000, of the given lists: those that vectors_add would write. For any number of
 * threads at a time. */
enum status vectors_encode(const struct vectors *v, uint8_t *codes, const float *rows, const int64_t *list, int64_t n);
int64_t vectors_lists(const struct vectors *v);           /* 0: not an inverted file */
int64_t vectors_visited(const struct vectors *v, int nprobe);                 /* number of lists that a query visits */

/* One list of an inverted file: n codes of vectors_code_bytes each, and n ids. Borrowed until rows are added. */
struct vectors_list { const uint8_t *codes; const int64_t *ids; int64_t n; };
int64_t vectors_code_bytes(const struct vectors *v);      /* 0: not an inverted file */
/* The index must be in memory, not mapped. */
struct vectors_list vectors_list_of(const struct vectors *v, int64_t list);

/* Writes a new file, which is durable and complete when the result is OK (see file_publish). */
enum status vectors_write(const struct vectors *v, const char *path);
/* Opens a file of vectors_write. `mapped`: for searching only; large parts stay on disk. first_id: the first id that
 * was added. */
enum status vectors_open(struct vectors **out, const char *path, int dim, int64_t count, int64_t first_id, bool mapped);

/* Writes ids [n * k], -1 if fewer are found. Ids in `exclude` are never found (NULL: none; one range for all n
 * queries). Several threads may call it at the same time. nprobe 0: twice the square root of the number of lists, at
 * least 8. nprobe = number of lists: visits all lists, also those that a graph over the centroids does not reach. */
enum status vectors_search(const struct vectors *v, int64_t *ids, const float *queries, int64_t n, int k, int nprobe,
                           const struct store_range *exclude, int threads);

/* Whether list_scan_internal.h can search it: a mapped inverted file of 8-bit scalar codes (IVF.., SQ8). */
bool vectors_scans(const struct vectors *v);
/* Searches as vectors_search does, but by list_scan, with a range for each query: exclude [n], NULL: none. `threads`
 * share the work. */
enum status vectors_scan(const struct vectors *v, int64_t *ids, const float *queries, int64_t n, int k, int nprobe,
                         const struct store_range *exclude, struct threads *threads);

/* Searches one slice's share of the lists, and also returns the scores of the codes. how->lists is ignored; nprobe 0:
 * the default. */
struct list_scan_search;
enum status vectors_scan_slice(const struct vectors *v, int64_t *ids, float *scores, const struct list_scan_search *how,
                               struct store_slice slice);

/* Measures how many megabytes of 8-bit codes one thread of FAISS scans per second. */
enum status vectors_scan_rate(double *mb_s, const float *rows, int64_t n, int dim);
const char *vectors_version(void);
