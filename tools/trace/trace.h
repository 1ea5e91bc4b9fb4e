/* trace.h -- what was retrieved while a text ran: collected chunk by chunk, and handed to sinks.
 *
 * A chunk's record says what its tokens could read: the lists that the query at the end of the chunk before it found.
 * The first chunk has none. Records come in order, the last one (a part of a chunk) when the trace ends. */
#pragma once
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "decoder/decoder.h"
#include "store/store.h"
#include <stdint.h>
#include <stdio.h>

struct trace_hit {
    enum neighbour_source source;
    int64_t chunk;                       /* number in its source */
    const char *document, *key;          /* "" for the text's own past */
    int64_t document_id;                 /* -1 for the own past */
    uint64_t byte_offset, line;          /* of the document in its file */
    int64_t token_offset;                /* of the chunk in its document, or in the running text */
    float score, weight;
    const char *text; size_t text_bytes;
};
struct trace_group { const struct trace_hit *hits; int n_hits; };   /* best first */
/* A token whose probability came in part from a token memory, and the passages that gave it. */
struct trace_part {
    int hit;                             /* of the record's passages */
    int64_t offset;                      /* of the token in its document, or in the running text */
    int64_t begin, end;                  /* characters of the token in the passage's text */
    float share;                         /* of the probability */
};
struct trace_given {
    int token;                           /* of the record's ids */
    int64_t begin, end;                  /* characters of the record's text */
    float share;
    const struct trace_part *parts; int n_parts;          /* the largest first */
};
struct trace_chunk {
    int64_t number, first_token;
    const int32_t *ids; int n_ids;
    int n_prompt;                        /* of the ids, how many belong to the prompt */
    const char *text; size_t text_bytes, prompt_text_bytes;
    const struct trace_group *groups; int n_groups;
    const struct trace_given *given; int n_given;         /* in the order of the text; 0: no token memory */
    const struct trace_hit *passages; int n_passages;     /* score and weight are 0 */
};

/* Where records go. `end` is called once; keep: publish what was written, else drop it. Both free nothing else. */
struct trace_sink {
    enum status (*chunk)(struct trace_sink *sink, const struct trace_chunk *chunk);
    enum status (*end)(struct trace_sink *sink, bool keep);
};
/* One JSON object a line; one self-contained HTML page (`title` is shown on it); lines for people on `file`,
 * the `most` best chunks of each list. */
enum status trace_jsonl(struct trace_sink **out, const char *path);
enum status trace_html(struct trace_sink **out, const char *path, const char *title);
enum status trace_lines(struct trace_sink **out, FILE *file, int most);
/* By the path's ending: .jsonl or .html. */
enum status trace_sink_for(struct trace_sink **out, const char *path, const char *title);

struct json_writer;
void trace_write_json(struct json_writer *w, const struct trace_chunk *chunk);   /* the object of a line */

struct trace;
struct trace_config {
    const struct tokenizer *tokenizer;
    struct store_view *view;             /* NULL: own past only */
    int chunk, groups;
    struct trace_sink *sinks[4]; int n_sinks;             /* owned from here on, also when create fails */
};
enum status trace_create(struct trace **out, const struct trace_config *config);
/* For decoder_state_watch; the trace must outlive the state. */
struct decoder_watch trace_watch(struct trace *t);
/* Ids that have been fed (or, at the very end, picked); call it right after each decoder_forward. */
enum status trace_tokens(struct trace *t, const int32_t *ids, int64_t n, bool prompt);
/* What a token memory gave of the next id: its share, and the entries that gave most. Call it before the trace_tokens
 * of that id. */
struct memory_contributor;
enum status trace_memory(struct trace *t, double share, const struct memory_contributor *from, int n);
/* Gives out the last record when `keep`, ends the sinks and frees the trace. NULL is fine. */
enum status trace_end(struct trace *t, bool keep);
