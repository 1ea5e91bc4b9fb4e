/* clustering.h -- centroids for the lists of a store's index, computed on a device instead of by FAISS
 * (store/store.h). */
#pragma once
#include "kernels/device/device.h"
#include "store/store.h"

/* Spherical k-means (kernels/search/kmeans.h) with as many rounds as FAISS has; on a GPU rows are rounded
 * to fp16, which holds the numbers of stored rows as they are. Valid as long as the device. */
struct store_clustering clustering_on(struct device *dev);
