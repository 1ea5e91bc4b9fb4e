/* test_flat_index.c -- exact search in device memory against the store's own exact search, on every available device,
 * and on a test device that shows without a GPU whether a pointer is of the host's or of the device's memory. */
#include "base/half.h"
#include "base/rng.h"
#include "indexer/search/flat_index.h"
#include "kernels/device/device_internal.h"
#include "kernels/ops.h"
#include "tests/store_fixture.h"

enum { DOCUMENTS = 300, PER_SHARD = 70, QUERIES = 1100 /* more than one batch */, VOCAB = 1000 };

/* ---- a test device: the CPU's ops with separate memory, which only copies reach ---- */

enum { APART_MAX = 64 };
static struct apart {
    struct device *cpu, device;
    struct ops ops;
    struct topk_ops topk;
    struct device_runtime runtime;
    struct {
        unsigned char *begin;
        size_t bytes;
    } own[APART_MAX]; /* memory of the device */
} apart;

static bool of_device(const void *at, size_t bytes) {
    for (int i = 0; i < APART_MAX; i++)
        if (apart.own[i].begin && (const unsigned char *)at >= apart.own[i].begin &&
            (const unsigned char *)at + bytes <= apart.own[i].begin + apart.own[i].bytes)
            return true;
    return false;
}

static enum status apart_allocate(struct device *dev, void **out, size_t bytes) {
    if (bytes > UINT64_C(1) << 40) return fail(STATUS_NO_MEMORY, "%zu bytes", bytes);
    TRY(apart.cpu->runtime->allocate(dev, out, bytes));
    for (int i = 0; i < APART_MAX; i++)
        if (!apart.own[i].begin) {
            apart.own[i].begin = *out;
            apart.own[i].bytes = bytes;
            return STATUS_OK;
        }
    test_fail(__FILE__, __LINE__, "too many allocations");
}

static void apart_release(struct device *dev, void *memory) {
    for (int i = 0; i < APART_MAX; i++)
        if (apart.own[i].begin == memory) apart.own[i].begin = NULL;
    apart.cpu->runtime->release(dev, memory);
}

static void apart_upload(struct device *dev, void *to, const void *from, size_t bytes) {
    CHECK(of_device(to, bytes) && !of_device(from, bytes));
    apart.cpu->runtime->upload(dev, to, from, bytes);
}

static void apart_download(struct device *dev, void *to, const void *from, size_t bytes) {
    CHECK(!of_device(to, bytes) && of_device(from, bytes));
    apart.cpu->runtime->download(dev, to, from, bytes);
}

static void apart_topk(struct device *dev, int64_t *index, float *score, struct mat queries, struct mat landmarks,
                       const int64_t *visible, int k) {
    size_t hits = (size_t)(queries.rows * k), count = (size_t)(landmarks.rows * landmarks.cols);
    CHECK(landmarks.type == DTYPE_F16 && landmarks.stride == landmarks.cols);
    CHECK(of_device(index, hits * sizeof *index) && of_device(score, hits * sizeof *score));
    CHECK(of_device(queries.data, (size_t)(queries.rows * queries.cols) * sizeof(float)));
    CHECK(of_device(landmarks.data, 2 * count) && of_device(visible, (size_t)queries.rows * sizeof *visible));
    float *wide = malloc(count * sizeof *wide);
    CHECK(wide);
    half_from_f16_row(wide, landmarks.data, count);
    topk_cpu.forward(dev, index, score, queries, mat_f32(wide, landmarks.rows, landmarks.cols), visible, k);
    free(wide);
}

static struct device *open_apart(struct device *cpu) {
    memset(&apart, 0, sizeof apart);
    apart.cpu = cpu;
    apart.device = *cpu;
    apart.ops = *cpu->ops;
    apart.topk = topk_cpu;
    apart.topk.forward = apart_topk;
    apart.ops.topk = &apart.topk;
    apart.runtime = *cpu->runtime;
    apart.runtime.allocate = apart_allocate;
    apart.runtime.release = apart_release;
    apart.runtime.upload = apart_upload;
    apart.runtime.download = apart_download;
    apart.device.ops = &apart.ops;
    apart.device.runtime = &apart.runtime;
    apart.device.shares_memory = false;
    return &apart.device;
}

/* ---- the cases ---- */

struct world {
    struct device *dev;
    struct store *store;
    struct store_view *view;
    struct flat_index *flat;
    struct store_info info;
    float *queries; /* [QUERIES, dim] */
};

static void open_view(struct world *w, const char *dir) {
    CHECK_OK(store_open(&w->store, dir));
    CHECK_OK(store_view_open(&w->view, w->store));
    store_view_info(w->view, &w->info);
}

static void close_view(struct world *w) {
    store_view_close(w->view);
    store_close(w->store);
}

static struct flat_index *make(struct world *w) {
    struct flat_index *flat;
    CHECK_OK(
        flat_index_create(&flat, &(struct flat_index_config){.device = w->dev, .source = landmark_source_of(w->view)}));
    return flat;
}

static double near(float score) {
    return 1e-5 * (1 + fabs((double)score));
}

/* Rank by rank the same scores up to rounding; and the same chunk, if the scores of the neighbouring ranks differ by
 * more. */
static void check_hits(const struct store_hit *found, const struct store_hit *right, int k, struct store_range hole) {
    for (int j = 0; j < k; j++) {
        CHECK_EQ(found[j].chunk < 0, right[j].chunk < 0);
        if (right[j].chunk < 0) {
            CHECK(found[j].chunk == -1 && found[j].score == -INFINITY);
            continue;
        }
        double off = fabs((double)found[j].score - (double)right[j].score), tolerance = near(right[j].score);
        CHECK(off <= tolerance);
        CHECK(found[j].chunk < hole.begin || found[j].chunk >= hole.end);
        bool alone = (j == 0 || (double)right[j - 1].score - (double)right[j].score > 2 * tolerance) &&
                     (j + 1 < k && (double)right[j].score - (double)right[j + 1].score > 2 * tolerance);
        if (alone) CHECK_EQ(found[j].chunk, right[j].chunk);
        for (int i = 0; i < j; i++)
            CHECK(found[i].chunk != found[j].chunk);
    }
}

static void check_search(struct world *w, int64_t n, int k, const struct store_range *exclude) {
    struct store_hit *found = malloc((size_t)(n * k) * sizeof *found), *right = malloc((size_t)(n * k) * sizeof *right);
    CHECK(found && right);
    const struct store_search how = {.k = k, .exact = true, .exclude = exclude};
    CHECK_OK(store_view_search(w->view, right, w->queries, n, &how));
    CHECK_OK(flat_index_search_host(w->flat, found, w->queries, n, k, exclude));
    for (int64_t i = 0; i < n; i++)
        check_hits(found + i * k, right + i * k, k, exclude ? exclude[i] : (struct store_range){0});
    free(found), free(right);
}

/* Every kind of excluded range that a batch can have. */
static void fill_ranges(struct store_range *out, int kind, int64_t rows) {
    struct rng rng = rng_make(test_seed(), (uint64_t)kind);
    for (int64_t i = 0; i < QUERIES; i++) {
        int64_t a = (int64_t)rng_below(&rng, (uint64_t)rows + 1), b = (int64_t)rng_below(&rng, (uint64_t)rows + 1);
        struct store_range random = {a < b ? a : b, a < b ? b : a};
        switch (kind) {
        case 0:
            out[i] = (struct store_range){rows / 3, rows / 3 + 17};
            break; /* one document's */
        case 1:
            out[i] = (struct store_range){50 + i % 100, 50 + i % 100 + 9};
            break; /* windows that move with the query */
        case 2:
            out[i] = (struct store_range){0, 1 + i % 100};
            break; /* from the first row on */
        case 3:
            out[i] = (struct store_range){rows - 1 - i, rows};
            break; /* up to the last */
        case 4:
            out[i] = i % 3 ? random : (struct store_range){0};
            break; /* any, or none */
        case 5:
            out[i] = (struct store_range){0, i % 2 ? rows : 0};
            break; /* everything */
        case 6:    /* up to the end, or nearly */
            out[i] = (struct store_range){i, rows - i % 2 * 30};
            break;
        default:
            out[i] = (struct store_range){rows - 5, rows + 5 * i};
            break; /* beyond the end */
        }
    }
}

static void test_against_store(struct world *w, const char *dir, int dim) {
    static const int ks[] = {1, 8, 40};
    struct store_writer_config config = fixture_config(dim, VOCAB);
    struct store_range exclude[QUERIES];
    fixture_store(dir, &config, 0, DOCUMENTS, PER_SHARD, "exact");
    open_view(w, dir);
    CHECK(w->info.shards > 3);
    w->queries = malloc(QUERIES * (size_t)dim * sizeof(float));
    CHECK(w->queries);
    for (int i = 0; i < QUERIES; i++)
        fixture_vector(w->queries + i * dim, dim, (uint64_t)(100000 + i), 1);
    w->flat = make(w);
    for (size_t i = 0; i < ARRAY_LEN(ks); i++) {
        check_search(w, 1, ks[i], NULL);
        check_search(w, 64, ks[i], NULL);
        check_search(w, QUERIES, ks[i], NULL);
        for (int kind = 0; kind < 8; kind++) {
            fill_ranges(exclude, kind, w->info.chunks);
            check_search(w, 7, ks[i], exclude);
            check_search(w, kind == 4 ? QUERIES : 100, ks[i], exclude);
        }
    }
    fill_ranges(exclude, 4, w->info.chunks);
    check_search(w, 3, (int)w->info.chunks + 10, NULL); /* more than the store has */
    check_search(w, 5, (int)w->info.chunks + 10, exclude);
    check_search(w, 2, 3, exclude); /* a smaller k after a larger one */
}

/* An open view does not see chunks that are published later; a new view does. */
static void test_generations(struct world *w, const char *dir, int dim) {
    struct store_writer_config config = fixture_config(dim, VOCAB);
    int64_t before = w->info.chunks;
    fixture_store_elsewhere(dir, &config, DOCUMENTS, DOCUMENTS + 50, 20, "exact");
    check_search(w, 20, 8, NULL);
    struct flat_index *old = w->flat;
    close_view(w); /* is read during creation only */
    struct store_hit hits[8];
    CHECK_OK(flat_index_search_host(old, hits, w->queries, 1, 8, NULL));
    for (int j = 0; j < 8; j++)
        CHECK(hits[j].chunk >= 0 && hits[j].chunk < before);
    flat_index_free(old);
    open_view(w, dir);
    CHECK(w->info.chunks > before);
    w->flat = make(w);
    check_search(w, QUERIES, 8, NULL);
    flat_index_free(w->flat);
}

/* All scores are equal: smaller ids come first, also around excluded ranges. */
static void test_ties(struct world *w, const char *dir) {
    enum { DIM = 16, ROWS = 60, K = 20, N = 3 };
    struct store_writer_config config = fixture_config(DIM, VOCAB);
    struct store_writer *writer;
    const int32_t ids[ROWS * FIXTURE_CHUNK] = {0};
    const struct store_new_document d = {.ids = ids, .n_ids = ARRAY_LEN(ids), .source = "memory", .key = ""};
    static float rows[ROWS * DIM];
    for (int i = 0; i < ROWS; i++)
        rows[i * DIM] = 127.0f / 128; /* which 8-bit landmarks hold, too */
    bool duplicate;
    CHECK_OK(store_writer_open(&writer, dir, &config, true));
    CHECK_OK(store_shard_begin(writer));
    CHECK_OK(store_shard_document(writer, &d, &duplicate));
    CHECK_OK(store_shard_landmarks(writer, rows, ROWS));
    CHECK_OK(store_shard_seal(writer, "", 0));
    CHECK_OK(store_writer_publish(writer, &(struct store_publish){.index = "exact"}));
    store_writer_close(writer);
    open_view(w, dir);
    w->flat = make(w);
    const struct store_range exclude[N] = {{5, 10}, {3, 30}, {0, 0}};
    const int64_t skipped[N] = {5, 27, 0};
    float queries[N * DIM];
    for (int i = 0; i < N * DIM; i++)
        queries[i] = 0.5f;
    struct store_hit hits[N * K];
    CHECK_OK(flat_index_search_host(w->flat, hits, queries, N, K, exclude));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < K; j++) {
            CHECK_EQ(hits[i * K + j].chunk, j < exclude[i].begin ? j : j + skipped[i]);
            CHECK(hits[i * K + j].score == 0.125f * 127 / 128);
        }
    flat_index_free(w->flat);
    close_view(w);
}

static void test_limits(struct world *w) {
    struct flat_index *flat;
    const struct landmark_source source = landmark_source_of(w->view);
    uint64_t bytes = landmark_source_bytes(&source, w->dev);
    CHECK_EQ(bytes, (uint64_t)w->info.chunks * (uint64_t)w->info.fingerprint.dim * (w->dev->shares_memory ? 4 : 2));
    struct flat_index_config config = {.device = w->dev, .source = source, .max_bytes = bytes - 1};
    CHECK_FAILS(flat_index_create(&flat, &config), STATUS_NO_MEMORY, "the limit is");
    config.max_bytes = bytes;
    config.reserve = 1 << 20;
    CHECK_OK(flat_index_create(&flat, &config));
    flat_index_free(flat);
    config.reserve = UINT64_C(1) << 60; /* the CPU's allocator may abort a program that requests so much */
    if (!w->dev->shares_memory) CHECK_FAILS(flat_index_create(&flat, &config), STATUS_NO_MEMORY, "");
    flat_index_free(NULL);
}

static void test_device(const char *kind, int dim) {
    struct world w = {0};
    char dir[600];
    bool separate = strcmp(kind, "apart") == 0;
    enum status status = device_open(&w.dev, separate ? "cpu" : kind, 2);
    if (status == STATUS_UNSUPPORTED && strcmp(kind, "cpu") != 0) {
        printf("%s left out: %s\n", kind, status_message());
        return;
    }
    CHECK_OK(status);
    if (separate) w.dev = open_apart(w.dev);
    snprintf(dir, sizeof dir, "%s/%s-%d", test_folder(), kind, dim);
    test_against_store(&w, dir, dim);
    test_limits(&w);
    test_generations(&w, dir, dim);
    close_view(&w);
    snprintf(dir, sizeof dir, "%s/%s-%d-ties", test_folder(), kind, dim);
    test_ties(&w, dir);
    free(w.queries);
    CHECK_OK(device_sync(w.dev));
    for (int i = 0; separate && i < APART_MAX; i++)
        CHECK(!apart.own[i].begin); /* all memory is freed */
    device_close(separate ? apart.cpu : w.dev);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    static const int dims[] = {24, 128};
    for (size_t i = 0; i < ARRAY_LEN(dims); i++) {
        test_device("cpu", dims[i]);
        test_device("apart", dims[i]);
        test_device("cuda", dims[i]);
    }
    return test_done();
}
