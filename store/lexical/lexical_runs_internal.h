/* lexical_runs_internal.h -- occurrences (key, chunk) sorted by key in bounded memory.
 *
 * Occurrences are collected in memory, in buckets of keys. When it is full, they are written as a run to a file without
 * a name. At the end one bucket after the other is sorted. The result does not depend on the size of the memory. A
 * killed program leaves no file. */
#pragma once
#include "base/file.h"
#include <stdint.h>

/* A file without a name in a folder. Bytes are appended, then read at any offset. The system removes the file when the
 * process ends. */
struct spool;
enum status spool_create(struct spool **out, const char *folder);
void spool_free(struct spool *s);                         /* NULL is fine */
enum status spool_write(struct spool *s, const void *data, size_t bytes);
uint64_t spool_bytes(const struct spool *s);
/* Writes what is in the buffer. After that, and until spool_write, any number of threads may read. */
enum status spool_flush(struct spool *s);
/* the range must have been written */
enum status spool_read(struct spool *s, void *out, size_t bytes, uint64_t offset);

enum { RUNS_CHUNK_BITS = 24 };           /* keys have the other 40 bits */
enum { RUNS_CHUNK_MASK = (1 << RUNS_CHUNK_BITS) - 1, RUNS_RANGES_MAX = 2 };

struct runs;
struct runs_range { uint64_t begin, end; };
/* All keys are in one of the ranges, which ascend. At least 1 MiB is needed. */
enum status runs_create(struct runs **out, const char *folder, uint64_t max_ram, const struct runs_range *ranges,
                        int n_ranges);
void runs_free(struct runs *r);                           /* NULL is fine */
/* Adds all keys of one chunk, repeated as they occur. Chunk numbers must ascend. */
enum status runs_add(struct runs *r, const uint64_t *keys, int n, uint32_t chunk);
/* Ends the additions. The first call of runs_next_key then gives the first key. */
enum status runs_finish(struct runs *r);
/* Gives the next key, in ascending order, and *n, the number of chunks that have it, at least 1. *more false: there is
 * no further key. Postings of the previous key that were not read are skipped. */
enum status runs_next_key(struct runs *r, bool *more, uint64_t *key, int64_t *n);
/* Gives up to `capacity` postings of the key, in ascending order of chunks. *n is 0 after the last. */
enum status runs_next_postings(struct runs *r, uint32_t *chunks, uint8_t *codes, int capacity, int *n);
