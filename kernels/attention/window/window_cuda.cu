/* window_cuda.cu -- decides whether backward of a window takes window_backward.cuh, and launches it. */
#include "kernels/attention/window/window_cuda.cuh"
#include "kernels/attention/window/window_backward.cuh"

/* Whole sequences, with bf16 gradients that are stored 16 bytes at a time. */
static bool window_cuda_fits(struct device *dev, const struct attend_task *t, const struct attend_gradients *g) {
    return device_cuda_hopper(dev) && t->window_mode && t->dim == TILE && t->first == 0 && t->ring == t->length &&
           t->window <= (int)BACKWARD_REACH * TILE && t->n / TILE * t->heads < INT32_MAX / 4 &&
           g->dk.type == DTYPE_BF16 && vectors_fit(g->dk) && vectors_fit(g->dv) &&
           device_cuda_shared_bytes(dev) >= BACKWARD_BYTES;
}
/* A block has at least as many pairs of key tiles as its first query tiles span. Blocks wait for each other, so all of
 * them must run at once: one on a multiprocessor. */
static int window_cuda_blocks(struct device *dev, const backward_plan &plan) {
    int least = plan.reach > 2 ? (plan.reach + 1) / 2 : 1, most = plan.all / least;
    int blocks = device_cuda_processors(dev);
    blocks = blocks < DEVICE_CUDA_COUNTERS ? blocks : (int)DEVICE_CUDA_COUNTERS;
    return most < 1 ? 1 : most < blocks ? most : blocks;
}
static rows<const bf16> window_cuda_rows(struct mat m) {
    return {(const bf16 *)m.data, m.stride};
}

bool window_cuda_backward(struct device *dev, const char *op, const struct attend_task *t,
                          const struct attend_gradients *g, const attend_backward_inputs &in,
                          const backward_maps &maps) {
    if (!window_cuda_fits(dev, t, g)) return false;
    int tiles = (int)blocks_for(t->length, TILE), pairs = (int)blocks_for(tiles, 2);
    backward_plan plan = {tiles, pairs, (int)blocks_for(t->window, TILE), (int)(t->n / t->length) * t->heads * pairs};
    int blocks = window_cuda_blocks(dev, plan);
    size_t partial = (size_t)blocks * BACKWARD_REACH * sizeof(backward_sums);
    if (partial > device_cuda_scratch_bytes(dev)) return false;
    backward_results to = {rows_of<bf16>(g->dq), rows_of<bf16>(g->dk), rows_of<bf16>(g->dv),
                           (backward_sums *)device_cuda_scratch(dev, partial), device_cuda_counters(dev)};
    backward_inputs from = {window_cuda_rows(in.o), window_cuda_rows(in.dout), window_cuda_rows(in.v), in.lse};
    cudaFuncSetAttribute((const void *)window_backward, cudaFuncAttributeMaxDynamicSharedMemorySize, BACKWARD_BYTES);
    launch(dev, op, window_backward, (unsigned)blocks, dim3(WARPGROUP, BACKWARD_CONSUMERS + 1), (size_t)BACKWARD_BYTES,
           maps, *t, plan, from, to);
    return true;
}
