/* drt_index_search.h -- the options of drt-index search, and the search that they describe. */
#pragma once
#include "tools/index/drt_index.h"
#include "indexer/build/external_encoder.h"
#include "indexer/search/searcher.h"
#include "session/device_choice.h"
#include "tools/index/drt_index_workers.h"
#include "tools/shared/query_file.h"

struct search_options {
    struct device_choice where;
    const char *encoder, *kind;          /* an external encoder's folder and how it is used; NULL: the model's own */
    const char *text, *store, *model, *exclude; /* text NULL: the query is chunk from_chunk */
    const char *searcher; /* "landmark", "lexical" or "hybrid"; NULL: landmark, or lexical if there are none */
    int64_t k, nprobe, threads, from_document, from_chunk;
    int64_t rule;                        /* the value of `exclude` */
    const char *devices;                 /* GPUs, each with a slice of the landmarks; NULL: one */
    const char *queries, *queries_format;       /* queries NULL: one query */
    struct workers_options workers;
    bool exact, json;
};

/* The parts that are open during a search. */
struct search {
    const struct search_options *o;
    struct model_folder model;
    struct opened_store store;
    bool words; /* the store has no landmarks: it is searched only by words, and scores are BM25's */
    struct device *device;
    struct device_group group;           /* the GPUs of --devices; zeroed: only one */
    struct weights weights;              /* on the device */
    struct decoder *decoder; /* makes the queries of texts; NULL: `external` makes them, or they are vectors */
    struct state_landmarks *states; /* of a Base LM's decoder; NULL: another model, or no texts */
    struct external_encoder *external;
    struct workers workers;
    struct searcher *searcher;
    struct searcher_description searched_by;
    struct tokenizer_scratch *scratch;
    float *query;                        /* [dim of the store] */
    struct store_hit *hits;              /* [k] */
    struct lexical_query tokens;         /* the last ids of the text */
    int32_t *ids;                        /* [TEXT_QUERY_CHUNKS * chunk]: of --from-chunk, then of each hit */
};
/* Opens store, model, device and searcher, with `texts` also what turns texts into vectors. `many`: more than one
 * query will follow. */
enum status drt_index_search_open(struct search *s, bool texts, bool many);
void drt_index_search_close(struct search *s);
/* Gets the chunks that --exclude selects. */
enum status drt_index_search_excluded(struct search *s, struct store_range *out);
/* Makes s->query and s->tokens of a text. *empty: the text has no ids, and there is no query. */
enum status drt_index_search_text(struct search *s, const char *text, size_t bytes, bool *empty);

/* Print the hits: of one query; of --queries. */
enum status drt_index_search_run(const struct search_options *o);
enum status drt_index_queries_run(const struct search_options *o, const struct progress *progress);
