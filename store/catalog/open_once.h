/* open_once.h -- a process has the catalog of a store open once at a time.
 *
 * LMDB's locks belong to the process: closing one of two environments would release the locks of the other, and the
 * next process would make the mutexes anew while they are in use. */
#pragma once
#include "base/status.h"

/* STATUS_BUSY: this process has the catalog of the store open. It may be opened or closed by another thread at once. */
enum status catalog_not_open(const char *store);
/* From here to catalog_turn_end no other thread or process opens the catalog in this folder (an flock of the folder).
 * Waits for at most a second or so: if another process holds the lock longer, or the file system has no such locks, the
 * caller continues without it. -1: the folder cannot be opened. Pass the result to catalog_turn_end in any case. */
int catalog_turn_begin(const char *folder);
void catalog_turn_end(int turn);
