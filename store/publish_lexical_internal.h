/* publish_lexical_internal.h -- makes the lexical index of a generation that is published. */
#pragma once
#include "store/catalog/record_lexical_internal.h"
#include "store/writer_internal.h"

/* Chunk `in_document` of a run, which is in this shard; `map`: the shard's token file. */
struct lexical_chunk {
    const struct shard_record *shard;
    const struct shard_map *map;
    const struct run_record *run;
    int64_t in_document;
};
/* Adds a chunk to a builder. STATUS_CORRUPT: the run or its tokens are damaged. ids: [chunk_tokens], overwritten. */
struct lexical_builder;
enum status lexical_add_chunk(struct lexical_builder *b, const struct store_writer *w,
                              const struct lexical_chunk *chunk, int32_t *ids);

struct lexical_request {
    const struct shard_record *shards; int64_t n_shards;  /* of the generation that will be published */
    bool strict; /* damaged tokens are an error, STATUS_CORRUPT; otherwise their chunks are left out, with a note */
    bool damaged;                        /* the caller has removed damaged segments from `record` */
    bool *changed;                       /* output: whether the record differs from the one in the catalog */
};
/* Makes the segments that *record lacks. On entry it has the recorded segments, or those of them that may stay; on
 * success it is the record of the generation, whose files are durable. Only lexical, lexical_chunks, max_ram and
 * progress of `how` are used. STATUS_INTERRUPTED: a stop was requested. */
enum status lexical_record_make(struct lexical_record *record, struct store_writer *w, const struct store_publish *how,
                                const struct lexical_request *request);
/* Makes the lexical index of the published generation, or removes it, in a new generation. Does nothing if the index is
 * as wanted. `stays`: the record with the segments that may stay (NULL: as recorded); `damaged`: these are fewer than
 * recorded. */
enum status publish_lexical(struct store_writer *w, const struct store_publish *how,
                            const struct lexical_record *stays, bool damaged);
