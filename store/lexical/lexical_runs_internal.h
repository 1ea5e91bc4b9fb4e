/* lexical_runs_internal.h -- occurrences (key, chunk) sorted by key in bounded memory.
 *
 * Occurrences are collected in memory, sorted and counted when it is full, and written as a run to a file without a
 * name; then all runs are merged. What comes out does not depend on the memory. A killed program leaves no file. */
#pragma once
#include "base/file.h"
#include <stdint.h>

/* A file without a name in a folder: appended to, then read from any offset. The system removes it with the process. */
struct spool;
enum status spool_create(struct spool **out, const char *folder);
void spool_free(struct spool *s);                         /* NULL is fine */
enum status spool_write(struct spool *s, const void *data, size_t bytes);
uint64_t spool_bytes(const struct spool *s);
enum status spool_read(struct spool *s, void *out, size_t bytes, uint64_t offset);      /* all of them were written */
/* The whole contents, in order, to a file being written. */
enum status spool_copy(struct spool *s, struct file_writer *to);

enum { RUNS_CHUNK_BITS = 24 };           /* keys have the 40 bits above */

struct runs;
enum status runs_create(struct runs **out, const char *folder, uint64_t max_ram);
void runs_free(struct runs *r);                           /* NULL is fine */
/* All keys of one chunk, repeated as they occur. Chunks rise. */
enum status runs_add(struct runs *r, const uint64_t *keys, int n, uint32_t chunk);
/* No more is added: the next call gives the first key. */
enum status runs_finish(struct runs *r);
/* Keys rise; *n: chunks that have it, at least 1. *more false: there is no further key. Postings of the key before that
 * were not read are passed over. */
enum status runs_next_key(struct runs *r, bool *more, uint64_t *key, int64_t *n);
/* Up to `capacity` postings of the key, chunks rising; *n 0 after the last. */
enum status runs_next_postings(struct runs *r, uint32_t *chunks, uint8_t *codes, int capacity, int *n);
