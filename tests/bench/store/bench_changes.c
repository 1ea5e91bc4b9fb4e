/* bench_changes.c -- many small changes of one store: whether the time of a change grows with their number. CSV rows on
 * stdout: the medians of each tenth of the changes.
 *
 *   bench_changes FOLDER [changes (2000)] [index (exact)] [documents before (2000)] [--json FILE]
 *
 * FOLDER must not exist. First documents are added one by one, then deleted one by one. After each change a reader
 * opens the store and searches by landmarks and by words. A folder in memory measures the program without the disk. */
#include "base/clock.h"
#include "base/file.h"
#include "store/lexical/lexical.h"
#include "tests/bench/result.h"
#include "tests/store_fixture.h"
#include <dirent.h>

enum { DIM = 64, VOCAB = 2000, PER_SHARD = 500, MERGE = 16384, K = 10, TENTHS = 10 };
enum { CHANGE, OPEN, SEARCH, WORDS, MEASURES };
static const char *const names[MEASURES] = {"change", "open", "search", "words"};

struct run {
    const char *dir, *index;
    struct store_writer_config config;
    struct samples of[MEASURES];
};

static void add_one(struct run *r, int64_t document) {
    struct store_writer *w;
    const struct store_publish how = {.index = "auto", .seed = 1, .merge_chunks = MERGE};
    CHECK_OK(store_writer_open(&w, r->dir, &r->config, false));
    CHECK_OK(fixture_shard(w, &r->config, document, document + 1));
    CHECK_OK(store_writer_publish(w, &how));
    store_writer_close(w);
}

static void delete_one(struct run *r, int64_t document) {
    struct store_delete_report report;
    const struct store_delete how = {.documents = &document, .n_documents = 1};
    CHECK_OK(store_delete(&report, r->dir, &how));
    CHECK_EQ(report.documents, 1);
}

static void read_once(struct run *r, int64_t number) {
    struct store *s;
    struct store_view *v;
    const struct lexical *x;
    struct store_hit hits[K];
    float query[DIM];
    int32_t ids[FIXTURE_IDS_MAX];
    const struct store_search how = {.k = K};
    const struct lexical_query words = {ids, (int)fixture_ids(ids, number, VOCAB)};
    double begin = clock_seconds();
    CHECK_OK(store_open(&s, r->dir));
    CHECK_OK(store_view_open(&v, s));
    samples_add(&r->of[OPEN], clock_seconds() - begin);
    fixture_vector(query, DIM, (uint64_t)number, 0.5f);
    begin = clock_seconds();
    CHECK_OK(store_view_search(v, hits, query, 1, &how));
    samples_add(&r->of[SEARCH], clock_seconds() - begin);
    begin = clock_seconds();
    CHECK_OK(store_view_lexical(&x, v));
    CHECK_OK(lexical_search(x, hits, &words, 1, &(struct lexical_search){.k = K, .absent = store_view_dropped(v)}));
    samples_add(&r->of[WORDS], clock_seconds() - begin);
    store_view_close(v);
    store_close(s);
}

static int files_of(const char *dir) {
    static const char *const folders[] = {"tokens", "index", "lexical"};
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        char path[FILE_PATH_MAX];
        CHECK_OK(file_join(path, dir, folders[i]));
        DIR *d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));)
            n += e->d_name[0] != '.';
        if (d) closedir(d);
    }
    return n;
}

static void report(struct run *r, const char *what, int64_t changes) {
    char size[FILE_PATH_MAX];
    uint64_t catalog;
    CHECK_OK(file_join(size, r->dir, "catalog/data.mdb"));
    CHECK_OK(file_size(&catalog, size));
    printf("%s,%lld", what, (long long)changes);
    for (int i = 0; i < MEASURES; i++) {
        const double median = samples_quantile(r->of[i].at, r->of[i].count, 0.5);
        printf(",%.3f", 1e3 * median);
        result_value("ms", 1e3 * median, "%s, after %lld changes: %s", what, (long long)changes, names[i]);
        samples_free(&r->of[i]);
    }
    printf(",%d,%.2f\n", files_of(r->dir), (double)catalog / (1 << 20));
    fflush(stdout);
}

static void change_all(struct run *r, const char *what, int64_t first, int64_t n,
                       void (*change)(struct run *, int64_t)) {
    for (int64_t i = 0, tenth = 1; i < n; i++) {
        const double begin = clock_seconds();
        change(r, first + i);
        samples_add(&r->of[CHANGE], clock_seconds() - begin);
        read_once(r, i);
        if (i + 1 < n * tenth / TENTHS) continue;
        report(r, what, i + 1);
        tenth++;
    }
}

int main(int argc, char **argv) {
    result_begin("bench_changes", &argc, argv);
    if (argc < 2) {
        fprintf(stderr, "usage: bench_changes FOLDER [changes] [index] [documents before] [--json FILE]\n");
        return 2;
    }
    struct run r = {.dir = argv[1], .index = argc > 3 ? argv[3] : "exact", .config = fixture_config(DIM, VOCAB)};
    const int64_t changes = argc > 2 ? atoll(argv[2]) : 2000, before = argc > 4 ? atoll(argv[4]) : 2000;
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, r.dir, &r.config, true));
    for (int64_t i = 0; i < before; i += PER_SHARD)
        CHECK_OK(fixture_shard(w, &r.config, i, i + PER_SHARD < before ? i + PER_SHARD : before));
    const struct store_publish how = {.index = r.index, .seed = 1, .lexical = STORE_LEXICAL_ON};
    CHECK_OK(store_writer_publish(w, &how));
    store_writer_close(w);
    printf("what,changes,change ms,open ms,search ms,words ms,files,catalog MiB\n");
    change_all(&r, "add", before, changes, add_one);
    change_all(&r, "delete", before, changes, delete_one);
    result_end();
    return 0;
}
