/* test_store_compact.c -- the index of a compacted store: one that a user chose stays, and what "auto" chose remains a
 * choice of "auto", also when the new store grows. */
#include "tests/store_fixture.h"

enum { DIM = 8, VOCAB = 100, DOCUMENTS = 60 };

static void compacted(const char *built, const char *index, const char *wanted, bool chosen) {
    const struct store_writer_config config = fixture_config(DIM, VOCAB);
    const struct store_compact how = {.publish = {.index = index, .seed = 1}};
    const int64_t deleted[] = {3, 7};
    const struct store_delete delete = {.documents = deleted, .n_documents = 2};
    struct store_compact_report report;
    struct store_delete_report gone;
    char from[700], to[700];
    static int number;
    snprintf(from, sizeof from, "%s/from-%d", test_folder(), number);
    snprintf(to, sizeof to, "%s/to-%d", test_folder(), number++);
    fixture_store(from, &config, 0, DOCUMENTS, 20, built);
    CHECK_OK(store_delete(&gone, from, &delete));
    CHECK_OK(store_compact(&report, from, to, &how));
    CHECK_EQ(report.documents, DOCUMENTS - 2);
    CHECK_STR(fixture_info(to).index, wanted);
    CHECK_EQ(fixture_info(to).index_chosen, chosen);
    fixture_store(to, &config, DOCUMENTS, 2 * DOCUMENTS, 20, "auto"); /* an addition keeps both */
    CHECK_STR(fixture_info(to).index, wanted);
    CHECK_EQ(fixture_info(to).index_chosen, chosen);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    compacted("auto", NULL, "exact", false);
    compacted("exact", NULL, "exact", true);
    compacted("IVF4,SQ8", NULL, "IVF4,SQ8", true);
    compacted("IVF4,SQ8", "exact", "exact", true);
    compacted("auto", "IVF2,SQ8", "IVF2,SQ8", true);
    return test_done();
}
