/* serve_metrics.h -- counters and histograms in Prometheus' text format. Any thread may call these functions. */
#pragma once
#include "base/status.h"
#include "tools/serve/wire/route.h"

struct reply;
struct metrics;
enum metrics_histogram {
    METRICS_REQUEST_SECONDS,             /* from the end of the request's head to the end of its answer */
    METRICS_QUEUE_SECONDS,               /* of completions, until their first step */
    METRICS_FIRST_TOKEN_SECONDS,         /* from the submission */
    METRICS_TOKEN_SECONDS,               /* between two tokens of one answer */
    METRICS_BATCH_SESSIONS,              /* sessions that shared a pass over the weights */
    METRICS_HISTOGRAMS
};
enum metrics_counter {
    METRICS_PROMPT_TOKENS,
    METRICS_TOKENS,
    METRICS_CANCELLED,                   /* completions whose clients disconnected */
    METRICS_REFUSED,                     /* requests refused with 503: the queue is full, or the server stops */
    METRICS_COUNTERS
};
/* Where the time of the computing thread goes, and TEXT: that of the thread that writes answers. */
enum metrics_stage {
    METRICS_STAGE_WAIT,                  /* there was nothing to compute */
    METRICS_STAGE_OPEN,                  /* sessions were opened, or used again */
    METRICS_STAGE_PROMPT,                /* prompts were read; on a GPU: until the passes were queued */
    METRICS_STAGE_BATCH,                 /* passes of batches; on a GPU: until they were queued */
    METRICS_STAGE_PICK,                  /* ids and text of tokens of a batch; on a GPU: with the wait for the passes */
    METRICS_STAGE_ALONE,                 /* tokens that were computed alone */
    METRICS_STAGE_LOOKUP,                /* searches and documents */
    METRICS_STAGE_TEXT,                  /* JSON of answers, handed to the HTTP thread */
    METRICS_STAGES
};
/* Values that are read when the text is made. */
struct metrics_gauges {
    int64_t waiting, running, connections, store_chunks;
    double seconds;                      /* since the start */
    const char *version;
};
enum status metrics_create(struct metrics **out);
void metrics_free(struct metrics *m);                     /* NULL is fine */
void metrics_request(struct metrics *m, enum endpoint endpoint, int status);
void metrics_add(struct metrics *m, enum metrics_counter counter, int64_t n);
void metrics_spend(struct metrics *m, enum metrics_stage stage, double seconds);
void metrics_observe(struct metrics *m, enum metrics_histogram histogram, double value);
/* Writes the whole text to reply->file. */
void metrics_write(struct metrics *m, struct reply *reply, const struct metrics_gauges *gauges);
