/* control_groups.h -- limits of the control groups (versions 1 and 2) of this process, for example in a container. */
#pragma once
#include <stdbool.h>

/* The limit of the group whose files are in root + folder; INFINITY: none. second: version 2. */
typedef double control_group_limit(const char *root, const char *folder, bool second);
/* The smallest limit from the process's own group up to the outermost one that it sees. controller: "cpu", "memory".
 * `root` is put before /proc and /sys: "" except in tests. */
double control_groups_least(const char *root, const char *controller, control_group_limit *limit);
/* The number in a group's file, and the one after it in *next (NULL is fine); -1: there is none, or it is "max". */
double control_groups_number(const char *root, const char *folder, const char *name, double *next);
