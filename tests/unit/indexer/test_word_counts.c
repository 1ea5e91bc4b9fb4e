/* test_word_counts.c -- the idf of each id against plain counts over the documents' ids: of all chunks, of a sample of
 * them, without deleted ones, of a store that has none left; a request to stop. */
#include "indexer/landmarks/word_counts.h"
#include "indexer/retrieve/candidate_order.h"
#include "tests/unit/indexer/stored_keys_fixture.h"
#include <math.h>

enum { IDS = 200 }; /* document_ids draws from as many */

/* Counts one chunk in `each` of the store; `deleted`: a document that is not there any more, or -1. */
static int64_t plain_counts(int64_t count[IDS], int64_t each, int deleted) {
    int64_t chunk = 0, counted = 0;
    memset(count, 0, IDS * sizeof *count);
    for (int d = 0; d < DOCUMENTS; d++) {
        int32_t ids[LENGTH_MAX];
        const int n = document_ids(ids, d);
        for (int begin = 0; begin < n; begin += CHUNK, chunk++) {
            bool has[IDS] = {false};
            if (chunk % each != 0 || d == deleted) continue;
            for (int i = begin; i < n && i < begin + CHUNK; i++)
                has[ids[i]] = true;
            for (int id = 0; id < IDS; id++)
                count[id] += has[id];
            counted++;
        }
    }
    return counted;
}

static void check_counts(int64_t most, int64_t each, int deleted) {
    int64_t count[IDS], chunks;
    float *idf;
    CHECK_OK(word_counts_idf(&idf, &chunks, engine.view, most, NULL));
    const int64_t n = plain_counts(count, each, deleted);
    CHECK_EQ(chunks, n);
    for (int id = 0; id < engine.model.config.vocab_size; id++) {
        const double df = id < IDS ? (double)count[id] : 0;
        const double want = log(1 + ((double)n - df + 0.5) / (df + 0.5));
        CHECK(fabs((double)idf[id] - want) <= 1e-6 * want);
    }
    memory_free(idf);
}

static void delete_documents(const int64_t *documents, int n) {
    struct store_delete_report report;
    open_engine(NULL); /* a process has a store open once */
    CHECK_OK(store_delete(&report, store, &(struct store_delete){.documents = documents, .n_documents = n}));
    open_engine(store);
}

static bool stop(void *context) {
    (void)context;
    return true;
}

int main(void) {
    const int64_t documents[] = {0, 1, 2, 3, 4};
    int64_t chunks;
    float *idf = NULL, *all;
    keys_world_open();
    check_counts(0, 1, -1);
    check_counts(1 << 20, 1, -1);
    check_counts(14, 4, -1); /* of 56 chunks */
    check_counts(20, 2, -1); /* rather more than fewer */
    CHECK_OK(word_counts_idf(&all, &chunks, engine.view, 0, NULL));
    CHECK_OK(candidate_idf_make(&idf, engine.view)); /* of a small store the same */
    CHECK_EQ(memcmp(idf, all, (size_t)engine.model.config.vocab_size * sizeof *idf), 0);
    memory_free(idf), memory_free(all);
    const struct progress stopped = {.stop_requested = stop};
    CHECK_FAILS(word_counts_idf(&idf, &chunks, engine.view, 0, &stopped), STATUS_INTERRUPTED, "stopped");
    CHECK(idf == NULL);
    delete_documents(documents + 3, 1);
    check_counts(0, 1, 3);
    check_counts(14, 4, 3);
    delete_documents(documents, 5);
    CHECK_OK(word_counts_idf(&idf, &chunks, engine.view, 0, NULL));
    CHECK_EQ(chunks, 0);
    CHECK(fabsf(idf[0] - logf(2)) < 1e-6f);
    memory_free(idf);
    engine_close(&engine);
    return 0;
}
