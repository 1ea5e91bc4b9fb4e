/* device_flat_index.h -- a store's landmarks on the GPU of a program, and what it says about them. */
#pragma once
#include "indexer/flat_index.h"

/* *out NULL on the CPU, whose search is the store's own, and, with a line on stderr, where the landmarks do not fit. */
enum status device_flat_index(struct flat_index **out, struct device *device, struct store_view *view);
