/* processors.h -- the number of processors that this process may use. */
#pragma once

/* Returns the smaller of the number of processors in the affinity mask and the CPU quota of the control groups (of a
 * container, for example), rounded up; at least 1. */
int processors_available(void);
/* Returns only the quota, in processors: the smallest of cpu.max (version 2) and cpu.cfs_quota_us (version 1) from the
 * process's own group up to the outermost one that it can see; 0: none. `root` is put before /proc and /sys; it is ""
 * except in tests. */
double processors_quota(const char *root);
