/* test_clustering.c -- centroids of a store's index from k-means on a device instead of FAISS's: requested once and
 * with the right rows, good for searching, the same in each run; and the fallback when the device fails. */
#include "indexer/search/clustering.h"
#include "tests/store_fixture.h"
#include <time.h>

enum { DIM = 16, DOCUMENTS = 700, QUERIES = 40, K = 8 };

struct spy {
    struct store_clustering real; /* fit NULL: returns `answer` */
    enum status answer;
    int calls, dim;
    int64_t rows, lists;
};

static enum status recording_fit(void *context, float *centroids, const float *rows, int64_t n, int dim, int64_t lists,
                                 const struct progress *progress) {
    struct spy *s = context;
    s->calls++;
    s->rows = n, s->dim = dim, s->lists = lists;
    if (!s->real.fit) return fail(s->answer, "spy says no");
    TRY(s->real.fit(s->real.context, centroids, rows, n, dim, lists, progress));
    for (int64_t l = 0; l < lists; l++) {
        double square = 0;
        for (int i = 0; i < dim; i++)
            square += (double)centroids[l * dim + i] * (double)centroids[l * dim + i];
        CHECK(fabs(square - 1) < 1e-4);
    }
    return STATUS_OK;
}

static enum status make(const char *dir, struct spy *spy, const char *index, const struct progress *progress) {
    struct store_writer_config config = fixture_config(DIM, 1000);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(fixture_shard(w, &config, 0, DOCUMENTS));
    const struct store_publish how = {
        .index = index, .seed = 1, .clustering = {recording_fit, spy}, .progress = progress};
    enum status s = store_writer_publish(w, &how);
    store_writer_close(w);
    return s;
}

/* The share of the exact hits that a search of all lists finds, and of a quarter of them. */
static void search(double recall[2], struct store_hit *hits, const char *dir, int lists) {
    struct store *store;
    struct store_view *view;
    CHECK_OK(store_open(&store, dir));
    CHECK_OK(store_view_open(&view, store));
    static struct store_hit exact[QUERIES * K];
    float queries[QUERIES * DIM];
    for (int i = 0; i < QUERIES; i++)
        fixture_vector(queries + i * DIM, DIM, (uint64_t)(50000 + i), 1);
    CHECK_OK(store_view_search(view, exact, queries, QUERIES, &(struct store_search){.k = K, .exact = true}));
    for (int part = 0; part < 2; part++) {
        const struct store_search how = {.k = K, .nprobe = part ? lists / 4 : lists, .candidates = 400};
        CHECK_OK(store_view_search(view, hits, queries, QUERIES, &how));
        int again = 0;
        for (int i = 0; i < QUERIES * K; i++)
            for (int j = i / K * K; j < i / K * K + K; j++)
                again += exact[i].chunk == hits[j].chunk;
        recall[part] = (double)again / (QUERIES * K);
    }
    store_view_close(view);
    store_close(store);
}

static void test_index(const char *name, struct device *dev, const char *index, int runs, int lists, int width,
                       double least) {
    static struct store_hit hits[2][QUERIES * K];
    char dir[600];
    double recall[2];
    for (int again = 0; again < runs; again++) {
        struct spy spy = {.real = clustering_on(dev)};
        snprintf(dir, sizeof dir, "%s/%s-%d", test_folder(), name, again);
        CHECK_OK(make(dir, &spy, index, NULL));
        CHECK_EQ(spy.calls, 1);
        CHECK_EQ(spy.lists, lists);
        CHECK_EQ(spy.dim, width);
        CHECK(spy.rows >= lists);
        search(recall, hits[again], dir, lists);
        if (recall[0] < 0.99 || recall[1] < least)
            fprintf(stderr, "%s: recall %.3f, %.3f in a quarter of the lists\n", index, recall[0], recall[1]);
        CHECK(recall[0] >= 0.99 && recall[1] >= least);
    }
    CHECK(runs == 1 || fixture_same_hits(hits[0], hits[1], QUERIES * K));
}

static void test_refused(struct device *dev) {
    char dir[600];
    double recall[2];
    struct store_hit hits[QUERIES * K];
    struct spy full = {.answer = STATUS_NO_MEMORY}, stopped = {.answer = STATUS_INTERRUPTED},
               unused = {.real = clustering_on(dev)};
    snprintf(dir, sizeof dir, "%s/full", test_folder());
    CHECK_OK(make(dir, &full, "IVF20,SQ8", NULL)); /* FAISS computes them */
    CHECK_EQ(full.calls, 1);
    search(recall, hits, dir, 20);
    CHECK(recall[0] >= 0.99);
    snprintf(dir, sizeof dir, "%s/stopped", test_folder());
    CHECK_FAILS(make(dir, &stopped, "IVF20,SQ8", NULL), STATUS_INTERRUPTED, "spy says no");
    snprintf(dir, sizeof dir, "%s/unused", test_folder());
    CHECK_OK(make(dir, &unused, "PCAR8,IVF20,SQ8", NULL)); /* the index has a step before the lists */
    CHECK_EQ(unused.calls, 0);
    snprintf(dir, sizeof dir, "%s/flat", test_folder());
    CHECK_OK(make(dir, &unused, "SQ8", NULL));
    CHECK_EQ(unused.calls, 0);
}

/* ---- progress ---- */

struct watch {
    int iterations, clock_events, asked;
    int64_t last;
    bool stop;
};

static void watch_report(void *context, const struct progress_event *e) {
    struct watch *w = context;
    int iteration, of;
    if (e->note) return;
    if (e->detail && sscanf(e->detail, "k-means iteration %d of %d", &iteration, &of) == 2) {
        CHECK_STR(e->stage, "train index");
        CHECK_EQ(iteration, w->iterations + 1); /* few points: one block in each iteration */
        CHECK(e->done == w->last || w->iterations > 0);
        CHECK(e->done >= w->last && e->done < e->total);
        CHECK_EQ(e->done, e->total / of * (iteration - 1));
        w->iterations = iteration;
        w->last = e->done;
    }
    if (strcmp(e->unit, "seconds") == 0) {
        CHECK_STR(e->stage, "train index codes");
        CHECK(strncmp(e->detail, "IVF20,SQ8 by FAISS, from ", 25) == 0);
        CHECK(w->iterations == 10);
        w->clock_events++;
    }
}

static bool watch_stop(void *context) {
    struct watch *w = context;
    return w->stop && ++w->asked > 3;
}

static void test_progress(struct device *dev) {
    char dir[600];
    struct spy spy = {.real = clustering_on(dev)};
    struct watch w = {0};
    const struct progress progress = {watch_report, watch_stop, &w};
    snprintf(dir, sizeof dir, "%s/watched", test_folder());
    CHECK_OK(make(dir, &spy, "IVF20,SQ8", &progress));
    CHECK_EQ(w.iterations, 10);
    CHECK(w.clock_events >= 1);
    w = (struct watch){.stop = true};
    snprintf(dir, sizeof dir, "%s/interrupted", test_folder());
    CHECK_FAILS(make(dir, &spy, "IVF20,SQ8", &progress), STATUS_INTERRUPTED, "sealed shards are kept");
    CHECK(w.iterations >= 1 && w.iterations < 10);
    /* A call without reports of its own: progress comes at once, and each second. */
    struct progress_clock *clock;
    struct watch seconds = {.iterations = 10};
    const struct progress by_clock = {watch_report, NULL, &seconds};
    progress_clock_start(&clock, &by_clock, "train index codes", "IVF20,SQ8 by FAISS, from 1280 vectors");
    CHECK(clock);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 300000000}, NULL);
    progress_clock_stop(clock);
    CHECK(seconds.clock_events >= 2);
    progress_clock_start(&clock, NULL, "", "");
    CHECK(!clock);
    progress_clock_stop(clock);
}

static void test_device(const char *kind) {
    struct device *dev;
    char name[64];
    enum status status = device_open(&dev, kind, 1); /* one thread: so that FAISS adds in one order */
    if (status == STATUS_UNSUPPORTED && strcmp(kind, "cpu") != 0) {
        printf("%s left out: %s\n", kind, status_message());
        return;
    }
    CHECK_OK(status);
    snprintf(name, sizeof name, "%s-flat", kind);
    test_index(name, dev, "IVF40,SQ8", 2, 40, DIM, 0.8);
    snprintf(name, sizeof name, "%s-hnsw", kind);
    test_index(name, dev, "IVF24_HNSW32,SQ8", 2, 24, DIM, 0.8);
    snprintf(name, sizeof name, "%s-rotated", kind);
    /* FAISS trains a rotation for seconds; test_index_parts compares two such indexes byte by byte. */
    test_index(name, dev, "OPQ1_8,IVF16,SQ8", 1, 16, 8, 0.5);
    if (strcmp(kind, "cpu") == 0) {
        test_refused(dev);
        test_progress(dev);
    }
    device_close(dev);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_device("cpu");
    test_device("cuda");
    return test_done();
}
