/* test_memory_knn.c -- kNN-LM against plain loops over every token of a store: distances and values of the nearest
 * entries, in blocks of any size; the same bits with any number of threads; a document that is left out; a window's
 * columns. */
#include "tests/unit/session/memory_world_fixture.h"
#include "tools/memory/memory_window.h"

enum { QUERIES = 70, M = 40, ENTRIES_MAX = CHUNKS * CHUNK, LAYER = 2, FIRST = 30 };

struct entry {
    double distance;
    int32_t value;
};
struct plain {
    float key[ENTRIES_MAX][D];
    int32_t value[ENTRIES_MAX];
    int64_t document[ENTRIES_MAX];
    int n;
};

static int64_t document_of(const struct world *w, int64_t chunk) {
    int64_t d = 0;
    while (chunk >= w->first_chunk[d + 1])
        d++;
    return d;
}

static void keys_of(const struct world *w, float *keys, float *logits, const int32_t *ids, int64_t n) {
    struct decoder_state *state;
    const struct decoder_output out = {
        .logits = logits, .logits_all = logits != NULL, .keys = mat_f32(keys, n, D), .key_layer = LAYER};
    CHECK_OK(decoder_state_create(&state, w->engine.decoder, NULL));
    CHECK_OK(decoder_forward(state, &out, ids, n));
    decoder_state_free(state);
}

/* Each chunk is read alone; the token after its last one is the first of the next chunk of its document. */
static void plain_entries(const struct world *w, struct plain *p) {
    static float keys[CHUNK * D];
    p->n = 0;
    for (int64_t c = 0; c < CHUNKS; c++) {
        int n = CHUNK;
        while (w->ids[c][n - 1] < 0)
            n--;
        keys_of(w, keys, NULL, w->ids[c], n);
        const bool more = c + 1 < CHUNKS && document_of(w, c + 1) == document_of(w, c);
        for (int i = 0; i < n; i++) {
            if (i + 1 == n && !more) continue;
            memcpy(p->key[p->n], keys + (size_t)i * D, sizeof p->key[0]);
            p->value[p->n] = i + 1 < n ? w->ids[c][i + 1] : w->ids[c + 1][0];
            p->document[p->n++] = document_of(w, c);
        }
    }
}

static int by_distance(const void *a, const void *b) {
    const double x = ((const struct entry *)a)->distance, y = ((const struct entry *)b)->distance;
    return (x > y) - (x < y);
}

/* All entries outside of a document, nearest first. */
static int plain_nearest(const struct plain *p, struct entry *out, const float *state, int64_t document) {
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        if (p->document[i] == document) continue;
        out[n] = (struct entry){0, p->value[i]};
        for (int j = 0; j < D; j++)
            out[n].distance += pow((double)state[j] - (double)p->key[i][j], 2);
        n++;
    }
    qsort(out, (size_t)n, sizeof *out, by_distance);
    return n;
}

static bool has_value(const struct entry *all, int n, double distance, int32_t value, double within) {
    for (int i = 0; i < n; i++)
        if (all[i].value == value && fabs(all[i].distance - distance) <= within) return true;
    return false;
}

static void check_queries(struct world *w, const struct plain *p, int m, int64_t block, float *distance,
                          int32_t *value) {
    static float states[QUERIES * D];
    static struct entry all[ENTRIES_MAX];
    struct memory_knn *knn;
    const struct memory_knn_config config = {.engine = &w->engine, .key_layer = LAYER, .m = m, .block = block};
    keys_of(w, states, NULL, w->text, QUERIES);
    CHECK_OK(memory_knn_create(&knn, &config));
    CHECK(!memory_knn_searched(knn) && !memory_knn_searched(NULL));
    CHECK_OK(memory_knn_add(knn, mat_f32(states, QUERIES / 2, D), -1));
    CHECK_OK(memory_knn_add(knn, mat_f32(states + QUERIES / 2 * D, QUERIES - QUERIES / 2, D), 3));
    CHECK_OK(memory_knn_search(knn, NULL));
    CHECK(memory_knn_searched(knn));
    for (int q = 0; q < QUERIES; q++) {
        const struct memory_nearest found = memory_knn_next(knn, 1);
        const int n = plain_nearest(p, all, states + (size_t)q * D, q < QUERIES / 2 ? -1 : 3);
        CHECK_EQ(found.m, m);
        for (int i = 0; i < m; i++) {
            if (i >= n) {
                CHECK(found.value[i] == -1 && isinf(found.distance[i]));
                continue;
            }
            const double within = 1e-4 * (1 + all[i].distance);
            CHECK(fabs((double)found.distance[i] - all[i].distance) <= within);
            CHECK(has_value(all, n, all[i].distance, found.value[i], 2 * within));
            CHECK(i == 0 || found.distance[i] >= found.distance[i - 1]);
        }
        memcpy(distance + (size_t)q * M, found.distance, (size_t)(m < M ? m : M) * sizeof *distance);
        memcpy(value + (size_t)q * M, found.value, (size_t)(m < M ? m : M) * sizeof *value);
    }
    memory_knn_free(knn);
}

static void test_queries(struct world *w, const struct plain *p) {
    static float distance[QUERIES * M], again[QUERIES * M];
    static int32_t value[QUERIES * M], value_again[QUERIES * M];
    check_queries(w, p, M, 4, distance, value);
    check_queries(w, p, M, 1, again, value_again); /* hits of a block after the first would be too few */
    check_queries(w, p, M, 0, again, value_again);
    check_queries(w, p, 2000, 5, again, value_again); /* more than there are */
    check_queries(w, p, 1, 7, again, value_again);
    struct device *dev = w->engine.device;
    struct threads *threads = dev->threads;
    CHECK_OK(threads_create(&dev->threads, 1));
    check_queries(w, p, M, 4, again, value_again);
    CHECK(memcmp(distance, again, sizeof distance) == 0 && memcmp(value, value_again, sizeof value) == 0);
    threads_free(dev->threads);
    dev->threads = threads;
}

/* The columns of a row at one temperature, from the m nearest of all entries. */
static void check_row(const struct entry *all, const struct memory_read *read, int t, const float *logits, int64_t i,
                      int32_t target) {
    double p[VOCAB] = {0}, sum = 0, squares = 0, lm = 0;
    const double tau = (double)read->tau[t];
    int top = 0;
    for (int j = 0; j < M; j++)
        sum += exp(-all[j].distance / tau);
    for (int j = 0; j < M; j++) {
        const double w = exp(-all[j].distance / tau) / sum;
        p[all[j].value] += w;
        squares += w * w;
    }
    for (int v = 0; v < VOCAB; v++) {
        top = p[v] > p[top] ? v : top;
        lm += exp((double)logits[v]);
    }
    float *const *column = read->column[t];
    CHECK_EQ((int)read->mark[MEMORY_ENTRIES][i], M);
    CHECK(fabs((double)read->mark[MEMORY_NEAREST][i] - all[0].distance) <= 1e-3 * (1 + all[0].distance));
    CHECK(read->mark[MEMORY_BEST][i] == 0 && read->mark[MEMORY_KTH][i] == 0 && read->mark[MEMORY_MEAN][i] == 0);
    CHECK(fabs((double)column[MEMORY_LSE][i] - log(sum)) <= 1e-3 * (1 + fabs(log(sum))));
    CHECK(fabs((double)column[MEMORY_SQUARES][i] - squares) <= 2e-3);
    CHECK(fabs(exp((double)column[MEMORY_LOG_P][i]) - p[target]) <= 2e-3);
    CHECK(fabs(exp((double)column[MEMORY_TOP][i]) - p[top]) <= 2e-3);
    const int token = (int)column[MEMORY_TOKEN][i];
    CHECK(token >= 0 && token < VOCAB && p[token] >= p[top] - 2e-3);
    CHECK(fabs((double)column[MEMORY_LM_OF_TOP][i] - ((double)logits[token] - log(lm))) <= 1e-3);
}

/* The first run collects the states of a window, the second reads the entries that were found. */
static void test_window(struct world *w, const struct plain *p) {
    static float keys[LENGTH * D], logits[LENGTH * VOCAB];
    static struct entry all[ENTRIES_MAX];
    const struct memory_config memory = {.key_layer = LAYER, .k = 1, .every = 16};
    const struct memory_knn_config config = {.engine = &w->engine, .key_layer = LAYER, .m = M};
    struct memory_read read = {.what = MEMORY_READ_KNN, .taus = 2, .tau = {8, 30}};
    struct memory_window *window;
    struct memory_knn *knn;
    struct memory_lm lm;
    CHECK_OK(memory_knn_create(&knn, &config));
    const struct memory_window_config how = {.engine = &w->engine, .memory = &memory, .knn = knn, .context = LENGTH};
    CHECK_OK(memory_window_create(&window, &how, &read, 1));
    CHECK_OK(memory_window_run(window, &lm, w->text, LENGTH, FIRST, -1));
    CHECK_OK(memory_knn_search(knn, NULL));
    CHECK_OK(memory_window_run(window, &lm, w->text, LENGTH, FIRST, -1));
    keys_of(w, keys, logits, w->text, LENGTH);
    for (int64_t i = 0; i < LENGTH - FIRST; i++) {
        const int64_t at = FIRST - 1 + i;
        CHECK(plain_nearest(p, all, keys + at * D, -1) > M);
        for (int t = 0; t < read.taus; t++)
            check_row(all, &read, t, logits + at * VOCAB, i, w->text[at + 1]);
    }
    memory_window_free(window);
    memory_knn_free(knn);
}

int main(void) {
    static struct world w;
    static struct plain p;
    open_world(&w, "knn", true, STORE_LEXICAL_OFF);
    plain_entries(&w, &p);
    CHECK(p.n > CHUNKS * CHUNK / 2);
    test_queries(&w, &p);
    test_window(&w, &p);
    engine_close(&w.engine);
    return 0;
}
