/* drt_train_processes.h -- several processes that train one model, started here. */
#pragma once
#include "tools/shared/train_place.h"

/* Starts `processes` children; in a child it returns with its place. In the parent it waits for all of them, passes SIGINT,
 * SIGTERM and SIGHUP on, ends the others when one fails, and returns with *code >= 0: what the program shall exit with. */
enum status train_processes_start(struct train_place *out, int *code, int processes);
