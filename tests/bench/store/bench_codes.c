/* bench_codes.c -- the recall of an index's codes with and without the stored rows: what a store would find if it had
 * only these codes of its landmarks.
 *
 *   bench_codes STORE MODEL QUERIES.u16 [queries (300)]
 *
 * A query is the model's, after a window of QUERIES.u16 (drt-tokenizer encode), which the store should not hold. For
 * k 8 and 64 the k best chunks by codes alone, and those that the index finds with exact scores of its candidates, are
 * compared with exact search over the rows. Store with other types: drt-index repair --index PQ96. */
#include "base/file.h"
#include "session/engine.h"
#include "session/text_query.h"
#include "tests/test.h"

enum { WINDOW = 504, K_MAX = 64 };

static void make_queries(float *out, const char *model, const char *path, int n, int dim) {
    struct engine e;
    struct file_map map;
    int32_t ids[WINDOW];
    const struct engine_config config = {.model = model, .where = {.device = "cpu", .dtype = "auto"}};
    CHECK_OK(engine_open(&e, &config));
    CHECK_EQ(e.model.config.hidden, dim);
    CHECK_OK(file_map(&map, path));
    const struct text_query_model how = {e.device, e.decoder, &e.model.config};
    const int64_t have = (int64_t)map.size / 2;
    CHECK(have > WINDOW);
    for (int i = 0; i < n; i++) {
        const uint8_t *at = map.data + 2 * ((have - WINDOW) * i / n);
        for (int j = 0; j < WINDOW; j++)
            ids[j] = at[2 * j] | at[2 * j + 1] << 8;
        CHECK_OK(text_query(out + (int64_t)i * dim, &how, ids, WINDOW));
    }
    file_unmap(&map);
    engine_close(&e);
}

static double recall(const struct store_hit *found, const struct store_hit *wanted, int64_t n, int k) {
    int64_t again = 0;
    for (int64_t q = 0; q < n; q++)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++)
                again += found[q * k + i].chunk == wanted[q * k + j].chunk;
    return (double)again / (double)(n * k);
}

int main(int argc, char **argv) {
    struct store *store;
    struct store_view *view;
    struct store_info info;
    if (argc < 4) {
        fprintf(stderr, "usage: bench_codes STORE MODEL QUERIES.u16 [queries]\n");
        return 2;
    }
    const int n = argc > 4 ? atoi(argv[4]) : 300;
    CHECK_OK(store_open(&store, argv[1]));
    CHECK_OK(store_view_open(&view, store));
    store_view_info(view, &info);
    const int dim = info.fingerprint.dim;
    float *queries = malloc((size_t)n * (size_t)dim * sizeof *queries);
    struct store_hit *wanted = malloc((size_t)n * K_MAX * sizeof *wanted),
                     *found = malloc((size_t)n * K_MAX * sizeof *found);
    CHECK(n > 0 && queries && wanted && found);
    make_queries(queries, argv[2], argv[3], n, dim);
    for (int k = 8; k <= K_MAX; k *= 8) {
        CHECK_OK(store_view_search(view, wanted, queries, n, &(struct store_search){.k = k, .exact = true}));
        for (int rows = 0; rows < 2; rows++) {
            const struct store_search how = {.k = k, .nprobe = 1 << 20, .candidates = rows ? 0 : k};
            CHECK_OK(store_view_search(view, found, queries, n, &how));
            printf("%s of %lld chunks, %s: recall@%d %.4f\n", info.index, (long long)info.chunks,
                   rows ? "exact scores of candidates" : "codes alone", k, recall(found, wanted, n, k));
        }
    }
    free(queries);
    free(wanted);
    free(found);
    store_view_close(view);
    store_close(store);
    return 0;
}
