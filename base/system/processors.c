/* processors.c -- see processors.h. */
#include "base/system/processors.h"
#include "base/system/control_groups.h"
#include <math.h>
#include <sched.h>
#include <unistd.h>

static double group_quota(const char *root, const char *folder, bool second) {
    double period = 0, share = second ? control_groups_number(root, folder, "cpu.max", &period)
                                      : control_groups_number(root, folder, "cpu.cfs_quota_us", NULL);
    if (!second) period = control_groups_number(root, folder, "cpu.cfs_period_us", NULL);
    return share > 0 && period > 0 ? share / period : INFINITY;
}

double processors_quota(const char *root) {
    double least = control_groups_least(root, "cpu", group_quota);
    return isfinite(least) ? least : 0;
}

int processors_available(void) {
    cpu_set_t set;
    double n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (double)sysconf(_SC_NPROCESSORS_ONLN);
    double quota = processors_quota("");
    if (quota > 0) n = fmin(n, ceil(quota));
    return n > 1 ? (int)n : 1;
}
