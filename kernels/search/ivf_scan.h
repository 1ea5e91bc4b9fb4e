/* ivf_scan.h -- the best rows of an inverted file: a query scores all rows of the lists whose centroids score best.
 *
 * Rows are stored list by list: list l holds rows begin[l] .. begin[l+1]-1, and row p has the id id[p]. A query scans
 * the `nprobe` lists that are not empty and whose centroids have the greatest product with it (ties: the smaller list).
 * score = q.row / sqrt(d), in float32 whatever the type of rows.
 *
 * index (ids) and score [n*k], best first, ties by smaller id; slots without a row get -1, -inf. Query r never gets an
 * id in hole[r][0] .. hole[r][1]-1 (NULL: no holes). Queries are float32; centroids and rows fp16 on a GPU, float32 on
 * the CPU, of at most 2^30 rows and IVF_SCAN_LISTS_MAX lists. On a GPU d is a multiple of 8 and at most
 * IVF_SCAN_WIDTH_MAX. For k up to IVF_SCAN_ONCE results are written once and never read: index and score may then be
 * memory of this process that the device can reach (device_reach). */
#pragma once
#include "kernels/device/device.h"

enum { IVF_SCAN_LISTS_MAX = 1 << 18, IVF_SCAN_WIDTH_MAX = 2048, IVF_SCAN_ONCE = 32 };

struct ivf_scan_lists {
    struct mat centroids, rows;          /* [lists, d], [rows, d] */
    const int32_t *begin, *id;           /* [lists + 1], [rows] */
};

struct ivf_scan_ops {
    void (*forward)(struct device *dev, int64_t *index, float *score, struct mat queries, struct ivf_scan_lists lists,
                    const int64_t (*hole)[2], int nprobe, int k);
};
extern const struct ivf_scan_ops ivf_scan_cpu;
