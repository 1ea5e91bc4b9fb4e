/* sequence_mend.c -- derived data of a store: keys, index, damage and repair. */
#include "base/file.h"
#include "store/catalog/catalog_internal.h"
#include "store/index/parts/index_parts.h"
#include "tests/property/store_sequence/sequence.h"
#include <dirent.h>

/* ---- keys ---- */

static enum status append_chunk(const struct sequence *m, struct store_keys_file *f, int spec, int64_t chunk) {
    int8_t codes[FIXTURE_CHUNK * SEQUENCE_KEY];
    float scales[FIXTURE_CHUNK];
    int32_t ids[FIXTURE_CHUNK];
    int64_t d = 0;
    while (sequence_chunks(m, d + 1) <= chunk)
        d++;
    if (sequence_gone(m, d)) return store_keys_append(f, (struct store_key_rows){0}, 1);
    sequence_chunk_ids(ids, &m->documents[d], chunk - m->documents[d].first_chunk);
    sequence_key(codes, scales, spec, ids);
    return store_keys_append(f, (struct store_key_rows){codes, scales}, 1);
}

static enum status make_file(const struct sequence *m, struct store_view *v, const struct keys_layout *layout,
                             int64_t number, int spec) {
    const struct store_keys_spec how = sequence_keys_spec(spec);
    const struct keys_range range = keys_layout_range(layout, number);
    struct store_keys_file *f;
    bool complete;
    int64_t have;
    TRY(store_keys_complete(&complete, v, layout, number, &how));
    if (complete) return STATUS_OK;
    TRY(store_keys_begin(&f, v, layout, number, &how));
    enum status s = store_keys_append_earlier(f, &have);
    for (int64_t c = range.begin + have; c < range.end && s == STATUS_OK; c++)
        s = append_chunk(m, f, spec, c);
    if (s == STATUS_OK) return store_keys_publish(f);
    store_keys_discard(f);
    return s;
}

/* As drt-index keys: only the files that are not complete. */
enum status sequence_make_keys(struct sequence *m, int spec) {
    struct store *store;
    struct store_view *v = NULL;
    struct keys_layout layout = {0};
    TRY(store_open(&store, sequence_dir(m)));
    enum status s = store_view_open(&v, store);
    if (s == STATUS_OK) s = keys_layout_open(&layout, v);
    for (int64_t i = 0; i < layout.files && s == STATUS_OK; i++)
        s = make_file(m, v, &layout, i, spec);
    keys_layout_free(&layout);
    store_view_close(v);
    store_close(store);
    TRY(s);
    m->keys = spec;
    m->keys_chunks = sequence_chunks(m, m->published);
    return STATUS_OK;
}

enum status sequence_keys(struct sequence *m) {
    int64_t removed;
    const int spec = m->keys && !sequence_one_in(m, 5) ? m->keys : 1 + (int)sequence_below(m, 2);
    if (!m->keys || !sequence_one_in(m, 6)) return sequence_make_keys(m, spec);
    TRY(store_keys_remove(&removed, sequence_dir(m)));
    m->keys = 0;
    m->keys_chunks = 0;
    return STATUS_OK;
}

/* ---- the index ---- */

static const char *another(struct sequence *m) {
    static const char *const kinds[] = {"exact", "Flat", "IVF4,SQ8", "IVF2,Flat", "IVF8_HNSW8,SQ8"};
    return kinds[sequence_below(m, ARRAY_LEN(kinds))];
}

static void count_problem(void *context, const char *file, const char *problem, const char *remedy) {
    (void)context;
    fprintf(stderr, "repair: %s: %s; %s\n", file, problem, remedy);
}

static enum status encode(void *context, float *rows, const int32_t *ids, int64_t n) {
    (void)context;
    for (int64_t i = 0; i < n; i++)
        sequence_landmark(rows + i * SEQUENCE_DIM, ids + i * FIXTURE_CHUNK);
    return STATUS_OK;
}

static enum status repair(struct sequence *m, const char *index) {
    const struct store_publish how = {.seed = 3, .max_ram = 96 << 20, .index = index, .progress = &sequence_progress};
    const struct store_encoder encoder = {.fingerprint = sequence_config(m).fingerprint, .encode = encode};
    int64_t problems = 0;
    TRY(store_repair(sequence_dir(m), &how, m->type == STORE_LANDMARKS_NONE ? NULL : &encoder, count_problem, NULL,
                     &problems));
    CHECK_EQ(problems, 0);
    if (strcmp(index, "auto") != 0) snprintf(m->index, sizeof m->index, "%s", index);
    return STATUS_OK;
}

enum status sequence_another_index(struct sequence *m) {
    if (m->type == STORE_LANDMARKS_NONE || sequence_indexed(m) < SEQUENCE_LIVE) return STATUS_OK;
    return repair(m, another(m));
}

enum status sequence_repair(struct sequence *m) {
    return repair(m, "auto");
}

/* Between the steps documents are added or deleted, which is allowed. */
static enum status between(struct sequence *m) {
    if (m->whole || !sequence_one_in(m, 3)) return STATUS_OK;
    return sequence_one_in(m, 2) ? sequence_add(m) : sequence_delete(m);
}

enum status sequence_index_parts(struct sequence *m) {
    static const char *const kinds[] = {"IVF4,SQ8", "IVF8_HNSW8,SQ8", "IVF6,Flat"};
    struct store_index_parts_report report;
    struct store_publish how = {.seed = 3, .max_ram = 96 << 20, .progress = &sequence_progress};
    char work[700];
    if (m->type == STORE_LANDMARKS_NONE || sequence_indexed(m) < SEQUENCE_LIVE) return STATUS_OK;
    const int parts = 1 + (int)sequence_below(m, 3);
    how.index = kinds[sequence_below(m, ARRAY_LEN(kinds))];
    sequence_path(work, m, "work");
    TRY(store_index_train(&report, sequence_dir(m), work, &how));
    for (int i = 1; i <= parts && parts > 1; i++) {
        TRY(between(m));
        TRY(store_index_fill(&report, sequence_dir(m), work, i, parts, &how));
    }
    TRY(between(m));
    TRY(parts > 1 ? store_index_merge(&report, sequence_dir(m), work, &how)
                  : store_index_make(&report, sequence_dir(m), work, &how));
    snprintf(m->index, sizeof m->index, "%s", how.index);
    return store_index_parts_remove(work, how.index);
}

/* ---- damage ---- */

/* Changes a byte, cuts or removes a file. It is written anew, because other stores may have links to it. */
void sequence_damage_file(struct sequence *m, const char *path) {
    struct file_map map;
    char other[900];
    const uint64_t kind = sequence_below(m, 3);
    CHECK_OK(file_map(&map, path));
    uint8_t *bytes = malloc(map.size + 1);
    size_t n = map.size;
    memcpy(bytes, map.data, n);
    file_unmap(&map);
    CHECK(unlink(path) == 0);
    if (kind == 1 && n > 1) n -= 1 + sequence_below(m, n - 1);
    if (kind == 2) bytes[sequence_below(m, n)] ^= (uint8_t)(1u << sequence_below(m, 8));
    snprintf(other, sizeof other, "%s", path);
    FILE *f = kind ? fopen(other, "wb") : NULL;
    if (f) CHECK(fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
    free(bytes);
}

static int by_name(const void *a, const void *b) {
    return strcmp((const char *)a, (const char *)b);
}

/* Damages some files of a folder, in the order of their names. */
static void damage_folder(struct sequence *m, const char *folder, uint64_t one_in) {
    static char names[1000][64];
    char path[900];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", sequence_dir(m), folder);
    DIR *d = opendir(path);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d)) && n < ARRAY_LEN(names);)
        if (e->d_name[0] != '.' && strstr(e->d_name, ".tmp") == NULL)
            snprintf(names[n++], sizeof names[0], "%.60s", e->d_name);
    closedir(d);
    qsort(names, n, sizeof names[0], by_name);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s/%.60s", sequence_dir(m), folder, names[i]);
        /* what is damaged of the journal is dropped */
        if (atoll(names[i]) < m->published_shards || folder[0] != 'l' || folder[1] != 'a')
            if (sequence_one_in(m, one_in)) sequence_damage_file(m, path);
    }
}

/* Removes records that repair derives from those of the documents: all of a table, or some. */
static void damage_table(struct sequence *m) {
    struct catalog *c;
    struct catalog_txn *t;
    const enum catalog_table table = sequence_one_in(m, 2) ? TABLE_RUNS : TABLE_HASHES;
    const bool all = sequence_one_in(m, 2);
    CHECK_OK(catalog_open(&c, sequence_dir(m), true, 256 << 20));
    CHECK_OK(catalog_begin(&t, c, true));
    if (all) CHECK_OK(catalog_empty(t, table));
    for (int64_t d = 0; d < m->published && !all; d++) {
        const struct catalog_key run = catalog_key((uint64_t)m->documents[d].first_chunk);
        uint8_t hash[16];
        fixture_hash(hash, m->documents[d].text);
        if (!sequence_one_in(m, 9)) continue;
        if (table == TABLE_RUNS) CHECK_OK(catalog_delete(t, table, run.bytes, sizeof run.bytes));
        if (table == TABLE_HASHES) CHECK_OK(catalog_delete(t, table, hash, sizeof hash));
    }
    CHECK_OK(catalog_commit(t));
    catalog_close(c);
}

void sequence_damage(struct sequence *m) {
    const uint64_t what = sequence_below(m, 8);
    int64_t removed;
    if (sequence_one_in(m, 3)) damage_table(m);
    if (what < 4) damage_folder(m, "index", 2);
    if (what >= 3 && what < 7) damage_folder(m, "lexical", 2);
    if (what >= 6 && m->type != STORE_LANDMARKS_NONE) damage_folder(m, "landmarks", 4);
    if (what == 7 && m->keys) {
        damage_folder(m, "keys", 1);
        CHECK_OK(store_keys_remove(&removed, sequence_dir(m))); /* the remedy that verify names */
        m->keys = 0;
        m->keys_chunks = 0;
    }
}
