/* test_store_mend.c -- landmarks are encoded again from their tokens, and shards whose tokens are lost are dropped. */
#include "indexer/search/flat_index.h"
#include "indexer/search/list_index.h"
#include "tests/mend_fixture.h"

enum { DIM = 16, VOCAB = 200, DOCUMENTS = 120, EACH = 30, QUERIES = 20, K = 10 };
static struct store_writer_config config;
static void fresh_store(const char *pristine) {
    fresh_copy("store", pristine);
}

static size_t read_file(uint8_t **out, const char *name) {
    FILE *f = fopen(in_store(name), "rb");
    CHECK(f);
    *out = malloc(1 << 20);
    size_t n = fread(*out, 1, 1 << 20, f);
    fclose(f);
    return n;
}

static void queries_of(float *queries) {
    for (int q = 0; q < QUERIES; q++)
        fixture_vector(queries + q * DIM, DIM, (uint64_t)q * 3, 0.6f);
}

static void search(struct store_view *v, struct store_hit *hits, const struct store_range *exclude, bool exact) {
    float queries[QUERIES * DIM];
    queries_of(queries);
    const struct store_search how = {.k = K, .nprobe = 4, .candidates = 4000, .exclude = exclude, .exact = exact};
    CHECK_OK(store_view_search(v, hits, queries, QUERIES, &how));
}

/* ---- landmarks ---- */

static void landmarks_again(const char *pristine) {
    static const char *const names[] = {"landmarks/00001.f16", "landmarks/00003.f16"};
    struct found f;
    uint8_t *before[2];
    size_t bytes[2];
    struct store_hit hits[2][QUERIES * K];
    struct opened o;
    fresh_store(pristine);
    open_view(&o);
    search(o.v, hits[0], NULL, false);
    close_view(&o);
    for (int i = 0; i < 2; i++)
        bytes[i] = read_file(&before[i], names[i]);
    for (int kind = 0; kind < 4; kind++) { /* header, row, length, whole file */
        if (kind < 2) flip(in_store(names[0]), kind ? 100 : 3, 5);
        if (kind == 2) CHECK(truncate(in_store(names[0]), (off_t)bytes[0] - 5) == 0);
        if (kind == 3) CHECK(unlink(in_store(names[0])) == 0);
        flip(in_store(names[1]), 70, 5);
        CHECK_EQ(verify(true, &f), 2);
        CHECK_STR(f.remedy, "run drt-index repair --model with the model that made the store");
        CHECK_EQ(mend_repair(&config, 0, NULL), 0);
        CHECK_EQ(verify(true, &f), 0);
        for (int i = 0; i < 2; i++) {
            uint8_t *after;
            CHECK_EQ(read_file(&after, names[i]), bytes[i]);
            CHECK(memcmp(before[i], after, bytes[i]) == 0);
            free(after);
        }
    }
    open_view(&o);
    CHECK_EQ(o.info.generation, 1); /* equal bytes: nothing was recorded */
    search(o.v, hits[1], NULL, false);
    close_view(&o);
    CHECK(fixture_same_hits(hits[0], hits[1], QUERIES * K));
    free(before[0]);
    free(before[1]);
}

/* Bytes of another device are recorded, and the index is updated: with every list visited it finds the hits of a
 * scan. */
static void landmarks_of_another_device(const char *pristine) {
    struct found f;
    struct opened o;
    struct store_hit hits[2][QUERIES * K];
    float row[DIM], before[DIM];
    fresh_store(pristine);
    open_view(&o);
    int64_t chunk = o.info.chunks / 2 - 5;
    CHECK_OK(store_view_landmark(o.v, before, chunk));
    close_view(&o);
    flip(in_store("landmarks/00001.f16"), 75, 5);
    flip(in_store("landmarks/00002.f16"), 75, 5);
    CHECK_EQ(mend_repair(&config, 3.0f, NULL), 0);
    CHECK_EQ(verify(true, &f), 0);
    open_view(&o);
    CHECK_EQ(o.info.generation, 2);
    CHECK_OK(store_view_landmark(o.v, row, chunk));
    for (int i = 0; i < DIM; i++)
        CHECK(row[i] - before[i] > 2.9f && row[i] - before[i] < 3.1f);
    float queries[QUERIES * DIM];
    queries_of(queries);
    const struct store_search how = {
        .k = K, .nprobe = 4, .candidates = K}; /* at most what the index's own scores say */
    CHECK_OK(store_view_search(o.v, hits[0], queries, QUERIES, &how));
    search(o.v, hits[1], NULL, true);
    close_view(&o);
    CHECK(fixture_same_hits(hits[0], hits[1], QUERIES * K));
}

static void repair_is_refused(void) {
    struct found f = {0};
    int64_t problems;
    struct mend_encoding how = {.dim = DIM};
    struct store_encoder encoder = {.fingerprint = config.fingerprint, .encode = mend_encode, .context = &how};
    encoder.fingerprint.encoder[3] ^= 1;
    fresh_store("ivf");
    flip(in_store("landmarks/00001.f16"), 100, 5);
    CHECK_FAILS(store_repair(dir, NULL, &encoder, remember, &f, &problems), STATUS_MISMATCH, "encoder weights");
    CHECK_EQ(verify(true, &f), 1);
    /* If tokens and landmarks of one shard are lost, another shard's landmarks are still repaired. */
    flip(in_store("tokens/00002.tok"), 80, 5);
    CHECK(unlink(in_store("landmarks/00002.f16")) == 0);
    f = (struct found){0};
    CHECK_EQ(mend_repair(&config, 3.0f, &f), 2);
    CHECK_STR(f.file, in_store("landmarks/00002.f16"));
    CHECK_STR(f.remedy, "run drt-index drop --shard 2, then add its documents again");
    CHECK_EQ(verify(true, &f), 2);
}

/* ---- dropping ---- */

struct named {
    int n;
    int64_t first, last;
};
static void count_document(void *context, int64_t shard, const struct store_document *d) {
    struct named *n = context;
    char key[32];
    snprintf(key, sizeof key, "doc-%lld", (long long)d->id);
    CHECK_STR(d->key, key);
    CHECK_EQ(d->id / EACH, shard);
    if (n->n++ == 0) n->first = d->id;
    n->last = d->id;
}

static enum status drop(const int64_t *shards, int64_t n, bool dry, struct named *named) {
    struct store_drop_report report;
    struct store_range ranges[8];
    for (int64_t i = 0; i < n; i++)
        ranges[i] = (struct store_range){shards[i], shards[i] + 1};
    const struct store_drop how = {.ranges = ranges,
                                   .n_ranges = n,
                                   .dry_run = dry,
                                   .publish = {.seed = 1},
                                   .document = named ? count_document : NULL,
                                   .context = named};
    return store_drop(&report, dir, &how);
}

/* Checks all that a view returns after shard 1 (and 3, with `both`) was dropped. */
static void check_view(const struct opened *before, bool both) {
    struct opened o;
    static struct store_hit hits[4][QUERIES * K];
    float row[DIM];
    int32_t ids[FIXTURE_CHUNK];
    open_view(&o);
    CHECK_EQ(o.info.format, fixture_format());
    CHECK_EQ(o.info.chunks, before->info.chunks);
    CHECK_EQ(o.info.documents, DOCUMENTS);
    CHECK_EQ(o.info.dropped_documents, both ? 2 * EACH : EACH);
    CHECK_EQ(o.info.dropped_shards, both ? 2 : 1);
    struct store_dropped d = store_view_dropped(o.v);
    CHECK_EQ(d.n, both ? 2 : 1);
    int64_t gone = 0;
    for (int64_t c = 0; c < o.info.chunks; c++) {
        struct store_chunk chunk;
        bool there = store_dropped_live(d, c);
        gone += !there;
        enum status s = store_view_chunk(o.v, &chunk, ids, c), t = store_view_landmark(o.v, row, c);
        CHECK(there ? s == STATUS_OK && t == STATUS_OK : s == STATUS_NOT_FOUND && t == STATUS_NOT_FOUND);
        if (there) CHECK_EQ(store_dropped_nth(d, store_dropped_rank(d, c)), c);
        if (there) CHECK_EQ(store_dropped_rank(d, c), c - gone);
    }
    CHECK_EQ(gone, o.info.dropped_chunks);
    struct store_document document;
    CHECK_FAILS(store_view_document(o.v, &document, EACH), STATUS_NOT_FOUND, "was dropped with shard 1");
    CHECK_OK(store_view_document(o.v, &document, EACH - 1));
    uint8_t hash[16];
    int64_t found;
    fixture_hash(hash, EACH);
    CHECK_OK(store_view_find_document(o.v, &found, hash));
    CHECK_EQ(found, -1);
    /* All kinds of search find the same hits, and none of a dropped shard, also with an excluded range. */
    struct store_range exclude[QUERIES];
    for (int q = 0; q < QUERIES; q++)
        exclude[q] = (struct store_range){q * 4, q * 4 + 40};
    for (int filtered = 0; filtered < 2; filtered++) {
        search(o.v, hits[0], filtered ? exclude : NULL, true);
        search(o.v, hits[1], filtered ? exclude : NULL, false);
        CHECK(fixture_same_hits(hits[0], hits[1], QUERIES * K));
        struct device *dev;
        struct flat_index *flat;
        struct list_index *lists;
        float queries[QUERIES * DIM];
        queries_of(queries);
        CHECK_OK(device_open(&dev, "cpu", 1));
        const struct landmark_source source = landmark_source_of(o.v);
        CHECK_OK(flat_index_create(&flat, &(struct flat_index_config){.device = dev, .source = source}));
        CHECK_OK(list_index_create(
            &lists, &(struct list_index_config){.device = dev, .source = source, .lists = 4, .nprobe = 4}));
        CHECK_OK(flat_index_search_host(flat, hits[2], queries, QUERIES, K, filtered ? exclude : NULL));
        CHECK_OK(list_index_search_host(lists, hits[3], queries, QUERIES, K, 4, filtered ? exclude : NULL));
        flat_index_free(flat);
        list_index_free(lists);
        device_close(dev);
        for (int i = 0; i < QUERIES * K; i++) {
            CHECK(hits[0][i].chunk >= 0 && store_dropped_live(d, hits[0][i].chunk));
            CHECK_EQ(hits[0][i].chunk, hits[2][i].chunk);
            CHECK_EQ(hits[0][i].chunk, hits[3][i].chunk);
        }
    }
    close_view(&o);
}

static void drop_one(const char *pristine) {
    struct found f;
    struct opened before;
    struct named named = {0};
    const int64_t shards[] = {1, 3, 1};
    fresh_store(pristine);
    open_view(&before);
    close_view(&before);
    CHECK(unlink(in_store("tokens/00001.tok")) == 0);
    CHECK_FAILS(store_open(&before.s, dir), STATUS_CORRUPT, "run drt-index drop --shard 1");
    CHECK_OK(drop(shards, 1, true, &named));
    CHECK_EQ(named.n, EACH);
    CHECK_EQ(named.first, EACH);
    CHECK_EQ(named.last, 2 * EACH - 1);
    CHECK_EQ(verify(true, &f), 1); /* a dry run changes nothing */
    CHECK_OK(drop(shards, 1, false, &named));
    CHECK_EQ(named.n, 2 * EACH);
    CHECK_EQ(verify(true, &f), 0);
    check_view(&before, false);
    CHECK_OK(drop(shards, 1, false, NULL)); /* a second call: nothing to do */
    check_view(&before, false);
    CHECK_OK(drop(shards, 3, false, &named));
    CHECK_EQ(named.n, 4 * EACH);
    CHECK_EQ(verify(true, &f), 0);
    check_view(&before, true);
    CHECK(access(in_store("landmarks/00003.f16"), F_OK) == 0);
    CHECK_EQ(mend_repair(&config, 0, NULL), 0); /* finds no problem; removes the files */
    CHECK(access(in_store("landmarks/00003.f16"), F_OK) != 0);
    check_view(&before, true);
}

static void drop_is_refused(void) {
    const int64_t none = 7, last = 4, all[] = {0, 1, 2, 3};
    struct found f;
    struct store_writer *w;
    int taken;
    fresh_store("ivf");
    CHECK_FAILS(drop(&none, 1, false, NULL), STATUS_NOT_FOUND, "there is no shard 7, the store has 4");
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    CHECK_OK(mend_shard(w, &config, DOCUMENTS, DOCUMENTS + 5, &taken));
    store_writer_close(w);
    CHECK_FAILS(drop(&last, 1, false, NULL), STATUS_INVALID, "shard 4 belongs to a build or add that is not finished");
    CHECK_OK(drop(all, 2, false, NULL)); /* with a journal, which is kept */
    CHECK_OK(store_writer_open(&w, dir, &config, false));
    struct store_journal j;
    CHECK_OK(store_writer_journal(w, &j));
    CHECK_EQ(j.documents, 5);
    CHECK_OK(store_writer_drop_journal(w));
    store_writer_close(w);
    CHECK_OK(drop(all, 4, false, NULL)); /* no document remains */
    CHECK_EQ(verify(true, &f), 0);
    struct opened o;
    struct store_hit hits[QUERIES * K];
    open_view(&o);
    CHECK_EQ(o.info.chunks, o.info.dropped_chunks);
    search(o.v, hits, NULL, false);
    CHECK_EQ(hits[0].chunk, -1);
    close_view(&o);
}

/* Dropped documents are accepted again, the others are duplicates; the index is extended after the gap. */
static void add_again(const char *pristine, const char *index) {
    struct found f;
    struct opened o;
    struct store_hit hits[2][QUERIES * K];
    const int64_t shard = 2;
    fresh_store(pristine);
    CHECK_OK(drop(&shard, 1, false, NULL));
    for (int times = 0; times < 2; times++) {
        CHECK_OK(mend_add(dir, &config, 0, DOCUMENTS, EACH, index, 0));
        CHECK_EQ(verify(true, &f), 0);
        open_view(&o);
        CHECK_EQ(o.info.documents - o.info.dropped_documents, DOCUMENTS);
        uint8_t hash[16];
        int64_t found;
        fixture_hash(hash, 2 * EACH);
        CHECK_OK(store_view_find_document(o.v, &found, hash));
        CHECK_EQ(found, DOCUMENTS);
        search(o.v, hits[0], NULL, false);
        search(o.v, hits[1], NULL, true);
        CHECK(fixture_same_hits(hits[0], hits[1], QUERIES * K));
        close_view(&o);
    }
    /* Another index over the remaining chunks is trained and filled without the dropped ones. */
    int64_t problems;
    CHECK_OK(
        store_repair(dir, &(struct store_publish){.index = "IVF5,Flat", .seed = 1}, NULL, remember, &f, &problems));
    CHECK_EQ(problems, 0);
    CHECK_EQ(verify(true, &f), 0);
}

/* An open view sees the shard until it is closed. */
static void open_views_stay(void) {
    struct opened o;
    struct store_chunk chunk;
    struct store_document d;
    int32_t ids[FIXTURE_CHUNK];
    fresh_store("ivf");
    open_view(&o);
    pid_t child = fork();
    const int64_t shard = 0;
    if (child == 0) _exit(drop(&shard, 1, false, NULL) == STATUS_OK ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(store_view_chunk(o.v, &chunk, ids, 0));
    CHECK_OK(store_view_document(o.v, &d, 0));
    close_view(&o);
    open_view(&o);
    CHECK_FAILS(store_view_chunk(o.v, &chunk, ids, 0), STATUS_NOT_FOUND, "was dropped with shard 0");
    close_view(&o);
}

/* Too few chunks remain for the lists: the error names a kind of index that works. */
static void few_are_left(void) {
    const int64_t shards[] = {0, 1, 2};
    int64_t problems;
    struct found f = {0};
    snprintf(dir, sizeof dir, "%s/few", test_folder());
    CHECK_OK(mend_add(dir, &config, 0, 4, 1, "IVF8,SQ8", 0));
    CHECK_OK(drop(shards, 3, false, NULL));
    CHECK_OK(store_verify(dir, true, NULL, remember, &f, &problems));
    CHECK_EQ(problems, 0);
    CHECK(unlink(in_store("index/00001.faiss")) == 0);
    CHECK_FAILS(store_repair(dir, NULL, NULL, remember, &f, &problems), STATUS_INVALID, "use exact or IVF");
    CHECK_OK(store_repair(dir, &(struct store_publish){.index = "exact"}, NULL, remember, &f, &problems));
    CHECK_EQ(problems, 0);
    CHECK_EQ(verify(true, &f), 0);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    config = fixture_config(DIM, VOCAB);
    static const struct {
        const char *name, *index;
    } stores[] = {{"exact", "exact"}, {"ivf", "IVF4,Flat"}, {"flat", "Flat"}};
    for (size_t i = 0; i < ARRAY_LEN(stores); i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", test_folder(), stores[i].name);
        CHECK_OK(mend_add(path, &config, 0, DOCUMENTS, EACH, stores[i].index, 0));
        landmarks_again(stores[i].name);
        landmarks_of_another_device(stores[i].name);
        drop_one(stores[i].name);
        add_again(stores[i].name, stores[i].index);
    }
    repair_is_refused();
    drop_is_refused();
    open_views_stay();
    few_are_left();
    return test_done();
}
