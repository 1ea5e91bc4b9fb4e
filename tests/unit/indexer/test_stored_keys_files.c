/* test_stored_keys_files.c -- files of keys of two roundings, and what is done about them; two writers of one file;
 * several devices that divide the files; a copy of all files in a device's memory. CPU devices stand for GPUs. */
#include "kernels/device/device_internal.h"
#include "store/keys/keys_layout_internal.h"
#include "tests/unit/indexer/stored_keys_fixture.h"

/* ---- rounding ---- */

static struct store_keys_state keys_state(void) {
    struct store_keys_state s;
    CHECK_OK(store_keys_state(&s, engine.view));
    return s;
}

/* Rows of both roundings are never in one file: a file of the other one is not complete and its rows are not kept.
 * Both are read. */
static void test_rounding(void) {
    struct stored_keys_job job = {.config = windows_config(), .weights = weights};
    struct stored_keys_report r;
    const struct store_keys_state exact = keys_state();
    struct store_keys_spec f32 = exact.spec, bf16 = exact.spec;
    CHECK_EQ(exact.spec.rounding, STORE_KEYS_F32);
    CHECK_EQ(exact.files, 1);
    job.config.rounded = true;
    CHECK_OK(stored_keys_make(&r, &job));
    CHECK_EQ(r.spec.rounding, stored_keys_rounding(engine.device, DTYPE_F32, true));
    CHECK_EQ(keys_state().spec.rounding, r.spec.rounding);
    CHECK_EQ(r.made, r.spec.rounding == STORE_KEYS_BF16); /* a processor may have no instructions for it */
    CHECK_EQ(r.chunks, r.spec.rounding == STORE_KEYS_BF16 ? exact.all : 0);
    CHECK_OK(try_keys());
    CHECK_EQ(make_keys().made, r.made);
    CHECK_EQ(keys_state().spec.rounding, STORE_KEYS_F32);

    /* what is to do about them */
    struct keys_maker maker = keys_maker_of(&engine.model.config, engine.model.params, STORE_KEYS_BF16);
    struct store_keys_state have = exact;
    struct keys_follow follow;
    bf16.rounding = STORE_KEYS_BF16;
    have.chunks = 50;
    CHECK_OK(keys_spec_check(store, &have, &f32));
    CHECK_FAILS(keys_spec_check(store, &have, &bf16), STATUS_MISMATCH,
                "computed with f32 products, and this run computes bf16: take --dtype f32, or run drt-index keys");
    bf16.step = 1;
    CHECK_FAILS(keys_spec_check(store, &have, &bf16), STATUS_MISMATCH, "of another model, layer or step");
    CHECK_FAILS(keys_follow_check(store, &have, &maker), STATUS_MISMATCH, "take --dtype f32");
    keys_follow_decide(&follow, store, &have, &maker, false, NULL);
    CHECK(!follow.make && follow.lacking == exact.all - 50);
    maker.rounding = STORE_KEYS_F32;
    have.spec.step = 4;
    CHECK_OK(keys_follow_check(store, &have, &maker));
    keys_follow_decide(&follow, store, &have, &maker, false, NULL);
    CHECK(follow.make && follow.step == 4 && follow.layer == LAYER);
    have.spec.rounding = STORE_KEYS_BF16;
    CHECK_FAILS(keys_follow_check(store, &have, &maker), STATUS_MISMATCH, "take --dtype auto, or run");
    maker.weights[0] ^= 1;
    CHECK_FAILS(keys_follow_check(store, &have, &maker), STATUS_MISMATCH, "of another model, layer or step");
    have = (struct store_keys_state){.all = 56};
    CHECK_OK(keys_follow_check(store, &have, NULL));
    keys_follow_decide(&follow, store, &have, NULL, false, NULL);
    CHECK(!follow.make && follow.lacking == 0);
    keys_follow_decide(&follow, store, &have, NULL, true, NULL);
    CHECK(follow.make && follow.layer == 0 && follow.step == 0);
}

/* The bytes of the only file of keys. */
static size_t keys_bytes(uint8_t *out, size_t most) {
    char path[700];
    snprintf(path, sizeof path, "%s/keys/00000.keys", store);
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL);
    const size_t n = fread(out, 1, most, f);
    CHECK(n > 128 && n < most);
    CHECK_EQ(fclose(f), 0);
    return n;
}

/* A CPU without bf16 instructions makes and extends keys of bf16 products, with the bytes of one that has them. */
static void test_plain_rounding(void) {
    enum { BYTES = 60 * CHUNK * (SIZE + 4) };
    static uint8_t vectors[BYTES], plain[BYTES];
    struct stored_keys_job job = {.config = windows_config(), .weights = weights};
    struct stored_keys_report r;
    int64_t removed;
    struct store_keys_state have = keys_state();
    CHECK(!stored_keys_round_plainly(engine.device, DTYPE_F32, true, &have)); /* keys of float32 */
    have.spec.rounding = STORE_KEYS_BF16;
    CHECK(!stored_keys_round_plainly(engine.device, DTYPE_F32, false, &have)); /* --dtype f32 */
    const bool has = stored_keys_rounding(engine.device, DTYPE_F32, true) == STORE_KEYS_BF16;
    CHECK(!has || !stored_keys_round_plainly(engine.device, DTYPE_F32, true, &have));
    CHECK_OK(store_keys_remove(&removed, store));
    size_t n = 0;
    if (has) {
        open_engine(store);
        device_cpu_without_amx(engine.device); /* whose sums have another order */
        job.config = windows_config();
        job.config.rounded = true;
        CHECK_OK(stored_keys_make(&r, &job));
        n = keys_bytes(vectors, sizeof vectors);
        CHECK_OK(store_keys_remove(&removed, store));
    }
    open_engine(store);
    device_cpu_without_bf16(engine.device);
    CHECK_EQ(stored_keys_rounding(engine.device, DTYPE_F32, true), STORE_KEYS_F32);
    CHECK(stored_keys_round_plainly(engine.device, DTYPE_F32, true, &have));
    CHECK_EQ(stored_keys_rounding(engine.device, DTYPE_F32, true), STORE_KEYS_BF16);
    job.config = windows_config();
    job.config.rounded = true;
    CHECK_OK(stored_keys_make(&r, &job));
    CHECK_EQ(r.spec.rounding, STORE_KEYS_BF16);
    const size_t made = keys_bytes(plain, sizeof plain);
    CHECK(!has || (made == n && memcmp(vectors, plain, n) == 0));
    CHECK_OK(store_keys_remove(&removed, store));
    open_engine(store);
    CHECK_EQ(make_keys().made, 1);
}

/* ---- two writers of a file ---- */

/* The file of an older generation, which an addition writes beside a later one, does not replace the longer one. */
static void test_outdated(void) {
    const struct store_keys_spec spec = keys_state().spec;
    struct store_keys_file *f;
    struct keys_layout layout, shorter;
    CHECK_OK(keys_layout_open(&layout, engine.view));
    shorter = layout;
    for (int damaged = 0; damaged < 2; damaged++) {
        bool complete;
        char path[700];
        shorter.chunks = layout.chunks - 3;
        CHECK_OK(store_keys_begin(&f, engine.view, &shorter, 0, &spec));
        CHECK_OK(store_keys_append(f, (struct store_key_rows){0}, shorter.chunks));
        snprintf(path, sizeof path, "%s/keys/00000.keys", store);
        if (damaged) change_byte(path, 300);
        CHECK_OK(store_keys_publish(f));
        CHECK_OK(store_keys_complete(&complete, engine.view, &layout, 0, &spec));
        CHECK_EQ(complete, !damaged);
    }
    keys_layout_free(&layout);
    CHECK_EQ(make_keys().made, 1);
    struct store_keys *keys = open_keys();
    struct store_key_rows rows; /* zeros of the shorter file are rows that it has */
    CHECK_OK(store_keys_chunk(keys, &rows, 2));
    for (int i = 0; i < CHUNK * SIZE; i++)
        CHECK_EQ(rows.code[i], 0);
    store_keys_close(keys);
    int64_t removed;
    CHECK_OK(store_keys_remove(&removed, store));
    CHECK_EQ(make_keys().made, 1);
}

/* ---- several devices ---- */

enum { DEVICES = 3, SECTIONS = 8 };

static void put_sections(bool put) {
    static const int64_t first[SECTIONS] = {0, 1, 9, 20, 21, 33, 40, 55};
    struct catalog *catalog;
    struct catalog_txn *t;
    engine_close(&engine);
    CHECK_OK(catalog_open(&catalog, store, true, 1 << 26));
    CHECK_OK(catalog_begin(&t, catalog, true));
    CHECK_OK(put ? record_put_sections(t, first, SECTIONS) : record_remove_sections(t));
    CHECK_OK(catalog_commit(t));
    catalog_close(catalog);
    open_engine(store);
}

static bool stop_now(void *context) {
    (void)context;
    return true;
}
static void count_steps(void *context, const struct progress_event *e) {
    int64_t *done = context;
    CHECK(e->done > *done && e->total == 56);
    *done = e->done;
}

/* A copy in the device's memory has the rows of all files, and the ids that follow those of each chunk. */
static void check_copy(void) {
    const struct store_keys_spec spec = stored_keys_spec(&engine.model.config, weights, LAYER, 0);
    struct device_keys *copies;
    const struct packed_chunks *copy;
    struct store_keys *keys = open_keys();
    CHECK_OK(device_keys_create(&copies, engine.device, NULL, 0));
    CHECK_OK(device_keys_take(copies, &copy, engine.view, keys, &spec));
    CHECK(copy->chunks == 56 && copy->chunk_rows == CHUNK);
    for (int64_t c = 0; c < copy->chunks; c++) {
        struct store_key_rows rows;
        struct store_chunk at;
        int32_t next[CHUNK];
        CHECK_OK(store_keys_chunk(keys, &rows, c));
        CHECK_OK(store_view_ids(engine.view, &at, next, c, 1));
        CHECK(memcmp(copy->keys.code + c * CHUNK * SIZE, rows.code, CHUNK * SIZE) == 0);
        CHECK(memcmp(copy->keys.scale + c * CHUNK, rows.scale, CHUNK * sizeof(float)) == 0);
        CHECK(memcmp(copy->value + c * CHUNK, next, sizeof next) == 0);
    }
    device_keys_return(copies, copy);
    device_keys_free(copies);
    store_keys_close(keys);
}

/* Devices divide the files: bytes do not depend on their number. A stop and a failure end all. */
static void test_devices(void) {
    enum { BYTES = 40 * CHUNK * (SIZE + 4) };
    static uint8_t one[SECTIONS][BYTES], many[SECTIONS][BYTES];
    struct engine others[DEVICES];
    struct stored_keys_device devices[DEVICES];
    struct stored_keys_report r;
    int64_t removed, done = 0;
    const struct progress count = {.report = count_steps, .context = &done}, stop = {.stop_requested = stop_now};
    CHECK_OK(store_keys_remove(&removed, store));
    put_sections(true);
    for (int i = 0; i < DEVICES; i++) {
        const struct device_choice cpu = {.device = "cpu", .dtype = "f32"};
        CHECK_OK(engine_share(&others[i], &engine, &cpu, 1));
        devices[i] = (struct stored_keys_device){others[i].device, others[i].decoder};
    }
    for (int n = 0; n <= DEVICES; n += DEVICES) {
        struct stored_keys_job job = {
            .config = windows_config(), .weights = weights, .more = devices, .n_more = n, .store = engine.store};
        CHECK_OK(store_keys_remove(&removed, store));
        job.config.progress = &stop;
        CHECK_FAILS(stored_keys_make(&r, &job), STATUS_INTERRUPTED, "stopped while keys were computed");
        job.config.progress = &count, done = 0;
        CHECK_OK(stored_keys_make(&r, &job));
        CHECK(r.files == SECTIONS && r.made == SECTIONS && r.chunks == 56 && done == 56);
        for (int i = 0; i < SECTIONS; i++) {
            char path[700];
            snprintf(path, sizeof path, "%s/keys/%05d.keys", store, i);
            FILE *f = fopen(path, "rb");
            CHECK(f != NULL);
            const size_t got = fread(n ? many[i] : one[i], 1, BYTES, f);
            CHECK(got > 128 && got < BYTES);
            CHECK_EQ(fclose(f), 0);
        }
        job.config.progress = NULL, done = 0, job.part = 2, job.parts = 3;
        CHECK_OK(stored_keys_make(&r, &job));
        CHECK(r.files == 3 && r.made == 0);
    }
    CHECK_EQ(memcmp(one, many, sizeof one), 0);
    check_copy();
    struct stored_keys_job job = {
        .config = windows_config(), .weights = weights, .more = devices, .n_more = DEVICES, .store = engine.store};
    char path[700];
    snprintf(path, sizeof path, "%s/keys/00005.keys", store);
    CHECK_OK(store_keys_remove(&removed, store));
    CHECK_EQ(mkdir(path, 0700), 0); /* no file can get this name */
    CHECK_FAILS(stored_keys_make(&r, &job), STATUS_INVALID, "00005.keys");
    CHECK_EQ(rmdir(path), 0);
    for (int i = 0; i < DEVICES; i++)
        engine_close(&others[i]);
    CHECK_OK(store_keys_remove(&removed, store));
    put_sections(false);
    CHECK_EQ(make_keys().made, 1);
}

int main(void) {
    keys_world_open();
    CHECK_EQ(make_keys().made, 1);
    test_rounding();
    test_plain_rounding();
    test_outdated();
    test_devices();
    engine_close(&engine);
    return 0;
}
