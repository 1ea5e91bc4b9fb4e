/* fuzz_slices.c -- any bytes on the connections of a search by several processes: both ends must return a status.
 *
 * The first byte selects the reader of the rest. 0: a worker, on a stream; 1: a worker with a key, as a server's hello;
 * 2: the searching process, as a worker's greeting and hits; 3: the same after a valid greeting; 4: the parser of
 * addresses. */
#include "tests/unit/indexer/slices_fixture.h"

enum { INPUT_MAX = 60000 }; /* a socket buffers it */
static struct store *store;
static struct store_view *view;
static struct store_info info;
static uint64_t identity;
static int ignored;

static void make(void) {
    const int64_t gone[] = {4, 11};
    struct store_delete_report report;
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1);
    slices_fixture_store(test_path("store"), 5, 40, 2, "IVF4,SQ8");
    CHECK_OK(store_delete(&report, test_path("store"), &(struct store_delete){.documents = gone, .n_documents = 2}));
    CHECK_OK(store_open(&store, test_path("store")));
    CHECK_OK(store_view_open(&view, store));
    CHECK_OK(store_view_identity(view, &identity));
    store_view_info(view, &info);
    ignored = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(ignored >= 0);
}

/* A socket that delivers these bytes, and then ends. */
static int stream_of(int *other, const void *head, size_t head_bytes, const uint8_t *data, size_t size) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(slice_write(ends[1], head, head_bytes, false, 0) == SLICE_WHOLE);
    CHECK(slice_write(ends[1], data, size, false, 0) == SLICE_WHOLE);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    *other = ends[1];
    return ends[0];
}

static void search_by(int fd) {
    const struct slice_worker worker = {fd, "fuzz"};
    float query[2 * SLICES_DIM];
    struct store_hit hits[2 * 5];
    struct slices *s;
    if (slices_open(&s, view, &worker, 1, 1) != STATUS_OK) return;
    const struct store_passes passes = slices_passes(s);
    const struct store_search exact = {.k = 5, .exact = true}, index = {.k = 3};
    for (int i = 0; i < 2 * SLICES_DIM; i++)
        query[i] = (float)i - SLICES_DIM;
    for (int i = 0; i < 2; i++) {
        const struct store_search *how = i ? &exact : &index;
        if (store_view_search_passes(view, hits, query, 2, how, &passes) != STATUS_OK) break;
        for (int j = 0; j < 2 * how->k; j++) /* as a caller does with each hit */
            CHECK(hits[j].chunk == -1 || store_dropped_live(store_view_dropped(view), hits[j].chunk));
    }
    slices_close(s);
}

static void serve(int fd) {
    const struct slice_worker_config config = {.view = view, .slice = {0, 2}, .patience = 5};
    enum status s = slice_serve(fd, ignored, &config);
    (void)s;
}

static void address(const uint8_t *data, size_t size) {
    char text[300];
    struct slice_address a;
    size_t n;
    bool open;
    snprintf(text, sizeof text, "%.*s", (int)(size < 290 ? size : 290), (const char *)data);
    if (slice_address_parse(&a, text, &n) == STATUS_OK) CHECK(n <= strlen(text) && a.host[0] && a.port[0]);
    enum status s = slice_listen_open(&open, text);
    (void)s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!store) make();
    if (size < 1 || size > INPUT_MAX) return 0;
    const int who = data[0] % 5;
    const struct {
        struct slice_frame frame;
        struct slice_greeting hello;
    } good = {{.kind = FRAME_GREETING, .bytes = sizeof(struct slice_greeting)},
              {.magic = SLICES_MAGIC,
               .of = 1,
               .dim = SLICES_DIM,
               .generation = info.generation,
               .chunks = (uint64_t)info.chunks,
               .identity = identity}};
    if (who == 4) {
        address(data + 1, size - 1);
        return 0;
    }
    int other, fd = stream_of(&other, &good, who == 3 ? sizeof good : 0, data + 1, size - 1);
    enum status s = STATUS_OK;
    if (who == 0) serve(fd);
    if (who == 1) s = slice_hello(fd, "sixteen bytes and more", 1e9);
    if (who >= 2) search_by(fd);
    (void)s;
    close(fd);
    close(other);
    return 0;
}
