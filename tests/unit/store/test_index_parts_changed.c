/* test_index_parts_changed.c -- an index that is filled in parts, of a store that changes meanwhile: landmarks that
 * were encoded again make parts stale, which merging names; merged shards, additions and deletions do not. */
#include "store/index/parts/index_parts.h"
#include "tests/mend_fixture.h"

enum { DIM = 8, VOCAB = 90, DOCUMENTS = 900 };
static const char type[] = "IVF12,SQ8";

static struct store_writer_config config;
static char work[900];

static void begin(const char *name) {
    struct store_index_parts_report report;
    struct store_publish how = {.index = type, .seed = 1};
    snprintf(dir, sizeof dir, "%s/%s", test_folder(), name);
    snprintf(work, sizeof work, "%s/%s.work", test_folder(), name);
    CHECK_OK(mend_add(dir, &config, 0, DOCUMENTS, 100, "exact", 0));
    CHECK_OK(store_index_train(&report, dir, work, &how));
    for (int part = 1; part <= 2; part++)
        CHECK_OK(store_index_fill(&report, dir, work, part, 2, &(struct store_publish){0}));
}

static struct store_index_parts_report fill(int part) {
    struct store_index_parts_report report;
    CHECK_OK(store_index_fill(&report, dir, work, part, 2, &(struct store_publish){0}));
    return report;
}

static void merge_and_check(int64_t added, int64_t segments) {
    struct store_index_parts_report report;
    struct found f;
    struct opened o;
    CHECK_OK(store_index_merge(&report, dir, work, &(struct store_publish){0}));
    CHECK(!report.already);
    CHECK_EQ(report.added, added);
    CHECK_EQ(verify(true, &f), 0);
    open_view(&o);
    CHECK_EQ(o.info.segments, segments);
    CHECK_STR(o.info.index, type);
    close_view(&o);
    CHECK_OK(store_index_merge(&report, dir, work, &(struct store_publish){0}));
    CHECK(report.already);
}

static int64_t chunks_of_store(void) {
    struct opened o;
    open_view(&o);
    int64_t chunks = o.info.chunks;
    close_view(&o);
    return chunks;
}

static void encoded_again(void) {
    struct store_index_parts_report report;
    begin("encoded");
    CHECK_EQ(fill(1).kept, fill(1).files);
    flip(in_store("landmarks/00000.f16"), 70, 5);
    CHECK_EQ(mend_repair(&config, 0, NULL), 0); /* to the bytes that are recorded: nothing is stale */
    CHECK(fill(1).already);
    flip(in_store("landmarks/00000.f16"), 70, 5);
    CHECK_EQ(mend_repair(&config, 0.01f, NULL), 0);
    CHECK_FAILS(store_index_merge(&report, dir, work, &(struct store_publish){0}), STATUS_MISMATCH, "--part 1/2");
    CHECK(!fill(1).already);
    CHECK_FAILS(store_index_merge(&report, dir, work, &(struct store_publish){0}), STATUS_MISMATCH, "--part 2/2");
    CHECK(!fill(2).already);
    merge_and_check(0, 1);
}

static void shards_merged(void) {
    begin("merged");
    const int64_t before = chunks_of_store(), gone[] = {4, 17};
    struct store_delete_report deleted;
    char file[1000];
    CHECK_OK(mend_add(dir, &config, DOCUMENTS, DOCUMENTS + 40, 100, "auto", 1 << 14));
    snprintf(file, sizeof file, "%s/landmarks/00008.f16", dir);
    CHECK(access(file, F_OK) != 0); /* it has been merged with others */
    CHECK_OK(store_delete(&deleted, dir, &(struct store_delete){.documents = gone, .n_documents = 2}));
    CHECK(fill(1).already);
    CHECK(fill(2).already);
    merge_and_check(chunks_of_store() - before, 2);
}

/* The repaired index is that of one process again: the work is not the store's index any more. */
static void index_replaced(void) {
    struct store_index_parts_report report;
    int64_t problems;
    begin("replaced");
    merge_and_check(0, 1);
    CHECK_OK(store_repair(dir, &(struct store_publish){.index = "IVF5,SQ8", .seed = 1}, NULL, fixture_print_problem,
                          NULL, &problems));
    CHECK_OK(store_index_merge(&report, dir, work, &(struct store_publish){0}));
    CHECK(!report.already);
    CHECK_STR(report.index, type);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    config = fixture_config(DIM, VOCAB);
    encoded_again();
    shards_merged();
    index_replaced();
    return test_done();
}
