/* assignment.h -- assigns the rows of a store's index to lists on devices, instead of by FAISS
 * (store/index/assign_rows.h).
 *
 * The nearest centroid of each row among all, by the op topk with k 1 (kernels/search/topk.h): the product of the rows
 * with the centroids and its greatest number are one kernel. Each call computes a whole block of rows, in which a chunk
 * has always the same position and chunks outside the call are zero, so a row's list depends on no division of the
 * work. A device computes one block at a time; meanwhile other threads read the rows of its next blocks. */
#pragma once
#include "kernels/device/device_group.h"
#include "store/store.h"

/* On all devices of the group: STORE_ASSIGN_F16 on GPUs, STORE_ASSIGN_F32 on CPUs. n 0: FAISS assigns. `group` must
 * stay valid while the result is used. A GPU needs memory for a block of rows in fp16, 20 bytes for each of them, and
 * the centroids in fp16. After `close` the current GPU is that of the first device. */
struct store_assignment assignment_on(const struct device_group *group);
