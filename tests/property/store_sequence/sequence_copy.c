/* sequence_copy.c -- operations that make a store of others: compact, join of parts, freeze. */
#include "store/change/freeze.h"
#include "store/parts/parts.h"
#include "tests/property/store_sequence/sequence.h"

enum { PARTS_MAX = 4 };

static void remove_folder(const char *path) {
    char command[900];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    CHECK(system(command) == 0);
}

enum status sequence_compact(struct sequence *m) {
    struct store_compact_report report;
    char from[700];
    struct store_compact how = {.shard_chunks = 20 + (int64_t)sequence_below(m, 200),
                                .publish = {.seed = 3, .max_ram = 96 << 20, .progress = &sequence_progress}};
    const bool keys = m->keys && m->keys_chunks == sequence_chunks(m, m->published);
    if (m->type != STORE_LANDMARKS_NONE && sequence_one_in(m, 3))
        how.landmarks = sequence_one_in(m, 2) ? STORE_LANDMARKS_F16 : STORE_LANDMARKS_I8;
    if (sequence_alive(m) < SEQUENCE_LIVE) how.publish.index = "exact";
    if (sequence_alive(m) == 0) return STATUS_OK;
    snprintf(from, sizeof from, "%s", sequence_dir(m));
    m->number++;
    if (how.landmarks != STORE_LANDMARKS_KEEP) m->type = how.landmarks;
    if (how.publish.index) snprintf(m->index, sizeof m->index, "%s", how.publish.index);
    TRY(store_compact(&report, from, sequence_dir(m), &how));
    m->keys = keys ? m->keys : 0;
    sequence_compacted(m, how.shard_chunks);
    CHECK_EQ(report.keys_chunks, m->keys_chunks);
    CHECK_EQ(report.documents, m->published);
    return STATUS_OK;
}

/* ---- parts ---- */

static enum status drop_one(struct sequence *p) {
    const int64_t shard = (int64_t)sequence_below(p, (uint64_t)p->published_shards);
    const struct store_range range = {shard, shard + 1};
    struct store_drop_report report;
    const struct store_drop how = {.ranges = &range, .n_ranges = 1, .publish = {.seed = 3}};
    TRY(store_drop(&report, sequence_dir(p), &how));
    p->shards[shard].dropped = true;
    return STATUS_OK;
}

/* A part is built in one or two runs, and documents of it may be deleted. */
static enum status build_part(struct sequence *p, const struct store_part *part) {
    const struct store_writer_config config = sequence_config(p);
    struct store_writer *w;
    bool finished;
    const uint64_t shards = sequence_one_in(p, 5) ? 0 : 1 + sequence_below(p, 4);
    TRY(store_writer_open(&w, sequence_dir(p), &config, true));
    enum status s = store_writer_part(w, part, &finished);
    for (uint64_t i = 0; i < shards && s == STATUS_OK; i++)
        s = sequence_fill(p, w, 4 + (int)sequence_below(p, 20));
    struct store_publish how = {.seed = 3, .index = "exact"};
    if (sequence_one_in(p, 2)) how.merge_chunks = 40 + (int64_t)sequence_below(p, 100);
    if (s == STATUS_OK) s = p->sealed ? store_writer_publish(w, &how) : store_writer_part_empty(w);
    store_writer_close(w);
    p->published = p->sealed;
    p->published_shards = p->sealed_shards;
    p->duplicates_published = p->duplicates_sealed;
    if (s == STATUS_OK && p->published && sequence_one_in(p, 3)) s = sequence_delete(p);
    if (s == STATUS_OK && p->published && sequence_one_in(p, 5)) s = drop_one(p);
    return s;
}

/* Appends a part's documents. Copies of documents that the store has are deleted. */
static void append_part(struct sequence *m, const struct sequence *p) {
    int64_t document = 0, copies = 0;
    for (int64_t s = 0; s < p->published_shards; s++) {
        for (; document < p->published && p->documents[document].shard == s; document++) {
            const struct sequence_document *d = &p->documents[document];
            const bool copy = !sequence_gone(p, document) && sequence_holder(m, d->text) >= 0;
            sequence_add_document(m, d->text, d->name);
            m->documents[m->sealed - 1].deleted = d->deleted || copy;
            copies += copy;
        }
        m->shards[m->sealed_shards].dropped = p->shards[s].dropped;
        m->shards[++m->sealed_shards] = (struct sequence_shard){.first_document = m->sealed};
    }
    m->duplicates_sealed += p->duplicates_published + copies;
}

static enum status join(struct sequence *m, const char *const *folders, int n, bool keys) {
    struct store_join_report report;
    struct store_join how = {.parts = folders, .n_parts = n, .copy = sequence_one_in(m, 2)};
    m->published = m->sealed;
    how.publish = sequence_publish_how(m, sequence_indexed(m));
    m->lexical = how.publish.lexical == STORE_LEXICAL_ON || m->type == STORE_LANDMARKS_NONE;
    const bool chosen = how.publish.index && strcmp(how.publish.index, "auto") != 0;
    snprintf(m->index, sizeof m->index, "%s", chosen ? how.publish.index : "exact");
    const enum status s = store_join(&report, sequence_dir(m), &how);
    sequence_finish_publish(&how.publish);
    TRY(s);
    m->published_shards = m->sealed_shards;
    m->duplicates_published = m->duplicates_sealed;
    CHECK(report.already_joined || (report.keys_files > 0) == keys);
    m->keys = keys;
    m->keys_chunks = keys ? sequence_chunks(m, m->published) : 0;
    return STATUS_OK;
}

static void make_empty(struct sequence *m, int number) {
    m->number = number;
    m->published = m->sealed = m->published_shards = m->sealed_shards = 0;
    m->duplicates_published = m->duplicates_sealed = 0;
    m->shards[0] = (struct sequence_shard){0};
    m->keys = 0;
    m->keys_chunks = 0;
    m->lexical = m->unchecked = false;
    snprintf(m->index, sizeof m->index, "exact");
}

/* The new store replaces the one before. */
enum status sequence_join(struct sequence *m) {
    static struct sequence parts[PARTS_MAX];
    static char folders[PARTS_MAX][700];
    const char *list[PARTS_MAX];
    const int n = 1 + (int)sequence_below(m, PARTS_MAX), next = m->number + 1;
    int keyed = 0, with_chunks = 0;
    const bool want_keys = sequence_one_in(m, 2), odd = sequence_one_in(m, 4);
    make_empty(m, next);
    for (int i = 0; i < n; i++) {
        struct sequence *p = &parts[i];
        *p = *m;
        p->number = 1000 + i;
        p->r = rng_make(rng_u64(&m->r), (uint64_t)i);
        snprintf(folders[i], sizeof folders[i], "%s", sequence_dir(p));
        list[i] = folders[i];
        remove_folder(folders[i]);
        TRY(build_part(p, &(struct store_part){i + 1, n, {7}}));
        if (p->published && want_keys && !(odd && i == 1)) TRY(sequence_make_keys(p, 1));
        keyed += p->published && p->keys;
        with_chunks += p->published > 0;
    }
    for (int i = 0; i < n; i++)
        append_part(m, &parts[i]);
    if (m->sealed > 0) TRY(join(m, list, n, keyed > 0 && keyed == with_chunks));
    return STATUS_OK;
}

/* ---- snapshots ---- */

static const char *check_snapshot(const struct sequence *m, const char *name) {
    static struct sequence snapshot;
    char link[700];
    snapshot = *m;
    sequence_forget_journal(&snapshot);
    snapshot.frozen = true;
    snapshot.number = 2000;
    snprintf(link, sizeof link, "%s", sequence_dir(&snapshot));
    (void)unlink(link); /* of a call that was killed */
    CHECK(symlink(name, link) == 0);
    const char *bad = sequence_check(&snapshot);
    CHECK(unlink(link) == 0);
    return bad;
}

/* The snapshot is <base>/f. Sometimes it is of another snapshot, <base>/g. */
enum status sequence_freeze(struct sequence *m) {
    struct store_freeze_report report;
    const struct store_freeze how = {.copy = sequence_one_in(m, 3), .progress = &sequence_progress};
    char to[700], other[700];
    const bool twice = sequence_one_in(m, 3);
    sequence_path(to, m, "f");
    sequence_path(other, m, "g");
    TRY(store_freeze(&report, sequence_dir(m), twice ? other : to, &how));
    if (twice) TRY(store_freeze(&report, other, to, &how));
    const char *bad = check_snapshot(m, "f");
    if (!bad && twice) bad = check_snapshot(m, "g");
    remove_folder(other);
    return bad ? fail(STATUS_INVALID, "the snapshot: %s", bad) : STATUS_OK;
}
