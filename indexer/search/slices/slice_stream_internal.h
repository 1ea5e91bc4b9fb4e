/* slice_stream_internal.h -- the frames of slices.h, and the streams that they pass through.
 *
 * A deadline is a time of clock_seconds; 0: none, and the descriptor may then be of any kind. With one it is a socket.
 */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FRAME_GREETING = 1, FRAME_SEARCH, FRAME_HITS, FRAME_ERROR, FRAME_HELLO };
/* Queries and hits of one request. */
enum { SLICES_BATCH = 256, SLICES_K_MAX = 1 << 20, SLICES_HITS_MAX = 1 << 22, SLICES_MESSAGE_MAX = 4096 };
#define SLICES_MAGIC UINT32_C(0x64727403)

struct slice_frame {
    uint32_t kind, zero;
    uint64_t bytes;
};
struct slice_greeting {
    uint32_t magic, number, of, dim;
    uint64_t generation, chunks, identity;
};
struct slice_request {
    uint32_t k, nprobe, candidates, exact, excludes, segment;
    uint64_t n;
};

/* LATE: the deadline passed. FAILED: errno says why; a write to a stream whose reader is gone, too. */
enum slice_end { SLICE_WHOLE, SLICE_ENDED, SLICE_LATE, SLICE_FAILED };
enum slice_end slice_read(int fd, void *to, size_t bytes, double deadline);
/* more: a write follows at once, and the two may leave together. */
enum slice_end slice_write(int fd, const void *from, size_t bytes, bool more, double deadline);
/* Until something can be read, or the stream ends. */
void slice_wait(int fd);

/* ---- TCP */
enum { SLICE_ADDRESS_MAX = 300 };
/* "HOST:PORT", or "[IPv6]:PORT". *n: bytes of it before the end or the next comma. */
struct slice_address { char host[256], port[8]; };
enum status slice_address_parse(struct slice_address *out, const char *text, size_t *n);
/* A connected socket that has sent hello with `key`. STATUS_IO: `name` in the message, without the remedy. */
enum status slice_connect(int *out, const char *name, const struct slice_address *address, const char *key,
                          double deadline);
/* Reads hello. STATUS_INVALID: it is none, or has another key than `key` ("": any will do). */
enum status slice_hello(int fd, const char *key, double deadline);
/* Packets leave at once; a host that is gone is noticed in some minutes. */
void slice_socket_set(int fd);
