/* document_stream_internal.h -- the documents of a part in order, with the bytes of their records in the joined store.
 *
 * Threads of the stream read and encode the documents that come next, so that the thread that writes the catalog only
 * appends. */
#pragma once
#include "store/catalog/records_internal.h"

/* The ids are those of the joined store. */
struct encoded_document {
    int64_t number, first_chunk, chunks, tokens;
    uint8_t hash[16];
    bool dropped, deleted;               /* dropped: its shard was */
    const uint8_t *value; size_t value_bytes;             /* of the table documents; its key is the number */
    uint8_t run[RUN_RECORD_BYTES];       /* the value of the table runs; its key is first_chunk */
};
struct document_source {
    struct catalog *catalog;             /* of the part */
    const struct shard_record *shards; int64_t n_shards;  /* all of the part */
    struct generation_record base;       /* counts of the parts before it */
    int64_t begin, end;                  /* documents, by their numbers in the part */
};
struct document_stream;
/* `threads`: at most so many, besides the caller's, which encodes what no other thread has begun; 0 is fine. `from` is
 * copied; what it points to must remain until document_stream_close. */
enum status document_stream_open(struct document_stream **out, const struct document_source *from, int threads);
/* Gets the next document; there must be one. It is valid until the next call. STATUS_CORRUPT: it is missing, damaged or
 * not in the shard that it names. */
enum status document_stream_next(struct document_stream *s, const struct encoded_document **out);
void document_stream_close(struct document_stream *s);    /* NULL is fine */
