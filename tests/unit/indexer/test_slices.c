/* test_slices.c -- several workers find what one process finds; a worker that is lost, late, or answers wrongly is an
 * error that names it; a restarted server is connected again. */
#include "base/clock.h"
#include "tests/unit/indexer/slices_fixture.h"

enum { WORKERS_MAX = 5, QUERIES = 300, K_LARGEST = 40 };

struct world {
    struct store *store;
    struct store_view *view;
    struct store_info info;
    float queries[QUERIES * SLICES_DIM];
    struct store_range exclude[QUERIES];
};

static void open_world(struct world *w, const char *dir, uint64_t seed) {
    struct rng r = rng_make(32, seed);
    CHECK_OK(store_open(&w->store, dir));
    CHECK_OK(store_view_open(&w->view, w->store));
    store_view_info(w->view, &w->info);
    for (int i = 0; i < QUERIES * SLICES_DIM; i++)
        w->queries[i] = rng_normal(&r);
    for (int i = 0; i < QUERIES; i++) {
        const int64_t begin = (int64_t)rng_below(&r, (uint64_t)w->info.chunks);
        w->exclude[i] = (struct store_range){begin, begin + (int64_t)rng_below(&r, 20)};
    }
}

static void close_world(struct world *w) {
    store_view_close(w->view);
    store_close(w->store);
}

/* ---- the same hits ---- */

/* The hits of one process must have ties, or the order of ties is not tested. */
static int64_t check_search(const struct world *w, struct slices *s, const struct store_search *how) {
    static struct store_hit one[QUERIES * K_LARGEST], several[QUERIES * K_LARGEST];
    const struct store_passes passes = slices_passes(s);
    int64_t ties = 0;
    CHECK_OK(store_view_search(w->view, one, w->queries, QUERIES, how));
    CHECK_OK(store_view_search_passes(w->view, several, w->queries, QUERIES, how, &passes));
    CHECK(fixture_same_hits(one, several, QUERIES * how->k));
    for (int i = 1; i < QUERIES * how->k; i++)
        ties += i % how->k != 0 && one[i].chunk >= 0 && one[i].score == one[i - 1].score;
    return ties;
}

static int64_t check_searches(const struct world *w, struct slices *s, struct rng *r) {
    int64_t ties = 0;
    for (int i = 0; i < 4; i++) {
        const struct store_search how = {.k = 1 + (int)rng_below(r, K_LARGEST),
                                         .exact = rng_below(r, 3) == 0,
                                         .nprobe = (int)rng_below(r, 4),
                                         .candidates = rng_below(r, 2) ? 0 : 1 + (int)rng_below(r, 100),
                                         .exclude = rng_below(r, 2) ? w->exclude : NULL};
        ties += check_search(w, s, &how);
    }
    return ties;
}

static void test_random_stores(uint64_t seed) {
    static const char *const kinds[] = {"exact", "IVF4,SQ8", "IVF8,Flat", "Flat"};
    struct rng r = rng_make(33, seed);
    int64_t ties = 0;
    for (uint64_t i = 0; i < 8; i++) {
        struct world w;
        struct slices_fixture_worker workers[WORKERS_MAX];
        struct slice_worker streams[WORKERS_MAX];
        struct slices *s;
        struct store_delete_report report;
        const int n = 1 + (int)rng_below(&r, WORKERS_MAX);
        char dir[40];
        snprintf(dir, sizeof dir, "random-%d", (int)i);
        slices_fixture_store(test_path(dir), seed + i, 60 + (int64_t)rng_below(&r, 100), 1 + (int)rng_below(&r, 4),
                             kinds[i % 4]);
        const int64_t gone[] = {3, 17, 40};
        if (i % 2)
            CHECK_OK(store_delete(&report, test_path(dir), &(struct store_delete){gone, 3, NULL, 0, .progress = NULL}));
        open_world(&w, test_path(dir), seed + i);
        for (int j = 0; j < n; j++) {
            slices_fixture_start(&workers[j], w.store, j, n);
            streams[j] = (struct slice_worker){workers[j].ends[0], "a thread"};
        }
        CHECK_OK(slices_open(&s, w.view, streams, n, 20));
        CHECK_EQ(slices_count(s), n);
        ties += check_searches(&w, s, &r);
        slices_close(s);
        for (int j = 0; j < n; j++)
            slices_fixture_stop(&workers[j]);
        close_world(&w);
    }
    CHECK(ties > 1000);
}

/* ---- lists that are shared ---- */

/* A large segment and a small one, with deleted documents. Every slice has candidates of the large one, no two have the
 * same, and together they are those of one process. */
static void check_candidates(const struct world *w, int n) {
    enum { EACH = 200 };
    static struct store_hit one[EACH], all[EACH], mine[EACH];
    int64_t found = 0, rows = 0;
    struct store_search how = {.k = EACH, .nprobe = 12, .segment = 1};
    CHECK_OK(store_view_search(w->view, one, w->queries, 1, &how));
    for (int i = 0; i < EACH; i++)
        all[i] = (struct store_hit){-1, 0};
    for (int i = 0; i < n; i++) {
        how.slice = (struct store_slice){i, n};
        CHECK_OK(store_view_search(w->view, mine, w->queries, 1, &how));
        for (int j = 0; j < EACH && mine[j].chunk >= 0; j++, rows++)
            for (int a = 0; a < EACH; a++)
                if (one[a].chunk == mine[j].chunk) {
                    CHECK(all[a].chunk == -1 && one[a].score == mine[j].score);
                    all[a] = mine[j];
                    found++;
                }
    }
    for (int a = 0; a < EACH; a++)
        CHECK_EQ(all[a].chunk, one[a].chunk);
    CHECK_EQ(found, EACH);
    how = (struct store_search){.k = EACH, .nprobe = 1000, .segment = 1, .slice = {n - 1, n}};
    CHECK_OK(store_view_search(w->view, mine, w->queries, 1, &how));
    CHECK(mine[0].chunk >= 0);
    how.segment = 3;
    CHECK_FAILS(store_view_search(w->view, mine, w->queries, 1, &how), STATUS_INVALID, "no segment 3");
}

static void test_shared_lists(uint64_t seed) {
    struct store_writer_config c = fixture_config(SLICES_DIM, SLICES_VOCAB);
    struct rng r = rng_make(34, seed);
    struct store_writer *w;
    struct store_delete_report report;
    const char *dir = test_path("lists");
    const int64_t gone[] = {2, 30, 31, 32, 33, 34, 35, 190, 405};
    int64_t ties = 0;
    slices_fixture_store(dir, seed, 400, 1, "IVF40_HNSW8,SQ8");
    CHECK_OK(store_writer_open(&w, dir, &c, true));
    CHECK_OK(store_shard_begin(w));
    for (int64_t i = 0; i < 30; i++)
        CHECK_OK(slices_fixture_document(w, 50000000 + i, &r));
    CHECK_OK(store_shard_seal(w, "", 1));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.seed = 1}));
    store_writer_close(w);
    CHECK_OK(store_delete(&report, dir, &(struct store_delete){gone, ARRAY_LEN(gone), NULL, 0, .progress = NULL}));
    for (int n = 1; n <= WORKERS_MAX; n++) {
        struct world world;
        struct slices_fixture_worker workers[WORKERS_MAX];
        struct slice_worker streams[WORKERS_MAX];
        struct slices *s;
        open_world(&world, dir, seed + (uint64_t)n);
        CHECK_EQ(world.info.segments, 2);
        check_candidates(&world, n);
        for (int j = 0; j < n; j++) {
            slices_fixture_start(&workers[j], world.store, j, n);
            streams[j] = (struct slice_worker){workers[j].ends[0], "a thread"};
        }
        CHECK_OK(slices_open(&s, world.view, streams, n, 20));
        for (int i = 0; i < 3; i++)
            ties += check_searches(&world, s, &r);
        slices_close(s);
        for (int j = 0; j < n; j++)
            slices_fixture_stop(&workers[j]);
        close_world(&world);
    }
    CHECK(ties > 1000);
}

/* ---- over TCP ---- */

static void test_tcp(const struct world *w) {
    struct slices_fixture_server servers[2];
    struct slices *a, *b;
    char addresses[80];
    for (int i = 0; i < 2; i++)
        slices_fixture_listen(&servers[i], w->store, i, 2, "a key of sixteen bytes", 0);
    snprintf(addresses, sizeof addresses, "127.0.0.1:%d,localhost:%d", servers[0].port, servers[1].port);
    struct slices_remote remote = {addresses, "a key of sixteen bytes", 20};
    CHECK_OK(slices_connect(&a, w->view, &remote));
    CHECK_OK(slices_connect(&b, w->view, &remote)); /* two connections, in turns */
    const struct store_search how = {.k = 9}, exact = {.k = 12, .exact = true, .exclude = w->exclude};
    (void)check_search(w, a, &how);
    (void)check_search(w, b, &exact);
    (void)check_search(w, a, &exact);

    struct store_hit hits[9];
    const struct store_passes passes = slices_passes(a);
    char wanted[100];
    slices_fixture_end(&servers[1]);
    snprintf(wanted, sizeof wanted, "worker 2 of 2 (localhost:%d): Connection refused; start drt-index worker --listen",
             servers[1].port);
    CHECK_FAILS(store_view_search_passes(w->view, hits, w->queries, 1, &how, &passes), STATUS_IO, wanted);
    CHECK_FAILS(store_view_search_passes(w->view, hits, w->queries, 1, &how, &passes), STATUS_IO, wanted);
    slices_fixture_listen(&servers[1], w->store, 1, 2, "a key of sixteen bytes", servers[1].port);
    (void)check_search(w, a, &how);
    (void)check_search(w, b, &how); /* did not search in between */
    slices_close(a);
    slices_close(b);

    remote.key = "another key of sixteen";
    CHECK_FAILS(slices_connect(&a, w->view, &remote), STATUS_INVALID, "this is another: give --worker-key-file");
    remote.key = NULL;
    CHECK_FAILS(slices_connect(&a, w->view, &remote), STATUS_INVALID, "--worker-key-file");
    for (int i = 0; i < 2; i++)
        slices_fixture_end(&servers[i]);
    CHECK(strstr(servers[0].report, "connection from 127.0.0.1:") && strstr(servers[0].report, "has a key"));
}

static void test_wrong_slices(const struct world *w, const struct world *other, const struct world *newer) {
    struct slices_fixture_server s[5];
    struct slices *out;
    char pair[80];
    slices_fixture_listen(&s[0], w->store, 0, 2, "", 0);
    slices_fixture_listen(&s[1], w->store, 1, 2, "", 0);
    slices_fixture_listen(&s[2], w->store, 1, 3, "", 0);
    slices_fixture_listen(&s[3], other->store, 1, 2, "", 0);
    slices_fixture_listen(&s[4], newer->store, 1, 2, "", 0);
    const struct {
        int a, b;
        const char *message;
    } cases[] = {
        {0, 0, ") has slice 1/2: give the workers in the order of slices, 1/2 to 2/2"},
        {1, 0, "worker 1 of 2 (127.0.0.1:"},
        {0, 2, ") has slice 2/3: give"},
        {0, 3, ") has another store, of other text"},
        {0, 4, ") has generation "},
        {0, -1, "worker 1 of 1 (127.0.0.1:"}, /* the second slice is missing */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int a = cases[i].a, b = cases[i].b;
        if (b >= 0)
            snprintf(pair, sizeof pair, "127.0.0.1:%d,127.0.0.1:%d", s[a].port, s[b].port);
        else
            snprintf(pair, sizeof pair, "127.0.0.1:%d", s[a].port);
        const struct slices_remote remote = {pair, NULL, 20};
        CHECK_FAILS(slices_connect(&out, w->view, &remote), STATUS_MISMATCH, cases[i].message);
    }
    for (int i = 0; i < 5; i++)
        slices_fixture_end(&s[i]);
}

static void test_addresses(const struct world *w) {
    static const char *const bad[] = {"",           ":",        "host",   "host:",   ":80",      "host:123456",
                                      "host:70000", "host:80x", "a:b:80", "[::1:80", "host:80,", "host:80,,host:81",
                                      "[]:80"};
    struct slices *s;
    struct slice_address a;
    size_t n;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const struct slices_remote remote = {bad[i], NULL, 2};
        CHECK_FAILS(slices_connect(&s, w->view, &remote), STATUS_INVALID, "an address is HOST:PORT");
    }
    CHECK_OK(slice_address_parse(&a, "[fe80::1]:7001,b:2", &n));
    CHECK(strcmp(a.host, "fe80::1") == 0 && strcmp(a.port, "7001") == 0 && n == 14);
    bool open;
    CHECK(slice_listen_open(&open, "127.3.2.1:0") == STATUS_OK && !open);
    CHECK(slice_listen_open(&open, "[::1]:7") == STATUS_OK && !open);
    CHECK(slice_listen_open(&open, "0.0.0.0:7") == STATUS_OK && open);
    CHECK(slice_listen_open(&open, "[::]:7") == STATUS_OK && open);
    CHECK_FAILS(slice_listen_open(&open, "localhost:7"), STATUS_INVALID, "listens at IP:PORT");
    CHECK_FAILS(slice_listen_open(&open, "127.0.0.1:7,127.0.0.1:8"), STATUS_INVALID, "listens at IP:PORT");
}

/* ---- wrong answers: a thread sends a valid greeting, then one of these ---- */

enum answer {
    ANSWER_NOTHING,
    ANSWER_END,
    ANSWER_HALF,
    ANSWER_NOISE,
    ANSWER_SIZE,
    ANSWER_ERROR,
    ANSWER_CHUNK,
    ANSWER_NEGATIVE,
    ANSWER_ORDER,
    ANSWER_TWICE,
    ANSWER_NAN,
    ANSWER_GAP,
    ANSWER_OVERLAP,
    ANSWERS
};
struct wrong_worker {
    int socket;
    enum answer answer;
    struct slice_greeting hello;
    int64_t chunk; /* the good worker also finds this */
    float score;
};

static void put(int fd, const void *bytes, size_t n) {
    CHECK(slice_write(fd, bytes, n, false, 0) == SLICE_WHOLE);
}

static void send_wrong_hits(const struct wrong_worker *l, const struct slice_request *r) {
    const size_t n = r->n * r->k;
    int64_t *chunks = malloc(n * sizeof *chunks);
    float *scores = malloc(n * sizeof *scores);
    const struct slice_frame frame = {.kind = FRAME_HITS, .bytes = n * (sizeof *chunks + sizeof *scores)};
    CHECK(chunks && scores && r->k >= 3);
    for (size_t i = 0; i < n; i++) {
        chunks[i] = -1;
        scores[i] = -INFINITY;
    }
    chunks[0] = l->hello.chunks - 1, scores[0] = -50;
    if (l->answer == ANSWER_CHUNK) chunks[0] = (int64_t)l->hello.chunks;
    if (l->answer == ANSWER_NEGATIVE) chunks[0] = -2;
    if (l->answer == ANSWER_NAN) scores[0] = NAN;
    if (l->answer == ANSWER_ORDER) chunks[1] = chunks[0] - 1, scores[1] = -40;
    if (l->answer == ANSWER_TWICE) chunks[1] = chunks[0], scores[1] = scores[0];
    if (l->answer == ANSWER_GAP) chunks[2] = chunks[0] - 1, scores[2] = -60;
    if (l->answer == ANSWER_OVERLAP) chunks[0] = l->chunk, scores[0] = l->score;
    put(l->socket, &frame, sizeof frame);
    put(l->socket, chunks, n * sizeof *chunks);
    put(l->socket, scores, n * sizeof *scores);
    free(chunks);
    free(scores);
}

static void *answer_wrongly(void *context) {
    const struct wrong_worker *l = context;
    const struct slice_frame greeting = {.kind = FRAME_GREETING, .bytes = sizeof l->hello};
    struct slice_frame frame, answer = {.kind = FRAME_HITS, .bytes = 12};
    struct slice_request request;
    char rest[SLICES_DIM * sizeof(float)];
    put(l->socket, &greeting, sizeof greeting);
    put(l->socket, &l->hello, sizeof l->hello);
    CHECK(slice_read(l->socket, &frame, sizeof frame, 0) == SLICE_WHOLE && frame.bytes == sizeof request + sizeof rest);
    CHECK(slice_read(l->socket, &request, sizeof request, 0) == SLICE_WHOLE);
    CHECK(slice_read(l->socket, rest, sizeof rest, 0) == SLICE_WHOLE);
    if (l->answer == ANSWER_HALF) answer.bytes = request.k * 12;
    if (l->answer == ANSWER_NOISE) memset(&answer, 'x', sizeof answer);
    if (l->answer == ANSWER_SIZE) answer.bytes = UINT64_MAX;
    if (l->answer == ANSWER_ERROR) answer = (struct slice_frame){.kind = FRAME_ERROR, .bytes = 4 + 8};
    if (l->answer >= ANSWER_CHUNK)
        send_wrong_hits(l, &request);
    else if (l->answer > ANSWER_END)
        put(l->socket, &answer, sizeof answer);
    if (l->answer == ANSWER_ERROR)
        put(l->socket,
            "\xfa\xff\xff\xff"
            "a \"text\"",
            12);
    if (l->answer != ANSWER_NOTHING) CHECK(shutdown(l->socket, SHUT_WR) == 0);
    while (slice_read(l->socket, rest, 1, 0) == SLICE_WHOLE) /* until the searching process ends */
        continue;
    return NULL;
}

static void test_strange(const struct world *w) {
    static const struct {
        enum status status;
        const char *message;
    } wanted[ANSWERS] = {
        [ANSWER_NOTHING] = {STATUS_IO, "worker 2 of 2 (another thread) was lost: no answer in 1 seconds"},
        [ANSWER_END] = {STATUS_IO, "worker 2 of 2 (another thread) was lost: it ended before it answered"},
        [ANSWER_HALF] = {STATUS_IO, "worker 2 of 2 (another thread) was lost: it ended before it answered"},
        [ANSWER_ERROR] = {STATUS_CORRUPT, "worker 2 of 2 (another thread): a \"text\""},
        [ANSWER_OVERLAP] = {STATUS_MISMATCH, "their slices overlap"},
    };
    const struct store_search how = {.k = 9, .exact = true};
    struct store_hit hits[9];
    for (int i = 0; i < ANSWERS; i++) {
        struct slices_fixture_worker good;
        struct slices *s;
        pthread_t thread;
        int ends[2];
        struct wrong_worker wrong_worker = {.answer = (enum answer)i,
                                            .hello = {.magic = SLICES_MAGIC,
                                                      .number = 1,
                                                      .of = 2,
                                                      .dim = SLICES_DIM,
                                                      .generation = w->info.generation,
                                                      .chunks = (uint64_t)w->info.chunks}};
        CHECK_OK(store_view_identity(w->view, &wrong_worker.hello.identity));
        slices_fixture_start(&good, w->store, 0, 2);
        const struct store_search first = {.k = 1, .exact = true, .slice = {0, 2}};
        CHECK_OK(store_view_search(w->view, hits, w->queries, 1, &first));
        wrong_worker.chunk = hits[0].chunk, wrong_worker.score = hits[0].score;
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        wrong_worker.socket = ends[1];
        CHECK(threads_start(&thread, answer_wrongly, &wrong_worker));
        const struct slice_worker streams[] = {{good.ends[0], "a thread"}, {ends[0], "another thread"}};
        CHECK_OK(slices_open(&s, w->view, streams, 2, 1));
        const struct store_passes passes = slices_passes(s);
        const double begin = clock_seconds();
        CHECK_FAILS(store_view_search_passes(w->view, hits, w->queries, 1, &how, &passes),
                    wanted[i].message ? wanted[i].status : STATUS_MISMATCH,
                    wanted[i].message ? wanted[i].message
                                      : "worker 2 of 2 (another thread) does not speak the protocol");
        CHECK(clock_seconds() - begin < 30);
        CHECK_FAILS(store_view_search_passes(w->view, hits, w->queries, 1, &how, &passes), STATUS_IO,
                    "lost in an earlier search");
        slices_close(s);
        close(ends[0]);
        CHECK(pthread_join(thread, NULL) == 0);
        close(ends[1]);
        slices_fixture_stop(&good);
    }
}

int main(int argc, char **argv) {
    struct world w, other, newer;
    struct store_delete_report report;
    test_start(argc, argv, 1);
    test_random_stores(test_seed());
    test_shared_lists(test_seed());
    slices_fixture_store(test_path("one"), test_seed(), 100, 3, "IVF4,SQ8");
    slices_fixture_store(test_path("newer"), test_seed(), 100, 3, "IVF4,SQ8");
    const int64_t gone = 9;
    CHECK_OK(store_delete(&report, test_path("newer"), &(struct store_delete){.documents = &gone, .n_documents = 1}));
    /* The same number of chunks and generation, but other vectors and documents. */
    open_world(&w, test_path("one"), test_seed());
    open_world(&newer, test_path("newer"), test_seed());
    for (uint64_t seed = test_seed() + 1;; seed++) {
        char dir[40];
        snprintf(dir, sizeof dir, "other-%llu", (unsigned long long)seed);
        slices_fixture_store(test_path(dir), seed, 100, 3, "IVF4,SQ8");
        open_world(&other, test_path(dir), seed);
        if (other.info.chunks == w.info.chunks && other.info.generation == w.info.generation) break;
        close_world(&other);
        CHECK(seed < test_seed() + 400);
    }
    test_tcp(&w);
    test_wrong_slices(&w, &other, &newer);
    test_addresses(&w);
    test_strange(&w);
    close_world(&w);
    close_world(&other);
    close_world(&newer);
    return test_done();
}
