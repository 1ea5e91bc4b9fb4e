/* near_name.h -- which of the known names was meant by one that is not known: "did you mean ...?".
 *
 * The best one differs by the fewest typing errors (a character too many, missing, replaced, or two swapped; case does
 * not count), at most a third of the name's length, or is a longer name that contains it. If there is none: the longest
 * known name of four characters or more that it contains ("max_steps": "steps"). Of equals the first one that was
 * offered. */
#pragma once
#include <stddef.h>

struct near_name {
    const char *name;                    /* [length], borrowed, as are all names */
    size_t length;
    const char *best, *part;             /* the best one of each kind so far; NULL: none */
    int edits;                           /* of the best one; 1 for a longer name that contains `name` */
};

struct near_name near_name_of(const char *name, size_t length);
void near_name_offer(struct near_name *n, const char *candidate);
/* The best one that was offered; NULL: none is near. */
const char *near_name_best(const struct near_name *n);
