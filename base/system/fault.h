/* fault.h -- named points where a test can make the program fail or die.
 *
 * In shipped programs a fault point does nothing. Programs built for crash tests link tests/crash/fault_inject.c
 * instead. Its function of the same name kills the process (as kill -9 would) or makes the call fail at the Nth pass.
 * Put a fault point before and after each step whose order matters: write, sync, rename, commit. */
#pragma once
#include "base/status.h"

/* `name` is "<file>:<step>", unique in the repository. STATUS_FAULT: a test requests a failure here. */
enum status fault_point(const char *name);
