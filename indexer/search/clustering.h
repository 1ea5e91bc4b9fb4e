/* clustering.h -- computes the centroids for the lists of a store's index on a device instead of by FAISS
 * (store/store.h). */
#pragma once
#include "kernels/device/device.h"
#include "store/store.h"

/* Spherical k-means (kernels/search/kmeans.h) with as many rounds as FAISS makes. On a GPU rows are rounded to fp16,
 * which represents the numbers of stored rows exactly. The result is valid while the device is open. */
struct store_clustering clustering_on(struct device *dev);
