/* slices_fixture.h -- stores of random content, some of whose landmarks are equal bit for bit, searched by slices. */
#pragma once
#include "indexer/search/slices/slice_server.h"
#include "indexer/search/slices/slice_stream_internal.h"
#include "tests/store_fixture.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

enum { SLICES_DIM = 16, SLICES_VOCAB = 300 };

[[maybe_unused]] static enum status slices_fixture_document(struct store_writer *w, int64_t document, struct rng *r) {
    int32_t ids[FIXTURE_IDS_MAX];
    float row[SLICES_DIM];
    char key[32];
    bool duplicate;
    struct store_new_document d = {.ids = ids, .source = "random", .key = key};
    d.n_ids = fixture_ids(ids, document, SLICES_VOCAB);
    snprintf(key, sizeof key, "%lld", (long long)document);
    fixture_hash(d.hash, document);
    TRY(store_shard_document(w, &d, &duplicate));
    for (size_t i = 0; i < (d.n_ids + FIXTURE_CHUNK - 1) / FIXTURE_CHUNK; i++) {
        fixture_vector(row, SLICES_DIM, rng_below(r, 60), 0.5f); /* 60 vectors for all: ties */
        TRY(store_shard_landmarks(w, row, 1));
    }
    return STATUS_OK;
}

/* A store of `documents`, published in `parts` generations; with an index, each has one segment. */
[[maybe_unused]] static void slices_fixture_store(const char *dir, uint64_t seed, int64_t documents, int parts,
                                                  const char *index) {
    struct store_writer_config c = fixture_config(SLICES_DIM, SLICES_VOCAB);
    struct rng r = rng_make(31, seed);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &c, true));
    for (int part = 0; part < parts; part++) {
        int64_t begin = documents * part / parts, end = documents * (part + 1) / parts;
        CHECK_OK(store_shard_begin(w));
        for (int64_t i = begin; i < end; i++)
            CHECK_OK(slices_fixture_document(w, (int64_t)seed * 100000 + i, &r));
        CHECK_OK(store_shard_seal(w, &end, sizeof end));
        CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = index, .seed = 1}));
    }
    store_writer_close(w);
}

/* ---- workers in threads of this process ---- */

struct slices_fixture_worker {
    struct store_view *view;
    struct store_slice slice;
    pthread_t thread;
    int ends[2]; /* ours, the worker's */
};
[[maybe_unused]] static void *slices_fixture_serve(void *context) {
    struct slices_fixture_worker *w = context;
    const struct slice_worker_config config = {.view = w->view, .slice = w->slice};
    CHECK_OK(slice_serve(w->ends[1], w->ends[1], &config));
    return NULL;
}
[[maybe_unused]] static void slices_fixture_start(struct slices_fixture_worker *w, struct store *store, int i, int n) {
    w->slice = (struct store_slice){i, n};
    CHECK_OK(store_view_open(&w->view, store));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, w->ends) == 0);
    CHECK(threads_start(&w->thread, slices_fixture_serve, w));
}
[[maybe_unused]] static void slices_fixture_stop(struct slices_fixture_worker *w) {
    close(w->ends[0]);
    CHECK(pthread_join(w->thread, NULL) == 0);
    close(w->ends[1]);
    store_view_close(w->view);
}

/* ---- a server in a thread ---- */

struct slices_fixture_server {
    struct slice_server_config config;
    struct threads *threads;
    pthread_t thread;
    int port, stop[2];
    char report[SLICES_MESSAGE_MAX]; /* of the last one; read it after the server has ended */
    pthread_mutex_t lock;
};
[[maybe_unused]] static void slices_fixture_report(void *context, const char *line) {
    struct slices_fixture_server *s = context;
    pthread_mutex_lock(&s->lock);
    snprintf(s->report, sizeof s->report, "%s", line);
    pthread_mutex_unlock(&s->lock);
}
[[maybe_unused]] static void *slices_fixture_listen_body(void *context) {
    struct slices_fixture_server *s = context;
    CHECK_OK(slice_server_run(&s->config));
    return NULL;
}
/* port 0: any. */
[[maybe_unused]] static void slices_fixture_listen(struct slices_fixture_server *s, struct store *store, int i, int n,
                                                   const char *key, int port) {
    char address[40];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    *s = (struct slices_fixture_server){.config = {.store = store, .slice = {i, n}, .key = key}};
    pthread_mutex_init(&s->lock, NULL);
    CHECK_OK(threads_create(&s->threads, 2));
    CHECK_OK(slice_listen(&s->config.listener, &s->port, address));
    CHECK(pipe(s->stop) == 0);
    s->config.threads = s->threads;
    s->config.stop = s->stop[0];
    s->config.report = slices_fixture_report;
    s->config.context = s;
    CHECK(threads_start(&s->thread, slices_fixture_listen_body, s));
}
[[maybe_unused]] static void slices_fixture_end(struct slices_fixture_server *s) {
    CHECK(write(s->stop[1], "x", 1) == 1);
    CHECK(pthread_join(s->thread, NULL) == 0);
    close(s->config.listener);
    close(s->stop[0]);
    close(s->stop[1]);
    threads_free(s->threads);
    pthread_mutex_destroy(&s->lock);
}
