/* drt_index_workers.h -- the worker processes of drt-index search --workers and --worker. */
#pragma once
#include "indexer/search/slices/slices.h"
#include "tools/shared/network.h"
#include <sys/types.h>

struct workers_options {
    /* --workers N (processes on this host), or the addresses of running ones */
    struct worker_options link;
    int64_t local;                       /* N, set by workers_options_check */
    struct arg_strings commands;         /* --worker COMMAND, one for each worker */
};
struct workers {
    struct slices *slices;               /* NULL: none were requested */
    struct slice_worker *peers;
    char (*names)[96];
    pid_t *pids;
    int n;
};
/* Starts the workers, or connects to them, and waits for their greetings. `threads`: of all local workers together; 0:
 * one per processor. */
enum status workers_open(struct workers *out, const struct workers_options *o, const char *store,
                         struct store_view *view, int64_t threads);
void workers_close(struct workers *w);   /* ends the processes; a zeroed one is fine */
/* Whether workers were requested. */
bool workers_wanted(const struct workers_options *o);
/* Returns -1, or the exit code for contradictory options. */
int workers_options_check(struct workers_options *o);
