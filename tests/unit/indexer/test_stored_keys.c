/* test_stored_keys.c -- keys of a store against decoder_forward on the window of each chunk; deleted and short chunks;
 * what a token memory reads with them, from files and from a copy in the device's memory; files that are missing,
 * damaged, of another model or of another store; an add; a damaged record of sections; the projection against plain
 * sums. */
#include "indexer/build/key_projection.h"
#include "indexer/retrieve/memory_source.h"
#include "store/catalog/catalog_internal.h"
#include "tests/unit/indexer/stored_keys_fixture.h"
#include <math.h>

enum { D = 32, K = 3 };

/* ---- the keys ---- */

/* Keys of `n` ids by the decoder, from the first on. */
static void plain_keys(float *keys, int cols, const int32_t *ids, int64_t n) {
    struct decoder_state *state;
    const struct decoder_output out = {.keys = mat_f32(keys, n, cols), .key_layer = LAYER};
    CHECK_OK(decoder_state_create(&state, engine.decoder, NULL));
    CHECK_OK(decoder_forward(state, &out, ids, n));
    decoder_state_free(state);
}

/* Every key of a document is the decoder's over the chunk's window, rounded to a code. */
static void check_document(struct store_keys *keys, int64_t first_chunk, int document) {
    int32_t ids[LENGTH_MAX];
    static float plain[LENGTH_MAX * SIZE];
    const int n = document_ids(ids, document), chunks = (n + CHUNK - 1) / CHUNK;
    for (int c = 0; c < chunks; c++) {
        struct store_key_rows rows;
        int begin = 0; /* of the window whose last chunks are kept */
        while (c >= begin + KEY_WINDOW)
            begin += step ? step : KEY_STEP;
        const int end = (c + 1) * CHUNK < n ? (c + 1) * CHUNK : n;
        CHECK_OK(store_keys_chunk(keys, &rows, first_chunk + c));
        plain_keys(plain, SIZE, ids + begin * CHUNK, end - begin * CHUNK);
        for (int i = 0; i < CHUNK; i++) {
            const float *key = plain + ((c - begin) * CHUNK + i) * SIZE;
            float largest = 0;
            for (int j = 0; j < SIZE && c * CHUNK + i < n; j++)
                largest = fmaxf(largest, fabsf(key[j]));
            CHECK(fabsf(rows.scale[i] - largest / 127) <= 1e-4f * largest);
            for (int j = 0; j < SIZE; j++)
                CHECK(c * CHUNK + i < n
                          ? fabsf(rows.scale[i] * (float)rows.code[i * SIZE + j] - key[j]) <= 0.005f * largest
                          : rows.code[i * SIZE + j] == 0);
        }
    }
}

static void check_zero(struct store_keys *keys, int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c++) {
        struct store_key_rows rows;
        CHECK_OK(store_keys_chunk(keys, &rows, c));
        for (int i = 0; i < CHUNK * SIZE; i++)
            CHECK_EQ(rows.code[i], 0);
    }
}

static void test_keys(void) {
    struct stored_keys_report r = make_keys();
    CHECK_EQ(r.files, 1);
    CHECK_EQ(r.made, 1);
    CHECK_EQ(r.chunks, 56);
    r = make_keys();
    CHECK_EQ(r.made, 0);
    struct store_keys *keys = open_keys();
    int64_t chunk = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        check_document(keys, chunk, d);
        chunk += (document_tokens[d] + CHUNK - 1) / CHUNK;
    }
    CHECK_OK(store_keys_verify(keys, NULL));
    store_keys_close(keys);
}

/* Another step makes all files again; any is read. */
static void test_step(void) {
    const int steps[] = {1, 6, KEY_WINDOW, 0};
    for (int i = 0; i < 4; i++) {
        step = steps[i];
        CHECK_EQ(make_keys().made, 1);
        CHECK_EQ(make_keys().made, 0);
        struct store_keys *keys = open_keys();
        check_document(keys, 4, 2);
        store_keys_close(keys);
    }
}

/* ---- a token memory ---- */

static struct device_keys *copies;

static struct memory_source *open_source(enum memory_keys from, bool numbers, int before, int after) {
    struct memory_source *m;
    const struct memory_source_config config = {.device = engine.device,
                                                .model = &engine.model.config,
                                                .decoder = engine.decoder,
                                                .view = engine.view,
                                                .k = K,
                                                .before = before,
                                                .after = after,
                                                .key_layer = LAYER,
                                                .slots = 8,
                                                .from = from,
                                                .copies = copies,
                                                .numbers = numbers,
                                                .weights = weights,
                                                .name = model};
    CHECK_OK(memory_source_create(&m, &config));
    return m;
}

/* The pool has the stored keys of each passage, and the values that it has without them. */
static void test_source(void) {
    struct memory_source *stored = open_source(MEMORY_KEYS_STORED, false, 0, 1);
    struct memory_source *encoded = open_source(MEMORY_KEYS_ENCODED, false, 0, 1);
    struct store_keys *keys = open_keys();
    const int64_t row_begin[2] = {0, 1}, calls[3][K] = {{4, 20, 55}, {0, -1, 20}, {33, 3, 4}}; /* 0: no next chunk */
    for (int call = 0; call < 3; call++) {
        struct memory_slots a, b;
        CHECK_OK(memory_source_load(stored, &a, calls[call], row_begin, 1));
        CHECK_OK(memory_source_load(encoded, &b, calls[call], row_begin, 1));
        CHECK_EQ(a.keys.cols, SIZE);
        for (int k = 0; k < K; k++) {
            CHECK_EQ(a.slot[k] < 0, b.slot[k] < 0);
            for (int i = 0; a.slot[k] >= 0 && i < a.slot_rows; i++) {
                const int64_t row = (int64_t)a.slot[k] * a.slot_rows + i, other = (int64_t)b.slot[k] * b.slot_rows + i;
                struct store_key_rows rows;
                double square = 0;
                CHECK_EQ(a.value[row], b.value[other]);
                if (a.value[row] < 0) continue;
                CHECK_OK(store_keys_chunk(keys, &rows, calls[call][k] + i / CHUNK));
                for (int j = 0; j < SIZE; j++) {
                    const float key = mat_row(a.keys, row)[j];
                    CHECK(key == rows.scale[i % CHUNK] * (float)rows.code[i % CHUNK * SIZE + j]);
                    square += (double)key * (double)key;
                }
                CHECK(fabs((double)a.square[row] - square) <= 1e-4 * square);
            }
        }
    }
    store_keys_close(keys);
    memory_source_free(stored);
    memory_source_free(encoded);
}

/* A packed slot has the entries of a slot of numbers. */
static void check_packed(const struct memory_slots *packed, const struct memory_slots *slots, int k) {
    const int32_t slot = packed->slot[k], *value = packed->value + (int64_t)slot * packed->slot_step;
    const int64_t first = (int64_t)slots->slot[k] * slots->slot_rows;
    CHECK(packed->packed.code && packed->slot_rows == slots->slot_rows && packed->slot_step == CHUNK);
    CHECK_EQ(slot < 0, slots->slot[k] < 0);
    for (int i = 0; slot >= 0 && i < slots->slot_rows; i++) {
        const int64_t row = (int64_t)slot * CHUNK + i;
        CHECK_EQ(i < packed->entries[k] ? value[i] : -1, slots->value[first + i]);
        for (int j = 0; i < packed->entries[k] && j < SIZE; j++)
            CHECK(packed->packed.scale[row] * (float)packed->packed.code[row * SIZE + j] ==
                  mat_row(slots->keys, first + i)[j]);
    }
}

/* Keys in the device's memory give the same bits as those in files: keys, squares and values, also on the host, for
 * any chunks before and after, with slots that are filled again; and packed slots the same keys and values. Sources
 * share a copy. */
static void check_copied(int before, int after) {
    enum { CALLS = 12 };
    struct memory_source *stored = open_source(MEMORY_KEYS_STORED, false, before, after);
    struct memory_source *copied = open_source(MEMORY_KEYS_DEVICE, true, before, after);
    struct memory_source *packed = open_source(MEMORY_KEYS_DEVICE, false, before, after);
    const int64_t row_begin[2] = {0, 1};
    struct store_info info;
    struct rng rng = rng_make(9, (uint64_t)(8 * before + after));
    store_view_info(engine.view, &info);
    const struct store_dropped dropped = store_view_dropped(engine.view);
    for (int call = 0; call < CALLS; call++) {
        struct memory_slots a, b, c;
        int64_t chunks[K];
        for (int k = 0; k < K; k++) {
            chunks[k] = call == 0 ? k * (info.chunks - 1) / (K - 1) : (int64_t)rng_below(&rng, (uint64_t)info.chunks);
            if (!store_dropped_live(dropped, chunks[k]) || (k == 1 && call % 3 == 1)) chunks[k] = -1;
        }
        CHECK_OK(memory_source_load(stored, &a, chunks, row_begin, 1));
        CHECK_OK(memory_source_load(copied, &b, chunks, row_begin, 1));
        CHECK_OK(memory_source_load(packed, &c, chunks, row_begin, 1));
        const struct memory_slots_host host = memory_source_slots_host(copied);
        for (int k = 0; k < K; k++) {
            CHECK_EQ(a.slot[k], b.slot[k]);
            CHECK_EQ(a.slot[k], host.slot[k]);
            check_packed(&c, &a, k);
            for (int i = 0; a.slot[k] >= 0 && i < a.slot_rows; i++) {
                const int64_t row = (int64_t)a.slot[k] * a.slot_rows + i;
                CHECK_EQ(a.value[row], b.value[row]);
                CHECK_EQ(host.value[row], b.value[row]);
                CHECK(memcmp(mat_row(a.keys, row), mat_row(b.keys, row), SIZE * sizeof(float)) == 0);
                CHECK(a.square[row] == b.square[row]);
            }
        }
    }
    CHECK_EQ(memory_source_stats(copied).copied, memory_source_stats(stored).copied);
    CHECK(memory_source_stats(copied).dropped > 0 && memory_source_stats(packed).copied == 0);
    memory_source_free(stored);
    memory_source_free(copied);
    memory_source_free(packed);
}

static int reports;
static void report_copy(const char *line) {
    CHECK(strstr(line, "token memory: keys of") == line && strstr(line, "GiB on the GPU, loaded in") != NULL);
    reports++;
}

static void test_copied(void) {
    const struct packed_chunks *a, *b;
    const struct store_keys_spec spec = stored_keys_spec(&engine.model.config, weights, LAYER, 0);
    struct store_keys *keys = open_keys();
    reports = 0;
    CHECK_OK(device_keys_create(&copies, engine.device, report_copy, 1000));
    CHECK_OK(device_keys_take(copies, &a, engine.view, keys, &spec));
    check_copied(0, 0);
    check_copied(0, 1);
    check_copied(2, 1);
    CHECK_OK(device_keys_take(copies, &b, engine.view, keys, &spec));
    CHECK(a == b && reports == 1);
    device_keys_return(copies, a);
    device_keys_return(copies, b);
    device_keys_return(copies, NULL);
    check_copied(8, 8); /* it is still there */
    CHECK_EQ(reports, 1);
    device_keys_free(copies);
    CHECK_OK(device_keys_create(&copies, engine.device, NULL, UINT64_MAX));
    CHECK_FAILS(device_keys_take(copies, &a, engine.view, keys, &spec), STATUS_NO_MEMORY, "(--memory-keys stored)");
    device_keys_free(copies);
    copies = NULL;
    store_keys_close(keys);
}

/* ---- other files ---- */

static void test_damage(void) {
    char path[700];
    struct stat st;
    snprintf(path, sizeof path, "%s/keys/00000.keys", store);
    CHECK_EQ(stat(path, &st), 0);
    const struct {
        long at;
        enum status status;
        const char *says;
    } bytes[] = {{0, STATUS_CORRUPT, "is not a file of keys"},
                 {8, STATUS_VERSION, "version 3, this program reads 2"},
                 {12, STATUS_MISMATCH, "other weights, layer or size"},
                 {40, STATUS_MISMATCH, "other weights, layer or size"},
                 {48, STATUS_CORRUPT, "header is damaged"},
                 {56, STATUS_CORRUPT, "bytes, but"},
                 {65, STATUS_CORRUPT, "is of another store"},
                 {80, STATUS_CORRUPT, "header is damaged"}, /* the rounding: 0 */
                 {100, STATUS_CORRUPT, "header is damaged"},
                 {st.st_size - 16, STATUS_CORRUPT, "footer is damaged"}};
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
        change_byte(path, bytes[i].at);
        CHECK_FAILS(try_keys(), bytes[i].status, bytes[i].says);
        CHECK(strstr(status_message(), "run drt-index keys") != NULL);
        CHECK_EQ(make_keys().made, 1); /* it replaces such a file */
        CHECK_OK(try_keys());
    }
    for (long at = 0; at < 128; at++) { /* every byte of the header */
        /* any window and step are read; and the hash would be 0, as that of a deleted document */
        if ((at >= 24 && at < 32) || at == 64) continue;
        change_byte(path, at);
        CHECK(try_keys() != STATUS_OK);
        change_byte(path, at);
    }
    CHECK_OK(try_keys());
    change_byte(path, 200); /* a code: only the checksum sees it */
    struct store_keys *keys = open_keys();
    CHECK_FAILS(store_keys_verify(keys, NULL), STATUS_CORRUPT, "checksum is wrong");
    store_keys_close(keys);
    const long shorter[] = {st.st_size - 1, 1000, 100, 0};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(truncate(path, shorter[i]), 0);
        CHECK_FAILS(try_keys(), STATUS_CORRUPT, shorter[i] > 128 ? "chunks need" : "shorter than its header");
    }
    int64_t removed;
    CHECK_OK(store_keys_remove(&removed, store));
    CHECK_EQ(removed, 1);
    CHECK_FAILS(try_keys(), STATUS_NOT_FOUND, "there is no such file: run drt-index keys");
    CHECK_EQ(make_keys().made, 1);
}

/* Another document: the last file is made again. A deleted one keeps its keys in an old file and has none in a new
 * one. */
static void test_changes(void) {
    const int64_t deleted[] = {3};
    struct store_delete_report report;
    open_engine(NULL); /* a process has a store open once */
    add_documents(DOCUMENTS, 1, false);
    open_engine(store);
    CHECK_FAILS(try_keys(), STATUS_NOT_FOUND, "has keys of 56 of 57 chunks");
    const struct stored_keys_report extended = make_keys();
    CHECK_EQ(extended.made, 1);
    CHECK_EQ(extended.chunks, 1); /* those of the others are kept */
    open_engine(NULL);
    CHECK_OK(store_delete(&report, store, &(struct store_delete){.documents = deleted, .n_documents = 1}));
    open_engine(store);
    CHECK_OK(try_keys());
    CHECK_EQ(make_keys().made, 0);
    int64_t removed;
    CHECK_OK(store_keys_remove(&removed, store));
    CHECK_EQ(make_keys().made, 1);
    struct store_keys *keys = open_keys();
    check_zero(keys, 34, 47);
    check_document(keys, 47, 4);
    check_document(keys, 56, DOCUMENTS);
    store_keys_close(keys);
    test_copied(); /* with a deleted document */
}

static void count_problem(void *context, const char *file, const char *problem, const char *remedy) {
    (void)file, (void)problem;
    CHECK(strstr(remedy, "run drt-index repair") != NULL);
    ++*(int *)context;
}

/* Without a readable record of sections nothing is known about the files: repair removes both. */
static void test_sections_damaged(void) {
    struct catalog *catalog;
    struct catalog_txn *t;
    int64_t problems;
    int reported = 0;
    engine_close(&engine);
    CHECK_OK(catalog_open(&catalog, store, true, 1 << 26));
    CHECK_OK(catalog_begin(&t, catalog, true));
    CHECK_OK(catalog_put(t, TABLE_META, "keys", 4, "damaged record", 12));
    CHECK_OK(catalog_commit(t));
    catalog_close(catalog);
    open_engine(store);
    CHECK_FAILS(try_keys(), STATUS_CORRUPT, "record keys is damaged, run drt-index repair");
    engine_close(&engine);
    CHECK_OK(store_verify(store, false, NULL, count_problem, &reported, &problems));
    CHECK_EQ(problems, 1);
    CHECK_EQ(reported, 1);
    CHECK_OK(store_repair(store, NULL, NULL, NULL, NULL, &problems));
    CHECK_EQ(problems, 0);
    CHECK_OK(store_verify(store, true, NULL, NULL, NULL, &problems));
    CHECK_EQ(problems, 0);
    open_engine(store);
    CHECK_FAILS(try_keys(), STATUS_NOT_FOUND, "there is no such file");
    CHECK_EQ(make_keys().made, 1);
    CHECK_OK(try_keys());
}

/* ---- the projection ---- */

enum { STATES_MAX = 60 * CHUNK };
static float states[STATES_MAX][D];
static int32_t followers[STATES_MAX];
static int n_states;

static enum status collect(void *context, struct mat keys, const struct key_window *windows, int64_t n) {
    (void)context;
    for (int64_t i = 0; i < n; i++)
        for (int c = windows[i].skip; c < windows[i].skip + windows[i].keep; c++)
            for (int j = 0; j + 1 < windows[i].count[c]; j++) {
                memcpy(states[n_states], mat_row(keys, (i * KEY_WINDOW + c) * CHUNK + j), sizeof states[0]);
                followers[n_states++] = windows[i].ids[c * CHUNK + j + 1];
            }
    return STATUS_OK;
}

/* The variance of rows [n_states, cols] around the mean of all rows with the same follower (all: of all rows). */
static double variance(const float *rows, int cols, bool all) {
    static double mean[200][D];
    static int count[200];
    double sum = 0;
    memset(mean, 0, sizeof mean);
    memset(count, 0, sizeof count);
    for (int i = 0; i < n_states; i++)
        count[all ? 0 : followers[i]]++;
    for (int i = 0; i < n_states; i++)
        for (int j = 0; j < cols; j++)
            mean[all ? 0 : followers[i]][j] += (double)rows[i * cols + j] / count[all ? 0 : followers[i]];
    for (int i = 0; i < n_states; i++)
        for (int j = 0; j < cols; j++)
            sum += pow((double)rows[i * cols + j] - mean[all ? 0 : followers[i]][j], 2) / n_states;
    return sum;
}

/* Keys have nearly mean 0 and the variance of as many principal components; states before the same token are nearer to
 * each other than before. */
static void test_projection(void) {
    static float p[SIZE * D], again[SIZE * D], keys[STATES_MAX][SIZE];
    struct key_projection_report r, r2;
    struct key_windows *windows;
    const struct key_windows_config config = windows_config();
    double mean = 0;
    CHECK_OK(key_projection_fit(p, SIZE, &r, &config));
    CHECK_OK(key_projection_fit(again, SIZE, &r2, &config));
    CHECK_EQ(memcmp(p, again, sizeof p), 0);
    CHECK_OK(key_windows_create(&windows, &config, D, collect, NULL));
    CHECK_OK(key_windows_add(windows, 0, 56));
    CHECK_OK(key_windows_flush(windows));
    key_windows_free(windows);
    CHECK_EQ(n_states, 56 * CHUNK - 21 - 56);
    for (int a = 0; a < SIZE; a++) {
        double of_key = 0;
        for (int i = 0; i < n_states; i++) {
            double x = 0;
            for (int j = 0; j < D; j++)
                x += (double)p[a * D + j] * (double)states[i][j];
            keys[i][a] = (float)x;
            of_key += x / n_states;
        }
        mean += of_key * of_key;
    }
    const double total = variance(states[0], D, true), short_total = variance(keys[0], SIZE, true);
    CHECK(mean < 0.01 * short_total);
    CHECK(r.kept > (double)SIZE / D && r.kept <= 1);
    CHECK(fabs(short_total / total - r.kept) < 0.1 * r.kept);
    CHECK(variance(keys[0], SIZE, false) / short_total < variance(states[0], D, false) / total);
    CHECK(r.states >= D);
}

int main(void) {
    keys_world_open();
    test_keys();
    test_step();
    test_source();
    test_copied();
    test_damage();
    test_projection();
    test_changes();
    test_sections_damaged();
    engine_close(&engine);
    return 0;
}
