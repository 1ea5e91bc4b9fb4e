/* slices.c -- the searching process of slices.h. A failed stream stays failed: the next frame would be in the middle of
 * one. */
#include "indexer/search/slices/slices.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/top_list.h"
#include "indexer/search/slices/slice_stream_internal.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct slices {
    struct store_view *view;
    struct slice_worker *workers;
    struct slice_address *addresses; /* NULL: streams are the caller's, and stay lost */
    char *names, *key;               /* of addresses: [n, SLICE_ADDRESS_MAX]; the key */
    int n, timeout, dim;
    uint64_t identity;
    double deadline;
    bool lost, ended; /* a stream failed; in that its worker ended */
    int64_t *chunks, *best;
    float *scores, *best_scores;
    size_t chunks_capacity, scores_capacity, best_capacity, best_scores_capacity;
};

static double slices_deadline(const struct slices *s) {
    return clock_seconds() + s->timeout;
}

/* ---- errors ---- */

static enum status slices_lost(struct slices *s, int i, enum slice_end end) {
    const struct slice_worker *w = &s->workers[i];
    const char *remedy = s->addresses ? "start drt-index worker --listen there again" : "run the search again";
    s->lost = true;
    s->ended = end == SLICE_ENDED || (end == SLICE_FAILED && (errno == EPIPE || errno == ECONNRESET));
    if (s->ended)
        return fail(STATUS_IO, "worker %d of %d (%s) was lost: it ended before it answered; %s", i + 1, s->n, w->name,
                    remedy);
    if (end == SLICE_LATE)
        return fail(STATUS_IO, "worker %d of %d (%s) was lost: no answer in %d seconds (--worker-timeout)", i + 1, s->n,
                    w->name, s->timeout);
    return fail_errno("worker %d of %d (%s) was lost", i + 1, s->n, w->name);
}

static enum status slices_strange(struct slices *s, int i) {
    s->lost = true;
    return fail(STATUS_MISMATCH,
                "worker %d of %d (%s) does not speak the protocol of this program: start drt-index worker of the same "
                "version%s",
                i + 1, s->n, s->workers[i].name, s->addresses ? "" : ", with nothing else on its standard output");
}

static enum status slices_read(struct slices *s, int i, void *to, size_t bytes) {
    const enum slice_end end = slice_read(s->workers[i].socket, to, bytes, s->deadline);
    return end == SLICE_WHOLE ? STATUS_OK : slices_lost(s, i, end);
}

/* The error that the worker sent. */
static enum status slices_failed(struct slices *s, int i, uint64_t bytes) {
    char text[SLICES_MESSAGE_MAX];
    uint32_t code;
    if (bytes < sizeof code || bytes - sizeof code >= sizeof text) return slices_strange(s, i);
    bytes -= sizeof code;
    TRY(slices_read(s, i, &code, sizeof code));
    TRY(slices_read(s, i, text, bytes));
    text[bytes] = 0;
    const enum status status = (int)code < STATUS_OK && (int)code > STATUS_FAULT ? (enum status)(int)code : STATUS_IO;
    return fail(status, "worker %d of %d (%s): %s", i + 1, s->n, s->workers[i].name, text);
}

static enum status slices_receive(struct slices *s, int i, uint32_t kind, uint64_t bytes) {
    struct slice_frame frame;
    TRY(slices_read(s, i, &frame, sizeof frame));
    if (frame.kind == FRAME_ERROR) return slices_failed(s, i, frame.bytes);
    return frame.kind == kind && frame.bytes == bytes ? STATUS_OK : slices_strange(s, i);
}

/* ---- greetings ---- */

static enum status slices_greeted(struct slices *s, int i) {
    const struct slice_worker *w = &s->workers[i];
    struct slice_greeting hello;
    struct store_info info;
    store_view_info(s->view, &info);
    TRY(slices_receive(s, i, FRAME_GREETING, sizeof hello));
    TRY(slices_read(s, i, &hello, sizeof hello));
    if (hello.magic != SLICES_MAGIC) return slices_strange(s, i);
    if (hello.number != (uint32_t)i || hello.of != (uint32_t)s->n)
        return fail(STATUS_MISMATCH,
                    "worker %d of %d (%s) has slice %llu/%u: give the workers in the order of slices, 1/%d to %d/%d",
                    i + 1, s->n, w->name, hello.number + 1ULL, hello.of, s->n, s->n, s->n);
    if (hello.generation != info.generation || hello.chunks != (uint64_t)info.chunks ||
        hello.dim != (uint32_t)info.fingerprint.dim)
        return fail(STATUS_MISMATCH,
                    "worker %d of %d (%s) has generation %llu of the store with %llu chunks, this process generation "
                    "%llu with %lld: run the search again, or search a snapshot (drt-index freeze)",
                    i + 1, s->n, w->name, (unsigned long long)hello.generation, (unsigned long long)hello.chunks,
                    (unsigned long long)info.generation, (long long)info.chunks);
    if (hello.identity != s->identity)
        return fail(STATUS_MISMATCH,
                    "worker %d of %d (%s) has another store, of other text, another model or another index: give it "
                    "the one that this process reads, or a copy",
                    i + 1, s->n, w->name);
    return STATUS_OK;
}

static enum status slices_greet(struct slices *s) {
    s->deadline = slices_deadline(s);
    for (int i = 0; i < s->n; i++)
        TRY(slices_greeted(s, i));
    return STATUS_OK;
}

static enum status slices_create(struct slices **out, struct store_view *view, int n, int timeout) {
    struct slices *s;
    struct store_info info;
    store_view_info(view, &info);
    TRY(memory_allocate_zero(&s, 1));
    s->view = view;
    s->n = n;
    s->timeout = timeout;
    s->dim = info.fingerprint.dim;
    enum status status = store_view_identity(view, &s->identity);
    if (status == STATUS_OK) status = memory_allocate(&s->workers, (size_t)n);
    if (status == STATUS_OK)
        *out = s;
    else
        slices_close(s);
    return status;
}

enum status slices_open(struct slices **out, struct store_view *view, const struct slice_worker *workers, int n,
                        int timeout) {
    struct slices *s;
    TRY(slices_create(&s, view, n, timeout));
    memcpy(s->workers, workers, (size_t)n * sizeof *workers);
    const enum status status = slices_greet(s);
    if (status == STATUS_OK)
        *out = s;
    else
        slices_close(s);
    return status;
}

/* ---- workers that run already ---- */

static void slices_disconnect(struct slices *s) {
    for (int i = 0; s->addresses && i < s->n; i++) {
        if (s->workers[i].socket >= 0) close(s->workers[i].socket);
        s->workers[i].socket = -1;
    }
}

/* From hello to greeting, anew. */
static enum status slices_reconnect(struct slices *s) {
    slices_disconnect(s);
    s->lost = true;
    s->deadline = slices_deadline(s);
    for (int i = 0; i < s->n; i++) {
        char name[SLICE_ADDRESS_MAX + 60], why[SLICES_MESSAGE_MAX];
        snprintf(name, sizeof name, "worker %d of %d (%s)", i + 1, s->n, s->workers[i].name);
        const enum status status = slice_connect(&s->workers[i].socket, name, &s->addresses[i], s->key, s->deadline);
        if (status == STATUS_OK) continue;
        snprintf(why, sizeof why, "%s", status_message());
        return fail(status, "%s; start drt-index worker --listen there", why);
    }
    TRY(slices_greet(s));
    s->lost = false;
    return STATUS_OK;
}

static enum status slices_take_addresses(struct slices *s, const struct slices_remote *remote) {
    const char *at = remote->addresses;
    TRY(memory_allocate(&s->addresses, (size_t)s->n));
    for (int i = 0; i < s->n; i++)
        s->workers[i].socket = -1;
    TRY(memory_allocate(&s->names, (size_t)s->n * SLICE_ADDRESS_MAX));
    TRY(memory_copy_string(&s->key, remote->key ? remote->key : ""));
    for (int i = 0; i < s->n; i++) {
        size_t bytes;
        TRY(slice_address_parse(&s->addresses[i], at, &bytes));
        s->workers[i].name = s->names + (size_t)i * SLICE_ADDRESS_MAX;
        snprintf(s->names + (size_t)i * SLICE_ADDRESS_MAX, SLICE_ADDRESS_MAX, "%.*s", (int)bytes, at);
        at += bytes + 1;
    }
    return STATUS_OK;
}

enum status slices_connect(struct slices **out, struct store_view *view, const struct slices_remote *remote) {
    struct slices *s;
    int n = 1;
    for (const char *c = remote->addresses; *c; c++)
        n += *c == ',';
    if (n > SLICES_MAX) return fail(STATUS_INVALID, "%d workers: at most %d can search together", n, SLICES_MAX);
    if (remote->key && strlen(remote->key) > SLICES_KEY_MAX)
        return fail(STATUS_INVALID, "the workers' key has more than %d bytes", SLICES_KEY_MAX);
    TRY(slices_create(&s, view, n, remote->timeout > 0 ? remote->timeout : SLICES_TIMEOUT));
    enum status status = slices_take_addresses(s, remote);
    if (status == STATUS_OK) status = slices_reconnect(s);
    if (status == STATUS_OK)
        *out = s;
    else
        slices_close(s);
    return status;
}

void slices_close(struct slices *s) {
    if (!s) return;
    if (s->workers) slices_disconnect(s);
    memory_free(s->workers);
    memory_free(s->addresses);
    memory_free(s->names);
    memory_free(s->key);
    memory_free(s->chunks);
    memory_free(s->scores);
    memory_free(s->best);
    memory_free(s->best_scores);
    memory_free(s);
}

int slices_count(const struct slices *s) {
    return s->n;
}

/* ---- searches ---- */

static enum status slices_send(struct slices *s, int i, const float *queries, const struct slice_request *r,
                               const struct store_range *exclude) {
    const size_t vectors = r->n * (size_t)s->dim * sizeof *queries, ranges = r->excludes * r->n * sizeof *exclude;
    const struct slice_frame frame = {.kind = FRAME_SEARCH, .bytes = sizeof *r + ranges + vectors};
    const int fd = s->workers[i].socket;
    enum slice_end end = slice_write(fd, &frame, sizeof frame, true, s->deadline);
    if (end == SLICE_WHOLE) end = slice_write(fd, r, sizeof *r, true, s->deadline);
    if (end == SLICE_WHOLE) end = slice_write(fd, exclude, ranges, true, s->deadline);
    if (end == SLICE_WHOLE) end = slice_write(fd, queries, vectors, false, s->deadline);
    return end == SLICE_WHOLE ? STATUS_OK : slices_lost(s, i, end);
}

/* Hits of one query as a worker sorts them, of chunks that this view has; -1 fills the rest. Candidates of a segment
 * may be of deleted documents, which the search removes. */
static bool slices_plausible(const struct slices *s, const struct slice_request *r, size_t q) {
    const struct store_dropped dropped = store_view_dropped(s->view);
    struct store_info info;
    store_view_info(s->view, &info);
    for (size_t j = q * r->k; j < (q + 1) * r->k; j++) {
        const bool first = j == q * r->k;
        if (s->chunks[j] == -1) continue;
        if (s->chunks[j] < 0 || s->chunks[j] >= info.chunks || isnan(s->scores[j]) ||
            (r->segment == 0 && !store_dropped_live(dropped, s->chunks[j])))
            return false;
        if (first) continue;
        const bool equal = s->scores[j] == s->scores[j - 1];
        if (s->chunks[j - 1] == -1 || s->scores[j] > s->scores[j - 1] || (equal && s->chunks[j] <= s->chunks[j - 1]))
            return false;
    }
    return true;
}

static enum status slices_overlap(struct slices *s, int64_t chunk) {
    s->lost = true;
    return fail(STATUS_MISMATCH,
                "two workers found chunk %lld: their slices overlap; start drt-index worker of the "
                "same version",
                (long long)chunk);
}

/* Adds the hits of one worker to the best of those before it. */
static enum status slices_merge(struct slices *s, int i, const struct slice_request *r) {
    const size_t n = r->n * r->k;
    TRY(slices_receive(s, i, FRAME_HITS, n * (sizeof *s->chunks + sizeof *s->scores)));
    TRY(slices_read(s, i, s->chunks, n * sizeof *s->chunks));
    TRY(slices_read(s, i, s->scores, n * sizeof *s->scores));
    for (size_t q = 0; q < r->n; q++) {
        if (!slices_plausible(s, r, q)) return slices_strange(s, i);
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
    s->deadline = slices_deadline(s);
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
    for (size_t j = 0; j < n; j++) {
        if (j % r->k != 0 && s->best[j] >= 0 && s->best[j] == s->best[j - 1]) return slices_overlap(s, s->best[j]);
        hits[j] = (struct store_hit){s->best[j], s->best_scores[j]};
    }
    return STATUS_OK;
}

/* A worker that was started anew since the last search is not lost: the batch is sent once more. */
static enum status slices_batch_again(struct slices *s, struct store_hit *hits, const float *queries,
                                      const struct slice_request *r, const struct store_range *exclude) {
    if (s->lost && !s->addresses)
        return fail(STATUS_IO, "a worker was lost in an earlier search: run the search again");
    if (s->lost) TRY(slices_reconnect(s));
    s->ended = false;
    const enum status status = slices_batch(s, hits, queries, r, exclude);
    if (status == STATUS_OK || !s->ended || !s->addresses) return status;
    TRY(slices_reconnect(s));
    return slices_batch(s, hits, queries, r, exclude);
}

static enum status slices_search(void *context, struct store_hit *hits, const float *queries, int64_t n,
                                 const struct store_search *how) {
    struct slices *s = context;
    if (how->k > SLICES_K_MAX) return fail(STATUS_INVALID, "workers give at most %d hits a query", SLICES_K_MAX);
    const int64_t fit = SLICES_HITS_MAX / how->k, batch = fit < SLICES_BATCH ? fit : SLICES_BATCH;
    for (int64_t at = 0; at < n; at += batch) {
        const struct slice_request request = {.k = (uint32_t)how->k,
                                              .nprobe = (uint32_t)how->nprobe,
                                              .candidates = (uint32_t)how->candidates,
                                              .exact = how->exact,
                                              .excludes = how->exclude != NULL,
                                              .segment = (uint32_t)how->segment,
                                              .n = (uint64_t)(n - at < batch ? n - at : batch)};
        TRY(slices_batch_again(s, hits + at * how->k, queries + at * s->dim, &request,
                               how->exclude ? how->exclude + at : NULL));
    }
    return STATUS_OK;
}

struct store_passes slices_passes(struct slices *s) {
    return (struct store_passes){slices_search, s, SLICES_K_MAX};
}
