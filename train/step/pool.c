/* pool.c -- the names of pools, as configs and logs write them. */
#include "train/step/pool.h"
#include <string.h>

static const char *const names[] = {
    [POOL_NONE] = "none", [POOL_OWN_PAST] = "own", [POOL_BATCH] = "batch", [POOL_CORPUS] = "corpus"};

const char *pool_kind_name(enum pool_kind kind) {
    return names[kind];
}

int pool_kind_find(const char *name) {
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}
