/* control_groups.h -- limits of the control groups (versions 1 and 2) of this process, for example in a container. */
#pragma once
#include <stdbool.h>

/* Returns the limit of the group whose files are in root + folder; INFINITY: none. second: version 2. */
typedef double control_group_limit(const char *root, const char *folder, bool second);
/* Returns the smallest limit from the process's own group up to the outermost one that it can see. controller: "cpu",
 * "memory". `root` is put before /proc and /sys; it is "" except in tests. */
double control_groups_least(const char *root, const char *controller, control_group_limit *limit);
/* Returns the number in a group's file, and the second one in *next (NULL is fine); -1: there is none,
 * or it is "max". */
double control_groups_number(const char *root, const char *folder, const char *name, double *next);
