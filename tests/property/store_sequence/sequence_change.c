/* sequence_change.c -- operations on the documents of a store: add, update, delete, drop, lexical index, journal. */
#include "base/system/threads.h"
#include "tests/property/store_sequence/sequence.h"

enum { IN_SHARD = 12, REPLACED_MAX = 200 };

static enum status open_store(struct store_writer **w, const struct sequence *m) {
    const struct store_writer_config config = sequence_config(m);
    return store_writer_open(w, sequence_dir(m), &config, true);
}

/* ---- shards ---- */

static enum status write_document(const struct sequence *m, struct store_writer *w, int64_t text, int64_t name,
                                  bool unchecked, bool *duplicate) {
    int32_t ids[FIXTURE_IDS_MAX];
    char source[64], key[32];
    struct store_new_document d = {
        .ids = ids, .source = source, .key = key, .line = (uint64_t)text + 1, .bytes = 99, .unchecked = unchecked};
    (void)m;
    d.n_ids = sequence_ids(ids, text);
    sequence_source(source, name);
    snprintf(key, sizeof key, "doc-%lld", (long long)name);
    fixture_hash(d.hash, text);
    return store_shard_document(w, &d, duplicate);
}

static enum status write_rows(const struct sequence *m, struct store_shard *s, int64_t from) {
    for (int64_t d = from; d < m->sealed; d++)
        for (int64_t i = 0; i < m->documents[d].chunks; i++) {
            int32_t ids[FIXTURE_CHUNK];
            float row[SEQUENCE_DIM];
            sequence_chunk_ids(ids, &m->documents[d], i);
            sequence_landmark(row, ids);
            TRY(store_shard_rows(s, row, 1));
        }
    return STATUS_OK;
}

/* Seals the open shard, which has the documents from `from` on: at once, or by the threads of the writer. */
static enum status seal(struct sequence *m, struct store_writer *w, int64_t from) {
    struct store_shard *s = store_shard_open(w);
    const int64_t cursor = m->sealed;
    if (sequence_one_in(m, 2)) {
        TRY(write_rows(m, s, from));
        TRY(store_shard_seal(w, &cursor, sizeof cursor));
    } else {
        TRY(store_shard_end(w, &cursor, sizeof cursor));
        TRY(write_rows(m, s, from));
        TRY(store_shard_complete(s));
    }
    m->shards[++m->sealed_shards] = (struct sequence_shard){.first_document = m->sealed};
    CHECK(m->sealed_shards < SEQUENCE_SHARDS);
    return STATUS_OK;
}

/* One shard of so many documents, some of which the store has already. */
enum status sequence_fill(struct sequence *m, struct store_writer *w, int documents) {
    const int64_t from = m->sealed;
    int64_t duplicates = 0;
    TRY(store_shard_begin(w));
    for (int i = 0; i < documents; i++) {
        const int64_t name = (int64_t)sequence_below(m, SEQUENCE_NAMES);
        const int64_t text = name + SEQUENCE_NAMES * (int64_t)sequence_below(m, SEQUENCE_VERSIONS);
        bool duplicate;
        TRY(write_document(m, w, text, name, false, &duplicate));
        CHECK_EQ(duplicate, sequence_holder(m, text) >= 0);
        duplicates += duplicate;
        if (!duplicate) sequence_add_document(m, text, name);
    }
    if (m->sealed == from) { /* nothing is recorded of such a shard, unless a generation is published */
        store_shard_discard(w);
        return STATUS_OK;
    }
    m->duplicates_sealed += duplicates;
    return seal(m, w, from);
}

/* ---- publishing ---- */

struct store_publish sequence_publish_how(struct sequence *m, int64_t indexed) {
    static const char *const kinds[] = {"auto",     NULL,        "auto",           "exact",      "Flat",
                                        "IVF4,SQ8", "IVF2,Flat", "IVF8_HNSW8,SQ8", "IVF8,SQfp16"};
    struct store_publish how = {.seed = 3, .max_ram = 96 << 20, .progress = &sequence_progress};
    /* the fault may be in this allocation of the test: the operation then runs without threads */
    if (sequence_one_in(m, 4) && threads_create(&how.threads, 2) != STATUS_OK) {
        CHECK(sequence_faults_fired());
        how.threads = NULL;
    }
    how.index = kinds[sequence_below(m, m->type == STORE_LANDMARKS_NONE || indexed < SEQUENCE_LIVE ? 3 : 9)];
    how.lexical = STORE_LEXICAL_KEEP;
    const bool none = m->type == STORE_LANDMARKS_NONE;
    if (sequence_one_in(m, 5)) how.lexical = none || sequence_one_in(m, 2) ? STORE_LEXICAL_ON : STORE_LEXICAL_OFF;
    if (none && !m->lexical) how.lexical = STORE_LEXICAL_ON;
    if (sequence_one_in(m, 3)) how.lexical_chunks = 30 + (int64_t)sequence_below(m, 60);
    if (sequence_one_in(m, 2)) how.merge_chunks = 40 + (int64_t)sequence_below(m, 300);
    return how;
}

static void set_index(struct sequence *m, const struct store_publish *how) {
    if (how->index && strcmp(how->index, "auto") != 0) snprintf(m->index, sizeof m->index, "%s", how->index);
    if (how->lexical != STORE_LEXICAL_KEEP) m->lexical = how->lexical == STORE_LEXICAL_ON;
}

void sequence_finish_publish(struct store_publish *how) {
    threads_free(how->threads);
    how->threads = NULL;
}

static enum status publish(struct sequence *m, struct store_writer *w, struct store_publish *how) {
    const enum status s = store_writer_publish(w, how);
    sequence_finish_publish(how);
    TRY(s);
    set_index(m, how);
    m->published = m->sealed;
    m->published_shards = m->sealed_shards;
    m->duplicates_published = m->duplicates_sealed;
    return STATUS_OK;
}

static int64_t indexed_with_journal(const struct sequence *m) {
    return sequence_indexed(m) + sequence_chunks(m, m->sealed) - sequence_chunks(m, m->published);
}

static enum status drop_update(struct sequence *m, struct store_writer *w) {
    if (!m->unchecked) return STATUS_OK;
    TRY(store_writer_drop_journal(w));
    sequence_forget_journal(m);
    return STATUS_OK;
}

static enum status add(struct sequence *m, struct store_writer *w) {
    TRY(drop_update(m, w));
    if (m->published == 0 && sequence_one_in(m, 2)) TRY(store_writer_follow(w, 1 << 20, 1, true));
    for (uint64_t i = 0, n = 1 + sequence_below(m, 3); i < n; i++)
        TRY(sequence_fill(m, w, 1 + (int)sequence_below(m, IN_SHARD)));
    if (m->published > 0 && sequence_one_in(m, 8)) return store_writer_wait(w); /* as a killed add leaves it */
    if (m->sealed == 0) return STATUS_OK;
    struct store_publish how = sequence_publish_how(m, indexed_with_journal(m));
    return publish(m, w, &how);
}

enum status sequence_add(struct sequence *m) {
    struct store_writer *w;
    TRY(open_store(&w, m));
    const enum status s = add(m, w);
    store_writer_close(w);
    return s;
}

enum status sequence_publish(struct sequence *m) {
    struct store_writer *w;
    TRY(open_store(&w, m));
    enum status s = drop_update(m, w);
    if (s == STATUS_OK && sequence_one_in(m, 3)) {
        s = store_writer_drop_journal(w);
        sequence_forget_journal(m);
    }
    struct store_publish how = sequence_publish_how(m, indexed_with_journal(m));
    if (s == STATUS_OK) s = publish(m, w, &how);
    sequence_finish_publish(&how);
    store_writer_close(w);
    return s;
}

/* ---- updates ---- */

struct replacing {
    int64_t documents[REPLACED_MAX], n;
};

static bool is_replaced(const struct replacing *r, int64_t document) {
    bool yes = false;
    for (int64_t i = 0; i < r->n; i++)
        yes = yes || r->documents[i] == document;
    return yes;
}

/* Whether the text exists without the replaced documents. */
static bool is_known(const struct sequence *m, const struct replacing *r, int64_t text) {
    bool yes = false;
    for (int64_t i = 0; i < m->sealed; i++)
        yes = yes || (m->documents[i].text == text && !sequence_gone(m, i) && !is_replaced(r, i));
    return yes;
}

static int by_number(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The documents of some names are replaced by texts of other versions, or exchange their texts. */
static enum status update(struct sequence *m, struct store_writer *w) {
    struct replacing r = {.n = 0};
    int64_t names[8], texts[8], n = 1 + (int64_t)sequence_below(m, ARRAY_LEN(names));
    TRY(store_writer_drop_journal(w));
    sequence_forget_journal(m);
    const int64_t first = (int64_t)sequence_below(m, SEQUENCE_NAMES), from = m->sealed;
    const bool exchange = sequence_one_in(m, 3);
    for (int64_t i = 0; i < n; i++) {
        names[i] = (first + i * 7) % SEQUENCE_NAMES;
        texts[i] = names[i] + SEQUENCE_NAMES * (int64_t)sequence_below(m, SEQUENCE_VERSIONS);
        if (exchange) texts[i] = (first + (i + 1) % n * 7) % SEQUENCE_NAMES;
        for (int64_t d = 0; d < m->published && r.n < REPLACED_MAX; d++)
            if (m->documents[d].name == names[i] && m->documents[d].text != texts[i] && !sequence_gone(m, d))
                r.documents[r.n++] = d;
    }
    qsort(r.documents, (size_t)r.n, sizeof *r.documents, by_number);
    TRY(store_shard_begin(w));
    for (int64_t i = 0; i < n; i++) {
        bool duplicate;
        if (is_known(m, &r, texts[i])) continue;
        TRY(write_document(m, w, texts[i], names[i], true, &duplicate));
        CHECK(!duplicate);
        sequence_add_document(m, texts[i], names[i]);
    }
    if (m->sealed == from)
        store_shard_discard(w);
    else
        TRY(seal(m, w, from));
    if (sequence_one_in(m, 7)) {
        m->unchecked = m->sealed > from;
        return store_writer_wait(w);
    }
    struct store_publish how = sequence_publish_how(m, indexed_with_journal(m));
    how.replaced = r.documents;
    how.n_replaced = r.n;
    TRY(publish(m, w, &how));
    for (int64_t i = 0; i < r.n; i++)
        m->documents[r.documents[i]].deleted = true;
    return STATUS_OK;
}

enum status sequence_update(struct sequence *m) {
    struct store_writer *w;
    TRY(open_store(&w, m));
    const enum status s = update(m, w);
    store_writer_close(w);
    return s;
}

/* ---- deleting ---- */

/* The patterns match one source, or all whose number begins with the same digits. */
static enum status delete_sources(struct sequence *m, struct store_delete *how) {
    char pattern[64];
    const char *const patterns[] = {pattern};
    struct store_delete_report report;
    const int64_t source = (int64_t)sequence_below(m, SEQUENCE_SOURCES);
    const bool one = sequence_one_in(m, 2);
    int64_t n = 0;
    snprintf(pattern, sizeof pattern, one ? "*-%lld.json?" : "part-%lld*", (long long)source);
    how->sources = patterns;
    how->n_sources = 1;
    how->progress = &sequence_progress;
    TRY(store_delete(&report, sequence_dir(m), how));
    for (int64_t d = 0; d < m->published; d++) {
        const int64_t of = m->documents[d].name % SEQUENCE_SOURCES;
        if (sequence_gone(m, d) || !(of == source || (!one && source == 1 && of >= 10))) continue;
        m->documents[d].deleted = true;
        n++;
    }
    CHECK_EQ(report.documents, n);
    return STATUS_OK;
}

enum status sequence_delete(struct sequence *m) {
    int64_t list[30], gone = 0;
    struct store_delete how = {.documents = list,
                               .n_documents = 1 + (int64_t)sequence_below(m, ARRAY_LEN(list)),
                               .progress = &sequence_progress};
    struct store_delete_report report;
    if (sequence_one_in(m, 4)) return delete_sources(m, &how);
    for (int64_t i = 0; i < how.n_documents; i++)
        list[i] = (int64_t)sequence_below(m, (uint64_t)m->published);
    TRY(store_delete(&report, sequence_dir(m), &how));
    for (int64_t i = 0; i < how.n_documents; i++) {
        gone += !sequence_gone(m, list[i]);
        if (!sequence_gone(m, list[i])) m->documents[list[i]].deleted = true;
    }
    CHECK_EQ(report.documents, gone);
    return STATUS_OK;
}

static bool in_range(struct store_range r, int64_t n) {
    return n >= r.begin && n < r.end;
}

/* The token file of a shard, and the shards that it has; "": there is none. */
static struct store_range token_file(char path[800], const struct sequence *m, int64_t shard) {
    struct store_range all = {shard, shard + 1};
    path[0] = 0;
    for (int64_t begin = shard; begin >= 0 && !path[0]; begin--)
        for (int64_t end = shard; end < m->published_shards && !path[0]; end++) {
            const char *dir = sequence_dir(m);
            if (begin == end) snprintf(path, 800, "%s/tokens/%05lld.tok", dir, (long long)begin);
            if (begin < end) snprintf(path, 800, "%s/tokens/%05lld-%05lld.tok", dir, (long long)begin, (long long)end);
            all = (struct store_range){begin, end + 1};
            if (access(path, F_OK) != 0 || m->shards[shard].dropped) path[0] = 0;
        }
    return path[0] ? all : (struct store_range){shard, shard + 1};
}

/* Drops two shards, or all shards of a token file that is damaged before. */
enum status sequence_drop(struct sequence *m) {
    char path[800] = "";
    const int64_t first = (int64_t)sequence_below(m, (uint64_t)m->published_shards);
    const int64_t second = (int64_t)sequence_below(m, (uint64_t)m->published_shards);
    struct store_range ranges[] = {{first, first + 1}, {second, second + 1}};
    if (!m->whole && sequence_one_in(m, 2)) ranges[0] = ranges[1] = token_file(path, m, first);
    struct store_drop_report report;
    const struct store_drop how = {
        .ranges = ranges,
        .n_ranges = 2,
        .publish = {.seed = 3, .max_ram = 96 << 20, .index = "auto", .progress = &sequence_progress}};
    int64_t left = 0;
    for (int64_t d = 0; d < m->published; d++) {
        const int64_t s = m->documents[d].shard;
        if (!m->shards[s].dropped && !in_range(ranges[0], s) && !in_range(ranges[1], s)) left += m->documents[d].chunks;
    }
    if (left < SEQUENCE_LIVE) return STATUS_OK;
    if (path[0]) sequence_damage_file(m, path);
    TRY(store_drop(&report, sequence_dir(m), &how));
    for (int64_t s = 0; s < m->published_shards; s++)
        m->shards[s].dropped = m->shards[s].dropped || in_range(ranges[0], s) || in_range(ranges[1], s);
    return STATUS_OK;
}

enum status sequence_lexical(struct sequence *m) {
    struct store_publish how = {.seed = 3, .progress = &sequence_progress};
    how.lexical = m->type == STORE_LANDMARKS_NONE || !m->lexical ? STORE_LEXICAL_ON : STORE_LEXICAL_OFF;
    if (sequence_one_in(m, 3)) how.lexical_chunks = 30 + (int64_t)sequence_below(m, 60);
    TRY(store_lexical(sequence_dir(m), &how));
    m->lexical = how.lexical == STORE_LEXICAL_ON;
    return STATUS_OK;
}
