/* processors.h -- how many processors this process may keep busy. */
#pragma once

/* The lesser of its affinity mask and the CPU quota of its control groups (a container's, say), rounded up; at least
 * 1. */
int processors_available(void);
/* That quota alone, in processors: the least of cpu.max (version 2) and cpu.cfs_quota_us (version 1) from the process's
 * own group up to the outermost that it can see; 0: none. `root` is put before /proc and /sys: "" except in tests. */
double processors_quota(const char *root);
