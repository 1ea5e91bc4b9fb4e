/* sequence_check.c -- compares a view, the findings of verify --deep and the files of a store with the model. */
#include "tests/property/store_sequence/sequence.h"
#include <dirent.h>

const char *sequence_differs(const char *file, int line, const char *what) {
    static _Thread_local char text[1600];
    const char *name = strrchr(file, '/');
    snprintf(text, sizeof text, "%s:%d: %.200s; last message: %.1200s", name ? name + 1 : file, line, what,
             status_message());
    return text;
}

static bool skipped(const struct sequence *m, const struct sequence_view *how, int64_t document) {
    const int64_t shard = m->documents[document].shard;
    return how->dropped_later && how->dropped_later[shard] && !m->shards[shard].dropped;
}

static const char *compare_info(const struct sequence *m, const struct store_info *i) {
    int64_t tokens = 0, dropped = 0, dropped_chunks = 0, dropped_tokens = 0, shards = 0, deleted = 0,
            deleted_chunks = 0, deleted_tokens = 0;
    for (int64_t d = 0; d < m->published; d++) {
        const struct sequence_document *x = &m->documents[d];
        const bool shard = m->shards[x->shard].dropped, gone = sequence_gone(m, d);
        tokens += x->tokens;
        dropped += gone;
        dropped_chunks += gone ? x->chunks : 0;
        dropped_tokens += gone ? x->tokens : 0;
        deleted += gone && !shard;
        deleted_chunks += gone && !shard ? x->chunks : 0;
        deleted_tokens += gone && !shard ? x->tokens : 0;
    }
    for (int64_t s = 0; s < m->published_shards; s++)
        shards += m->shards[s].dropped;
    SEQUENCE_WANT(i->documents == m->published && i->chunks == sequence_chunks(m, m->published));
    SEQUENCE_WANT(i->tokens == tokens && i->landmarks == m->type);
    SEQUENCE_WANT(i->dropped_documents == dropped && i->dropped_chunks == dropped_chunks);
    SEQUENCE_WANT(i->dropped_tokens == dropped_tokens && i->dropped_shards == shards);
    SEQUENCE_WANT(i->deleted_documents == deleted && i->deleted_chunks == deleted_chunks);
    SEQUENCE_WANT(i->deleted_tokens == deleted_tokens);
    SEQUENCE_WANT(i->duplicates == m->duplicates_published);
    SEQUENCE_WANT(i->lexical == m->lexical && i->frozen == m->frozen);
    SEQUENCE_WANT(strcmp(i->index, m->index) == 0);
    return NULL;
}

static const char *compare_document(const struct sequence *m, struct store_view *v, const struct sequence_view *how,
                                    int64_t number) {
    const struct sequence_document *x = &m->documents[number];
    struct store_document d;
    uint8_t hash[16];
    char source[64], key[32];
    int64_t holder;
    const enum status s = store_view_document(v, &d, number);
    if (skipped(m, how, number)) return NULL;
    if (sequence_gone(m, number)) {
        SEQUENCE_WANT(s == STATUS_NOT_FOUND);
        return NULL;
    }
    SEQUENCE_WANT_OK(s);
    fixture_hash(hash, x->text);
    sequence_source(source, x->name);
    snprintf(key, sizeof key, "doc-%lld", (long long)x->name);
    SEQUENCE_WANT(d.id == number && d.first_chunk == x->first_chunk && d.chunks == x->chunks && d.tokens == x->tokens);
    SEQUENCE_WANT(memcmp(d.hash, hash, 16) == 0 && d.line == (uint64_t)x->text + 1 && d.bytes == 99);
    SEQUENCE_WANT(strcmp(d.source, source) == 0 && strcmp(d.key, key) == 0);
    if (how->old) return NULL;
    SEQUENCE_WANT_OK(store_view_find_document(v, &holder, hash));
    SEQUENCE_WANT(holder == number);
    return NULL;
}

static const char *compare_chunk(const struct sequence *m, struct store_view *v, int64_t number, int64_t i) {
    const struct sequence_document *x = &m->documents[number];
    int32_t ids[FIXTURE_CHUNK], got[FIXTURE_CHUNK];
    float row[SEQUENCE_DIM], stored[SEQUENCE_DIM];
    struct store_chunk c;
    const int n = sequence_chunk_ids(ids, x, i);
    const enum status s = store_view_chunk(v, &c, got, x->first_chunk + i);
    const bool none = m->type == STORE_LANDMARKS_NONE;
    const enum status landmark = none ? STATUS_OK : store_view_landmark(v, stored, x->first_chunk + i);
    SEQUENCE_WANT(store_dropped_live(store_view_dropped(v), x->first_chunk + i) == !sequence_gone(m, number));
    if (sequence_gone(m, number)) {
        SEQUENCE_WANT(s == STATUS_NOT_FOUND && (none || landmark == STATUS_NOT_FOUND));
        return NULL;
    }
    SEQUENCE_WANT_OK(s);
    SEQUENCE_WANT(c.document == number && c.in_document == i && c.n_tokens == n);
    SEQUENCE_WANT(memcmp(ids, got, sizeof ids) == 0);
    SEQUENCE_WANT_OK(landmark);
    sequence_landmark(row, ids);
    SEQUENCE_WANT(none || memcmp(row, stored, sizeof row) == 0);
    return NULL;
}

static const char *compare_documents(const struct sequence *m, struct store_view *v, const struct sequence_view *how) {
    const char *bad = NULL;
    for (int64_t d = 0; d < m->published && !bad; d++) {
        bad = compare_document(m, v, how, d);
        for (int64_t i = 0; i < m->documents[d].chunks && !bad && !skipped(m, how, d); i++)
            bad = compare_chunk(m, v, d, i);
    }
    return bad;
}

/* ---- keys ---- */

static const char *compare_key(const struct sequence *m, struct store_keys *k, const struct sequence_document *d) {
    int8_t codes[FIXTURE_CHUNK * SEQUENCE_KEY];
    float scales[FIXTURE_CHUNK];
    int32_t ids[FIXTURE_CHUNK];
    for (int64_t i = 0; i < d->chunks; i++) {
        struct store_key_rows rows;
        SEQUENCE_WANT_OK(store_keys_chunk(k, &rows, d->first_chunk + i));
        sequence_chunk_ids(ids, d, i);
        sequence_key(codes, scales, m->keys, ids);
        SEQUENCE_WANT(memcmp(codes, rows.code, sizeof codes) == 0 && memcmp(scales, rows.scale, sizeof scales) == 0);
    }
    return NULL;
}

static const char *compare_keys(const struct sequence *m, struct store_view *v) {
    struct store_keys_state state;
    struct store_keys *k;
    const struct store_keys_spec spec = sequence_keys_spec(m->keys ? m->keys : 1);
    SEQUENCE_WANT_OK(store_keys_state(&state, v));
    SEQUENCE_WANT(state.chunks == m->keys_chunks && state.all == sequence_chunks(m, m->published));
    SEQUENCE_WANT(m->keys == 0 || memcmp(&state.spec, &spec, sizeof spec) == 0);
    const enum status s = store_keys_open(&k, v, &spec, "the model");
    if (m->keys == 0 || m->keys_chunks < state.all) {
        SEQUENCE_WANT(s == STATUS_NOT_FOUND);
        return NULL;
    }
    SEQUENCE_WANT_OK(s);
    const char *bad = NULL;
    for (int64_t d = 0; d < m->published && !bad; d++)
        if (!sequence_gone(m, d)) bad = compare_key(m, k, &m->documents[d]);
    if (!bad && store_keys_verify(k, NULL) != STATUS_OK) bad = sequence_differs(__FILE__, __LINE__, "keys verify");
    store_keys_close(k);
    return bad;
}

/* ---- all ---- */

const char *sequence_compare(const struct sequence *m, struct store_view *v, const struct sequence_view *how) {
    struct store_info info;
    struct rng r = rng_make((uint64_t)m->published, (uint64_t)m->r.counter);
    bool lax = false;
    for (int64_t s = 0; how->dropped_later && s < m->published_shards; s++)
        lax = lax || (how->dropped_later[s] && !m->shards[s].dropped);
    store_view_info(v, &info);
    const char *bad = lax ? NULL : compare_info(m, &info);
    if (!bad) bad = compare_documents(m, v, how);
    for (int i = 0; i < 3 && !bad && !lax; i++)
        bad = sequence_compare_search(m, v, &r);
    for (int i = 0; i < 3 && !bad; i++)
        bad = sequence_compare_words(m, v, &r);
    return bad || how->old || m->keys < 0 ? bad : compare_keys(m, v);
}

static void keep_problem(void *context, const char *file, const char *problem, const char *remedy) {
    (void)remedy;
    if (*(const char **)context) return;
    char text[900];
    snprintf(text, sizeof text, "verify: %.400s: %.400s", file, problem);
    *(const char **)context = sequence_differs(__FILE__, __LINE__, text);
}

const char *sequence_check(const struct sequence *m) {
    const char *dir = sequence_dir(m), *bad = NULL;
    struct store *s;
    struct store_view *v;
    int64_t problems;
    if (m->published == 0) return NULL;
    SEQUENCE_WANT_OK(store_open(&s, dir));
    SEQUENCE_WANT_OK(store_view_open(&v, s));
    bad = sequence_compare(m, v, &(struct sequence_view){0});
    store_view_close(v);
    store_close(s);
    if (bad) return bad;
    SEQUENCE_WANT_OK(store_verify(dir, true, NULL, keep_problem, &bad, &problems));
    return bad;
}

/* ---- files ---- */

static int64_t files_in(const char *store, const char *folder) {
    char path[800];
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", store, folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

const char *sequence_check_files(const struct sequence *m) {
    const char *dir = sequence_dir(m);
    const struct store_writer_config config = sequence_config(m);
    struct store_writer *w;
    struct store_journal j;
    struct store *s;
    struct store_view *v;
    struct store_info info;
    struct keys_layout layout;
    SEQUENCE_WANT_OK(store_writer_open(&w, dir, &config, false));
    SEQUENCE_WANT_OK(store_writer_journal(w, &j));
    store_writer_close(w);
    SEQUENCE_WANT(j.shards == m->sealed_shards - m->published_shards);
    SEQUENCE_WANT(j.documents == m->sealed - m->published);
    SEQUENCE_WANT(j.duplicates == m->duplicates_sealed - m->duplicates_published);
    SEQUENCE_WANT_OK(store_open(&s, dir));
    SEQUENCE_WANT_OK(store_view_open(&v, s));
    store_view_info(v, &info);
    SEQUENCE_WANT_OK(keys_layout_open(&layout, v));
    store_view_close(v);
    store_close(s);
    const int64_t template = strcmp(info.index, "exact") != 0, files = layout.files;
    keys_layout_free(&layout);
    SEQUENCE_WANT(files_in(dir, "tokens") == info.shards + j.shards);
    SEQUENCE_WANT(files_in(dir, "landmarks") == info.shards + j.shards);
    SEQUENCE_WANT(files_in(dir, "index") == info.segments + template);
    SEQUENCE_WANT(files_in(dir, "lexical") == info.lexical_segments);
    SEQUENCE_WANT(files_in(dir, "keys") == (m->keys ? files : 0) || (m->keys && m->keys_chunks < info.chunks));
    return NULL;
}
