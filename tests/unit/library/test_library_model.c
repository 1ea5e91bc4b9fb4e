/* test_library_model.c -- drt.h: versions, structs of other versions, models, tokenizers, landmarks, query vectors. */
#include "tests/library_fixture.h"

enum { DIM = 32, CHUNK = 63, VOCAB = 271 };

static char folder[600];

static void versions(void) {
    struct drt_version_info v = {.size = sizeof v};
    CALL_OK(drt_version(&v));
    CHECK(v.size == sizeof v && v.faiss[0] && strstr(v.text, "libdrt ") == v.text && strstr(v.text, v.faiss));
    CALL_FAILS(drt_version(NULL), DRT_INVALID, "out is NULL");
    CHECK_STR(drt_status_text(DRT_NOT_FOUND), "not found");
    CHECK(drt_status_text(-99) && drt_status_text(99));
    drt_free(NULL);
}

/* An older caller's struct is shorter, a newer one's longer. */
static void sizes(void) {
    struct {
        struct drt_version_info info;
        char after[8];
    } longer = {.info.size = sizeof longer, .after = "xxxxxxx"};
    struct drt_version_info v = {.size = offsetof(struct drt_version_info, commit)};
    memset(v.commit, 'x', sizeof v.commit);
    CALL_OK(drt_version(&v));
    CHECK(v.commit[0] == 'x');
    CALL_OK(drt_version(&longer.info));
    CHECK(longer.info.size == sizeof longer && longer.after[0] == 0);
    v.size = 0;
    CALL_FAILS(drt_version(&v), DRT_INVALID, "size");
    struct {
        struct drt_model_config c;
        int64_t newer;
    } config = {.c = {.size = sizeof config, .device = "cpu"}};
    struct drt_model *m = NULL;
    CALL_OK(drt_model_open(&m, folder, &config.c));
    drt_model_close(m);
    config.newer = 1;
    CALL_FAILS(drt_model_open(&m, folder, &config.c), DRT_UNSUPPORTED, "does not know");
    config.c.size = 3;
    CALL_FAILS(drt_model_open(&m, folder, &config.c), DRT_INVALID, "size");
}

static void models(void) {
    struct drt_model *m = NULL, *shared = NULL, *third = NULL;
    struct drt_model_config config = {.size = sizeof config, .device = "cpu", .threads = 1};
    struct drt_model_info info = {.size = sizeof info};
    CALL_FAILS(drt_model_open(NULL, folder, NULL), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_model_open(&m, "/no/such/folder", NULL), DRT_NOT_FOUND, "/no/such/folder");
    config.device = "tpu";
    CALL_FAILS(drt_model_open(&m, folder, &config), DRT_INVALID, "tpu");
    config.device = "cpu", config.dtype = "f16";
    CALL_FAILS(drt_model_open(&m, folder, &config), DRT_INVALID, "f16");
    config.dtype = NULL, config.threads = -1;
    CALL_FAILS(drt_model_open(&m, folder, &config), DRT_INVALID, "threads");
    config.threads = 1;
    CALL_OK(drt_model_open(&m, folder, &config));
    CALL_OK(drt_model_info(m, &info));
    CHECK(info.dim == DIM && info.chunk == CHUNK && info.vocab_size == VOCAB && info.eos_id == 268);
    CHECK(info.layers == 2 && info.encoder_layers == 1 && info.groups == 1 && info.neighbours == 4);
    CHECK(info.threads == 1 && info.window == 128 && info.parameters > 1000);
    CHECK_STR(info.path, folder);
    CHECK_STR(info.variant, "encoder-decoder");
    CHECK_STR(info.device, "cpu");
    CALL_FAILS(drt_model_info(NULL, &info), DRT_INVALID, "model is NULL");
    CALL_FAILS(drt_model_info(m, NULL), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_model_share(&shared, NULL, NULL), DRT_INVALID, "model is NULL");
    CALL_FAILS(drt_model_share(NULL, m, NULL), DRT_INVALID, "out is NULL");
    CALL_OK(drt_model_share(&shared, m, &config));
    drt_model_close(m); /* the other models keep the weights */
    CALL_OK(drt_model_share(&third, shared, NULL));
    drt_model_close(shared);
    CALL_OK(drt_model_info(third, &info));
    CHECK_STR(info.path, folder);
    CHECK_STR(info.dtype, "f32");
    drt_model_close(third);
    config.dtype = "i8"; /* weights of 8 bits are shared with their like alone */
    CALL_OK(drt_model_open(&m, folder, &config));
    CALL_OK(drt_model_info(m, &info));
    CHECK_STR(info.dtype, "i8");
    CALL_OK(drt_model_share(&shared, m, &config));
    config.dtype = "f32";
    CALL_OK(drt_model_share(&third, m, &config));
    drt_model_close(m);
    CALL_OK(drt_model_info(shared, &info));
    CHECK_STR(info.dtype, "i8");
    drt_model_close(shared);
    CALL_OK(drt_model_info(third, &info));
    CHECK_STR(info.dtype, "f32");
    config.dtype = "i8";
    CALL_OK(drt_model_share(&shared, third, &config));
    CALL_OK(drt_model_info(shared, &info));
    CHECK_STR(info.dtype, "i8");
    drt_model_close(shared);
    drt_model_close(third);
    drt_model_close(NULL);
    CHECK(drt_model_tokenizer(NULL) == NULL);
}

static void tokenizers(void) {
    struct drt_model *m = library_model(folder);
    struct drt_tokenizer *alone = NULL, *t = drt_model_tokenizer(m);
    char path[700], *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0, bytes = 0;
    const char *raw = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    CALL_OK(drt_tokenizer_open(&alone, path));
    CHECK_EQ(drt_tokenizer_vocab_size(alone), drt_tokenizer_vocab_size(t));
    CHECK_EQ(drt_tokenizer_vocab_size(NULL), 0);
    drt_tokenizer_close(alone);
    CALL_OK(drt_tokenizer_open(&alone, folder));
    CALL_FAILS(drt_tokenizer_open(&alone, NULL), DRT_INVALID, "path is NULL");
    CALL_FAILS(drt_tokenizer_open(NULL, path), DRT_INVALID, "out is NULL");
    CALL_FAILS(drt_tokenizer_open(&alone, "/no/tokenizer.json"), DRT_NOT_FOUND, "/no/tokenizer.json");
    static const char sample[] = "The h\xC3\xA4rbour, \xF0\x9F\x8C\x8A and more.";
    CALL_OK(drt_tokenizer_encode(alone, &ids, &n, sample, strlen(sample), false));
    CALL_OK(drt_tokenizer_decode(t, &text, &bytes, ids, n, false));
    CHECK(bytes == strlen(sample) && strcmp(text, sample) == 0);
    drt_free(text);
    char joined[64];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) { /* also of tokens that are a part of a character */
        CALL_OK(drt_tokenizer_bytes(t, &raw, &bytes, ids[i]));
        memcpy(joined + at, raw, bytes);
        at += bytes;
    }
    CHECK(at == strlen(sample) && memcmp(joined, sample, at) == 0);
    for (size_t i = 0; i < n; i++)
        CHECK_EQ(drt_tokenizer_id(t, drt_tokenizer_spelling(t, ids[i])), ids[i]);
    drt_free(ids);
    CALL_OK(drt_tokenizer_encode(t, &ids, &n, NULL, 0, true));
    CHECK(n == 0);
    drt_free(ids);
    CALL_OK(drt_tokenizer_decode(t, &text, &bytes, NULL, 0, true));
    CHECK(bytes == 0 && text[0] == 0);
    drt_free(text);
    CALL_FAILS(drt_tokenizer_encode(t, &ids, &n, NULL, 3, true), DRT_INVALID, "text is NULL");
    CALL_FAILS(drt_tokenizer_encode(NULL, &ids, &n, "x", 1, true), DRT_INVALID, "tokenizer is NULL");
    CALL_FAILS(drt_tokenizer_encode(t, NULL, &n, "x", 1, true), DRT_INVALID, "ids is NULL");
    CALL_FAILS(drt_tokenizer_encode(t, &ids, NULL, "x", 1, true), DRT_INVALID, "n is NULL");
    CALL_FAILS(drt_tokenizer_decode(t, &text, &bytes, NULL, 1, true), DRT_INVALID, "ids is NULL");
    CALL_FAILS(drt_tokenizer_decode(NULL, &text, &bytes, NULL, 0, true), DRT_INVALID, "tokenizer is NULL");
    CALL_FAILS(drt_tokenizer_bytes(t, &raw, &bytes, 100000), DRT_NOT_FOUND, "100000");
    CALL_FAILS(drt_tokenizer_bytes(t, &raw, &bytes, -1), DRT_NOT_FOUND, "-1");
    CALL_FAILS(drt_tokenizer_bytes(NULL, &raw, &bytes, 1), DRT_INVALID, "NULL");
    CHECK(!drt_tokenizer_spelling(t, 100000) && !drt_tokenizer_spelling(NULL, 1));
    CHECK(drt_tokenizer_id(t, "no such token") == -1 && drt_tokenizer_id(t, NULL) == -1);
    CHECK(drt_tokenizer_is_special(t, 268) && !drt_tokenizer_is_special(t, 1) && !drt_tokenizer_is_special(NULL, 1));
    drt_tokenizer_close(t); /* the caller's, not closed */
    CHECK(drt_tokenizer_vocab_size(t) > 0);
    drt_tokenizer_close(alone);
    drt_tokenizer_close(NULL);
    drt_model_close(m);
}

static void landmarks(void) {
    struct drt_model *m = library_model(folder), *shared = NULL;
    const char text[] =
        "A text of some length, so that it has more than a chunk: the river and the stone, the harbour, "
        "seven lights and the winding north, under the table and on the sand.";
    float *rows = NULL, again[8 * DIM], query[DIM], other[DIM];
    int32_t *ids = NULL;
    int64_t n = 0;
    CALL_OK(drt_model_encode_text(m, &rows, &ids, &n, text, strlen(text)));
    CHECK(n >= 2 && n <= 8 && ids[0] >= 0 && ids[n * CHUNK - 1] == -1);
    CALL_OK(drt_model_encode(m, again, ids, n));
    CHECK_CLOSE(rows, again, n * DIM, 0);
    CALL_OK(drt_model_encode_device(m, again, ids, n)); /* plain memory */
    CHECK_CLOSE(rows, again, n * DIM, 0);
    CALL_OK(drt_model_share(&shared, m, NULL));
    CALL_OK(drt_model_encode(shared, again, ids + CHUNK, n - 1)); /* not bound to another handle */
    CHECK_CLOSE(rows + DIM, again, (n - 1) * DIM, 0);
    CALL_OK(drt_model_query(m, query, ids, CHUNK));
    CALL_OK(drt_model_query(shared, other, ids, CHUNK));
    CHECK_CLOSE(query, other, DIM, 1e-4);
    CALL_OK(drt_model_query(m, other, ids, 5)); /* shorter than a chunk */
    CHECK(memcmp(query, other, sizeof query) != 0);
    CALL_OK(drt_model_encode(m, NULL, NULL, 0));
    ids[3] = VOCAB;
    CALL_FAILS(drt_model_encode(m, again, ids, 1), DRT_INVALID, "271");
    CALL_FAILS(drt_model_query(m, query, ids, 10), DRT_INVALID, "271");
    ids[3] = -1;
    CALL_FAILS(drt_model_encode(m, again, ids, 1), DRT_INVALID, "chunk 0: begins with -1, or has an id after one");
    CALL_FAILS(drt_model_query(m, query, ids, 10), DRT_INVALID, "-1");
    CALL_FAILS(drt_model_query(m, query, ids, 0), DRT_INVALID, "needs an id");
    CALL_FAILS(drt_model_query(NULL, query, ids, 1), DRT_INVALID, "model is NULL");
    CALL_FAILS(drt_model_encode(m, again, ids, -1), DRT_INVALID, "-1");
    CALL_FAILS(drt_model_encode(m, NULL, ids, 1), DRT_INVALID, "NULL");
    CALL_FAILS(drt_model_encode(NULL, again, ids, 1), DRT_INVALID, "model is NULL");
    CALL_FAILS(drt_model_encode_device(m, NULL, ids, 1), DRT_INVALID, "NULL");
    CALL_FAILS(drt_model_encode_text(m, NULL, NULL, NULL, text, 1), DRT_INVALID, "n is NULL");
    drt_free(rows);
    drt_free(ids);
    CALL_OK(drt_model_encode_text(m, &rows, NULL, &n, "", 0));
    CHECK_EQ(n, 0);
    drt_free(rows);
    CALL_OK(drt_model_encode_text(m, NULL, &ids, &n, "x", 1));
    CHECK_EQ(n, 1);
    drt_free(ids);
    drt_model_close(shared);
    drt_model_close(m);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    snprintf(folder, sizeof folder, "%s/model", test_folder());
    model_fixture(folder, 3);
    versions();
    sizes();
    models();
    tokenizers();
    landmarks();
    return test_done();
}
