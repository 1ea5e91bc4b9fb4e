/* vectors_prefetch_internal.h -- what FAISS's C API does not offer: for vectors.c, in C++. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Stops the read-ahead of a mapped inverted file. `ivf`: as faiss_IndexIVF_cast returns it. */
void vectors_no_prefetch(void *ivf);

enum { VECTORS_ERROR_BYTES = 400 };
/* Searches all lists of an inverted file: ids and scores [n, k]. `index`, `params`: C++ objects, as the C API returns
 * them; params->nprobe is the number of lists. Returns false, with FAISS's text in `error`, when FAISS fails. */
bool vectors_search_all_lists(const void *index, int64_t *ids, float *scores, const float *queries, int64_t n,
                              int64_t k, const void *params, char error[VECTORS_ERROR_BYTES]);
#ifdef __cplusplus
}
#endif
