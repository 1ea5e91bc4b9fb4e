/* window_cuda.cuh -- backward of a sliding window over whole sequences, with heads of 64 on Hopper
 * (window_backward.cuh). attend_cuda.cu calls it before its own kernels, for operands that those take. */
#pragma once
#include "kernels/attention/backward/attend_wgmma_queries.cuh"

/* False: it does not take the call. maps have boxes of 64 rows. */
bool window_cuda_backward(struct device *dev, const char *op, const struct attend_task *t,
                          const struct attend_gradients *g, const attend_backward_inputs &in,
                          const backward_maps &maps);
