/* bench_codes.c -- the recall of the codes of indexes with and without the stored rows: what a store would find if it
 * had only these codes of its landmarks.
 *
 *   bench_codes MODEL QUERIES.u16 QUERIES STORE...
 *   bench_codes MODEL QUERIES.u16 QUERIES cpu|cuda OUT.fbin
 *
 * A query is the model's, after a window of QUERIES.u16 (drt-tokenizer encode), which the stores should not hold. For
 * k 8 and 64 exact search over the rows of the first store is compared with the k best chunks by the codes of each
 * store's index alone, with exact scores of the index's candidates, and with exact search over the store's own rows.
 * Stores of the same chunks: copies with drt-index repair --index PQ96, or drt-index compact --landmarks i8.
 *
 * The second form writes the queries for drt-index search --queries (tests/device/bench/run_parts.sh). */
#include "base/file.h"
#include "session/engine.h"
#include "session/text_query.h"
#include "tests/test.h"

enum { WINDOW = 504, K_MAX = 64 };

static float *make_queries(const char *model, const char *path, int n, int *dim, const char *device) {
    struct engine e;
    struct file_map map;
    int32_t ids[WINDOW];
    const struct engine_config config = {.model = model, .where = {.device = device, .dtype = "auto"}};
    CHECK_OK(engine_open(&e, &config));
    *dim = model_config_landmark_size(&e.model.config);
    float *out = malloc((size_t)n * (size_t)*dim * sizeof *out);
    CHECK(out);
    CHECK_OK(file_map(&map, path));
    struct text_query_model how = {e.device, e.decoder, &e.model.config, NULL};
    if (e.model.config.base_lm)
        CHECK_OK(state_landmarks_create(&how.states, e.device, e.decoder, &e.model.config, e.model.params));
    const int64_t have = (int64_t)map.size / 2;
    CHECK(have > WINDOW);
    for (int i = 0; i < n; i++) {
        const uint8_t *at = map.data + 2 * ((have - WINDOW) * i / n);
        for (int j = 0; j < WINDOW; j++)
            ids[j] = at[2 * j] | at[2 * j + 1] << 8;
        CHECK_OK(text_query(out + (int64_t)i * *dim, &how, ids, WINDOW));
    }
    file_unmap(&map);
    state_landmarks_free(how.states);
    engine_close(&e);
    return out;
}

static double recall(const struct store_hit *found, const struct store_hit *wanted, int64_t n, int k) {
    int64_t again = 0;
    for (int64_t q = 0; q < n; q++)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++)
                again += found[q * k + i].chunk == wanted[q * k + j].chunk;
    return (double)again / (double)(n * k);
}

struct query_set {
    const float *queries;
    int n, dim;
    struct store_hit *wanted[2], *found; /* [n, k] for k 8 and 64, of the first store */
};

static void measure(struct query_set *s, const char *path, bool first) {
    static const char *const names[] = {"own rows", "codes alone", "exact scores of candidates"};
    struct store *store;
    struct store_view *view;
    struct store_info info;
    CHECK_OK(store_open(&store, path));
    CHECK_OK(store_view_open(&view, store));
    store_view_info(view, &info);
    CHECK_EQ(info.fingerprint.dim, s->dim);
    for (int i = 0, k = 8; i < 2; i++, k = K_MAX)
        for (int how = 0; how < (info.segments > 0 ? 3 : 1); how++) {
            const struct store_search search = {
                .k = k, .exact = how == 0, .nprobe = 1 << 20, .candidates = how == 1 ? k : 0};
            struct store_hit *out = first && how == 0 ? s->wanted[i] : s->found;
            CHECK_OK(store_view_search(view, out, s->queries, s->n, &search));
            printf("%s, %s, %lld chunks, %s: recall@%d %.4f\n", store_landmarks_name(info.landmarks), info.index,
                   (long long)info.chunks, names[how], k, recall(out, s->wanted[i], s->n, k));
        }
    fflush(stdout);
    store_view_close(view);
    store_close(store);
}

static int write_queries(char **argv, int n) {
    int dim;
    float *queries = make_queries(argv[1], argv[2], n, &dim, argv[4]);
    const int32_t head[2] = {n, dim};
    struct file_writer *w;
    CHECK(argv[5]);
    CHECK_OK(file_create(&w, argv[5]));
    CHECK_OK(file_write(w, head, sizeof head));
    CHECK_OK(file_write(w, queries, (size_t)n * (size_t)dim * sizeof *queries));
    CHECK_OK(file_publish(w));
    free(queries);
    return 0;
}

int main(int argc, char **argv) {
    struct query_set s;
    if (argc < 5) {
        fprintf(stderr, "usage: bench_codes MODEL QUERIES.u16 QUERIES STORE...\n");
        return 2;
    }
    s.n = atoi(argv[3]);
    CHECK(s.n > 0);
    if (strcmp(argv[4], "cpu") == 0 || strcmp(argv[4], "cuda") == 0) return write_queries(argv, s.n);
    float *queries = make_queries(argv[1], argv[2], s.n, &s.dim, "cpu");
    s.queries = queries;
    for (int i = 0; i < 2; i++)
        CHECK((s.wanted[i] = malloc((size_t)s.n * K_MAX * sizeof *s.found)));
    CHECK((s.found = malloc((size_t)s.n * K_MAX * sizeof *s.found)));
    for (int i = 4; i < argc; i++)
        measure(&s, argv[i], i == 4);
    free(queries);
    free(s.wanted[0]);
    free(s.wanted[1]);
    free(s.found);
    return 0;
}
