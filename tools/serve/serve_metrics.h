/* serve_metrics.h -- counters and histograms in Prometheus' text format. Any thread. */
#pragma once
#include "base/status.h"
#include "tools/serve/wire/route.h"

struct reply;
struct metrics;
enum metrics_histogram {
    METRICS_REQUEST_SECONDS,             /* from the end of the request's head to the end of its answer */
    METRICS_QUEUE_SECONDS,               /* of completions: until their first step */
    METRICS_FIRST_TOKEN_SECONDS,         /* from submission */
    METRICS_TOKEN_SECONDS,               /* between two tokens of one answer */
    METRICS_BATCH_SESSIONS,              /* that shared a pass over the weights */
    METRICS_HISTOGRAMS
};
enum metrics_counter {
    METRICS_PROMPT_TOKENS,
    METRICS_TOKENS,
    METRICS_CANCELLED,                   /* completions whose client disconnected */
    METRICS_REFUSED,                     /* 503: queue full or stopping */
    METRICS_COUNTERS
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
void metrics_observe(struct metrics *m, enum metrics_histogram histogram, double value);
/* The whole text, to reply->file. */
void metrics_write(struct metrics *m, struct reply *reply, const struct metrics_gauges *gauges);
