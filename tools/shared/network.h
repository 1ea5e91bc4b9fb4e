/* network.h -- for programs that listen or connect: keys in files, the file with a port's number, and the options of
 * searches by workers. */
#pragma once
#include "base/status.h"
#include "indexer/search/slices/slices.h"
#include "tools/shared/args.h"

#include <signal.h>

enum { NETWORK_KEY_MAX = SLICES_KEY_MAX };
/* Reads the file's first line, of at least 16 bytes. STATUS_INVALID: it is too short or too long, or other users
 * can read the file. */
enum status network_key_read(char key[NETWORK_KEY_MAX], const char *path);
/* Whether it is a numeric IPv4 or IPv6 address, such as 127.0.0.1 or ::1. */
bool network_is_address(const char *text);
/* Writes the number and a newline to a file, which is written under a temporary name and renamed. */
enum status network_port_write(const char *path, int port);

/* Blocks SIGTERM and SIGINT, so that the main thread can wait for *set, and ignores SIGPIPE. Call it in the main thread
 * before others are created. Threads that a library has created earlier, such as OpenBLAS when it was loaded, do not
 * block the signals: they pass them to the main thread. */
void network_signals_block(sigset_t *set);

/* ---- --workers and its options */
struct worker_options {
    const char *addresses, *key_file;    /* NULL: not given */
    int64_t timeout;                     /* seconds; 0: SLICES_TIMEOUT */
};
#define OPTION_WORKER_ADDRESSES(o)                                                                                     \
    {"workers", ARG_STRING, &(o).addresses, "HOST:PORT,...",                                                           \
     "search landmarks by drt-index worker --listen processes, one for each slice of the store, in order; the hits "   \
     "are the same",                                                                                                   \
     0, 0}
#define OPTIONS_OF_WORKER_LINK(o)                                                                                      \
    {"worker-key-file", ARG_PATH, &(o).key_file, "FILE", "its first line is the key that the workers require", 0, 0},  \
    {"worker-timeout", ARG_INT, &(o).timeout, "SECONDS", "time that a worker has for an answer; 0: 60",                \
     0, 1e6}
#define OPTIONS_OF_WORKERS(o) OPTION_WORKER_ADDRESSES(o), OPTIONS_OF_WORKER_LINK(o)

/* Returns the error of a wrong combination; NULL: the options are valid. */
const char *worker_options_wrong(const struct worker_options *o);
/* Reads the key's file into `key`. *out borrows both; addresses NULL: there are no workers. */
enum status worker_options_remote(struct slices_remote *out, char key[NETWORK_KEY_MAX], const struct worker_options *o);
