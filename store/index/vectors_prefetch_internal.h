/* vectors_prefetch_internal.h -- functions in C++ that FAISS's C API lacks, for vectors.c. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Stops the read-ahead of a mapped inverted file. `ivf`: as faiss_IndexIVF_cast returns it. */
void vectors_no_prefetch(void *ivf);

enum { VECTORS_ERROR_BYTES = 400 };
/* Searches all lists of an inverted file: ids and scores [n, k]. `index`, `params`: C++ objects, as the C API returns
 * them; params->nprobe is the number of lists. Returns false if FAISS fails, with its text in `error`. */
bool vectors_search_all_lists(const void *index, int64_t *ids, float *scores, const float *queries, int64_t n,
                              int64_t k, const void *params, char error[VECTORS_ERROR_BYTES]);

/* The data of an inverted file of 8-bit scalar codes that a scan needs; the index owns all of it. */
struct vectors_lists {
    int dim;
    int64_t lists;
    const float *centroids;              /* [lists, dim] */
    /* [dim]: element i of a decoded row is least[i] + range[i] * (code + 0.5) / 255 */
    const float *least, *range;
    bool residual;                       /* codes are those of a row minus its list's centroid */
};
/* Returns false unless `index` is an inverted file of such codes with float32 centroids, ranked by inner products. */
bool vectors_lists_of(const void *index, struct vectors_lists *out);
/* Gets list l of such an index: *n codes of dim bytes, and ids as int64_t, which may be unaligned. */
void vectors_list_at(const void *index, int64_t l, const uint8_t **codes, const void **ids, int64_t *n);
/* Whether the list and the code of a row depend on that row only: centroids in a graph, flat or scalar codes, no
 * transform before them. The other types are computed by BLAS, a block of rows at a time. */
bool vectors_adds_rows_apart(const void *index);
/* The centroids [*lists, *dim] of an inverted file of flat or scalar codes with nothing before it, flat or in a graph
 * over flat ones; NULL: another type. The index owns them. */
const float *vectors_ivf_centroids(const void *index, int64_t *lists, int *dim);
/* Codes rows [n, dim] of such an index that belong to the lists `list`, as adding them would. Several threads may call
 * it; up to 1000 rows are coded by the calling thread. Returns false if FAISS fails, with its text in `error`. */
bool vectors_ivf_encode(const void *index, uint8_t *codes, const float *rows, const int64_t *list, int64_t n,
                        char error[VECTORS_ERROR_BYTES]);
/* Return the bytes of a code, and list l, of any inverted file. `ivf`: as faiss_IndexIVF_cast returns it. */
int64_t vectors_ivf_code_bytes(const void *ivf);
void vectors_ivf_list(const void *ivf, int64_t l, const uint8_t **codes, const void **ids, int64_t *n);
#ifdef __cplusplus
}
#endif
