/* test_store_i8.c -- stores with 8-bit landmarks: the codes against plain loops in double precision, extreme rows,
 * scores of searches, what the catalog says, and stores made from others. What stores of both types share is tested by
 * the tests of fp16 stores, which run a second time (DRT_TEST_LANDMARKS). */
#include "base/half.h"
#include "base/memory.h"
#include "store/catalog/records_internal.h"
#include "store/parts/parts.h"
#include "store/shards/row_codes_internal.h"
#include "tests/store_fixture.h"
#include <math.h>

enum { VOCAB = 300, DIM_MAX = 400, DOCUMENTS = 150, EACH = 40, K = 20, QUERIES = 70 };

static char dir[700];

static const char *new_dir(const char *name) {
    snprintf(dir, sizeof dir, "%s/%s", test_folder(), name);
    return dir;
}

static struct store_writer_config config_of(int dim) {
    struct store_writer_config c = fixture_config(dim, VOCAB);
    c.landmarks = STORE_LANDMARKS_I8;
    return c;
}

/* ---- codes ---- */

/* The least of all scales m * 2^e, m from 8 to 15 (from 1 at the least exponent), that covers `largest`. */
static double least_scale(double largest) {
    for (int e = -24; e < 16; e++)
        for (int m = e == -24 ? 1 : 8; m < 16; m++)
            if (ldexp(m, e) * ROW_CODE_MAX >= largest) return ldexp(m, e);
    return NAN;
}

/* Checks one row: bounds, values that fp16 holds, and codes that are the same again. */
static void check_row(const float *row, int dim) {
    int8_t codes[DIM_MAX], again[DIM_MAX];
    float scale, scale_again, decoded[DIM_MAX];
    double largest = 0;
    for (int i = 0; i < dim; i++)
        if (fabs((double)row[i]) > largest) largest = fabs((double)row[i]);
    row_codes_make(codes, &scale, row, dim);
    row_codes_to_float(decoded, codes, scale, dim);
    double least = least_scale(largest), most = scale > 0 ? fmin(ROW_CODE_MAX, floor(65504 / (double)scale)) : 0;
    for (int i = 0; i < dim && scale > 0; i++)
        CHECK_EQ(codes[i], fmin(fmax(rintf(row[i] / scale), -most), most));
    CHECK(scale >= 0 && (double)scale <= least * (1 + 1e-6));
    for (int i = 0; i < dim; i++) {
        CHECK(codes[i] >= -ROW_CODE_MAX);
        CHECK((double)decoded[i] == (double)codes[i] * (double)scale);
        CHECK(half_from_f16(half_to_f16(decoded[i])) == decoded[i]);
        /* Half a step; 0.5625 where the largest number fits a smaller scale only when rounded; and a step beyond 65504.
         */
        double step = scale > 0 ? (double)scale : 0x1p-24, bound = largest > 57344 ? 1.5 : 0.5626;
        CHECK(fabs((double)decoded[i] - (double)row[i]) <= bound * step);
    }
    row_codes_make(again, &scale_again, decoded, dim);
    CHECK(memcmp(&scale, &scale_again, sizeof scale) == 0 && memcmp(codes, again, (size_t)dim) == 0);
}

static void random_rows(void) {
    struct rng r = rng_make(test_seed(), 5);
    float row[DIM_MAX];
    for (int n = 0; n < 20000; n++) {
        int dim = 1 + (int)rng_below(&r, DIM_MAX);
        float size = ldexpf(1 + rng_uniform(&r), (int)rng_below(&r, 40) - 28);
        for (int i = 0; i < dim; i++) {
            row[i] = size * rng_normal(&r);
            if (!(fabsf(row[i]) < 65520)) row[i] = 65519;
        }
        check_row(row, dim);
    }
    for (int e = -26; e < 16; e++) /* largest numbers just at, below and above those that a scale covers */
        for (int m = 8; m < 16; m++)
            for (int step = -3; step <= 3; step++)
                for (int half = 0; half < 2; half++) {
                    float scale = ldexpf((float)m, e - 3), at = ((float)ROW_CODE_MAX + 0.5f * (float)half) * scale;
                    row[0] = at * (1 + (float)step * 0x1p-23f);
                    row[1] = -row[0] / 3;
                    if (row[0] < 65520) check_row(row, 2);
                }
}

static void extreme_rows(void) {
    float zeros[64] = {0}, row[64] = {0};
    int8_t codes[64];
    float scale = 7;
    row_codes_make(codes, &scale, zeros, 64);
    CHECK(scale == 0 && codes[0] == 0 && codes[63] == 0);
    row[3] = 1e-42f; /* a denormal number of float32: zero in fp16, too */
    row_codes_make(codes, &scale, row, 64);
    CHECK(scale == 0 && codes[3] == 0);
    row[3] = -0x1p-24f; /* the least number of fp16 */
    row_codes_make(codes, &scale, row, 64);
    CHECK(scale * (float)codes[3] == -0x1p-24f);
    row[5] = 65504, row[6] = 300; /* one huge value: the others keep what its step leaves of them */
    row_codes_make(codes, &scale, row, 64);
    CHECK(codes[3] == 0 && (float)codes[5] * scale <= 65504 && fabsf((float)codes[5] * scale - 65504) <= scale);
    CHECK(fabsf((float)codes[6] * scale - 300) <= scale / 2);
    check_row(row, 64);
    row[5] = 65519.996f;
    check_row(row, 64);
}

/* ---- stores ---- */

/* Writes a shard of one document a chunk with these landmarks, `batch` rows a call. */
static enum status write_rows(struct store_writer *w, const float *rows, int64_t n, int dim, int64_t batch,
                              int64_t first) {
    TRY(store_shard_begin(w));
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < n && s == STATUS_OK; i++) {
        int32_t id = (int32_t)(i % VOCAB);
        bool duplicate;
        struct store_new_document d = {.ids = &id, .n_ids = 1, .source = "rows", .key = ""};
        fixture_hash(d.hash, first + i);
        s = store_shard_document(w, &d, &duplicate);
    }
    for (int64_t i = 0; i < n && s == STATUS_OK; i += batch)
        s = store_shard_landmarks(w, rows + i * dim, n - i < batch ? n - i : batch);
    if (s == STATUS_OK) return store_shard_seal(w, "", 0);
    store_shard_discard(w);
    return s;
}

static void store_of_rows(const float *rows, int64_t n, int dim, int64_t batch) {
    const struct store_writer_config config = config_of(dim);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    for (int64_t i = 0; i < n; i += 100)
        CHECK_OK(write_rows(w, rows + i * dim, n - i < 100 ? n - i : 100, dim, batch, i));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact", .seed = 1}));
    store_writer_close(w);
}

struct opened {
    struct store *s;
    struct store_view *v;
    struct store_info info;
};

static void open_at(struct opened *o, const char *path) {
    CHECK_OK(store_open(&o->s, path));
    CHECK_OK(store_view_open(&o->v, o->s));
    store_view_info(o->v, &o->info);
}

static void close_opened(struct opened *o) {
    store_view_close(o->v);
    store_close(o->s);
}

static void refused(void) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, 65520, -1e30f};
    const struct store_writer_config config = config_of(8);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, new_dir("refused"), &config, true));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        float rows[2][8] = {{1, 2}, {3, bad[i]}};
        CHECK_FAILS(write_rows(w, rows[0], 2, 8, 2, 0), STATUS_INVALID, "landmarks/00000.i8: row 1: value");
        CHECK(strstr(status_message(), "the model's landmark is broken"));
    }
    store_writer_close(w);
}

/* Scores by plain loops over the codes, in double precision, in the order of a search: best first, then smaller ids. */
struct scored {
    double score;
    int64_t chunk;
};
static int by_score(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

static void check_hits(const struct opened *o, const float *query, const struct store_hit *hits, int k) {
    const int64_t chunks = o->info.chunks;
    const int dim = o->info.fingerprint.dim;
    struct scored *all = malloc((size_t)chunks * sizeof *all), *by_chunk = malloc((size_t)chunks * sizeof *by_chunk);
    double sizes = 0;
    for (int64_t at = 0; at < chunks;) {
        struct store_rows rows;
        CHECK_OK(store_view_landmark_rows(o->v, &rows, at));
        CHECK(rows.codes && rows.scales && !rows.half && rows.dim == dim);
        CHECK(((uintptr_t)rows.scales & 3) == 0);
        for (int64_t r = 0; r < rows.n; r++) {
            double sum = 0, size = 0;
            for (int i = 0; i < dim; i++) {
                double x = (double)rows.codes[r * dim + i] * (double)rows.scales[r] * (double)query[i];
                sum += x;
                size += fabs(x);
            }
            all[at + r] = (struct scored){sum / sqrt(dim), at + r};
            if (size / sqrt(dim) > sizes) sizes = size / sqrt(dim);
        }
        at += rows.n;
    }
    memcpy(by_chunk, all, (size_t)chunks * sizeof *all);
    qsort(all, (size_t)chunks, sizeof *all, by_score);
    const double bound = sizes * dim * 0x1p-24;
    for (int i = 0; i < k; i++) {
        CHECK(hits[i].chunk >= 0 && hits[i].chunk < chunks);
        CHECK(fabs((double)hits[i].score - by_chunk[hits[i].chunk].score) <= bound);
        CHECK(fabs((double)hits[i].score - all[i].score) <= 2 * bound); /* the rank's score, if not its chunk */
    }
    free(all);
    free(by_chunk);
}

/* Scans with every number of queries and threads give the same bits, which are those of single scores. */
static void scans(int dim) {
    char name[32];
    struct rng r = rng_make(test_seed(), (uint64_t)dim);
    const int64_t n = 730;
    float *rows = malloc((size_t)n * (size_t)dim * sizeof *rows),
          *queries = malloc(QUERIES * (size_t)dim * sizeof *queries);
    struct store_hit *one = malloc(QUERIES * K * sizeof *one), *many = malloc(QUERIES * K * sizeof *many);
    for (int64_t i = 0; i < n * dim; i++)
        rows[i] = rng_normal(&r) * (i < dim ? 10 : 1 + (float)(i / dim % 3));
    for (int64_t i = 0; i < n; i += 7) /* ties: rows of the same bytes, in one file and in others */
        memcpy(rows + i * dim, rows, (size_t)dim * sizeof *rows);
    for (int i = 0; i < QUERIES * dim; i++)
        queries[i] = rng_normal(&r);
    memcpy(queries, rows, (size_t)dim * sizeof *queries); /* whose best hits are the ties */
    snprintf(name, sizeof name, "scans-%d", dim);
    new_dir(name);
    store_of_rows(rows, n, dim, 13);
    struct opened o;
    open_at(&o, dir);
    for (int q = 0; q < QUERIES; q++) {
        struct store_search how = {.k = K, .exact = true};
        CHECK_OK(store_view_search(o.v, one + q * K, queries + q * dim, 1, &how));
        check_hits(&o, queries + q * dim, one + q * K, K);
        int64_t chunks[K];
        float scores[K];
        for (int i = 0; i < K; i++)
            chunks[i] = one[q * K + i].chunk;
        CHECK_OK(store_view_scores(o.v, scores, queries + q * dim, chunks, K));
        for (int i = 0; i < K; i++)
            CHECK(memcmp(&scores[i], &one[q * K + i].score, sizeof scores[i]) == 0);
    }
    for (int i = 0; i + 1 < K; i++) {
        CHECK(one[i].score > one[i + 1].score || (one[i].score == one[i + 1].score && one[i].chunk < one[i + 1].chunk));
        CHECK_EQ(one[i].chunk, 7 * i);
    }
    static const int batches[] = {2, 3, 4, 5, 17, 64, QUERIES};
    for (int t = 0; t < 4; t++) {
        struct threads *threads = NULL;
        if (t) CHECK_OK(threads_create(&threads, t));
        for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
            struct store_search how = {.k = K, .exact = true, .threads = threads};
            for (int q = 0; q < QUERIES; q += batches[b])
                CHECK_OK(store_view_search(o.v, many + q * K, queries + q * dim,
                                           QUERIES - q < batches[b] ? QUERIES - q : batches[b], &how));
            CHECK(fixture_same_hits(one, many, QUERIES * K));
        }
        threads_free(threads);
    }
    close_opened(&o);
    free(rows), free(queries), free(one), free(many);
}

static void read_file(uint8_t **out, size_t *bytes, const char *store, const char *name) {
    char path[900];
    snprintf(path, sizeof path, "%s/%s", store, name);
    FILE *f = fopen(path, "rb");
    CHECK(f);
    CHECK(fseek(f, 0, SEEK_END) == 0);
    *bytes = (size_t)ftell(f);
    rewind(f);
    *out = malloc(*bytes);
    CHECK(fread(*out, 1, *bytes, f) == *bytes);
    fclose(f);
}

static void check_same_file(const char *store, const char *other, const char *name) {
    uint8_t *a, *b;
    size_t a_bytes, b_bytes;
    read_file(&a, &a_bytes, store, name);
    read_file(&b, &b_bytes, other, name);
    CHECK(a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0);
    free(a);
    free(b);
}

/* The bytes do not depend on how rows are given; their layout is that of docs/store-format.md. */
static void bytes_on_disk(void) {
    enum { DIM = 50, N = 90 };
    static float rows[N * DIM];
    char first[700];
    struct rng r = rng_make(test_seed(), 9);
    for (int i = 0; i < N * DIM; i++)
        rows[i] = rng_normal(&r);
    snprintf(first, sizeof first, "%s", new_dir("bytes-1"));
    store_of_rows(rows, N, DIM, 1);
    new_dir("bytes-90");
    store_of_rows(rows, N, DIM, N);
    check_same_file(first, dir, "landmarks/00000.i8");
    uint8_t *file;
    size_t bytes;
    read_file(&file, &bytes, dir, "landmarks/00000.i8");
    const size_t scales = 64 + (N * DIM + 63) / 64 * 64;
    CHECK_EQ(bytes, scales + N * sizeof(float) + 32);
    for (int i = 0; i < N; i++) {
        int8_t codes[DIM];
        float scale;
        row_codes_make(codes, &scale, rows + i * DIM, DIM);
        CHECK(memcmp(file + 64 + i * DIM, codes, DIM) == 0);
        CHECK(memcmp(file + scales + (size_t)i * sizeof scale, &scale, sizeof scale) == 0);
    }
    for (size_t i = 64 + N * DIM; i < scales; i++)
        CHECK_EQ(file[i], 0);
    free(file);
    struct opened o;
    open_at(&o, dir);
    CHECK_EQ(o.info.format, STORE_FORMAT_VERSION);
    CHECK(o.info.landmarks == STORE_LANDMARKS_I8 && o.info.landmark_bytes == bytes);
    close_opened(&o);
}

/* ---- the type ---- */

static void types(void) {
    struct store_writer_config config = config_of(16);
    struct store_writer *w;
    struct opened o;
    fixture_store(new_dir("types"), &config, 0, 30, 10, "exact");
    config.landmarks = STORE_LANDMARKS_F16;
    CHECK_FAILS(store_writer_open(&w, dir, &config, true), STATUS_MISMATCH, "has landmarks of type i8, not f16");
    config.landmarks = STORE_LANDMARKS_KEEP;
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(fixture_shard(w, &config, 30, 40));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact", .seed = 1, .merge_chunks = 100000}));
    store_writer_close(w);
    open_at(&o, dir);
    CHECK(o.info.landmarks == STORE_LANDMARKS_I8 && o.info.shards == 1 && o.info.documents == 40);
    close_opened(&o);
    fixture_store(new_dir("f16"), &config, 0, 30, 10, "exact"); /* KEEP: a new store has fp16 */
    open_at(&o, dir);
    CHECK(o.info.landmarks == STORE_LANDMARKS_F16 && o.info.format == STORE_FORMAT_F16);
    close_opened(&o);
    config.landmarks = STORE_LANDMARKS_I8;
    CHECK_FAILS(store_writer_open(&w, dir, &config, true), STATUS_MISMATCH, "has landmarks of type f16, not i8");
    enum store_landmarks type;
    CHECK_OK(store_landmarks_parse(&type, "i8"));
    CHECK(type == STORE_LANDMARKS_I8);
    CHECK_OK(store_landmarks_parse(&type, NULL));
    CHECK(type == STORE_LANDMARKS_KEEP);
    CHECK_FAILS(store_landmarks_parse(&type, "int4"), STATUS_INVALID, "landmarks int4: choose f16, i8 or none");
}

/* Writes, or with bytes 0 removes, the record of the type. */
static void put_type(const void *value, size_t bytes) {
    struct catalog *c;
    struct catalog_txn *t;
    CHECK_OK(catalog_open(&c, dir, true, 256 << 20));
    CHECK_OK(catalog_begin(&t, c, true));
    if (bytes)
        CHECK_OK(catalog_put(t, TABLE_META, "landmarks", 9, value, bytes));
    else
        CHECK_OK(catalog_delete(t, TABLE_META, "landmarks", 9));
    CHECK_OK(catalog_commit(t));
    catalog_close(c);
}

static void type_records(void) {
    static const uint8_t damaged[] = {1, 0, 0, 0, 0}, none[] = {2, 0xa6, 0x23, 0x46, 0xb3},
                         unknown[] = {3, 0xa5, 0xa0, 0x2d, 0x41}, bare[] = {1};
    const struct store_writer_config config = config_of(16);
    struct store *s;
    struct store_writer *w;
    int64_t problems;
    fixture_store(new_dir("records"), &config, 0, 30, 10, "exact");
    put_type(none, sizeof none);
    CHECK_FAILS(store_open(&s, dir), STATUS_CORRUPT, "landmarks of type none have 16 dimensions");
    put_type(unknown, sizeof unknown);
    CHECK_FAILS(store_open(&s, dir), STATUS_VERSION,
                "landmarks of type 3, which this program does not know: use a newer");
    CHECK_FAILS(store_writer_open(&w, dir, &config, true), STATUS_VERSION, "type 3");
    CHECK_FAILS(store_verify(dir, true, NULL, NULL, NULL, &problems), STATUS_VERSION, "type 3");
    for (int i = 0; i < 3; i++) {
        put_type(i == 0 ? damaged : bare, i == 0 ? sizeof damaged : i == 1 ? sizeof bare : 0);
        CHECK_FAILS(store_open(&s, dir), STATUS_CORRUPT, "record landmarks is missing or damaged");
        CHECK_FAILS(store_writer_open(&w, dir, &config, true), STATUS_CORRUPT, "record landmarks");
        CHECK_OK(store_verify(dir, true, NULL, NULL, NULL, &problems));
        CHECK_EQ(problems, 1);
    }
}

/* ---- stores from others ---- */

static void compacted(char to[700], const char *from, enum store_landmarks type) {
    static int number;
    struct store_compact_report r;
    const struct store_compact how = {.landmarks = type, .publish = {.index = "exact", .seed = 1}};
    snprintf(to, 700, "%s/compacted-%d", test_folder(), number++);
    CHECK_OK(store_compact(&r, from, to, &how));
    CHECK_EQ(r.documents, DOCUMENTS);
}

static void conversions(void) {
    char from[700], same[700], half[700], back[700], other[700];
    struct store_writer_config config = config_of(48);
    fixture_store(new_dir("whole"), &config, 0, DOCUMENTS, DOCUMENTS, "exact");
    snprintf(from, sizeof from, "%s", dir);
    compacted(same, from, STORE_LANDMARKS_KEEP);
    check_same_file(from, same, "landmarks/00000.i8");
    compacted(half, from, STORE_LANDMARKS_F16); /* fp16 holds each number */
    compacted(back, half, STORE_LANDMARKS_I8);
    check_same_file(from, back, "landmarks/00000.i8");
    compacted(other, half, STORE_LANDMARKS_KEEP);
    check_same_file(half, other, "landmarks/00000.f16");
    struct opened a, b;
    open_at(&a, from);
    open_at(&b, half);
    CHECK(a.info.landmarks == STORE_LANDMARKS_I8 && b.info.landmarks == STORE_LANDMARKS_F16 &&
          b.info.format == STORE_FORMAT_F16);
    for (int64_t i = 0; i < a.info.chunks; i++) {
        float x[48], y[48];
        CHECK_OK(store_view_landmark(a.v, x, i));
        CHECK_OK(store_view_landmark(b.v, y, i));
        CHECK(memcmp(x, y, sizeof x) == 0);
    }
    uint64_t of_codes, of_half;
    CHECK_OK(store_view_identity(a.v, &of_codes));
    CHECK_OK(store_view_identity(b.v, &of_half));
    CHECK(of_codes != of_half);
    close_opened(&a);
    close_opened(&b);
    struct store_compact_report r;
    const struct store_compact how = {.landmarks = STORE_LANDMARKS_F16};
    CHECK_FAILS(store_compact(&r, from, same, &how), STATUS_MISMATCH, "has landmarks of type i8, not f16");
}

/* store_rows_to_half and _to_float agree, also beyond a block of numbers. */
static void row_types(void) {
    enum { DIM = 1100, N = 3 };
    static float row[N * DIM], wide[N * DIM];
    static int8_t codes[N * DIM];
    static uint16_t half[N * DIM];
    float scales[N];
    struct rng r = rng_make(test_seed(), 3);
    for (int i = 0; i < N * DIM; i++)
        row[i] = rng_normal(&r);
    for (int i = 0; i < N; i++)
        row_codes_make(codes + i * DIM, &scales[i], row + i * DIM, DIM);
    const struct store_rows rows = {.codes = codes, .scales = scales, .n = N, .dim = DIM};
    store_rows_to_float(wide, &rows, 1, 2);
    store_rows_to_half(half, &rows, 1, 2);
    for (int i = 0; i < 2 * DIM; i++)
        CHECK(half_from_f16(half[i]) == wide[i] && wide[i] == (float)codes[DIM + i] * scales[1 + i / DIM]);
}

static void part_of(const char *path, int part, enum store_landmarks type) {
    struct store_writer_config config = config_of(16);
    struct store_writer *w;
    const struct store_part which = {.part = part, .parts = 2};
    bool finished;
    config.landmarks = type;
    CHECK_OK(store_writer_open(&w, path, &config, true));
    CHECK_OK(store_writer_part(w, &which, &finished));
    CHECK_OK(fixture_shard(w, &config, part * EACH, part * EACH + EACH));
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact", .seed = 1}));
    store_writer_close(w);
}

static void joined(void) {
    char parts[3][700], to[700];
    struct store_join_report report;
    struct opened a, b;
    for (int i = 0; i < 3; i++) {
        snprintf(parts[i], sizeof parts[i], "%s/part-%d", test_folder(), i);
        part_of(parts[i], i == 0 ? 1 : 2, i == 2 ? STORE_LANDMARKS_F16 : STORE_LANDMARKS_I8);
    }
    snprintf(to, sizeof to, "%s/joined", test_folder());
    const char *const mixed[] = {parts[0], parts[2]}, *const equal[] = {parts[0], parts[1]};
    struct store_join how = {.parts = mixed, .n_parts = 2};
    CHECK_FAILS(store_join(&report, to, &how), STATUS_MISMATCH, "part-2: has landmarks of type f16, and ");
    CHECK(strstr(status_message(), "build both with the same --landmarks") && access(to, F_OK) != 0);
    how.parts = equal;
    CHECK_OK(store_join(&report, to, &how));
    fixture_verify(to, true);
    open_at(&a, to);
    open_at(&b, parts[1]);
    CHECK(a.info.landmarks == STORE_LANDMARKS_I8 && a.info.documents == 2 * EACH);
    for (int64_t i = 0; i < b.info.chunks; i++) {
        float x[16], y[16];
        CHECK_OK(store_view_landmark(a.v, x, a.info.chunks - b.info.chunks + i));
        CHECK_OK(store_view_landmark(b.v, y, i));
        CHECK(memcmp(x, y, sizeof x) == 0);
    }
    close_opened(&a);
    close_opened(&b);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    random_rows();
    extreme_rows();
    row_types();
    refused();
    scans(384);
    scans(50);
    scans(8);
    bytes_on_disk();
    types();
    type_records();
    conversions();
    joined();
    return test_done();
}
