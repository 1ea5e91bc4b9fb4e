/* trace.h -- records what was retrieved while a text was generated. Records are made chunk by chunk and passed to
 * sinks.
 *
 * The record of a chunk has the lists that its tokens could read. The query at the end of the previous chunk found
 * them, so the first chunk has none. Records are passed in order, the last one (a part of a chunk) when the trace ends.
 * For one thread at a time. */
#pragma once
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "decoder/decoder.h"
#include "store/store.h"
#include <stdint.h>
#include <stdio.h>

struct trace_hit {
    enum neighbour_source source;
    int64_t chunk;                       /* number of the chunk in its source */
    const char *document, *key;          /* "" for the text's own past */
    int64_t document_id;                 /* -1 for the text's own past */
    uint64_t byte_offset, line;          /* position of the document in its file */
    int64_t token_offset;                /* position of the chunk in its document, or in the running text */
    float score, weight;
    const char *text; size_t text_bytes;
};
struct trace_group { const struct trace_hit *hits; int n_hits; };   /* best first */
/* A part of a token's probability that came from a token memory, and the passage that gave it. */
struct trace_part {
    int hit;                             /* index of the record's passages */
    int64_t offset;                      /* of the token in its document, or in the running text */
    int64_t begin, end;                  /* characters of the token in the passage's text */
    float share;                         /* of the probability */
};
struct trace_given {
    int token;                           /* index of the record's ids */
    int64_t begin, end;                  /* characters within the record's text */
    float share;
    const struct trace_part *parts; int n_parts;          /* the largest first */
};
struct trace_chunk {
    int64_t number, first_token;
    const int32_t *ids; int n_ids;
    int n_prompt;                        /* number of its ids that belong to the prompt */
    const char *text; size_t text_bytes, prompt_text_bytes;
    const struct trace_group *groups; int n_groups;
    const struct trace_given *given; int n_given;         /* in the order of the text; 0: no token memory */
    const struct trace_hit *passages; int n_passages;     /* score and weight are 0 */
};

/* A destination of records. `end` is called once. keep: it publishes the output, otherwise it removes the output. It
 * frees nothing else. */
struct trace_sink {
    enum status (*chunk)(struct trace_sink *sink, const struct trace_chunk *chunk);
    enum status (*end)(struct trace_sink *sink, bool keep);
};
/* Make a sink: one HTML page with `title` that needs no other file; lines of text on `file`, with the `most` best
 * chunks of each list. */
enum status trace_html(struct trace_sink **out, const char *path, const char *title);
enum status trace_lines(struct trace_sink **out, FILE *file, int most);
/* By the path's suffix: .html; .jsonl, one object per chunk. */
enum status trace_sink_for(struct trace_sink **out, const char *path, const char *title);

struct json_writer;
void trace_write_json(struct json_writer *w, const struct trace_chunk *chunk);   /* writes the object of a line */

struct trace;
struct trace_config {
    const struct tokenizer *tokenizer;
    struct store_view *view;             /* NULL: only the text's own past */
    int chunk, groups;
    struct trace_sink *sinks[4]; int n_sinks;             /* owned by the trace after create, also if create fails */
};
enum status trace_create(struct trace **out, const struct trace_config *config);
/* Returns the watch for decoder_state_watch. The trace must live longer than the state. */
struct decoder_watch trace_watch(struct trace *t);
/* Adds ids that were fed, or for the last one sampled. Call it directly after each decoder_forward. */
enum status trace_tokens(struct trace *t, const int32_t *ids, int64_t n, bool prompt);
/* Adds the token memory's contribution to the next id: its share, and the entries with the largest parts. Call it
 * before the trace_tokens of that id. */
struct memory_contributor;
enum status trace_memory(struct trace *t, double share, const struct memory_contributor *from, int n);
/* With `keep` passes the last record to the sinks. Ends the sinks and frees the trace. NULL is fine. */
enum status trace_end(struct trace *t, bool keep);
