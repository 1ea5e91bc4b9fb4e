/* serve_metrics.c -- see serve_metrics.h. */
#include "tools/serve/serve_metrics.h"
#include "base/memory.h"
#include "tools/serve/wire/reply.h"

#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>

/* Statuses of this server. Others, which the HTTP library sets, are counted as the last one. */
static const int codes[] = {200, 204, 400, 401, 403, 404, 405, 413, 500, 503, 504, 0};
static const double seconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
static const double sessions[] = {1, 2, 4, 8, 16, 32, 64};
enum { CODES = ARRAY_LEN(codes), BOUNDS_MAX = ARRAY_LEN(seconds) };
_Static_assert(ARRAY_LEN(sessions) <= BOUNDS_MAX, "a histogram holds both");

struct histogram {
    uint64_t counts[BOUNDS_MAX + 1];
    double sum;
};
struct metrics {
    pthread_mutex_t lock;
    uint64_t requests[ENDPOINTS][CODES];
    int64_t counters[METRICS_COUNTERS];
    struct histogram histograms[METRICS_HISTOGRAMS];
    double stages[METRICS_STAGES];
};
static const char *const stage_names[METRICS_STAGES] = {"wait", "open",  "prompt", "batch",
                                                        "pick", "alone", "lookup", "text"};
static const struct {
    const char *name, *help;
    const double *bounds;
    int n;
} histogram_names[METRICS_HISTOGRAMS] = {
    {"drt_request_seconds", "Time from the head of a request to the end of its answer.", seconds, ARRAY_LEN(seconds)},
    {"drt_queue_seconds", "Time that completions waited for their first step.", seconds, ARRAY_LEN(seconds)},
    {"drt_first_token_seconds", "Time from a completion's submission to its first token.", seconds, ARRAY_LEN(seconds)},
    {"drt_token_seconds", "Time between two tokens of one answer.", seconds, ARRAY_LEN(seconds)},
    {"drt_batch_sessions", "Sessions that shared a pass over the weights.", sessions, ARRAY_LEN(sessions)},
};
static const struct {
    const char *name, *help;
} counter_names[METRICS_COUNTERS] = {
    {"drt_prompt_tokens_total", "Token ids of prompts that were read."},
    {"drt_generated_tokens_total", "Token ids that were generated."},
    {"drt_cancelled_total", "Completions that ended because their client left."},
    {"drt_refused_total", "Requests that were refused because the queue was full or the server was stopping."},
};

enum status metrics_create(struct metrics **out) {
    struct metrics *m = NULL;
    TRY(memory_allocate_zero(&m, 1));
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return STATUS_OK;
}

void metrics_free(struct metrics *m) {
    if (m) pthread_mutex_destroy(&m->lock);
    memory_free(m);
}

void metrics_request(struct metrics *m, enum endpoint endpoint, int status) {
    int code = 0;
    while (code < CODES - 1 && codes[code] != status)
        code++;
    pthread_mutex_lock(&m->lock);
    m->requests[endpoint][code]++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_add(struct metrics *m, enum metrics_counter counter, int64_t n) {
    pthread_mutex_lock(&m->lock);
    m->counters[counter] += n;
    pthread_mutex_unlock(&m->lock);
}

void metrics_spend(struct metrics *m, enum metrics_stage stage, double spent) {
    pthread_mutex_lock(&m->lock);
    m->stages[stage] += spent;
    pthread_mutex_unlock(&m->lock);
}

void metrics_observe(struct metrics *m, enum metrics_histogram histogram, double value) {
    int bucket = 0;
    while (bucket < histogram_names[histogram].n && value > histogram_names[histogram].bounds[bucket])
        bucket++;
    pthread_mutex_lock(&m->lock);
    m->histograms[histogram].counts[bucket]++;
    m->histograms[histogram].sum += value;
    pthread_mutex_unlock(&m->lock);
}

static void metrics_head(FILE *file, const char *name, const char *help, const char *type) {
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metrics_histogram_write(FILE *file, const struct histogram *h, enum metrics_histogram which) {
    const char *name = histogram_names[which].name;
    const double *bounds = histogram_names[which].bounds;
    const int n = histogram_names[which].n;
    uint64_t sum = 0;
    metrics_head(file, name, histogram_names[which].help, "histogram");
    for (int i = 0; i < n; i++) {
        sum += h->counts[i];
        fprintf(file, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], sum);
    }
    sum += h->counts[n];
    fprintf(file, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.6f\n%s_count %" PRIu64 "\n", name, sum, name, h->sum,
            name, sum);
}

static void metrics_gauge(FILE *file, const char *name, const char *help, double value) {
    metrics_head(file, name, help, "gauge");
    fprintf(file, "%s %.17g\n", name, value);
}

void metrics_write(struct metrics *m, struct reply *reply, const struct metrics_gauges *gauges) {
    FILE *file = reply->file;
    pthread_mutex_lock(&m->lock);
    metrics_head(file, "drt_requests_total", "Requests by endpoint and HTTP status.", "counter");
    for (int e = 0; e < ENDPOINTS; e++)
        for (int c = 0; c < CODES; c++)
            if (m->requests[e][c])
                fprintf(file, "drt_requests_total{endpoint=\"%s\",code=\"%d\"} %" PRIu64 "\n", endpoint_names[e],
                        codes[c], m->requests[e][c]);
    for (int i = 0; i < METRICS_COUNTERS; i++) {
        metrics_head(file, counter_names[i].name, counter_names[i].help, "counter");
        fprintf(file, "%s %" PRId64 "\n", counter_names[i].name, m->counters[i]);
    }
    metrics_head(file, "drt_stage_seconds_total", "Time of the computing thread by stage; text: of the writing thread.",
                 "counter");
    for (int i = 0; i < METRICS_STAGES; i++)
        fprintf(file, "drt_stage_seconds_total{stage=\"%s\"} %.6f\n", stage_names[i], m->stages[i]);
    for (int i = 0; i < METRICS_HISTOGRAMS; i++)
        metrics_histogram_write(file, &m->histograms[i], (enum metrics_histogram)i);
    pthread_mutex_unlock(&m->lock);
    metrics_gauge(file, "drt_queue_waiting", "Requests that wait.", (double)gauges->waiting);
    metrics_gauge(file, "drt_queue_running", "Completions that are at work.", (double)gauges->running);
    metrics_gauge(file, "drt_connections", "Open connections.", (double)gauges->connections);
    metrics_gauge(file, "drt_store_chunks", "Chunks of the store.", (double)gauges->store_chunks);
    metrics_gauge(file, "drt_uptime_seconds", "Time since the start.", gauges->seconds);
    const struct mallinfo2 heap = mallinfo2();
    metrics_gauge(file, "drt_heap_bytes", "Allocated memory.", (double)heap.uordblks + (double)heap.hblkhd);
    metrics_gauge(file, "process_resident_memory_bytes", "Resident memory.", (double)memory_resident());
    metrics_gauge(file, "drt_resident_memory_peak_bytes", "Most resident memory so far.",
                  (double)memory_resident_peak());
    metrics_head(file, "drt_build_info", "Version of the program.", "gauge");
    fprintf(file, "drt_build_info{version=\"%s\"} 1\n", gauges->version);
}
