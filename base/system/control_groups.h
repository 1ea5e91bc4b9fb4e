/* control_groups.h -- limits of the control groups (a container's, say) that this process is in, of version 1 and 2. */
#pragma once
#include <stdbool.h>

/* What the group whose files are in root + folder allows; INFINITY: no limit. second: of version 2. */
typedef double control_group_limit(const char *root, const char *folder, bool second);
/* The least limit from the process's own group up to the outermost that it can see. controller: "cpu", "memory". `root`
 * is put before /proc and /sys: "" except in tests. */
double control_groups_least(const char *root, const char *controller, control_group_limit *limit);
/* The number in a group's file, and the one after it in *next (NULL is fine); -1: there is none, or the word "max". */
double control_groups_number(const char *root, const char *folder, const char *name, double *next);
