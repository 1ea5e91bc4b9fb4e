/* slices.h -- one search by several processes, each of which searches a slice of the same store (store_search.slice).
 *
 * A worker answers on a stream: slice_serve, or slice_server.h for many at once over TCP. The caller has a stream to
 * each worker and its own view of the store; the hits are those of its own search, order and ties included, for scores
 * have the same bits everywhere and the order is total. Streams come from the caller (processes of this host, ssh) or
 * from addresses.
 *
 * A frame is u32 kind, u32 zero, u64 bytes, then so many bytes; numbers as the hosts have them, which must be alike:
 *   hello     u32 0x64727403; the key                                        caller, over TCP, once
 *   greeting  u32 0x64727403, number, of, dim; u64 generation, chunks, identity               worker, once
 *   search    u32 k, nprobe, candidates, exact, excludes, segment; u64 n; n ranges of two i64 if excludes; n vectors
 *   hits      n * k times i64 chunk; n * k times f32 score                   worker, for each search
 *   error     u32 status; text                                               worker, in place of either
 * identity is store_view_identity. A worker ends the stream after a frame that is no search. */
#pragma once
#include "store/store.h"

enum { SLICES_MAX = 1024, SLICES_KEY_MAX = 512 };

/* What a worker searches. */
struct slice_worker_config {
    struct store_view *view;
    struct store_slice slice;
    struct threads *threads;
    pthread_mutex_t *turn;               /* held while `threads` compute; NULL: nobody else uses them */
    double patience;                     /* seconds that half a frame may wait for the rest, of sockets; 0: any */
};
/* Answers searches of `in` on `out` until `in` ends (STATUS_OK). A search that fails is answered with its error. */
enum status slice_serve(int in, int out, const struct slice_worker_config *config);
/* In place of slice_serve: the status and this thread's message, where the view could not be opened. */
void slice_refuse(int out, enum status status);

struct slice_worker { int socket; const char *name; };    /* the name is for messages: "pid 17", a command */
struct slices;
/* Waits for the greetings. workers[n]: of the slices 0 .. n-1, in this order; copied, but sockets and names stay the
 * caller's. `timeout` in seconds: how long an answer may take. STATUS_MISMATCH: a worker has another generation, slice,
 * store or kind of host. STATUS_IO: one was lost, here and in searches; the message names it. */
enum status slices_open(struct slices **out, struct store_view *view, const struct slice_worker *workers, int n,
                        int timeout);
/* Workers that run already: "HOST:PORT,HOST:PORT", of the slices in this order. Errors as slices_open. After an error a
 * search connects again, once, before it fails: a worker may have been started anew. */
struct slices_remote {
    const char *addresses;               /* NULL: none */
    const char *key;                     /* NULL: none */
    int timeout;                         /* seconds, as above, and for connecting; 0: SLICES_TIMEOUT */
};
enum { SLICES_TIMEOUT = 60 };
enum status slices_connect(struct slices **out, struct store_view *view, const struct slices_remote *remote);
void slices_close(struct slices *s);                      /* NULL is fine */
int slices_count(const struct slices *s);
/* For store_view_search_passes. */
struct store_passes slices_passes(struct slices *s);
