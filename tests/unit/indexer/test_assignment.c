/* test_assignment.c -- rows of an index assigned to lists on devices instead of by FAISS: the nearest centroid of each
 * row by the products in double precision, ties; the same lists for any number of devices and any ranges; the same
 * bytes of an index as FAISS's where no product is rounded, in parts, and at once; methods that are refused. CPU
 * devices stand for the GPUs of a host; if there is a GPU, it computes the same tests. */
#include "base/half.h"
#include "indexer/search/assignment.h"
#include "tests/property/index_parts_fixture.h"

enum { DEVICES_MAX = 3 };
struct devices {
    struct device *list[DEVICES_MAX];
    const char *kind;
    bool half;
};

static void devices_open(struct devices *d, const char *kind) {
    d->kind = kind;
    d->half = strcmp(kind, "cuda") == 0;
    for (int i = 0; i < DEVICES_MAX; i++)
        CHECK_OK(device_open_number(&d->list[i], kind, d->half ? i % device_count(kind) : i, 2));
    device_enter(d->list[0]);
}

static void devices_close(struct devices *d) {
    for (int i = 0; i < DEVICES_MAX; i++) {
        device_enter(d->list[i]);
        device_close(d->list[i]);
    }
}

/* ---- lists of rows ---- */

enum { DIM = 24, LISTS = 300, FIRST = 9000, ROWS = 2 * STORE_ASSIGN_BLOCK + 5000, TWIN = 7 };

static float rows[ROWS][DIM], centroids[LISTS][DIM];

static void make_rows(void) {
    struct rng r = rng_make(test_seed(), 1);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < DIM; j++)
            rows[i][j] = half_from_f16(half_to_f16(rng_normal(&r)));
    for (int l = 0; l < LISTS; l++) {
        float square = 0;
        for (int j = 0; j < DIM; j++) {
            centroids[l][j] = rng_normal(&r);
            square += centroids[l][j] * centroids[l][j];
        }
        for (int j = 0; j < DIM; j++)
            centroids[l][j] /= sqrtf(square);
    }
    memcpy(centroids[LISTS - 1], centroids[TWIN], sizeof centroids[0]);
    memset(rows[3], 0, sizeof rows[3]);
}

static void read_array(void *context, void *out, bool half, int64_t first, int64_t n) {
    (void)context;
    CHECK(first >= FIRST && first + n <= FIRST + ROWS);
    const float *from = rows[first - FIRST];
    if (half)
        half_to_f16_row(out, from, (size_t)(n * DIM));
    else
        memcpy(out, from, (size_t)(n * DIM) * sizeof *from);
}

struct calls {
    const struct store_assignment *a;
    void *assigner;
    int32_t *list;
    int64_t piece; /* chunks of a call at most */
};

static void call_pieces(void *context, int64_t begin, int64_t end, int worker) {
    const struct calls *c = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        for (int64_t at = i * STORE_ASSIGN_BLOCK, n; at < (i + 1) * STORE_ASSIGN_BLOCK; at += n) {
            n = (i + 1) * STORE_ASSIGN_BLOCK - at < c->piece ? (i + 1) * STORE_ASSIGN_BLOCK - at : c->piece;
            int64_t low = at < FIRST ? FIRST : at, high = at + n > FIRST + ROWS ? FIRST + ROWS : at + n;
            if (low < high)
                CHECK_OK(c->a->assign(c->assigner, c->list + (low - FIRST),
                                      (struct store_assign_rows){read_array, NULL}, low, high - low));
        }
}

static void assign_rows(int32_t *list, const struct devices *d, int devices, int threads, int64_t piece) {
    struct device_group group = {(struct device **)(uintptr_t)d->list, devices};
    const struct store_assignment a = assignment_on(&group);
    struct threads *pool;
    struct calls c = {.a = &a, .list = list, .piece = piece};
    CHECK_OK(threads_create(&pool, threads));
    CHECK_EQ(a.method, d->half ? STORE_ASSIGN_F16 : STORE_ASSIGN_F32);
    CHECK_OK(a.open(a.context, &c.assigner, centroids[0], LISTS, DIM));
    threads_for(pool, (FIRST + ROWS) / STORE_ASSIGN_BLOCK + 1, 1, call_pieces, &c);
    a.close(c.assigner);
    threads_free(pool);
}

/* The centroids in double precision, as the device has them. */
static double product(const struct devices *d, int row, int list) {
    double sum = 0;
    for (int j = 0; j < DIM; j++) {
        float c = centroids[list][j];
        sum += (double)rows[row][j] * (double)(d->half ? half_from_f16(half_to_f16(c)) : c);
    }
    return sum;
}

static void test_lists(const struct devices *d) {
    static int32_t list[ROWS], again[ROWS];
    assign_rows(list, d, 1, 1, STORE_ASSIGN_BLOCK);
    CHECK_EQ(list[3], 0); /* all products are 0 */
    for (int i = 0; i < ROWS; i++) {
        double best = -1e30;
        for (int l = 0; l < LISTS; l++)
            best = fmax(best, product(d, i, l));
        CHECK(list[i] >= 0 && list[i] < LISTS - 1); /* the last is equal to TWIN, which has the smaller number */
        if (product(d, i, list[i]) < best - 1e-4)
            fprintf(stderr, "row %d: list %d, %g, best %g\n", i, list[i], product(d, i, list[i]), best);
        CHECK(product(d, i, list[i]) >= best - 1e-4);
    }
    const int64_t pieces[] = {STORE_ASSIGN_BLOCK, 5000, 16383};
    for (int devices = 1; devices <= DEVICES_MAX; devices++) {
        memset(again, 255, sizeof again);
        assign_rows(again, d, devices, 1 + devices, pieces[devices - 1]);
        CHECK(memcmp(list, again, sizeof list) == 0);
    }
}

/* ---- an index of FAISS, where products are exact ---- */

enum { SMALL_DIM = 16, SMALL_LISTS = 24, SMALL_ROWS = 3000 };

/* Integers below 64: products with centroids of one and of four numbers 1 or 1/2 are exact, in fp16 sums, too. */
static void small_row(float *out, int64_t number) {
    struct rng r = rng_make(test_seed() + 9, (uint64_t)number);
    for (int j = 0; j < SMALL_DIM; j++)
        out[j] = (float)((int)rng_below(&r, 127) - 63);
}

static enum status small_centroids(void *context, float *out, const float *from, int64_t n, int dim, int64_t lists,
                                   const struct progress *progress) {
    (void)context, (void)from, (void)n, (void)progress;
    CHECK_EQ(dim, SMALL_DIM);
    for (int64_t l = 0; l < lists; l++)
        for (int j = 0; j < dim; j++)
            out[l * dim + j] = l < dim ? (float)(j == l) : (float)(j / 2 == l - dim) * (j % 2 ? 0.5f : -0.5f);
    return STATUS_OK;
}

static void small_store(const char *dir, struct store_publish how) {
    struct store_writer_config config = fixture_config(SMALL_DIM, 100);
    struct store_writer *w;
    float row[SMALL_DIM];
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    for (int64_t i = 0; i < SMALL_ROWS; i++) {
        const int32_t id = 1;
        struct store_new_document document = {.ids = &id, .n_ids = 1, .source = "s", .key = "k"};
        bool duplicate;
        fixture_hash(document.hash, i);
        if (i % 700 == 0) CHECK_OK(store_shard_begin(w));
        CHECK_OK(store_shard_document(w, &document, &duplicate));
        small_row(row, i);
        CHECK_OK(store_shard_landmarks(w, row, 1));
        const int64_t end = i + 1;
        if (end % 700 == 0 || end == SMALL_ROWS) CHECK_OK(store_shard_seal(w, &end, sizeof end));
    }
    how.clustering.fit = small_centroids;
    how.seed = 1;
    CHECK_OK(store_writer_publish(w, &how));
    store_writer_close(w);
}

static enum status full(void *context, void **assigner, const float *from, int64_t lists, int dim) {
    (void)context, (void)assigner, (void)from, (void)lists, (void)dim;
    return fail(STATUS_NO_MEMORY, "the GPU is full");
}

/* FAISS assigns instead. */
static void test_full(const struct devices *d) {
    char dir[700], a[900], b[900];
    const struct store_assignment none = {.method = STORE_ASSIGN_F16, .open = full};
    snprintf(dir, sizeof dir, "%s/full-%s", test_folder(), d->kind);
    small_store(dir, (struct store_publish){.index = "IVF24,SQ8", .assignment = none});
    snprintf(a, sizeof a, "%s/%s-IVF24,SQ8-faiss/index/00002.faiss", test_folder(), d->kind);
    snprintf(b, sizeof b, "%s/index/00002.faiss", dir);
    CHECK(parts_same_file(a, b));
}

static enum status unavailable(void *context, bool *out) {
    *out = false;
    ++*(int *)context;
    return STATUS_OK;
}

static enum status broken(void *context, bool *out) {
    (void)context, (void)out;
    return fail(STATUS_IO, "the device is lost");
}

/* Devices that are opened when an index is made, and cannot assign: FAISS does. A failure ends the publishing. */
static void test_available(const struct devices *d) {
    char dir[700], a[900], b[900];
    int asked = 0;
    struct store_assignment late = {.available = unavailable, .open = full, .context = &asked};
    snprintf(dir, sizeof dir, "%s/unavailable-%s", test_folder(), d->kind);
    small_store(dir, (struct store_publish){.index = "IVF24,SQ8", .assignment = late});
    CHECK_EQ(asked, 1);
    snprintf(a, sizeof a, "%s/%s-IVF24,SQ8-faiss/index/00002.faiss", test_folder(), d->kind);
    snprintf(b, sizeof b, "%s/index/00002.faiss", dir);
    CHECK(parts_same_file(a, b));
    late.available = broken;
    const struct store_publish how = {.index = "IVF23,SQ8", .assignment = late, .clustering.fit = small_centroids};
    int64_t problems;
    CHECK_FAILS(store_repair(dir, &how, NULL, fixture_print_problem, NULL, &problems), STATUS_IO, "the device is lost");
    CHECK_OK(
        store_repair(dir, &(struct store_publish){.index = "exact"}, NULL, fixture_print_problem, NULL, &problems));
}

static void test_small(const struct devices *d, const char *index) {
    char faiss[700], own[700], a[900], b[900];
    struct device_group group = {(struct device **)(uintptr_t)d->list, 2};
    snprintf(faiss, sizeof faiss, "%s/%s-%s-faiss", test_folder(), d->kind, index);
    snprintf(own, sizeof own, "%s/%s-%s-own", test_folder(), d->kind, index);
    small_store(faiss, (struct store_publish){.index = index});
    small_store(own, (struct store_publish){.index = index, .assignment = assignment_on(&group)});
    for (int file = 1; file <= 2; file++) {
        snprintf(a, sizeof a, "%s/index/%05d.faiss", faiss, file);
        snprintf(b, sizeof b, "%s/index/%05d.faiss", own, file);
        CHECK(file_exists(a) && parts_same_file(a, b));
    }
    parts_verify(own);
}

/* ---- parts ---- */

static void copy_store(const char *to, const char *from) {
    char command[1500];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
    CHECK(system(command) == 0);
}

static void same_segments(const char *a, const char *b) {
    char left[900], right[900];
    int n = 0;
    for (;; n++) {
        snprintf(left, sizeof left, "%s/index/%05d.faiss", a, n + 1);
        snprintf(right, sizeof right, "%s/index/%05d.faiss", b, n + 1);
        CHECK_EQ(file_exists(left), file_exists(right));
        if (!file_exists(left)) break;
        CHECK(parts_same_file(left, right));
    }
    CHECK(n >= 2);
}

static void fill_parts(const char *dir, const char *work, const struct devices *d, int parts, uint64_t max_ram) {
    struct store_index_parts_report report;
    struct threads *pool;
    CHECK_OK(threads_create(&pool, 2));
    for (int part = 1; part <= parts; part++) {
        struct device_group group = {(struct device **)(uintptr_t)d->list, 1 + part % DEVICES_MAX};
        const struct store_publish how = {
            .seed = 1, .max_ram = max_ram, .assignment = assignment_on(&group), .threads = part % 2 ? pool : NULL};
        CHECK_OK(store_index_fill(&report, dir, work, part, parts, &how));
        CHECK(!report.already);
        CHECK_OK(store_index_fill(&report, dir, work, part, parts, &how));
        CHECK(report.already);
    }
    CHECK_OK(store_index_merge(&report, dir, work, &(struct store_publish){.seed = 1}));
    threads_free(pool);
}

/* One process, parts in files, and all at once give the same bytes; dropped shards divide the segment. */
static void test_parts(const struct devices *d, const char *index, bool drop) {
    const struct store_writer_config config = fixture_config(12, 200);
    char base[700], one[700], many[700], direct[700], work[700];
    struct device_group group = {(struct device **)(uintptr_t)d->list, 2};
    struct store_publish how = {.seed = 1, .index = index, .assignment = assignment_on(&group)};
    struct store_index_parts_report report;
    int64_t problems;
    snprintf(base, sizeof base, "%s/%s-base", test_folder(), d->kind);
    snprintf(one, sizeof one, "%s/one", test_folder());
    snprintf(many, sizeof many, "%s/many", test_folder());
    snprintf(direct, sizeof direct, "%s/direct", test_folder());
    snprintf(work, sizeof work, "%s/work", test_folder());
    if (!file_exists(base)) fixture_store_elsewhere(base, &config, 0, 3000, 500, "exact");
    copy_store(many, base);
    const struct store_range range = {2, 3};
    const struct store_drop dropped = {.ranges = &range, .n_ranges = 1, .publish = parts_how};
    if (drop) CHECK_OK(store_drop(&(struct store_drop_report){0}, many, &dropped));
    copy_store(one, many);
    copy_store(direct, many);
    CHECK_OK(store_repair(one, &how, NULL, fixture_print_problem, NULL, &problems));

    CHECK_OK(store_index_train(&report, many, work, &how));
    enum store_assign_method method;
    CHECK_OK(store_index_assigned(&method, work));
    CHECK_EQ(method, how.assignment.method);
    CHECK_FAILS(store_index_fill(&report, many, work, 1, 2, &parts_how), STATUS_MISMATCH,
                "which this process cannot do");
    /* some 4,100 rows are a file */
    fill_parts(many, work, d, 5, (UINT64_C(32) << 20) + 2000 * (12 * 8 + 512) + 3000000);
    same_segments(one, many);
    parts_verify(many);
    CHECK_OK(store_index_parts_remove(work, index));

    CHECK_OK(store_index_train(&report, direct, work, &how));
    CHECK_OK(threads_create(&how.threads, 3)); /* after the training, where FAISS would use them */
    CHECK_OK(store_index_make(&report, direct, work, &how));
    CHECK_EQ(report.segments, drop ? 2 : 1);
    CHECK(!report.already);
    same_segments(one, direct);
    parts_verify(direct);
    CHECK_OK(store_index_make(&report, direct, work, &how));
    CHECK(report.already);
    CHECK_OK(store_index_parts_remove(work, index));
    threads_free(how.threads);
    how.threads = NULL;

    /* too little memory for all rows: through files */
    copy_store(direct, many);
    CHECK_OK(store_repair(direct, &(struct store_publish){.seed = 1, .index = "exact"}, NULL, fixture_print_problem,
                          NULL, &problems));
    how.max_ram = (UINT64_C(32) << 20) + 2000 * (12 * 8 + 512) + 3000000;
    CHECK_OK(store_index_train(&report, direct, work, &how));
    CHECK_OK(store_index_make(&report, direct, work, &how));
    CHECK_EQ(report.segments, drop ? 2 : 1);
    parts_verify(direct);
    CHECK_OK(store_index_parts_remove(work, index));
}

/* Types whose codes BLAS computes, and plans that were trained without devices, are left to FAISS. */
static void test_faiss(const struct devices *d, const char *index) {
    char base[700], with[700], without[700], work[700];
    struct device_group group = {(struct device **)(uintptr_t)d->list, 2};
    struct store_publish how = {.seed = 1, .index = index};
    struct store_index_parts_report report;
    enum store_assign_method method;
    snprintf(base, sizeof base, "%s/%s-base", test_folder(), d->kind);
    snprintf(with, sizeof with, "%s/with", test_folder());
    snprintf(without, sizeof without, "%s/without", test_folder());
    snprintf(work, sizeof work, "%s/work", test_folder());
    copy_store(with, base);
    copy_store(without, base);
    const bool product = strstr(index, "PQ") != NULL;
    for (int i = 0; i < 2; i++) {
        const char *dir = i ? with : without;
        how.assignment = i && product ? assignment_on(&group) : (struct store_assignment){0};
        CHECK_OK(store_index_train(&report, dir, work, &how));
        CHECK_OK(store_index_assigned(&method, work));
        CHECK_EQ(method, STORE_ASSIGN_FAISS);
        if (i) how.assignment = assignment_on(&group);
        CHECK_OK(store_index_make(&report, dir, work, &how));
        CHECK_OK(store_index_parts_remove(work, index));
    }
    same_segments(with, without);
}

static void test_all(const char *kind) {
    struct devices d;
    devices_open(&d, kind);
    make_rows();
    test_lists(&d);
    test_small(&d, "IVF24,SQ8");
    test_small(&d, "IVF24,Flat");
    test_small(&d, "IVF24,SQ4");
    test_full(&d);
    test_available(&d);
    test_parts(&d, "IVF32_HNSW8,SQ8", false);
    test_parts(&d, "IVF24,SQ8", true);
    test_parts(&d, "IVF400_HNSW32,Flat", false);
    test_faiss(&d, "IVF32_HNSW8,SQ8");
    test_faiss(&d, "IVF64,PQ4np");
    devices_close(&d);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 20261126);
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1); /* without syncs of a disk */
    const struct device_group none = {0};
    CHECK(!assignment_on(&none).open);
    test_all("cpu");
    if (device_count("cuda") > 0) test_all("cuda");
    return test_done();
}
