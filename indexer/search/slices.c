/* slices.c -- see slices.h. A failed stream stays failed: the next frame would be in the middle of one. */
#include "indexer/search/slices.h"
#include "base/memory.h"
#include "base/top_list.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { FRAME_GREETING = 1, FRAME_SEARCH, FRAME_HITS, FRAME_ERROR };
enum { SLICES_BATCH = 256, K_MAX = 1 << 20, MESSAGE_MAX = 4096 };
static const uint32_t slices_magic = 0x64727401;

struct slice_frame {
    uint32_t kind, zero;
    uint64_t bytes;
};
struct slice_greeting {
    uint32_t magic, number, of, dim;
    uint64_t generation, chunks;
};
struct slice_request {
    uint32_t k, nprobe, candidates, exact, excludes, zero;
    uint64_t n;
};

/* ---- streams: *end: nothing more came ---------------------------------------------------------------------------- */

static bool slice_read(int fd, void *to, size_t bytes, bool *end) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, (char *)to + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        *end = n == 0;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* A socket whose other end is gone gives EPIPE, no signal. */
static bool slice_write(int fd, const void *from, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(fd, (const char *)from + done, bytes - done, MSG_NOSIGNAL);
        if (n < 0 && errno == ENOTSOCK) n = write(fd, (const char *)from + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* ---- the worker -------------------------------------------------------------------------------------------------- */

struct slice_side {
    int in, out, dim;
    struct store_view *view;
    struct store_slice slice;
    struct threads *threads;
    struct store_range *exclude;
    float *vectors, *scores;
    struct store_hit *hits;
    int64_t *chunks;
    size_t exclude_capacity, vectors_capacity, scores_capacity, hits_capacity, chunks_capacity;
};

void slice_refuse(int out, enum status status) {
    char text[MESSAGE_MAX];
    const uint32_t code = (uint32_t)status;
    snprintf(text, sizeof text, "%s", status_message());
    const struct slice_frame frame = {.kind = FRAME_ERROR, .bytes = sizeof code + strlen(text)};
    if (slice_write(out, &frame, sizeof frame) && slice_write(out, &code, sizeof code))
        (void)!slice_write(out, text, strlen(text)); /* who does not listen needs no error */
}

static enum status slice_greet(const struct slice_side *s) {
    struct store_info info;
    store_view_info(s->view, &info);
    const struct slice_greeting hello = {.magic = slices_magic,
                                         .number = (uint32_t)s->slice.number,
                                         .of = (uint32_t)s->slice.of,
                                         .dim = (uint32_t)s->dim,
                                         .generation = info.generation,
                                         .chunks = (uint64_t)info.chunks};
    const struct slice_frame frame = {.kind = FRAME_GREETING, .bytes = sizeof hello};
    return slice_write(s->out, &frame, sizeof frame) && slice_write(s->out, &hello, sizeof hello)
               ? STATUS_OK
               : fail_errno("the stream to the searching process");
}

static enum status slice_bad_request(void) {
    return fail(STATUS_INVALID, "received a request that is not a search: start workers by drt-index search --workers");
}

static enum status slice_receive(struct slice_side *s, struct slice_request *r, uint64_t bytes) {
    bool end;
    if (bytes < sizeof *r || !slice_read(s->in, r, sizeof *r, &end)) return slice_bad_request();
    bytes -= sizeof *r;
    if (r->n > SLICES_BATCH || r->k < 1 || r->k > K_MAX || r->excludes > 1 ||
        bytes != r->n * (r->excludes * sizeof *s->exclude + (uint64_t)s->dim * sizeof *s->vectors))
        return slice_bad_request();
    TRY(memory_grow(&s->exclude, &s->exclude_capacity, r->n));
    TRY(memory_grow(&s->vectors, &s->vectors_capacity, r->n * (size_t)s->dim));
    TRY(memory_grow(&s->hits, &s->hits_capacity, r->n * r->k));
    TRY(memory_grow(&s->chunks, &s->chunks_capacity, r->n * r->k));
    TRY(memory_grow(&s->scores, &s->scores_capacity, r->n * r->k));
    bool whole = (!r->excludes || slice_read(s->in, s->exclude, r->n * sizeof *s->exclude, &end)) &&
                 slice_read(s->in, s->vectors, r->n * (size_t)s->dim * sizeof *s->vectors, &end);
    return whole ? STATUS_OK : slice_bad_request();
}

static enum status slice_answer(struct slice_side *s, const struct slice_request *r) {
    const struct store_search how = {.k = (int)r->k,
                                     .exact = r->exact != 0,
                                     .nprobe = (int)r->nprobe,
                                     .candidates = (int)r->candidates,
                                     .exclude = r->excludes ? s->exclude : NULL,
                                     .threads = s->threads,
                                     .slice = s->slice};
    const size_t n = r->n * r->k;
    const struct slice_frame frame = {.kind = FRAME_HITS, .bytes = n * (sizeof *s->chunks + sizeof *s->scores)};
    enum status status = store_view_search(s->view, s->hits, s->vectors, (int64_t)r->n, &how);
    if (status != STATUS_OK) {
        slice_refuse(s->out, status);
        return STATUS_OK;
    }
    for (size_t i = 0; i < n; i++) {
        s->chunks[i] = s->hits[i].chunk;
        s->scores[i] = s->hits[i].score;
    }
    bool sent = slice_write(s->out, &frame, sizeof frame) && slice_write(s->out, s->chunks, n * sizeof *s->chunks) &&
                slice_write(s->out, s->scores, n * sizeof *s->scores);
    return sent ? STATUS_OK : fail_errno("the stream to the searching process");
}

enum status slice_serve(int in, int out, struct store_view *view, struct store_slice slice, struct threads *threads) {
    struct slice_side s = {.in = in, .out = out, .view = view, .slice = slice, .threads = threads};
    struct store_info info;
    store_view_info(view, &info);
    s.dim = info.fingerprint.dim;
    enum status status = slice_greet(&s);
    while (status == STATUS_OK) {
        struct slice_frame frame;
        struct slice_request request;
        bool end = false;
        if (!slice_read(in, &frame, sizeof frame, &end)) {
            if (!end) status = fail_errno("the stream of the searching process");
            break;
        }
        status = frame.kind == FRAME_SEARCH ? slice_receive(&s, &request, frame.bytes) : slice_bad_request();
        if (status == STATUS_OK)
            status = slice_answer(&s, &request);
        else
            slice_refuse(out, status);
    }
    memory_free(s.exclude);
    memory_free(s.vectors);
    memory_free(s.scores);
    memory_free(s.hits);
    memory_free(s.chunks);
    return status;
}

/* ---- the searching process ----------------------------------------------------------------------------------------
 */

struct slices {
    struct store_view *view;
    struct slice_worker *workers;
    int n, timeout, dim;
    bool lost; /* a stream failed */
    int64_t *chunks, *best;
    float *scores, *best_scores;
    size_t chunks_capacity, scores_capacity, best_capacity, best_scores_capacity;
};

static enum status slices_lost(struct slices *s, int i, bool end) {
    const struct slice_worker *w = &s->workers[i];
    s->lost = true;
    if (end || errno == EPIPE || errno == ECONNRESET)
        return fail(STATUS_IO, "worker %d of %d (%s) was lost: it ended before it answered; run the search again",
                    i + 1, s->n, w->name);
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return fail(STATUS_IO, "worker %d of %d (%s) was lost: no answer in %d seconds (--worker-timeout)", i + 1, s->n,
                    w->name, s->timeout);
    return fail_errno("worker %d of %d (%s) was lost", i + 1, s->n, w->name);
}

static enum status slices_strange(struct slices *s, int i) {
    s->lost = true;
    return fail(STATUS_MISMATCH,
                "worker %d of %d (%s) does not speak the protocol of this program: start drt-index worker of the same "
                "version, with nothing else on its standard output",
                i + 1, s->n, s->workers[i].name);
}

/* The error that the worker sent. */
static enum status slices_failed(struct slices *s, int i, uint64_t bytes) {
    char text[MESSAGE_MAX];
    uint32_t code;
    bool end = false;
    errno = 0;
    if (bytes < sizeof code || bytes - sizeof code >= sizeof text) return slices_strange(s, i);
    bytes -= sizeof code;
    if (!slice_read(s->workers[i].socket, &code, sizeof code, &end) ||
        !slice_read(s->workers[i].socket, text, bytes, &end))
        return slices_lost(s, i, end);
    text[bytes] = 0;
    const enum status status = (int)code < STATUS_OK && (int)code > STATUS_FAULT ? (enum status)(int)code : STATUS_IO;
    return fail(status, "worker %d of %d (%s): %s", i + 1, s->n, s->workers[i].name, text);
}

static enum status slices_receive(struct slices *s, int i, uint32_t kind, uint64_t bytes) {
    struct slice_frame frame;
    bool end = false;
    errno = 0;
    if (!slice_read(s->workers[i].socket, &frame, sizeof frame, &end)) return slices_lost(s, i, end);
    if (frame.kind == FRAME_ERROR) return slices_failed(s, i, frame.bytes);
    return frame.kind == kind && frame.bytes == bytes ? STATUS_OK : slices_strange(s, i);
}

static enum status slices_greeted(struct slices *s, int i, const struct store_info *info) {
    const struct slice_worker *w = &s->workers[i];
    struct slice_greeting hello;
    const struct timeval wait = {.tv_sec = s->timeout};
    bool end = false;
    if (setsockopt(w->socket, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) != 0 ||
        setsockopt(w->socket, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) != 0)
        return fail_errno("worker %d of %d (%s)", i + 1, s->n, w->name);
    TRY(slices_receive(s, i, FRAME_GREETING, sizeof hello));
    errno = 0;
    if (!slice_read(w->socket, &hello, sizeof hello, &end)) return slices_lost(s, i, end);
    if (hello.magic != slices_magic) return slices_strange(s, i);
    if (hello.number != (uint32_t)i || hello.of != (uint32_t)s->n)
        return fail(STATUS_MISMATCH, "worker %d of %d (%s) has slice %u/%u: give the workers in the order of slices",
                    i + 1, s->n, w->name, hello.number + 1, hello.of);
    if (hello.generation != info->generation || hello.chunks != (uint64_t)info->chunks ||
        hello.dim != (uint32_t)info->fingerprint.dim)
        return fail(STATUS_MISMATCH,
                    "worker %d of %d (%s) has generation %llu of the store with %llu chunks, this process generation "
                    "%llu with %lld: run the search again, or search a snapshot (drt-index freeze)",
                    i + 1, s->n, w->name, (unsigned long long)hello.generation, (unsigned long long)hello.chunks,
                    (unsigned long long)info->generation, (long long)info->chunks);
    return STATUS_OK;
}

enum status slices_open(struct slices **out, struct store_view *view, const struct slice_worker *workers, int n,
                        int timeout) {
    struct slices *s;
    struct store_info info;
    store_view_info(view, &info);
    TRY(memory_allocate_zero(&s, 1));
    s->view = view;
    s->n = n;
    s->timeout = timeout;
    s->dim = info.fingerprint.dim;
    enum status status = memory_allocate(&s->workers, (size_t)n);
    if (status == STATUS_OK) memcpy(s->workers, workers, (size_t)n * sizeof *workers);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = slices_greeted(s, i, &info);
    if (status == STATUS_OK)
        *out = s;
    else
        slices_close(s);
    return status;
}

void slices_close(struct slices *s) {
    if (!s) return;
    memory_free(s->workers);
    memory_free(s->chunks);
    memory_free(s->scores);
    memory_free(s->best);
    memory_free(s->best_scores);
    memory_free(s);
}

int slices_count(const struct slices *s) {
    return s->n;
}

static enum status slices_send(struct slices *s, int i, const float *queries, const struct slice_request *r,
                               const struct store_range *exclude) {
    const size_t vectors = r->n * (size_t)s->dim * sizeof *queries, ranges = r->excludes * r->n * sizeof *exclude;
    const struct slice_frame frame = {.kind = FRAME_SEARCH, .bytes = sizeof *r + ranges + vectors};
    const int fd = s->workers[i].socket;
    bool sent = slice_write(fd, &frame, sizeof frame) && slice_write(fd, r, sizeof *r) &&
                (ranges == 0 || slice_write(fd, exclude, ranges)) && slice_write(fd, queries, vectors);
    return sent ? STATUS_OK : slices_lost(s, i, false);
}

/* Adds the hits of one worker to the best of those before it. */
static enum status slices_merge(struct slices *s, int i, const struct slice_request *r) {
    const size_t n = r->n * r->k;
    bool end = false;
    TRY(slices_receive(s, i, FRAME_HITS, n * (sizeof *s->chunks + sizeof *s->scores)));
    errno = 0;
    if (!slice_read(s->workers[i].socket, s->chunks, n * sizeof *s->chunks, &end) ||
        !slice_read(s->workers[i].socket, s->scores, n * sizeof *s->scores, &end))
        return slices_lost(s, i, end);
    for (size_t q = 0; q < r->n; q++) {
        struct top_list list = {s->best + q * r->k, s->best_scores + q * r->k, (int)r->k};
        for (size_t j = q * r->k; j < (q + 1) * r->k && s->chunks[j] >= 0; j++)
            top_list_offer(list, s->scores[j], s->chunks[j]);
    }
    return STATUS_OK;
}

static enum status slices_batch(struct slices *s, struct store_hit *hits, const float *queries,
                                const struct slice_request *r, const struct store_range *exclude) {
    const size_t n = r->n * r->k;
    TRY(memory_grow(&s->chunks, &s->chunks_capacity, n));
    TRY(memory_grow(&s->scores, &s->scores_capacity, n));
    TRY(memory_grow(&s->best, &s->best_capacity, n));
    TRY(memory_grow(&s->best_scores, &s->best_scores_capacity, n));
    for (size_t q = 0; q < r->n; q++)
        top_list_clear((struct top_list){s->best + q * r->k, s->best_scores + q * r->k, (int)r->k});
    for (int i = 0; i < s->n; i++)
        TRY(slices_send(s, i, queries, r, exclude));
    /* An error of one leaves the answers of those after it in their streams. */
    enum status status = STATUS_OK;
    for (int i = 0; i < s->n && status == STATUS_OK; i++)
        status = slices_merge(s, i, r);
    s->lost = s->lost || status != STATUS_OK;
    TRY(status);
    for (size_t q = 0; q < r->n; q++)
        top_list_sort((struct top_list){s->best + q * r->k, s->best_scores + q * r->k, (int)r->k});
    for (size_t j = 0; j < n; j++)
        hits[j] = (struct store_hit){s->best[j], s->best_scores[j]};
    return STATUS_OK;
}

static enum status slices_search(void *context, struct store_hit *hits, const float *queries, int64_t n,
                                 const struct store_search *how) {
    struct slices *s = context;
    if (s->lost) return fail(STATUS_IO, "a worker was lost in an earlier search: run the search again");
    if (how->k > K_MAX) return fail(STATUS_INVALID, "workers give at most %d hits a query", K_MAX);
    for (int64_t at = 0; at < n; at += SLICES_BATCH) {
        const struct slice_request request = {.k = (uint32_t)how->k,
                                              .nprobe = (uint32_t)how->nprobe,
                                              .candidates = (uint32_t)how->candidates,
                                              .exact = how->exact,
                                              .excludes = how->exclude != NULL,
                                              .n = (uint64_t)(n - at < SLICES_BATCH ? n - at : SLICES_BATCH)};
        TRY(slices_batch(s, hits + at * how->k, queries + at * s->dim, &request,
                         how->exclude ? how->exclude + at : NULL));
    }
    return STATUS_OK;
}

struct store_passes slices_passes(struct slices *s) {
    return (struct store_passes){slices_search, s};
}
