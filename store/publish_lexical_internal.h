/* publish_lexical_internal.h -- the lexical index of a generation, for the files that publish one. */
#pragma once
#include "store/catalog/record_lexical_internal.h"
#include "store/writer_internal.h"

struct lexical_request {
    const struct shard_record *shards; int64_t n_shards;  /* of the generation, as it will be published */
    bool strict;                         /* damaged tokens are STATUS_CORRUPT; else a gap, which is noted */
    bool damaged;                        /* `record` was changed already: it lacks what was damaged */
    bool *changed;                       /* set: whether the record differs from the one in the catalog */
};
/* *record: what is recorded, or what may stay of it; becomes the record of the generation, whose files are durable.
 * how: lexical, lexical_chunks, max_ram and progress matter. STATUS_INTERRUPTED on a stop request. */
enum status lexical_record_make(struct lexical_record *record, struct store_writer *w, const struct store_publish *how,
                                const struct lexical_request *request);
/* Makes the lexical index of the published generation, or removes it, in a generation of its own. Does nothing where
 * it is as wanted. `stays`: the record with the segments that may stay (NULL: as recorded), `damaged`: which are less
 * than recorded. */
enum status publish_lexical(struct store_writer *w, const struct store_publish *how,
                            const struct lexical_record *stays, bool damaged);
