/* slice_worker.c -- the worker of slices.h: reads searches, answers with hits. */
#include "base/clock.h"
#include "base/memory.h"
#include "indexer/search/slices/slice_stream_internal.h"
#include "indexer/search/slices/slices.h"
#include <stdio.h>
#include <string.h>

struct slice_side {
    const struct slice_worker_config *config;
    int in, out, dim;
    struct store_range *exclude;
    float *vectors, *scores;
    struct store_hit *hits;
    int64_t *chunks;
    size_t exclude_capacity, vectors_capacity, scores_capacity, hits_capacity, chunks_capacity;
};

void slice_refuse(int out, enum status status) {
    char text[SLICES_MESSAGE_MAX];
    const uint32_t code = (uint32_t)status;
    snprintf(text, sizeof text, "%s", status_message());
    const struct slice_frame frame = {.kind = FRAME_ERROR, .bytes = sizeof code + strlen(text)};
    if (slice_write(out, &frame, sizeof frame, true, 0) == SLICE_WHOLE &&
        slice_write(out, &code, sizeof code, text[0] != 0, 0) == SLICE_WHOLE)
        (void)slice_write(out, text, strlen(text), false, 0); /* who does not listen needs no error */
}

static enum status slice_lost(enum slice_end end) {
    if (end == SLICE_FAILED) return fail_errno("the stream of the searching process");
    return fail(STATUS_IO, "the stream of the searching process %s in the middle of a request",
                end == SLICE_LATE ? "paused" : "ended");
}

static enum status slice_greet(const struct slice_side *s) {
    const struct slice_worker_config *c = s->config;
    struct store_info info;
    struct slice_greeting hello = {.magic = SLICES_MAGIC,
                                   .number = (uint32_t)c->slice.number,
                                   .of = (uint32_t)c->slice.of,
                                   .dim = (uint32_t)s->dim};
    const struct slice_frame frame = {.kind = FRAME_GREETING, .bytes = sizeof hello};
    store_view_info(c->view, &info);
    hello.generation = info.generation;
    hello.chunks = (uint64_t)info.chunks;
    const enum status status = store_view_identity(c->view, &hello.identity);
    if (status != STATUS_OK) {
        slice_refuse(s->out, status);
        return status;
    }
    enum slice_end end = slice_write(s->out, &frame, sizeof frame, true, 0);
    if (end == SLICE_WHOLE) end = slice_write(s->out, &hello, sizeof hello, false, 0);
    return end == SLICE_WHOLE ? STATUS_OK : slice_lost(end);
}

static enum status slice_bad_request(void) {
    return fail(STATUS_INVALID, "a request that is no search came: start workers by drt-index search --workers, and "
                                "search by programs of the same version");
}

static double slice_deadline(const struct slice_side *s) {
    return s->config->patience > 0 ? clock_seconds() + s->config->patience : 0;
}

static enum status slice_receive(struct slice_side *s, struct slice_request *r, uint64_t bytes, double deadline) {
    if (bytes < sizeof *r) return slice_bad_request();
    enum slice_end end = slice_read(s->in, r, sizeof *r, deadline);
    if (end != SLICE_WHOLE) return slice_lost(end);
    bytes -= sizeof *r;
    if (r->n < 1 || r->n > SLICES_BATCH || r->k < 1 || r->k > SLICES_K_MAX || r->n * r->k > SLICES_HITS_MAX ||
        r->excludes > 1 || r->exact > 1 || r->segment > INT32_MAX || r->nprobe > INT32_MAX ||
        r->candidates > INT32_MAX ||
        bytes != r->n * (r->excludes * sizeof *s->exclude + (uint64_t)s->dim * sizeof *s->vectors))
        return slice_bad_request();
    TRY(memory_grow(&s->exclude, &s->exclude_capacity, r->n));
    TRY(memory_grow(&s->vectors, &s->vectors_capacity, r->n * (size_t)s->dim));
    TRY(memory_grow(&s->hits, &s->hits_capacity, r->n * r->k));
    TRY(memory_grow(&s->chunks, &s->chunks_capacity, r->n * r->k));
    TRY(memory_grow(&s->scores, &s->scores_capacity, r->n * r->k));
    if (r->excludes) end = slice_read(s->in, s->exclude, r->n * sizeof *s->exclude, deadline);
    if (end == SLICE_WHOLE) end = slice_read(s->in, s->vectors, r->n * (size_t)s->dim * sizeof *s->vectors, deadline);
    if (end != SLICE_WHOLE) return slice_lost(end);
    return STATUS_OK;
}

static enum status slice_search(struct slice_side *s, const struct slice_request *r) {
    const struct slice_worker_config *c = s->config;
    const struct store_search how = {.k = (int)r->k,
                                     .exact = r->exact != 0,
                                     .nprobe = (int)r->nprobe,
                                     .candidates = (int)r->candidates,
                                     .exclude = r->excludes ? s->exclude : NULL,
                                     .threads = c->threads,
                                     .slice = c->slice,
                                     .segment = (int)r->segment};
    if (c->turn) pthread_mutex_lock(c->turn);
    const enum status status = store_view_search(c->view, s->hits, s->vectors, (int64_t)r->n, &how);
    if (c->turn) pthread_mutex_unlock(c->turn);
    return status;
}

static enum status slice_answer(struct slice_side *s, const struct slice_request *r) {
    const size_t n = r->n * r->k;
    const struct slice_frame frame = {.kind = FRAME_HITS, .bytes = n * (sizeof *s->chunks + sizeof *s->scores)};
    const enum status status = slice_search(s, r);
    if (status != STATUS_OK) {
        slice_refuse(s->out, status);
        return STATUS_OK;
    }
    for (size_t i = 0; i < n; i++) {
        s->chunks[i] = s->hits[i].chunk;
        s->scores[i] = s->hits[i].score;
    }
    /* No deadline: the searching process reads the workers one after the other. */
    enum slice_end end = slice_write(s->out, &frame, sizeof frame, true, 0);
    if (end == SLICE_WHOLE) end = slice_write(s->out, s->chunks, n * sizeof *s->chunks, true, 0);
    if (end == SLICE_WHOLE) end = slice_write(s->out, s->scores, n * sizeof *s->scores, false, 0);
    return end == SLICE_WHOLE ? STATUS_OK : slice_lost(end);
}

/* *ended: no request came. */
static enum status slice_request(struct slice_side *s, struct slice_request *r, bool *ended) {
    struct slice_frame frame;
    if (s->config->patience > 0) slice_wait(s->in);
    const double deadline = slice_deadline(s);
    const enum slice_end end = slice_read(s->in, &frame, sizeof frame, deadline);
    *ended = end == SLICE_ENDED;
    if (end == SLICE_ENDED) return STATUS_OK;
    if (end != SLICE_WHOLE) return slice_lost(end);
    return frame.kind == FRAME_SEARCH ? slice_receive(s, r, frame.bytes, deadline) : slice_bad_request();
}

enum status slice_serve(int in, int out, const struct slice_worker_config *config) {
    struct slice_side s = {.config = config, .in = in, .out = out};
    struct store_info info;
    store_view_info(config->view, &info);
    s.dim = info.fingerprint.dim;
    enum status status = slice_greet(&s);
    while (status == STATUS_OK) {
        struct slice_request request;
        bool ended = false;
        status = slice_request(&s, &request, &ended);
        if (ended) break;
        if (status == STATUS_OK)
            status = slice_answer(&s, &request);
        else if (status != STATUS_IO)
            slice_refuse(out, status);
    }
    memory_free(s.exclude);
    memory_free(s.vectors);
    memory_free(s.scores);
    memory_free(s.hits);
    memory_free(s.chunks);
    return status;
}
