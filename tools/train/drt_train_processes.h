/* drt_train_processes.h -- starts several processes that train one model. */
#pragma once
#include "tools/shared/train_rank.h"

/* Starts `processes` children. In a child it returns with the child's rank. In the parent it waits for all
 * children. It passes SIGINT, SIGTERM and SIGHUP on to them, kills the others if one fails, and returns with *code
 * >= 0, the exit code. */
enum status train_processes_start(struct train_rank *out, int *code, int processes);
