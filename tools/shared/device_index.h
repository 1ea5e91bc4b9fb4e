/* device_index.h -- a store's landmarks on the GPU of a program: how they are searched there, and what it says about
 * them. */
#pragma once
#include "indexer/flat_index.h"
#include "indexer/list_index.h"

/* Corpora up to this size are scanned whole unless nprobe asks for lists: a scan at the speed of a GPU's memory
 * takes less than a millisecond then. */
#define DEVICE_INDEX_EXACT_BYTES (UINT64_C(2) << 30)

struct device_index {                    /* at most one is there; neither: the store searches */
    struct flat_index *flat;             /* "gpu-flat": exact */
    struct list_index *lists;            /* "gpu-ivf": of some lists, exact scores */
};
struct device_index_choice {
    bool exact, lists;                   /* gpu-flat, or gpu-ivf, whatever the size */
    int nprobe;                          /* lists of gpu-ivf; > 0: it is wanted, 0: its default */
};
/* Neither on the CPU, whose search is the store's own, and, with a line on stderr, where the landmarks do not fit. */
enum status device_index_open(struct device_index *out, struct device *device, struct store_view *view,
                              struct device_index_choice how);
/* One query, in memory of this process; where neither is there, the store searches as `how` says. */
enum status device_index_search(struct device_index *x, struct store_view *view, struct store_hit *hits,
                                const float *query, const struct store_search *how);
/* What that search does, for people: "exact scan", "gpu-flat, exact", "gpu-ivf, 32 of 256 lists", "index IVF64,SQ8,
 * 16 of 64 lists". */
enum { DEVICE_INDEX_TEXT_MAX = 320 };
const char *device_index_text(char out[DEVICE_INDEX_TEXT_MAX], const struct device_index *x,
                              const struct store_view *view, const struct store_search *how);
/* As device_index_search; where the index leaves hits missing, the store is scanned, with a line on stderr, and
 * `text` says so. */
enum status device_index_search_whole(struct device_index *x, struct store_view *view, struct store_hit *hits,
                                      const float *query,
                                      const struct store_search *how, char text[DEVICE_INDEX_TEXT_MAX]);
void device_index_close(struct device_index *x);          /* before the device; a zeroed struct is fine */
