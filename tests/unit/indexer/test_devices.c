/* test_devices.c -- several CPU devices stand for the GPUs of a host: the batches of a build in order, the bytes of a
 * store, failures of one device, and hits of slices with ties. */
#include "base/file.h"
#include "base/rng.h"
#include "base/system/threads.h"
#include "indexer/build/indexer.h"
#include "indexer/search/landmark_load.h"
#include "indexer/search/searcher.h"
#include "tests/store_fixture.h"
#include <dirent.h>
#include <stdatomic.h>
#include <unistd.h>

/* ---- the pool ---- */

enum { DEVICES = 3, BATCH = 8, BATCHES = 300, CHUNK = 4, DIM = 2 };

/* A device that writes the first id of each chunk, and that is slow for some batches. */
struct fake {
    atomic_int calls;
    int fail_at; /* the call that fails; 0: none */
    unsigned slow;
};

static enum status fake_encode(void *context, float *rows, const int32_t *ids, int64_t n) {
    struct fake *f = context;
    const int call = atomic_fetch_add(&f->calls, 1) + 1;
    if (f->slow) usleep((unsigned)ids[0] * 7919 % f->slow);
    for (int64_t i = 0; i < n; i++) {
        rows[i * DIM] = (float)ids[i * CHUNK];
        rows[i * DIM + 1] = (float)n;
    }
    return call == f->fail_at ? fail(STATUS_IO, "GPU 1: a test broke it") : STATUS_OK;
}

struct stored {
    int64_t next, marks, calls, fail_at;
};

static enum status store_rows(void *context, struct mat rows) {
    struct stored *s = context;
    s->marks += rows.rows == 0;
    s->calls += rows.rows > 0;
    CHECK(rows.type == DTYPE_F32 && rows.cols == DIM);
    for (int64_t i = 0; i < rows.rows; i++)
        CHECK_EQ((int64_t)*mat_row(rows, i), s->next++);
    return s->fail_at && s->next >= s->fail_at ? fail(STATUS_NO_SPACE, "the disk is full") : STATUS_OK;
}

struct pool_case {
    int devices, fail_device, fail_at, ahead; /* ahead: batches of which only ids are in memory */
    int mark_each;                            /* after so many batches; 0: 20 */
    bool opens, open_fails;                   /* the pool opens the one device; it cannot */
    int64_t store_fail_at, stored_batches;    /* stored_batches: in spite of the failure; 0: any */
    enum status wanted;
    const char *message;
};

/* Opens a device after 20 ms, in which batches are collected. */
struct opened {
    const struct encode_device *device;
    bool fails;
};
static enum status open_slowly(void *context, struct encode_device *out) {
    const struct opened *o = context;
    usleep(20000);
    if (o->fails) return fail(STATUS_UNSUPPORTED, "there is no such device");
    *out = *o->device;
    return STATUS_OK;
}

/* Batches of random sizes; with a failure, the first one is returned and nothing after it is stored. */
static void test_pool_case(const struct pool_case *c) {
    struct device *device;
    struct fake fakes[DEVICES] = {{.slow = 300}, {.slow = 900}, {.slow = 50}};
    struct store_encoder encoders[DEVICES];
    struct encode_device devices[DEVICES];
    struct encode_pool *pool;
    struct stored stored = {.fail_at = c->store_fail_at};
    struct rng rng = rng_make(test_seed(), 5);
    CHECK_OK(device_open(&device, "cpu", 1));
    if (c->fail_at) fakes[c->fail_device].fail_at = c->fail_at;
    for (int i = 0; i < DEVICES; i++) {
        encoders[i] = (struct store_encoder){.encode = fake_encode, .context = &fakes[i]};
        devices[i] = (struct encode_device){.device = device, .external = &encoders[i]};
    }
    struct opened opened = {&devices[0], c->open_fails};
    const struct encode_pool_config config = {.devices = c->opens ? NULL : devices,
                                              .n_devices = c->devices,
                                              .opening = {c->opens ? open_slowly : NULL, &opened},
                                              .batch = BATCH,
                                              .chunk = CHUNK,
                                              .dim = DIM,
                                              .ahead_bytes = (uint64_t)c->ahead * BATCH * CHUNK * sizeof(int32_t),
                                              .store = store_rows};
    const int mark_each = c->mark_each ? c->mark_each : 20;
    CHECK_EQ(encode_pool_bytes(&config), (uint64_t)(2 * c->devices + 8) * BATCH * (CHUNK * 4 + DIM * 4));
    CHECK_OK(encode_pool_open(&pool, &config));
    enum status status = STATUS_OK;
    int32_t next = 0;
    for (int batch = 0; batch < BATCHES && status == STATUS_OK; batch++) {
        int32_t *ids;
        status = encode_pool_ids(pool, &ids);
        if (status != STATUS_OK) break;
        const int64_t n = 1 + (int64_t)rng_below(&rng, BATCH);
        for (int64_t i = 0; i < n; i++)
            ids[i * CHUNK] = next++;
        encode_pool_submit(pool, n, &stored);
        if (batch % mark_each == mark_each - 1) status = encode_pool_mark(pool, &stored);
        if (status == STATUS_OK && batch % 50 == 49) status = encode_pool_drain(pool);
        if (status == STATUS_OK && batch % 50 == 49) CHECK_EQ(stored.next, next);
    }
    CHECK_EQ(status, c->wanted);
    if (c->wanted != STATUS_OK) CHECK(strstr(status_message(), c->message));
    if (c->wanted != STATUS_OK) CHECK_FAILS(encode_pool_drain(pool), c->wanted, c->message);
    if (c->stored_batches > 0) CHECK_EQ(stored.calls, c->stored_batches);
    int calls = 0;
    for (int i = 0; i < DEVICES; i++)
        calls += atomic_load(&fakes[i].calls);
    if (c->wanted == STATUS_OK) CHECK(encode_pool_device(pool) == device);
    if (c->wanted == STATUS_OK)
        CHECK(calls == BATCHES && stored.marks == BATCHES / mark_each && encode_pool_seconds(pool) > 0);
    encode_pool_close(pool);
    encode_pool_close(NULL);
    device_close(device);
}

static void test_pool(void) {
    static const struct pool_case cases[] = {
        {.devices = 1},
        {.devices = 2},
        {.devices = DEVICES},
        {.devices = 1, .ahead = 1},
        {.devices = DEVICES, .ahead = 40, .mark_each = 1},
        {.devices = 1, .opens = true},
        {.devices = 1, .opens = true, .ahead = 1000},
        {.devices = 1,
         .opens = true,
         .ahead = 1000,
         .fail_at = 47,
         .stored_batches = 46,
         .wanted = STATUS_IO,
         .message = "a test broke it"},
        {.devices = 1,
         .opens = true,
         .open_fails = true,
         .ahead = 40,
         .wanted = STATUS_UNSUPPORTED,
         .message = "there is no such device"},
        {.devices = 1,
         .ahead = 1000,
         .fail_at = 47,
         .stored_batches = 46,
         .wanted = STATUS_IO,
         .message = "a test broke it"},
        {.devices = DEVICES,
         .ahead = 40,
         .store_fail_at = 100,
         .wanted = STATUS_NO_SPACE,
         .message = "the disk is full"},
        {.devices = DEVICES, .fail_device = 1, .fail_at = 4, .wanted = STATUS_IO, .message = "GPU 1: a test broke it"},
        {.devices = 1, .fail_device = 0, .fail_at = 1, .wanted = STATUS_IO, .message = "a test broke it"},
        {.devices = 1, .fail_at = 47, .stored_batches = 46, .wanted = STATUS_IO, .message = "a test broke it"},
        {.devices = DEVICES, .store_fail_at = 100, .wanted = STATUS_NO_SPACE, .message = "the disk is full"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        test_pool_case(&cases[i]);
}

/* ---- builds ---- */

enum { TOKENS = 100000, SHARD = 700 };

struct model {
    struct model_config config;
    struct params *params;
    struct device_group group;
    struct device *first;
    struct encoder *encoders[DEVICES];
};

static void open_model(struct model *m) {
    char path[700];
    snprintf(path, sizeof path, "%s/tests/cli/tiny", getenv("DRT_SOURCE") ? getenv("DRT_SOURCE") : ".");
    CHECK_OK(model_config_load(&m->config, path));
    CHECK_OK(params_init(&m->params, &m->config, 3));
    CHECK_OK(device_open(&m->first, "cpu", 2));
    CHECK_OK(device_group_open(&m->group, m->first, DEVICES, 1));
    CHECK(m->group.n == DEVICES && m->group.devices[0] == m->first && m->group.devices[1] != m->group.devices[2]);
    const struct weights weights = weights_of_params(m->params);
    for (int i = 0; i < DEVICES; i++)
        CHECK_OK(encoder_create(&m->encoders[i], m->group.devices[i], &m->config, &weights, 0));
}

static void close_model(struct model *m) {
    for (int i = 0; i < DEVICES; i++)
        encoder_free(m->encoders[i]);
    device_group_close(&m->group);
    device_group_close(&m->group); /* zeroed */
    device_close(m->first);
    params_free(m->params);
}

/* Documents of 1 to 400 random ids. */
static void write_corpus(const char *path) {
    struct rng rng = rng_make(test_seed(), 9);
    static uint16_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = rng_below(&rng, 200) == 0 ? 268 : (uint16_t)rng_below(&rng, 250);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(ids, sizeof *ids, TOKENS, f) == TOKENS && fclose(f) == 0);
}

static enum status open_model_device(void *context, struct encode_device *out) {
    const struct model *m = context;
    *out = (struct encode_device){.device = m->first, .encoder = m->encoders[0]};
    return STATUS_OK;
}

/* devices 0: the pool opens one. */
static enum status build(struct indexer_report *r, const struct model *m, const char *store, int devices,
                         const struct store_encoder *broken, int64_t shard) {
    struct encode_device more[DEVICES] = {{0}};
    const char *const inputs[] = {test_path("corpus.u16")};
    for (int i = 1; i < DEVICES; i++)
        more[i - 1] = (struct encode_device){.device = m->group.devices[i], .encoder = m->encoders[i]};
    if (broken) more[0] = (struct encode_device){.device = m->group.devices[1], .external = broken};
    struct indexer_config config = {.reader = {.inputs = inputs, .n_inputs = 1, .format = READER_U16, .eod_id = 268},
                                    .model = &m->config,
                                    .params = m->params,
                                    .device = m->first,
                                    .encoder = m->encoders[0],
                                    .more = more,
                                    .n_more = devices - 1,
                                    .store = store,
                                    .shard_chunks = shard};
    if (devices == 0) {
        config.device = NULL, config.encoder = NULL, config.n_more = 0;
        config.opening = (struct encode_opening){open_model_device, (void *)(uintptr_t)m};
    }
    return indexer_run(r, &config);
}

static char *read_whole(const char *path, long *bytes) {
    FILE *f = fopen(path, "rb");
    CHECK(f && fseek(f, 0, SEEK_END) == 0);
    *bytes = ftell(f);
    rewind(f);
    char *data = malloc((size_t)*bytes + 1);
    CHECK(data && fread(data, 1, (size_t)*bytes, f) == (size_t)*bytes && fclose(f) == 0);
    return data;
}

/* All files of a folder of both stores have the same names and bytes; returns their number. */
static int compare_folders(const char *a, const char *b, const char *folder) {
    char path[1300];
    int files[2] = {0};
    for (int side = 0; side < 2; side++) {
        snprintf(path, sizeof path, "%s/%s", side ? b : a, folder);
        DIR *d = opendir(path);
        CHECK(d);
        for (struct dirent *e; (e = readdir(d));) {
            if (e->d_name[0] == '.') continue;
            long bytes[2];
            char *data[2];
            for (int i = 0; i < 2; i++) {
                snprintf(path, sizeof path, "%s/%s/%s", i ? b : a, folder, e->d_name);
                data[i] = read_whole(path, &bytes[i]);
            }
            CHECK_EQ(bytes[0], bytes[1]);
            CHECK(memcmp(data[0], data[1], (size_t)bytes[0]) == 0);
            free(data[0]);
            free(data[1]);
            files[side]++;
        }
        closedir(d);
    }
    CHECK_EQ(files[0], files[1]);
    return files[0];
}

static void test_builds(const struct model *m) {
    char one[600], many[600];
    struct indexer_report first, r;
    snprintf(one, sizeof one, "%s/devices-1", test_folder());
    CHECK_OK(build(&first, m, one, 1, NULL, SHARD));
    CHECK(first.chunks > 2 * SHARD && first.encode_seconds > 0);
    for (int devices = 0; devices <= DEVICES; devices++) {
        if (devices == 1) continue;
        snprintf(many, sizeof many, "%s/devices-%d", test_folder(), devices);
        CHECK_OK(build(&r, m, many, devices, NULL, SHARD));
        CHECK(r.chunks == first.chunks && r.tokens == first.tokens && r.documents == first.documents);
        CHECK(compare_folders(one, many, "tokens") > 2);
        CHECK(compare_folders(one, many, "landmarks") > 2);
        CHECK(compare_folders(one, many, "lexical") == 1);
        fixture_verify(many, true);
    }
}

/* One of two devices fails in the middle: one line, and nothing is published; shards before it are kept, and a run with
 * one device ends the build with the same bytes. In some runs the device that fails gets none of the few batches, in
 * others the first one: then no shard is kept, and the store that the build made is removed. */
static void test_failure(const struct model *m) {
    enum { SMALL = 20, TRIES = 100 };
    char one[600], store[600];
    struct indexer_report r;
    struct store *opened;
    struct store_view *view;
    enum status status = STATUS_OK;
    snprintf(one, sizeof one, "%s/devices-small", test_folder());
    CHECK_OK(build(&r, m, one, 1, NULL, SMALL));
    bool kept = false;
    for (int i = 0; i < TRIES && !kept; i++) {
        char catalog[700];
        struct fake fake = {.fail_at = 1};
        const struct store_encoder broken = {.encode = fake_encode, .context = &fake};
        snprintf(store, sizeof store, "%s/devices-failed-%d", test_folder(), i);
        status = build(&r, m, store, 2, &broken, SMALL);
        snprintf(catalog, sizeof catalog, "%s/catalog/data.mdb", store);
        kept = status != STATUS_OK && file_exists(catalog);
        if (atomic_load(&fake.calls) == 0) CHECK_OK(status);
        if (status != STATUS_OK) CHECK(kept || !file_exists(store));
    }
    CHECK(kept);
    CHECK_EQ(status, STATUS_IO);
    CHECK(strstr(status_message(), "GPU 1: a test broke it") && !strchr(status_message(), '\n'));
    CHECK_OK(store_open(&opened, store));
    CHECK_EQ(store_view_open(&view, opened), STATUS_NOT_FOUND);
    store_close(opened);
    CHECK_OK(build(&r, m, store, 1, NULL, SMALL));
    CHECK(compare_folders(one, store, "landmarks") > 2);
}

/* ---- slices ---- */

enum { ROW_DIM = 16, DOCUMENTS = 90, PER_SHARD = 25, VOCAB = 500, QUERIES = 40, K = 12 };

/* The CPU's products round by the position of a row in a block, so that the last bits of scores may differ. exact: the
 * products are exact numbers, and the bits are equal. */
static void check_hits(const struct store_hit *hits, const struct store_hit *wanted, bool exact) {
    if (exact) CHECK(fixture_same_hits(hits, wanted, QUERIES * K));
    for (int i = 0; i < QUERIES * K; i++) {
        CHECK_EQ(hits[i].chunk, wanted[i].chunk);
        CHECK(hits[i].score == wanted[i].score ||
              fabsf(hits[i].score - wanted[i].score) < 1e-5f * (1 + fabsf(wanted[i].score)));
    }
}

/* Hits of 1 to 5 slices are those of one index. */
static void check_slices(const char *dir, struct device *first, const struct store_range *drop, bool exact) {
    struct store *store;
    struct store_view *view;
    struct store_info info;
    float queries[QUERIES * ROW_DIM];
    struct store_range exclude[QUERIES];
    struct store_drop_report dropped;
    struct store_hit wanted[QUERIES * K], hits[QUERIES * K];
    if (drop) CHECK_OK(store_drop(&dropped, dir, &(struct store_drop){.ranges = drop, .n_ranges = 1}));
    CHECK_OK(store_open(&store, dir));
    CHECK_OK(store_view_open(&view, store));
    store_view_info(view, &info);
    struct rng rng = rng_make(test_seed(), 12);
    for (int i = 0; i < QUERIES; i++) {
        fixture_vector(queries + i * ROW_DIM, ROW_DIM, (uint64_t)i, 7);
        for (int j = 0; j < ROW_DIM && exact; j++)
            queries[i * ROW_DIM + j] = rintf(queries[i * ROW_DIM + j] * 8) / 8;
        const int64_t begin = (int64_t)rng_below(&rng, (uint64_t)info.chunks);
        exclude[i] = (struct store_range){begin, begin + (int64_t)rng_below(&rng, 60)};
    }
    for (int ranges = 0; ranges < 2; ranges++) {
        const struct store_range *out = ranges ? exclude : NULL;
        struct searcher *one;
        const struct searcher_query q = {.n = QUERIES, .k = K, .vectors = queries, .exclude = out};
        CHECK_OK(searcher_open(&one, &(struct searcher_config){.kind = SEARCHER_FLAT, .device = first, .view = view}));
        CHECK_OK(searcher_search(one, wanted, &q));
        searcher_close(one);
        for (int n = 1; n <= 5; n++) {
            struct device_group group;
            struct searcher *many;
            CHECK_OK(device_group_open(&group, first, n, 1));
            const struct searcher_config config = {
                .kind = SEARCHER_FLAT, .device = first, .view = view, .group = &group};
            CHECK_OK(searcher_open(&many, &config));
            CHECK_OK(searcher_search(many, hits, &q));
            check_hits(hits, wanted, exact);
            struct searcher_query on_device = q;
            on_device.vectors = NULL;
            on_device.device_vectors = mat_f32(queries, QUERIES, ROW_DIM);
            CHECK_OK(searcher_search(many, hits, &on_device));
            check_hits(hits, wanted, exact);
            const struct searcher_description d = searcher_describe(many, K, 0);
            CHECK(d.exact && d.device_bytes == (uint64_t)(info.chunks - info.dropped_chunks) * ROW_DIM * 4);
            if (n == 3) CHECK_STR(d.text, "gpu-flat, exact, slices on 3 GPUs");
            searcher_close(many);
            device_group_close(&group);
        }
    }
    store_view_close(view);
    store_close(store);
}

/* All rows are equal: smaller ids come first, whatever the slice. */
static void make_ties(const char *dir) {
    enum { ROWS = 67 };
    struct store_writer_config config = fixture_config(ROW_DIM, VOCAB);
    struct store_writer *w;
    static const int32_t ids[ROWS * FIXTURE_CHUNK];
    const struct store_new_document d = {.ids = ids, .n_ids = ARRAY_LEN(ids), .source = "memory", .key = ""};
    static float rows[ROWS * ROW_DIM];
    for (int i = 0; i < ROWS * ROW_DIM; i++)
        rows[i] = 0.5f;
    bool duplicate;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(store_shard_begin(w));
    CHECK_OK(store_shard_document(w, &d, &duplicate));
    CHECK_OK(store_shard_landmarks(w, rows, ROWS));
    CHECK_OK(store_shard_seal(w, "", 0));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact"}));
    store_writer_close(w);
}

/* More devices than rows: some slices are empty. */
static void make_few(const char *dir) {
    struct store_writer_config config = fixture_config(ROW_DIM, VOCAB);
    fixture_store(dir, &config, 0, 1, 1, "exact");
}

/* ---- loading ---- */

static enum status copy_fails(void *context, pthread_mutex_t *lock, struct mat to, int64_t first) {
    (void)context, (void)lock, (void)to;
    return first > 100 ? fail(STATUS_CORRUPT, "row %lld is lost", (long long)first) : STATUS_OK;
}

/* Rows loaded by several threads on 1 to 4 devices are those of one reader; ids in the middle are missing. */
static void test_load(struct device *first, const char *dir) {
    struct store *store;
    struct store_view *view;
    struct threads *pool;
    CHECK_OK(store_open(&store, dir));
    CHECK_OK(store_view_open(&view, store));
    CHECK_OK(threads_create(&pool, 3));
    const struct landmark_source source = landmark_source_of(view);
    const size_t bytes = (size_t)(source.rows * source.dim) * sizeof(float);
    float *wanted = malloc(bytes), *got = malloc(bytes);
    CHECK(wanted && got && source.rows > 150 && source.dropped.n > 0);
    CHECK_OK(landmark_source_rows(&source, first, mat_f32(wanted, source.rows, source.dim), 0));
    for (int n = 1; n <= 4; n++) {
        struct device_group group;
        struct landmark_source slices[4];
        struct landmark_load all[4];
        CHECK_OK(device_group_open(&group, first, n, 1));
        for (int i = 0; i < n; i++) {
            slices[i] = landmark_source_slice(&source, i, n);
            all[i] = (struct landmark_load){group.devices[i], &slices[i],
                                            mat_f32(got + slices[i].first * source.dim, slices[i].rows, source.dim)};
        }
        for (int threads = 0; threads < 2; threads++) {
            memset(got, 0xff, bytes);
            CHECK_OK(landmark_load(all, n, threads ? pool : NULL, 0));
            CHECK(memcmp(got, wanted, bytes) == 0);
        }
        slices[n - 1].copy = copy_fails;
        if (n == 1) CHECK_FAILS(landmark_load(all, n, pool, 0), STATUS_CORRUPT, "is lost");
        slices[n - 1].copy = NULL;
        memset(got, 0xff, bytes);
        CHECK_OK(landmark_load(all, n, pool, 0));
        CHECK(memcmp(got, wanted, bytes) == 0);
        device_group_close(&group);
    }
    free(wanted);
    free(got);
    threads_free(pool);
    store_view_close(view);
    store_close(store);
}

static void test_slices(struct device *first) {
    char dir[600];
    struct store_writer_config config = fixture_config(ROW_DIM, VOCAB);
    snprintf(dir, sizeof dir, "%s/slices", test_folder());
    fixture_store(dir, &config, 0, DOCUMENTS, PER_SHARD, "exact");
    check_slices(dir, first, NULL, false);
    check_slices(dir, first, &(struct store_range){1, 2}, false); /* ids in the middle are missing */
    test_load(first, dir);
    snprintf(dir, sizeof dir, "%s/ties", test_folder());
    make_ties(dir);
    check_slices(dir, first, NULL, true);
    snprintf(dir, sizeof dir, "%s/few", test_folder());
    make_few(dir);
    check_slices(dir, first, NULL, false);
}

static void test_group(struct device *first) {
    struct device_group group;
    CHECK_FAILS(device_group_open(&group, first, -1, 1), STATUS_INVALID, "1 of kind cpu");
    CHECK_FAILS(device_group_open(&group, first, 0, 1), STATUS_INVALID, "0 devices are requested");
    CHECK(device_count("cpu") == 1 && device_count("cuda") >= 0);
    device_enter(first);
}

int main(int argc, char **argv) {
    struct model model = {0};
    test_start(argc, argv, 3);
    test_pool();
    open_model(&model);
    test_group(model.first);
    write_corpus(test_path("corpus.u16"));
    test_builds(&model);
    test_failure(&model);
    test_slices(model.first);
    close_model(&model);
    return test_done();
}
