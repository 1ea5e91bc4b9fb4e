/* collective.h -- sums over processes that train together, one process for each device (data parallel).
 *
 * All processes run on one host and make the same calls in the same order. A sum has a fixed order, so every process
 * gets the same bits, and so does a second run: on the CPU rank after rank in float32 through shared memory, on GPUs
 * NCCL's order for this number of ranks and this size. If a process dies, the CPU calls of the others fail, naming its
 * rank. Sums on GPUs wait for it, so the launcher must end all processes together. One thread at a time for each
 * process. */
#pragma once
#include "base/status.h"
#include "kernels/device/device.h"

struct collective;
/* rendezvous: a path that does not exist yet, that all processes can reach, and that is new for every start. Waits
 * until all `world` processes have arrived; the file is then removed. On GPUs libnccl.so.2 is loaded by this call.
 * STATUS_IO: a rank has died or does not arrive. STATUS_UNSUPPORTED: NCCL is missing, or there are too many ranks. */
enum status collective_open(struct collective **out, struct device *dev, int rank, int world, const char *rendezvous);
void collective_close(struct collective *c);              /* NULL is fine */
int collective_rank(const struct collective *c);
int collective_world(const struct collective *c);
/* x [n] float32 in device memory becomes the sum over all ranks. */
enum status collective_sum(struct collective *c, float *x, int64_t n);
/* The same for at most 64 numbers in host memory, in rank order. */
enum status collective_sum_host(struct collective *c, double *values, int n);
