/* test_similar.c -- passages of a training batch: every block gets the passages that BM25 finds for the text before it,
 * and none of its own documents; the table's file is kept, checked, and refused if it does not fit; similar windows are
 * put into one group. */
#include "base/file.h"
#include "tests/test.h"
#include "train/memory/similar_passages.h"

enum { CHUNK = 63, VOCAB = 4000, END = 0, LANDMARK = 3999, LONG = 6 * CHUNK, DOCUMENTS = 12, PASSAGES = 2, SPAN = 2 };
enum { NUMBERS = SPAN * CHUNK + 1 };

/* Documents 2i and 2i+1 (twins) have the same ids, except for each ninth one, which is the document's own. */
static int32_t id_at(int document, int64_t i) {
    int32_t topic = document / 2;
    return i % 9 == 4 ? 3000 + document : (int32_t)(1 + (topic * 397 + i * (7 + topic)) % 2900);
}

static const char *write_documents(const char *name, int first, int n, int64_t length) {
    const char *path = test_path(name);
    FILE *f = fopen(path, "wb");
    CHECK(f);
    for (int d = first; d < first + n; d++)
        for (int64_t i = 0; i <= length; i++) {
            int32_t id = i == length ? END : id_at(d, i);
            fputc(id & 255, f), fputc(id >> 8, f);
        }
    CHECK(fclose(f) == 0);
    return path;
}

static struct batches *open_text(const char *path, const struct model_config *m, enum sampling sampling, int first) {
    struct batches *b;
    const char *files[] = {path};
    const struct batches_config how = {.files = files,
                                       .n_files = 1,
                                       .end_id = END,
                                       .model = m,
                                       .sampling = sampling,
                                       .sequences = 4,
                                       .chunks = m->base_lm ? 3 * CHUNK : 3,
                                       .held = 1,
                                       .seed = 5,
                                       .documents = true,
                                       .first_document = first};
    CHECK_OK(batches_open(&b, &how));
    return b;
}

static struct similar_config config_of(const struct batches *text, const struct batches *pool,
                                       const struct batches *valid, const struct model_config *m) {
    return (struct similar_config){.text = text,
                                   .pool = pool,
                                   .valid = valid,
                                   .model = m,
                                   .passages = PASSAGES,
                                   .span = SPAN,
                                   .path = test_path("n.safetensors"),
                                   .make = true};
}

/* The document and offset of an id of the text. */
static void locate(int64_t position, int *document, int64_t *offset) {
    *document = (int)(position / (LONG + 1));
    *offset = position % (LONG + 1);
}

/* The chunk that ended last finds the twin's chunk; the passage is that chunk and the next one. */
static void check_block(const struct batch *b, int64_t block, int64_t position) {
    const int32_t *ids = b->passages + block * PASSAGES * NUMBERS, *documents = b->passage_documents + block * PASSAGES;
    int document;
    int64_t offset;
    locate(position, &document, &offset);
    for (int p = 0; p < PASSAGES; p++) {
        CHECK(documents[p] == -1 || documents[p] < b->documents[block][0] || documents[p] > b->documents[block][1]);
        CHECK((documents[p] < 0) == (ids[p * NUMBERS] < 0));
    }
    if (offset < CHUNK) CHECK_EQ(documents[0], -1); /* no chunk of the document has ended */
    int twin = document ^ 1;
    bool readable = twin < b->documents[block][0] || twin > b->documents[block][1] + 1;
    if (offset < CHUNK || !readable) return;
    int64_t from = (offset / CHUNK - 1) * CHUNK;
    CHECK_EQ(documents[0], twin);
    /* The query has two chunks, and the twin has both. */
    int64_t at = ids[0] == id_at(twin, from) && ids[1] == id_at(twin, from + 1) ? from : from - CHUNK;
    CHECK(at >= 0);
    for (int64_t i = 0; i < NUMBERS; i++)
        CHECK_EQ(ids[i], at + i < LONG ? id_at(twin, at + i) : -1);
}

static void check_fill(const struct similar *n, struct batches *text, const struct model_config *m) {
    int64_t blocks = 12;
    int32_t *ids = malloc(similar_ids(n, blocks) * sizeof *ids),
            *documents = malloc(similar_documents(n, blocks) * sizeof *documents);
    CHECK(ids && documents && similar_ids(n, 1) == (size_t)(PASSAGES * NUMBERS));
    for (int64_t number = 0; number < 5; number++) {
        struct batch b;
        batches_get(text, &b, 0, number);
        similar_fill(n, &b, ids, documents, false);
        for (int64_t block = 0; block < blocks; block++) {
            int64_t position = b.starts[block / 3] + block % 3 * CHUNK;
            int64_t row = m->base_lm ? block * CHUNK : block * (CHUNK + 1);
            int document;
            int64_t offset;
            locate(position, &document, &offset);
            CHECK_EQ(b.ids[row], offset == LONG ? END : id_at(document, offset));
            check_block(&b, block, position);
        }
    }
    free(ids), free(documents);
}

static void check_tables(bool base) {
    const struct model_config m = {.vocab_size = VOCAB, .chunk = CHUNK, .landmark_id = LANDMARK, .base_lm = base};
    struct batches *text = open_text(write_documents("a.u16", 0, DOCUMENTS, LONG), &m, SAMPLING_EPOCHS, 0);
    struct batches *other = open_text(write_documents("b.u16", 0, DOCUMENTS - 2, LONG), &m, SAMPLING_EPOCHS, 0);
    struct similar *n, *again;
    struct similar_config how = config_of(text, NULL, NULL, &m);
    CHECK_OK(file_remove(how.path));
    how.make = false;
    CHECK_FAILS(similar_open(&n, &how), STATUS_NOT_FOUND, "n.safetensors");
    how.make = true;
    CHECK_OK(similar_open(&n, &how));
    CHECK(!file_exists(test_path("n.safetensors.lex")));
    check_fill(n, text, &m);
    how.make = false; /* from the kept file */
    CHECK_OK(similar_open(&again, &how));
    check_fill(again, text, &m);
    similar_free(again), similar_free(n);
    how = config_of(other, NULL, NULL, &m);
    CHECK_FAILS(similar_open(&n, &how), STATUS_MISMATCH, "delete it");
    how = config_of(text, NULL, NULL, &m);
    how.passages++;
    CHECK_FAILS(similar_open(&n, &how), STATUS_MISMATCH, "n.safetensors");
    batches_close(text), batches_close(other);
}

/* The twins are in the pool: they are read, although no window has them; validation text finds them, too. */
static void check_pool(void) {
    const struct model_config m = {.vocab_size = VOCAB, .chunk = CHUNK, .landmark_id = LANDMARK};
    struct batches *text = open_text(write_documents("even.u16", 2, 1, LONG), &m, SAMPLING_EPOCHS, 0);
    struct batches *pool = open_text(write_documents("odd.u16", 3, 1, LONG), &m, SAMPLING_EPOCHS, 1);
    struct batches *valid = open_text(write_documents("valid.u16", 2, 1, LONG), &m, SAMPLING_ONCE, 2);
    struct similar *n;
    struct similar_config how = config_of(text, pool, valid, &m);
    struct batch b;
    CHECK_OK(file_remove(how.path));
    CHECK_OK(similar_open(&n, &how));
    int32_t *ids = malloc(similar_ids(n, 12) * sizeof *ids),
            *documents = malloc(similar_documents(n, 12) * sizeof *documents);
    batches_get(text, &b, 0, 0);
    similar_fill(n, &b, ids, documents, false);
    int found = 0;
    for (int64_t block = 0; block < 12; block++)
        for (int p = 0; p < PASSAGES; p++) {
            CHECK(documents[block * PASSAGES + p] == -1 || documents[block * PASSAGES + p] == 1);
            found += documents[block * PASSAGES + p] == 1;
        }
    CHECK(found > 0);
    batches_get(valid, &b, 0, 0);
    similar_fill(n, &b, ids, documents, true);
    CHECK_EQ(documents[0], -1);
    CHECK_EQ(documents[PASSAGES], 0); /* the same ids are in the text: document 0 ranks before its twin */
    CHECK_EQ(ids[PASSAGES * NUMBERS], id_at(2, 0));
    free(ids), free(documents), similar_free(n);
    batches_close(text), batches_close(pool), batches_close(valid);
}

/* The passages that the next chunk finds follow in separate slots: the twin's next chunk, no excluded document, no
 * chunk twice. The slots before them do not change. */
static void check_coming(bool base) {
    const struct model_config m = {.vocab_size = VOCAB, .chunk = CHUNK, .landmark_id = LANDMARK, .base_lm = base};
    enum { COMING = 2, ALL = PASSAGES + COMING, BLOCKS = 12 };
    struct batches *text = open_text(write_documents("c.u16", 0, DOCUMENTS, LONG), &m, SAMPLING_EPOCHS, 0);
    struct similar *plain, *n;
    struct similar_config how = config_of(text, NULL, NULL, &m);
    struct batch a, b;
    int next = 0, asked = 0;
    CHECK_OK(file_remove(how.path));
    CHECK_OK(similar_open(&plain, &how));
    how.coming = COMING;
    CHECK_FAILS(similar_open(&n, &how), STATUS_MISMATCH, "coming");
    CHECK_OK(file_remove(how.path));
    CHECK_OK(similar_open(&n, &how));
    similar_free(n), how.make = false;
    CHECK_OK(similar_open(&n, &how)); /* from the file */
    size_t size = sizeof(int32_t);
    CHECK_EQ((int64_t)similar_documents(n, BLOCKS), BLOCKS * ALL);
    int32_t *ids = malloc(similar_ids(n, BLOCKS) * size), *documents = malloc(similar_documents(n, BLOCKS) * size),
            *plain_ids = malloc(similar_ids(plain, BLOCKS) * size),
            *plain_documents = malloc(similar_documents(plain, BLOCKS) * size);
    CHECK(ids && documents && plain_ids && plain_documents);
    for (int64_t number = 0; number < 5; number++) {
        batches_get(text, &a, 0, number);
        b = a;
        similar_fill(plain, &a, plain_ids, plain_documents, false);
        similar_fill(n, &b, ids, documents, false);
        for (int64_t block = 0; block < BLOCKS; block++) {
            const int32_t *from = ids + block * ALL * NUMBERS, *of = documents + block * ALL, *first = of + PASSAGES;
            CHECK(memcmp(from, plain_ids + block * PASSAGES * NUMBERS, PASSAGES * NUMBERS * size) == 0);
            for (int p = 0; p < ALL; p++) {
                CHECK(of[p] == -1 || of[p] < b.documents[block][0] || of[p] > b.documents[block][1]);
                for (int q = 0; q < p && of[p] >= 0; q++)
                    CHECK(memcmp(from + p * NUMBERS, from + q * NUMBERS, NUMBERS * size) != 0);
            }
            int document;
            int64_t offset;
            locate(b.starts[block / 3] + block % 3 * CHUNK, &document, &offset);
            int64_t coming = offset / CHUNK * CHUNK;
            int twin = document ^ 1;
            bool readable = twin < b.documents[block][0] || twin > b.documents[block][1] + 1;
            if (offset < CHUNK || offset >= LONG - CHUNK || !readable) continue;
            asked++;
            /* or earlier chunks found the chunk, too */
            for (int p = 0; p < PASSAGES + 1; p++)
                if (of[p] == twin && from[p * NUMBERS] == id_at(twin, coming) &&
                    from[p * NUMBERS + 1] == id_at(twin, coming + 1)) {
                    next++;
                    break;
                }
            CHECK(first[0] >= 0 || of[0] == twin);
        }
    }
    CHECK(asked > 10 && next == asked);
    free(ids), free(documents), free(plain_ids), free(plain_documents);
    similar_free(plain), similar_free(n), batches_close(text);
}

/* ---- order */

static void check_order(int group) {
    const struct model_config m = {.vocab_size = VOCAB, .chunk = CHUNK, .landmark_id = LANDMARK};
    const char *path = write_documents("order.u16", 0, DOCUMENTS, LONG);
    struct batches *text = open_text(path, &m, SAMPLING_EPOCHS, 0), *plain = open_text(path, &m, SAMPLING_EPOCHS, 0);
    struct similar *n;
    struct similar_config how = config_of(text, NULL, NULL, &m);
    int64_t windows = batches_windows(text), length = batches_length(text), twins = 0, random = 0, pairs = 0;
    CHECK_OK(file_remove(how.path));
    CHECK_OK(similar_open(&n, &how));
    CHECK_OK(similar_set_group(n, length, group));
    batches_set_order(text, similar_arrange, n);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        bool *seen = calloc((size_t)(DOCUMENTS * (LONG + 1)), 1);
        int64_t starts[2][64];
        for (int64_t w = 0; w < windows; w++) {
            struct batch b, c;
            int64_t number = epoch * windows + w;
            batches_get(text, &b, 0, number / 4);
            batches_get(plain, &c, 0, number / 4);
            starts[0][w] = b.starts[number % 4], starts[1][w] = c.starts[number % 4];
            CHECK(!seen[starts[0][w]]);
            seen[starts[0][w]] = true;
            if (w == 0 && number % group == 0)
                CHECK_EQ(starts[0][w], starts[1][w]); /* the first of a group is random */
        }
        for (int64_t w = 1; w < windows; w++) {
            if ((epoch * windows + w) % group == 0) continue;
            for (int which = 0; which < 2; which++) { /* topics at the windows' middles */
                int64_t a = (starts[which][w] + length / 2) / (LONG + 1) / 2,
                        b = (starts[which][w - 1] + length / 2) / (LONG + 1) / 2;
                *(which ? &random : &twins) += a == b;
            }
            pairs++;
        }
        free(seen);
    }
    if (!(twins * 5 > pairs * 2 && twins > 2 * random))
        fprintf(stderr, "of %lld pairs %lld are of one topic, in random order %lld\n", (long long)pairs,
                (long long)twins, (long long)random);
    CHECK(twins * 5 > pairs * 2 && twins > 2 * random);
    similar_free(n), batches_close(text), batches_close(plain);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    check_tables(false);
    check_tables(true);
    check_pool();
    check_coming(false);
    check_coming(true);
    check_order(2);
    check_order(4);
    return test_done();
}
