/* device_group.h -- the GPUs of a host that one process uses together.
 *
 * CUDA has a current GPU for each thread, which is GPU 0 at the start of a thread. A thread that uses a device of
 * another GPU calls device_enter first, and again for the device that it uses next. On the CPU device_enter does
 * nothing. */
#pragma once
#include "kernels/device/device.h"

int device_count(const char *kind);      /* "cpu": 1; "cuda": GPUs that this process sees; 0: none */
/* As device_open, on GPU `number` of those that this process sees; "cpu": any number gives a device of its own. The
 * current GPU of the thread stays. */
enum status device_open_number(struct device **out, const char *kind, int number, int threads);
void device_enter(struct device *dev);

/* devices[0] is borrowed. Each device is used by one thread at a time; different ones may be used at the same time. */
struct device_group { struct device **devices; int n; };
/* Opens n - 1 more devices of the kind of `first`, which is of GPU 0: GPUs 1 .. n - 1, each with `threads` threads of
 * the host (CPU devices alone compute with them). n -1: all GPUs. STATUS_INVALID: there are fewer, or on the CPU n is
 * -1. */
enum status device_group_open(struct device_group *out, struct device *first, int n, int threads);
void device_group_close(struct device_group *g);          /* all but the first; a zeroed group is fine */
