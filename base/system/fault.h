/* fault.h -- named points at which a test can make a call fail or kill the program.
 *
 * In shipped programs a fault point does nothing. Programs built for crash tests link tests/crash/fault_inject.c
 * instead. Its function of the same name kills the process (as kill -9 does) or makes the call fail at the Nth pass.
 * Each step whose order matters (write, sync, rename, commit) has a fault point before and after it. */
#pragma once
#include "base/status.h"

/* `name` is "<file>:<step>", unique in the repository. STATUS_FAULT: a test requests a failure at this point. */
enum status fault_point(const char *name);
