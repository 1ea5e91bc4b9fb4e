/* slices.h -- one search by several processes, each of which searches a slice of the same store (store_search.slice).
 *
 * A worker answers on a stream: slice_serve. The caller has a stream to each worker and its own view of the store; the
 * hits are those of its own search, order and ties included, for scores have the same bits everywhere and the order is
 * total. Where the streams come from (processes of this host, ssh, a job's ranks) is the caller's.
 *
 * A frame is u32 kind, u32 zero, u64 bytes, then so many bytes; numbers as the hosts have them, which must be alike:
 *   greeting  u32 0x64727401, number, of, dim; u64 generation, chunks        worker, once
 *   search    u32 k, nprobe, candidates, exact, excludes, zero; u64 n; n ranges of two i64 if excludes; n vectors
 *   hits      n * k times i64 chunk; n * k times f32 score                  worker, for each search
 *   error     u32 status; text                                               worker, in place of either */
#pragma once
#include "store/store.h"

enum { SLICES_MAX = 1024 };

/* Answers searches of `in` on `out` until `in` ends (STATUS_OK). A search that fails is answered with its error. */
enum status slice_serve(int in, int out, struct store_view *view, struct store_slice slice, struct threads *threads);
/* In place of slice_serve: the status and this thread's message, where the view could not be opened. */
void slice_refuse(int out, enum status status);

struct slice_worker { int socket; const char *name; };    /* the name is for messages: "pid 17", a command */
struct slices;
/* Waits for the greetings. workers[n]: of the slices 0 .. n-1, in this order; copied, but sockets and names stay the
 * caller's. `timeout` in seconds: how long an answer may take. STATUS_MISMATCH: a worker has another generation, slice
 * or kind of host. STATUS_IO: one was lost, here and in searches; the message names it. */
enum status slices_open(struct slices **out, struct store_view *view, const struct slice_worker *workers, int n,
                        int timeout);
void slices_close(struct slices *s);                      /* NULL is fine */
int slices_count(const struct slices *s);
/* For store_view_search_passes. */
struct store_passes slices_passes(struct slices *s);
