/* collective.h -- sums over processes that train together: one process a device (data parallel).
 *
 * All processes run on one host and make the same calls in the same order. Sums have one order, so every process gets
 * the same bits, and a second run gets them again: on the CPU rank after rank in float32 through shared memory, on GPUs
 * what NCCL does for this world and size. A process that dies makes the CPU calls of the others fail with a line that
 * names its rank; sums on GPUs wait for it, so the process that starts them must end them together. */
#pragma once
#include "base/status.h"
#include "kernels/device/device.h"

struct collective;
/* `rendezvous`: a path that does not exist yet and that all processes can reach, new for every start. Waits until all
 * of `world` have come; the file is gone from the folder by then. GPUs: libnccl.so.2 is looked for now, not before. */
enum status collective_open(struct collective **out, struct device *dev, int rank, int world, const char *rendezvous);
void collective_close(struct collective *c);              /* NULL is fine */
int collective_rank(const struct collective *c);
int collective_world(const struct collective *c);
/* x [n] float32, memory of the device: becomes the sum over all ranks. */
enum status collective_sum(struct collective *c, float *x, int64_t n);
/* The same for a few numbers of the host, in rank order. n <= 64. */
enum status collective_sum_host(struct collective *c, double *values, int n);
