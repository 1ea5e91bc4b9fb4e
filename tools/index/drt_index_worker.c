/* drt_index_worker.c -- drt-index worker: searches a slice of a store, for the process that started it or for
 * processes that connect. */
#include "base/system/threads.h"
#include "indexer/search/slices/slice_server.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/network.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *store, *slice, *listen, *key_file, *port_file;
    int64_t threads;
    struct store_slice parsed;
    char key[NETWORK_KEY_MAX];
};

static bool worker_parse(struct options *o) {
    char rest;
    int i, n;
    if (!o->slice || sscanf(o->slice, "%d/%d%c", &i, &n, &rest) != 2 || i < 1 || i > n || n > SLICES_MAX) return false;
    o->parsed = (struct store_slice){i - 1, n};
    return true;
}

/* ---- for the process that started it ---- */

static enum status worker_run(const struct options *o) {
    struct opened_store store = {0};
    struct threads *threads = NULL;
    enum status s = opened_store_open(&store, o->store);
    if (s == STATUS_OK) s = threads_create(&threads, (int)o->threads);
    if (s == STATUS_OK) {
        const struct slice_worker_config config = {.view = store.view, .slice = o->parsed, .threads = threads};
        s = slice_serve(STDIN_FILENO, STDOUT_FILENO, &config);
    } else {
        slice_refuse(STDOUT_FILENO, s); /* the searching process prints the reason */
    }
    threads_free(threads);
    opened_store_close(&store);
    return s;
}

/* ---- for programs that connect ---- */

static void worker_report(void *context, const char *line) {
    (void)context;
    log_line(LOG_WARNING, "connection", "drt-index worker", "%s", line);
}

struct worker_server {
    struct slice_server_config config;
    pthread_t main;
    enum status status;
    char message[1024]; /* of a failure, copied because a message belongs to its thread */
};

static void *worker_server_body(void *context) {
    struct worker_server *w = context;
    w->status = slice_server_run(&w->config);
    if (w->status == STATUS_OK) return NULL;
    snprintf(w->message, sizeof w->message, "%s", status_message());
    (void)pthread_kill(w->main, SIGTERM); /* ends the wait of the main thread */
    return NULL;
}

/* A library starts threads before main, and these do not block signals. So the signal is sent to this thread while
 * it waits for it. */
static enum status worker_wait(struct slice_server_config config, const sigset_t *set) {
    struct worker_server w = {.config = config, .main = pthread_self()};
    pthread_t thread;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno("a pipe");
    w.config.stop = ends[0];
    const bool started = threads_start(&thread, worker_server_body, &w);
    if (started) {
        while (sigwaitinfo(set, NULL) < 0)
            continue;
        close(ends[1]); /* this ends the server */
        pthread_join(thread, NULL);
    } else {
        close(ends[1]);
    }
    close(ends[0]);
    if (!started) return fail(STATUS_NO_MEMORY, "a thread could not be started");
    return w.status == STATUS_OK ? STATUS_OK : fail(w.status, "%s", w.message);
}

static enum status worker_serve(const struct options *o, struct store *store, struct threads *threads,
                                const sigset_t *set) {
    struct slice_server_config config = {
        .store = store, .slice = o->parsed, .threads = threads, .key = o->key, .report = worker_report};
    int port = 0;
    TRY(slice_listen(&config.listener, &port, o->listen));
    enum status s = o->port_file ? network_port_write(o->port_file, port) : STATUS_OK;
    if (s == STATUS_OK) {
        log_line(LOG_INFO, "started", "drt-index worker", "slice %s of %s on %.*s:%d", o->slice, o->store,
                 (int)(strrchr(o->listen, ':') - o->listen), o->listen, port);
        s = worker_wait(config, set);
    }
    close(config.listener);
    if (s == STATUS_OK) log_line(LOG_INFO, "stopped", "drt-index worker", "stopped");
    return s;
}

static enum status worker_listen(struct options *o) {
    struct store *store = NULL;
    struct store_view *view = NULL;
    struct threads *threads = NULL;
    sigset_t set;
    network_signals_block(&set);
    enum status s = o->key_file ? network_key_read(o->key, o->key_file) : STATUS_OK;
    if (s == STATUS_OK) s = store_open(&store, o->store);
    if (s == STATUS_OK) s = store_view_open(&view, store); /* opens the store at once, to find its errors */
    if (s == STATUS_OK) s = store_view_needs_landmarks(view);
    store_view_close(view);
    if (s == STATUS_OK) s = threads_create(&threads, (int)o->threads);
    if (s == STATUS_OK) s = worker_serve(o, store, threads, &set);
    threads_free(threads);
    store_close(store);
    return s;
}

/* Returns -1, or the exit code if the options contradict each other. */
static int worker_check(struct options *o) {
    bool open = false;
    if (!o->store) return drt_index_usage("worker", "--store STORE is missing");
    if (!worker_parse(o)) return drt_index_usage("worker", "--slice takes i/N, with i from 1 to N, N at most 1024");
    if (!o->listen && (o->key_file || o->port_file))
        return drt_index_usage("worker", "--api-key-file and --port-file need --listen IP:PORT");
    if (o->listen && slice_listen_open(&open, o->listen) != STATUS_OK)
        return drt_index_usage("worker", status_message());
    if (open && !o->key_file)
        return drt_index_usage("worker", "--listen: the address is open to other machines: give --api-key-file FILE");
    /* Input and output may not both be terminals. With srun --unbuffered the output is a pseudo terminal, which
     * changes no byte. */
    if (!o->listen && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        return drt_index_usage("worker", "this is a terminal: drt-index search --workers starts workers, --listen "
                                         "IP:PORT makes one that others connect to");
    return -1;
}

int drt_index_worker(int argc, char **argv, const char **operands) {
    struct options o = {0};
    const struct arg_option options[] = {
        {"store", ARG_PATH, &o.store, "STORE", "the store's folder: the same generation as the searching process", 0,
         0},
        {"slice", ARG_STRING, &o.slice, "i/N", "which of N slices this worker searches, from 1 to N", 0, 0},
        {"listen", ARG_STRING, &o.listen, "IP:PORT",
         "serve all connections until SIGTERM; port 0: any free one; addresses other than loopback need --api-key-file",
         0, 0},
        {"port-file", ARG_PATH, &o.port_file, "FILE", "the port is written there once the worker listens", 0, 0},
        {"api-key-file", ARG_PATH, &o.key_file, "FILE", "its first line is the key that connections must have", 0, 0},
        {"threads", ARG_INT, &o.threads, "N",
         "threads to use; 0: one for each processor that the affinity mask and CPU quota allow", 0, THREADS_MAX},
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index worker",
        .synopsis = "[--store] STORE --slice i/N [--listen IP:PORT] [options]",
        .about = "Searches a slice of a store for other processes. A slice has 1/N of the chunks, and the segments of "
                 "the index in it. Requests and hits have a binary form.\n\n"
                 "With --listen it serves any number of programs that connect to it with their option --workers: "
                 "drt-index search, drt-eval, drt-generate and drt-serve. Without --listen it is started by drt-index "
                 "search --worker, reads requests on standard input, and ends at the end of this input.",
        .examples = "  drt-index worker --store /nfs/store --slice 1/2 --listen 127.0.0.1:7001\n"
                    "  drt-index search --queries q.npy --store /nfs/store \\\n"
                    "      --worker 'ssh a drt-index worker --store /nfs/store --slice 1/2' \\\n"
                    "      --worker 'ssh b drt-index worker --store /nfs/store --slice 2/2'\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    code = worker_check(&o);
    if (code >= 0) return code;
    return o.listen ? drt_index_exit(worker_listen(&o)) : worker_run(&o) == STATUS_OK ? 0 : 1;
}
