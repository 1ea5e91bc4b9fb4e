/* drt_train.h -- the parts of drt-train. Each gets argv with its own name first, and an array of argc operands to fill.
 * It returns the exit code. */
#pragma once
#include "base/status.h"
#include <stdio.h>

int drt_train_run(int argc, char **argv, const char **operands);

/* Prints "drt-train: <this thread's last message>" and returns exit code 1 (0 for STATUS_OK). */
int drt_train_exit(enum status status);
