/* aside.h -- a thread that runs one function at a time beside its owner's thread.
 *
 * The owner starts a function, continues, and later waits for its result. Between the two calls the function may use
 * what the owner does not. For one owner thread. */
#pragma once
#include "base/status.h"
#include <stdbool.h>

struct aside;
typedef enum status aside_body(void *context);
enum status aside_create(struct aside **out);             /* STATUS_NO_MEMORY: the system starts no thread */
void aside_free(struct aside *a);        /* waits for a function that runs; NULL is fine */
/* Starts body(context) in the thread. No function runs: aside_wait was called after the last aside_start. */
void aside_start(struct aside *a, aside_body *body, void *context);
/* Waits until the function has ended. Returns its status, with its message; STATUS_OK if none was started since. */
enum status aside_wait(struct aside *a);
bool aside_ended(struct aside *a);       /* whether no function runs; does not wait */
void aside_settle(struct aside *a);      /* waits, too, but leaves the status for aside_wait; NULL is fine */
