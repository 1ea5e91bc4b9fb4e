/* bucket_records_internal.h -- the tokens of chunks as records in buckets (buckets_internal.h), in bounded memory.
 *
 * Chunks come in portions. A portion becomes one piece of memory with the records of the first bucket, then those of
 * the second, and so on. When memory is full, the portions in it are written to a file without a name as a run, which
 * has the records of the first bucket of all these portions, then of the second. A bucket's records are in the order of
 * the chunks, and a chunk's in the order of its tokens. */
#pragma once
#include "base/system/threads.h"
#include "store/lexical/build/buckets_internal.h"

struct records;
struct portion {
    const int32_t *ids;                  /* [n_ids], chunk after chunk */
    const int32_t *lengths;              /* [n_chunks] */
    int64_t n_ids, n_chunks;             /* at most 1 << BUCKETS_CHUNK_BITS chunks */
    uint32_t first_chunk;
};
/* `buckets` is borrowed. max_ram: bytes of memory for records, at the least one portion. */
enum status records_create(struct records **out, const char *folder, const struct buckets *buckets, uint64_t max_ram);
void records_free(struct records *r);                     /* NULL is fine */
/* Adds portions, the first of which follows all portions before it. The threads divide one each. */
enum status records_add(struct records *r, const struct portion *portions, int n, struct threads *threads);
/* Ends the additions, and counts. If a run was written, memory becomes free: all is then in runs. */
enum status records_finish(struct records *r, struct threads *threads);

bool records_in_memory(const struct records *r);          /* no run was written */
int64_t records_count(const struct records *r, int bucket);
uint64_t records_memory(const struct records *r);         /* bytes of memory for records at present */

/* Reads a bucket's records in order. For one thread; several may read at the same time. */
struct record_reader {
    struct records *records;
    int bucket;
    int64_t portion;
    uint64_t left;                       /* bytes of the portion's records that are not returned yet */
    int64_t run;                         /* that `buffer` has bytes of; -1: none */
    uint64_t at, end;                    /* of the run's bytes of this bucket: those not read into the buffer yet */
    uint8_t *buffer;                     /* [capacity + 8] */
    size_t capacity, used, filled;
};
/* Some records of one portion; the 8 bytes from the start of each may be read. Valid until the next call. */
struct record_block { const uint8_t *bytes; size_t n; uint32_t first_chunk; };
void record_reader_begin(struct record_reader *reader, int bucket);
/* block->n 0: there are no more. */
enum status record_reader_next(struct record_reader *reader, struct record_block *block);
