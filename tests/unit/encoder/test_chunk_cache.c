/* test_chunk_cache.c -- K and V are those of the requested chunk after any sequence of calls. The test compares with
 * chunks encoded alone, under random gets, puts, pins and failing readers, and with a model of the order of use. */
#include "base/rng.h"
#include "encoder/chunk_cache.h"
#include "tests/test.h"

enum { CHUNK = 63, DIM = 16, SLOTS = 6, KINDS = 14, ROWS = 64 };

static struct model_config config;
static struct params *params;
static struct device *dev;
static struct encoder *encoder;

static const char config_text[] =
    "{\"vocab_size\": 40, \"hidden_size\": 16, \"intermediate_size\": 24, \"num_attention_heads\": 2,"
    "\"decoder_layers\": [1, 1], \"encoder_layers\": 2, \"enc_chunk_size\": 63, \"chunk_topk\": 2,"
    "\"slide_window\": 4, \"rms_norm_eps\": 1e-5, \"chunk_id\": 39, \"pad_id\": 38, \"encoder_input\": \"tokens\"}";

/* The keys that were requested of the reader since the last check. */
struct reader {
    int64_t calls, chunks;
    bool fail;
};

static void fill_ids(int32_t *ids, struct chunk_key key) {
    int length = key.id % 3 == 0 ? 10 : CHUNK; /* some chunks are short */
    for (int i = 0; i < CHUNK; i++)
        ids[i] = i < length ? (int32_t)((key.id * 7 + key.source * 13 + (int64_t)i * (key.id + 2)) % 38) : -1;
}

static enum status read_tokens(void *context, int32_t *ids, const struct chunk_key *keys, int64_t n) {
    struct reader *r = context;
    r->calls++;
    r->chunks += n;
    if (r->fail) return fail(STATUS_IO, "a failure of the reader");
    for (int64_t i = 0; i < n; i++)
        fill_ids(ids + i * CHUNK, keys[i]);
    return STATUS_OK;
}

static void check_content(const struct chunk_cache *c, int32_t slot, struct chunk_key key) {
    float k[ROWS * DIM], v[ROWS * DIM];
    struct encoder_output out = {.keys = mat_dense(k, DTYPE_F32, ROWS, DIM),
                                 .values = mat_dense(v, DTYPE_F32, ROWS, DIM)};
    int32_t ids[CHUNK];
    struct gca_pool pool = chunk_cache_pool(c);
    fill_ids(ids, key);
    encoder_encode(encoder, &out, ids, 1);
    CHECK(memcmp(mat_row(pool.keys, (int64_t)slot * ROWS), k, sizeof k) == 0);
    CHECK(memcmp(mat_row(pool.values, (int64_t)slot * ROWS), v, sizeof v) == 0);
    for (int i = 0; i < DIM; i++)
        CHECK(k[CHUNK * DIM + i] == 0.0f && v[CHUNK * DIM + i] == 0.0f);
}

static struct chunk_cache *create(int64_t slots) {
    struct chunk_cache *c;
    CHECK_OK(chunk_cache_create(&c, dev, &config, encoder, slots));
    struct gca_pool pool = chunk_cache_pool(c);
    CHECK_EQ(pool.slot_rows, ROWS);
    CHECK_EQ(pool.live_rows, CHUNK);
    CHECK(pool.off_by_one);
    return c;
}

static void get_one(struct chunk_cache *c, int64_t id, struct reader *r, int64_t reads) {
    int32_t slot;
    int64_t before = r->chunks;
    CHECK_OK(chunk_cache_get(c, &slot, &(struct chunk_key){1, id}, 1, read_tokens, r));
    CHECK_EQ(r->chunks - before, reads);
    check_content(c, slot, (struct chunk_key){1, id});
    chunk_cache_unpin(c, &slot, 1);
}

static void order_of_use(void) {
    struct reader r = {0};
    struct chunk_cache *c = create(3);
    for (int64_t id = 0; id < 3; id++)
        get_one(c, id, &r, 1);
    get_one(c, 0, &r, 0); /* 1 is now the oldest */
    get_one(c, 5, &r, 1);
    get_one(c, 0, &r, 0);
    get_one(c, 2, &r, 0);
    get_one(c, 1, &r, 1); /* evicted, and now 5 is evicted for it */
    get_one(c, 5, &r, 1);
    struct chunk_cache_stats stats = chunk_cache_stats(c);
    CHECK_EQ(stats.hits, 3);
    CHECK_EQ(stats.misses, 6);
    chunk_cache_free(c);
}

static void duplicates_and_empty_entries(void) {
    struct reader r = {0};
    struct chunk_cache *c = create(3);
    struct chunk_key keys[7] = {{1, 4}, {1, -1}, {1, 4}, {2, 4}, {1, 4}, {0, -1}, {2, 4}};
    int32_t slot[7];
    CHECK_OK(chunk_cache_get(c, slot, keys, 7, read_tokens, &r));
    CHECK_EQ(r.calls, 1); /* one batch, each chunk once; another source is another chunk */
    CHECK_EQ(r.chunks, 2);
    CHECK(slot[1] == -1 && slot[5] == -1 && slot[0] == slot[2] && slot[0] == slot[4] && slot[3] == slot[6] &&
          slot[0] != slot[3]);
    check_content(c, slot[0], keys[0]);
    check_content(c, slot[3], keys[3]);
    chunk_cache_unpin(c, slot, 7);
    CHECK_OK(chunk_cache_get(c, slot, keys, 0, NULL, NULL));
    chunk_cache_free(c);
}

static void pins(void) {
    struct reader r = {0};
    struct chunk_cache *c = create(3);
    struct chunk_key keys[4] = {{1, 0}, {1, 1}, {1, 2}, {1, 3}};
    int32_t slot[4], other, again;
    CHECK_FAILS(chunk_cache_get(c, slot, keys, 4, read_tokens, &r), STATUS_NO_SPACE, "all 3 slots");
    CHECK_EQ(r.calls, 0);
    CHECK_OK(chunk_cache_get(c, slot, keys, 3, read_tokens, &r));
    CHECK_FAILS(chunk_cache_get(c, &other, keys + 3, 1, read_tokens, &r), STATUS_NO_SPACE, "all 3 slots");
    CHECK_FAILS(chunk_cache_put(c, &other, keys[3]), STATUS_NO_SPACE, "all 3 slots");
    CHECK_OK(chunk_cache_get(c, &again, keys + 1, 1, read_tokens, &r)); /* pinned twice now */
    CHECK_EQ(again, slot[1]);
    chunk_cache_unpin(c, slot, 3);
    for (int64_t id = 10; id < 20; id++)
        get_one(c, id, &r, 1);
    check_content(c, again, keys[1]);
    chunk_cache_unpin(c, &again, 1);
    for (int64_t id = 10; id < 13; id++)
        get_one(c, id, &r, 1);
    get_one(c, 1, &r, 1);
    chunk_cache_free(c);
}

/* After a reader's failure no slot names a chunk that was not encoded, and nothing is pinned. */
static void failing_reader(void) {
    struct reader r = {.fail = true};
    struct chunk_cache *c = create(3);
    struct chunk_key keys[3] = {{1, 7}, {1, 8}, {1, 9}};
    int32_t slot[3];
    get_one(c, 8, &(struct reader){0}, 1);
    CHECK_FAILS(chunk_cache_get(c, slot, keys, 3, read_tokens, &r), STATUS_IO, "a failure of the reader");
    r.fail = false;
    r.chunks = 0;
    CHECK_OK(chunk_cache_get(c, slot, keys, 3, read_tokens, &r)); /* needs all three slots: no pin was left */
    CHECK_EQ(r.chunks, 2);
    for (int i = 0; i < 3; i++)
        check_content(c, slot[i], keys[i]);
    chunk_cache_unpin(c, slot, 3);
    chunk_cache_free(c);
}

static void puts_and_gets(void) {
    struct chunk_cache *c = create(2);
    struct reader r = {0};
    int32_t slot, found;
    CHECK_OK(chunk_cache_put(c, &slot, (struct chunk_key){0, 3}));
    mat_row(chunk_cache_pool(c).keys, (int64_t)slot * ROWS)[0] = 42.0f;
    CHECK_OK(chunk_cache_get(c, &found, &(struct chunk_key){0, 3}, 1, read_tokens, &r));
    CHECK_EQ(found, slot);
    CHECK_EQ(r.calls, 0);
    CHECK(mat_row(chunk_cache_pool(c).keys, (int64_t)found * ROWS)[0] == 42.0f);
    chunk_cache_unpin(c, &slot, 1);
    chunk_cache_unpin(c, &found, 1);
    chunk_cache_free(c);
}

/* The index of a key in a list; the list's length if it is not there. */
static int place_in(const struct chunk_key *list, int length, struct chunk_key key) {
    int at = 0;
    while (at < length && !(list[at].id == key.id && list[at].source == key.source))
        at++;
    return at;
}

/* Moves a key to the front of the list, or inserts it there; if all slots are used, the last key is removed. */
static void touch(struct chunk_key *recent, int *held, struct chunk_key key) {
    int at = place_in(recent, *held, key);
    if (at == *held && *held == SLOTS)
        at = SLOTS - 1;
    else if (at == *held)
        ++*held;
    memmove(recent + 1, recent, (size_t)at * sizeof *recent);
    recent[0] = key;
}

/* Random calls against a list of keys in order of last use. */
static void random_calls(uint64_t seed) {
    struct chunk_cache *c = create(SLOTS);
    struct rng rng = rng_make(seed, 3);
    struct chunk_key recent[SLOTS]; /* the expected keys of the cache, newest first */
    int held = 0;
    for (int step = 0; step < 400; step++) {
        struct chunk_key keys[SLOTS];
        int32_t slot[SLOTS];
        int n = 1 + (int)rng_below(&rng, SLOTS), fresh = 0;
        struct reader r = {.fail = rng_below(&rng, 20) == 0};
        bool inside[SLOTS];
        for (int i = 0; i < n; i++) {
            keys[i] = (struct chunk_key){(int32_t)rng_below(&rng, 2), (int64_t)rng_below(&rng, KINDS)};
            inside[i] = place_in(recent, held, keys[i]) < held;
            fresh += !inside[i] && place_in(keys, i, keys[i]) == i;
        }
        enum status s = chunk_cache_get(c, slot, keys, n, read_tokens, &r);
        CHECK_EQ(r.chunks, fresh);
        CHECK_EQ(s == STATUS_OK, !(r.fail && fresh));
        if (s != STATUS_OK) { /* the failed call evicted chunks: start again from an empty cache */
            chunk_cache_free(c);
            c = create(SLOTS);
            held = 0;
            continue;
        }
        for (int i = 0; i < n; i++)
            check_content(c, slot[i], keys[i]);
        chunk_cache_unpin(c, slot, n);
        /* A call uses first the keys that were in the cache, in order, then the new ones. */
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < n; i++)
                if (inside[i] == (pass == 0)) touch(recent, &held, keys[i]);
    }
    chunk_cache_free(c);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 11);
    CHECK_OK(model_config_parse(&config, "config", config_text, strlen(config_text)));
    CHECK_OK(params_init(&params, &config, 1));
    CHECK_OK(device_open(&dev, "cpu", 2));
    struct weights weights = weights_of_params(params);
    CHECK_OK(encoder_create(&encoder, dev, &config, &weights, 4));
    order_of_use();
    duplicates_and_empty_entries();
    pins();
    failing_reader();
    puts_and_gets();
    random_calls(test_seed());
    encoder_free(encoder);
    params_free(params);
    device_close(dev);
    return test_done();
}
