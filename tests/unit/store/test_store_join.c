/* test_store_join.c -- a join of parts that have nothing in view: all documents of one were deleted, all shards of
 * another were dropped; and the index of a joined store is the choice of the user, or of none, also after a join that
 * was stopped. */
#include "store/parts/parts.h"
#include "tests/store_fixture.h"

enum { DIM = 8, VOCAB = 100, PARTS = 3, EACH = 20 };

static void make_part(const char *dir, int number) {
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    const struct store_part part = {number, PARTS, {5}};
    const int64_t first = (number - 1) * EACH;
    struct store_writer *w;
    bool finished;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(store_writer_part(w, &part, &finished));
    CHECK_OK(fixture_shard(w, &config, first, first + EACH));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact", .seed = 1}));
    store_writer_close(w);
}

static void delete_all(const char *dir) {
    static const char *const patterns[] = {"*"};
    const struct store_delete how = {.sources = patterns, .n_sources = 1};
    struct store_delete_report report;
    CHECK_OK(store_delete(&report, dir, &how));
    CHECK_EQ(report.documents, EACH);
}

static void drop_all(const char *dir) {
    const struct store_range all = {0, 1};
    const struct store_drop how = {.ranges = &all, .n_ranges = 1, .publish = {.index = "exact", .seed = 1}};
    struct store_drop_report report;
    CHECK_OK(store_drop(&report, dir, &how));
    CHECK_EQ(report.documents, EACH);
}

static void check_joined(const char *dir, int whole) {
    struct store *s;
    struct store_view *v;
    struct store_info info;
    struct store_document d;
    CHECK_OK(store_open(&s, dir));
    CHECK_OK(store_view_open(&v, s));
    store_view_info(v, &info);
    CHECK_EQ(info.documents, PARTS * EACH);
    CHECK_EQ(info.dropped_documents, (PARTS - 1) * EACH);
    CHECK_EQ(info.deleted_documents, EACH);
    for (int64_t i = 0; i < PARTS * EACH; i++)
        CHECK_EQ(store_view_document(v, &d, i), i / EACH == whole - 1 ? STATUS_OK : STATUS_NOT_FOUND);
    store_view_close(v);
    store_close(s);
    fixture_verify(dir, true);
}

/* The part number `whole` keeps its documents. */
static void join(int whole) {
    char parts[PARTS][700], joined[700];
    const char *list[PARTS];
    struct store_join_report report;
    for (int i = 0; i < PARTS; i++) {
        snprintf(parts[i], sizeof parts[i], "%s/part-%d-%d", test_folder(), whole, i);
        list[i] = parts[i];
        make_part(parts[i], i + 1);
    }
    delete_all(parts[whole % PARTS]);
    drop_all(parts[(whole + 1) % PARTS]);
    snprintf(joined, sizeof joined, "%s/joined-%d", test_folder(), whole);
    const struct store_join how = {.parts = list, .n_parts = PARTS, .publish = {.seed = 1}};
    CHECK_OK(store_join(&report, joined, &how));
    CHECK_EQ(report.copies, 0);
    check_joined(joined, whole);
}

static bool stop(void *context) {
    ++*(int *)context;
    return true;
}

/* index NULL: the user chose none, so that later additions may get one. stopped: a call before was. */
static void join_index(const char *index, bool stopped) {
    static int number = 0;
    char parts[PARTS][700], joined[700];
    const char *list[PARTS];
    struct store_join_report report;
    int asked = 0;
    for (int i = 0; i < PARTS; i++) {
        snprintf(parts[i], sizeof parts[i], "%s/index-%d-%d", test_folder(), number, i);
        list[i] = parts[i];
        make_part(parts[i], i + 1);
    }
    snprintf(joined, sizeof joined, "%s/index-%d", test_folder(), number++);
    const struct progress progress = {.stop_requested = stop, .context = &asked};
    struct store_join how = {.parts = list, .n_parts = PARTS, .publish = {.index = index, .progress = &progress}};
    if (stopped) CHECK_FAILS(store_join(&report, joined, &how), STATUS_INTERRUPTED, "run the same command again");
    CHECK((asked > 0) == stopped);
    how.publish.progress = NULL;
    CHECK_OK(store_join(&report, joined, &how));
    const struct store_info info = fixture_info(joined);
    CHECK_STR(info.index, "exact"); /* as "auto" is for so few chunks */
    CHECK_EQ(info.index_chosen, index && strcmp(index, "exact") == 0);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    for (int whole = 1; whole <= PARTS; whole++)
        join(whole);
    for (int stopped = 0; stopped < 2; stopped++) {
        join_index(NULL, stopped);
        join_index("auto", stopped);
        join_index("exact", stopped);
    }
    return test_done();
}
