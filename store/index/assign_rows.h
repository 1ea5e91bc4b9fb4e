/* assign_rows.h -- computes to which list of an inverted file each row belongs, instead of FAISS (store/store.h).
 *
 * A row belongs to the list with whose centroid its inner product is greatest; among equal products to the smaller
 * list. The products are rounded, so different methods can differ for rows between two centroids. All rows of one index
 * are assigned by one method. By one method a row's list depends on the row and its chunk id only: not on the number of
 * devices, nor on the range of a call. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum store_assign_method {
    STORE_ASSIGN_FAISS,                  /* FAISS on the CPU: by its graph, if the centroids are in one */
    STORE_ASSIGN_F16,                    /* all centroids, rows and centroids rounded to fp16: GPUs */
    STORE_ASSIGN_F32,                    /* all centroids, in float32 */
};

/* Calls are for rows within one block: chunks with the same id / STORE_ASSIGN_BLOCK. */
enum { STORE_ASSIGN_BLOCK = 1 << 14 };

/* Reads the rows of chunks first .. first+n-1 into out [n, dim]: as fp16 numbers (half), or float32. For any number of
 * threads at a time. */
struct store_assign_rows {
    void (*read)(void *context, void *out, bool half, int64_t first, int64_t n);
    void *context;
};

struct store_assignment {
    enum store_assign_method method;
    /* For publishing: called before `open`, which is called only if it sets *out true; otherwise FAISS assigns. So
     * devices can be opened when they are needed. NULL: always available. */
    enum status (*available)(void *context, bool *out);
    /* Begins with centroids [lists, dim], which are read in this call only. NULL: FAISS assigns. STATUS_NO_MEMORY:
     * publishing leaves the assignment to FAISS; a plan's parts cannot be filled. */
    enum status (*open)(void *context, void **assigner, const float *centroids, int64_t lists, int dim);
    /* list[i] = the list of chunk first + i, for n chunks. Several threads may call it at the same time. */
    enum status (*assign)(void *assigner, int32_t *list, struct store_assign_rows rows, int64_t first, int64_t n);
    void (*close)(void *assigner);
    void *context;
};
