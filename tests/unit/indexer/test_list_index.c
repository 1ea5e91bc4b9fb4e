/* test_list_index.c -- lists of landmarks in device memory, on every available device. With all lists it is exact
 * search; with fewer it finds nearly all hits, and never a wrong score. Rows come from a store or from the caller's
 * memory. */
#include "base/half.h"
#include "indexer/search/flat_index.h"
#include "indexer/search/list_index.h"
#include "tests/store_fixture.h"

enum { DOCUMENTS = 300, PER_SHARD = 70, QUERIES = 70, VOCAB = 1000 };

struct world {
    struct device *dev;
    struct store *store;
    struct store_view *view;
    struct store_info info;
    struct landmark_source source;
    float *queries;
};

static void open_world(struct world *w, const char *dir, int dim) {
    struct store_writer_config config = fixture_config(dim, VOCAB);
    fixture_store(dir, &config, 0, DOCUMENTS, PER_SHARD, "exact");
    CHECK_OK(store_open(&w->store, dir));
    CHECK_OK(store_view_open(&w->view, w->store));
    store_view_info(w->view, &w->info);
    w->source = landmark_source_of(w->view);
    w->queries = malloc(QUERIES * (size_t)dim * sizeof(float));
    CHECK(w->queries);
    for (int i = 0; i < QUERIES; i++)
        fixture_vector(w->queries + i * dim, dim, (uint64_t)(100000 + i), 1);
}

static struct list_index *make(struct world *w, int64_t lists, int nprobe, uint64_t seed) {
    struct list_index *f;
    const struct list_index_config config = {
        .device = w->dev, .source = w->source, .lists = lists, .nprobe = nprobe, .seed = seed};
    CHECK_OK(list_index_create(&f, &config));
    return f;
}

/* Ranges of all kinds: none, one document's, the beginning, the end, everything. */
static void fill_ranges(struct store_range *out, int64_t rows) {
    for (int64_t i = 0; i < QUERIES; i++) {
        const struct store_range kinds[] = {
            {0, 0}, {rows / 3 + i, rows / 3 + 2 * i}, {0, i}, {rows - i, rows + i}, {-5, rows * 2}};
        out[i] = kinds[i % 5];
    }
}

static bool same_score(float a, float b) {
    return a == b || fabs((double)a - (double)b) <= 1e-5 * (1 + fabs((double)b));
}

/* All lists: rank by rank the scores of exact search, and the ids, if no other score is nearly equal. */
static void check_exact(struct world *w, struct list_index *f, int nprobe, int64_t n, int k,
                        const struct store_range *exclude) {
    struct store_hit *found = malloc((size_t)(n * k) * sizeof *found), *right = malloc((size_t)(n * k) * sizeof *right);
    CHECK(found && right);
    const struct store_search how = {.k = k, .exact = true, .exclude = exclude};
    CHECK_OK(store_view_search(w->view, right, w->queries, n, &how));
    CHECK_OK(list_index_search_host(f, found, w->queries, n, k, nprobe, exclude));
    for (int64_t i = 0; i < n * k; i++) {
        CHECK_EQ(found[i].chunk < 0, right[i].chunk < 0);
        CHECK(same_score(found[i].score, right[i].score));
        const struct store_range hole = exclude ? exclude[i / k] : (struct store_range){0};
        CHECK(found[i].chunk < hole.begin || found[i].chunk >= hole.end || found[i].chunk < 0);
        bool alone = (i % k == 0 || !same_score(right[i - 1].score, right[i].score)) &&
                     (i % k < k - 1 && !same_score(right[i + 1].score, right[i].score));
        if (alone) CHECK_EQ(found[i].chunk, right[i].chunk);
    }
    free(found), free(right);
}

/* Few lists: each score is right, and most of the near chunks are found. */
static void check_some(struct world *w, struct list_index *f, int nprobe, double least) {
    enum { K = 8 };
    struct store_hit found[K], right[K];
    int64_t again = 0, dim = w->source.dim;
    for (int64_t i = 0; i < QUERIES; i++) {
        const float *query = w->queries + i * dim;
        const struct store_search how = {.k = K, .exact = true};
        CHECK_OK(store_view_search(w->view, right, query, 1, &how));
        CHECK_OK(list_index_search_host(f, found, query, 1, K, nprobe, NULL));
        for (int j = 0; j < K && found[j].chunk >= 0; j++) {
            float row[256];
            double dot = 0;
            CHECK_OK(store_view_landmark(w->view, row, found[j].chunk));
            for (int64_t c = 0; c < dim; c++)
                dot += (double)row[c] * (double)query[c];
            CHECK(same_score(found[j].score, (float)(dot / sqrt((double)dim))));
            CHECK(j == 0 || found[j - 1].score >= found[j].score);
            for (int r = 0; r < K; r++)
                again += right[r].chunk == found[j].chunk;
        }
    }
    double recall = (double)again / (QUERIES * K);
    if (recall < least) fprintf(stderr, "recall %.3f of at least %.3f\n", recall, least);
    CHECK(recall >= least);
}

/* The same seed gives the same lists and hits, from the store and from a copy of its rows. */
struct copy {
    float *rows;
    int64_t read, dim;
};
static enum status read_copy(void *context, struct device *dev, struct mat to, int64_t first) {
    struct copy *c = context;
    CHECK(to.stride == to.cols && to.type == landmark_source_type(dev));
    c->read += to.rows;
    if (to.type == DTYPE_F32) {
        device_upload(dev, to.data, c->rows + first * c->dim, (size_t)(to.rows * c->dim) * sizeof *c->rows);
        return STATUS_OK;
    }
    uint16_t *half = malloc((size_t)(to.rows * c->dim) * sizeof *half);
    CHECK(half);
    for (int64_t i = 0; i < to.rows * c->dim; i++)
        half[i] = half_to_f16(c->rows[first * c->dim + i]);
    device_upload(dev, to.data, half, (size_t)(to.rows * c->dim) * sizeof *half);
    enum status s = device_sync(dev);
    free(half);
    return s;
}

static void check_source(struct world *w) {
    enum { K = 8 };
    struct copy c = {.dim = w->source.dim};
    static struct store_hit a[QUERIES * K], b[QUERIES * K];
    c.rows = malloc((size_t)(w->source.rows * c.dim) * sizeof *c.rows);
    CHECK(c.rows);
    for (int64_t i = 0; i < w->source.rows; i++)
        CHECK_OK(store_view_landmark(w->view, c.rows + i * c.dim, i));
    struct list_index *first = make(w, 20, 3, 9), *second;
    struct list_index_config config = {.device = w->dev, .lists = 20, .nprobe = 3, .seed = 9};
    config.source =
        (struct landmark_source){.rows = w->source.rows, .dim = (int)c.dim, .read = read_copy, .context = &c};
    CHECK_OK(list_index_create(&second, &config));
    CHECK_EQ(c.read, 2 * w->source.rows);
    CHECK_OK(list_index_search_host(first, a, w->queries, QUERIES, K, 0, NULL));
    CHECK_OK(list_index_search_host(second, b, w->queries, QUERIES, K, 0, NULL));
    CHECK(fixture_same_hits(a, b, QUERIES * K));
    for (int i = 0; i < QUERIES; i++) /* one by one: the same bits */
        CHECK_OK(list_index_search_host(second, b + i * K, w->queries + i * c.dim, 1, K, 3, NULL));
    CHECK(fixture_same_hits(a, b, QUERIES * K));
    list_index_free(first), list_index_free(second);
    free(c.rows);
}

static bool at_once(void *context) {
    (void)context;
    return true;
}

static void check_limits(struct world *w) {
    struct list_index *f;
    struct list_index_config config = {.device = w->dev, .source = w->source, .stop = at_once};
    CHECK_FAILS(list_index_create(&f, &config), STATUS_INTERRUPTED, "stopped");
    config.stop = NULL;
    CHECK(list_index_bytes(&config) > landmark_source_bytes(&w->source, w->dev));
    if (!w->dev->shares_memory) {
        config.reserve = UINT64_C(1) << 60;
        CHECK_FAILS(list_index_create(&f, &config), STATUS_NO_MEMORY, "");
        config.reserve = 0;
        config.source.dim = 12;
        CHECK_FAILS(list_index_create(&f, &config), STATUS_UNSUPPORTED, "12 dimensions");
    }
    list_index_free(NULL);
}

/* Each row has its chunk, and each chunk its row, but dropped chunks have none. */
static void check_rows(struct world *w, const struct landmark_lists *l, bool mapped) {
    const size_t rows = (size_t)l->lists.rows.rows, chunks = (size_t)l->chunks;
    int32_t *id = malloc(rows * sizeof *id), *row_of = malloc(chunks * sizeof *row_of);
    size_t none = 0;
    CHECK_EQ(l->chunks, w->info.chunks);
    CHECK(id && row_of && (l->row_of != NULL) == mapped);
    device_download(w->dev, id, l->lists.id, rows * sizeof *id);
    if (mapped) device_download(w->dev, row_of, l->row_of, chunks * sizeof *row_of);
    CHECK_OK(device_sync(w->dev));
    for (size_t c = 0; c < chunks; c++) {
        const int32_t row = mapped ? row_of[c] : (int32_t)c;
        none += row < 0;
        CHECK(row < 0 ? (c >= 3 && c < 7) || c == 20 : id[row] == (int32_t)c);
    }
    CHECK_EQ(none + rows, chunks);
    free(id), free(row_of);
}

/* The rows of both indexes, as ops of a hybrid search read them. */
static void check_lists(struct world *w) {
    static const struct store_hole holes[] = {{3, 7, 0}, {20, 21, 4}};
    for (int dropped = 0; dropped < 2; dropped++) {
        struct flat_index *flat;
        struct landmark_lists lists, again;
        struct landmark_source source = w->source;
        if (dropped) source.rows -= 5, source.dropped = (struct store_dropped){holes, 2};
        CHECK_OK(flat_index_create(&flat, &(struct flat_index_config){.device = w->dev, .source = source}));
        CHECK_OK(flat_index_lists(flat, &lists));
        CHECK_OK(flat_index_lists(flat, &again));
        CHECK(lists.lists.id == again.lists.id && lists.nprobe == 1 && lists.lists.centroids.rows == 1);
        check_rows(w, &lists, dropped);
        flat_index_free(flat);
        struct list_index *f;
        const struct list_index_config config = {.device = w->dev, .source = source, .lists = 16, .seed = 1};
        CHECK_OK(list_index_create(&f, &config));
        CHECK_OK(list_index_lists(f, &lists));
        CHECK_OK(list_index_lists(f, &again));
        CHECK(lists.row_of == again.row_of && lists.nprobe == list_index_info(f).nprobe);
        check_rows(w, &lists, true);
        list_index_free(f);
    }
}

static void test_device(const char *kind, int dim) {
    struct world w = {0};
    char dir[600];
    enum status status = device_open(&w.dev, kind, 2);
    if (status == STATUS_UNSUPPORTED && strcmp(kind, "cpu") != 0) {
        printf("%s left out: %s\n", kind, status_message());
        return;
    }
    CHECK_OK(status);
    snprintf(dir, sizeof dir, "%s/%s-%d", test_folder(), kind, dim);
    open_world(&w, dir, dim);
    struct store_range exclude[QUERIES];
    fill_ranges(exclude, w.info.chunks);
    static const int64_t lists[] = {1, 16, 0};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        struct list_index *f = make(&w, lists[i], 1 << 20, 1);
        struct list_index_info info = list_index_info(f);
        CHECK_EQ(info.rows, w.info.chunks);
        CHECK(info.lists == lists[i] || (lists[i] == 0 && info.lists >= 16));
        CHECK(info.largest >= info.rows / info.lists && info.largest <= info.rows);
        check_exact(&w, f, 0, 1, 8, NULL);
        check_exact(&w, f, 1000, QUERIES, 8, NULL);
        check_exact(&w, f, 0, QUERIES, 1, exclude);
        check_exact(&w, f, 0, QUERIES, 40, exclude);
        check_exact(&w, f, 0, 1, 40, exclude + 3);
        check_exact(&w, f, 0, 1, 700, NULL);
        check_exact(&w, f, 0, 3, (int)w.info.chunks + 10, exclude);
        check_exact(&w, f, 1, QUERIES, (int)info.largest + 1, exclude); /* more than one list: all are visited */
        check_some(&w, f, 8, lists[i] == 0 ? 0.6 : 0.8);
        list_index_free(f);
    }
    check_source(&w);
    check_lists(&w);
    check_limits(&w);
    store_view_close(w.view);
    store_close(w.store);
    free(w.queries);
    CHECK_OK(device_sync(w.dev));
    device_close(w.dev);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    static const int dims[] = {24, 128};
    for (size_t i = 0; i < ARRAY_LEN(dims); i++) {
        test_device("cpu", dims[i]);
        test_device("cuda", dims[i]);
    }
    return test_done();
}
