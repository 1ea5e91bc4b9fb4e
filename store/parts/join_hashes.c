/* join_hashes.c -- see join_hashes_internal.h.
 *
 * Hashes are uniform, so their first bits divide them into passes and into buckets of equal size. Threads sort the
 * buckets. Entries are compared by hash and document, so the order does not depend on the threads. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "base/system/threads.h"
#include "store/catalog/deleted_records_internal.h"
#include "store/parts/join_hashes_internal.h"
#include <stdlib.h>

enum { BATCH = 1 << 18, READ_DOCUMENTS = 1 << 14, BUCKET_ENTRIES = 16, BUCKETS_MAX = 1 << 16, BUCKETS_GRAIN = 256 };

struct hash_pass {
    struct store_writer *w;
    const struct store_publish *how;
    uint64_t first, last; /* high numbers of its entries */
    struct hash_list *lists;
    int n_lists; /* of each thread */
    const struct shard_record *shards;
    struct threads_failure failure;

    struct hash_entry *sorted;
    size_t n, buckets, *ends; /* ends[i]: where bucket i ends */
    int shift;                /* the bucket of an entry: its high number, counted from `first`, without these bits */
    int64_t *copies;          /* of a batch */
};

enum status hash_list_add(struct hash_list *list, const uint8_t hash[16], int64_t document) {
    TRY(memory_grow(&list->at, &list->capacity, list->n + 1));
    list->at[list->n++] = (struct hash_entry){catalog_key_number((struct bytes){hash, 8}),
                                              catalog_key_number((struct bytes){hash + 8, 8}), document};
    return STATUS_OK;
}

/* ---- reading ---- */

static enum status add_document(const struct hash_pass *p, struct hash_list *list, struct catalog_txn *t,
                                int64_t number, const struct document_record *d) {
    bool deleted;
    const uint64_t high = catalog_key_number((struct bytes){d->hash, 8});
    if (high < p->first || high > p->last || shard_is_dropped(&p->shards[d->shard])) return STATUS_OK;
    TRY(record_is_deleted(t, number, &deleted));
    return deleted ? STATUS_OK : hash_list_add(list, d->hash, number);
}

static enum status read_documents(const struct hash_pass *p, struct hash_list *list, struct catalog_txn *t,
                                  int64_t begin, int64_t end) {
    struct catalog_walk *walk;
    TRY(catalog_walk_begin(&walk, t, TABLE_DOCUMENTS, (uint64_t)begin));
    enum status s = STATUS_OK;
    for (int64_t i = begin; i < end && s == STATUS_OK; i++) {
        bool more;
        struct bytes key, value;
        struct document_record d;
        s = catalog_walk_next(walk, &more, &key, &value);
        if (s == STATUS_OK && (!more || catalog_key_number(key) != (uint64_t)i))
            s = fail(STATUS_CORRUPT, "%s: document %lld is missing, run drt-index verify", catalog_path(p->w->catalog),
                     (long long)i);
        if (s == STATUS_OK) s = record_decode_document(value, p->w->catalog, &d);
        if (s == STATUS_OK && d.shard >= p->w->sealed.shards)
            s = fail(STATUS_CORRUPT, "%s: document %lld is in no shard, run drt-index verify",
                     catalog_path(p->w->catalog), (long long)i);
        if (s == STATUS_OK) s = add_document(p, list, t, i, &d);
    }
    catalog_walk_end(walk);
    return s;
}

static void read_body(void *context, int64_t begin, int64_t end, int worker) {
    struct hash_pass *p = context;
    struct catalog_txn *t;
    if (threads_any_failed(&p->failure)) return;
    enum status s = catalog_begin(&t, p->w->catalog, false);
    if (s == STATUS_OK) {
        s = read_documents(p, &p->lists[worker], t, begin, end);
        catalog_abort(t);
    }
    threads_failed(&p->failure, s);
}

/* ---- sorting ---- */

static size_t bucket_of(const struct hash_pass *p, const struct hash_entry *e) {
    return (size_t)((e->high - p->first) >> p->shift);
}

static int entries_compare(const void *a, const void *b) {
    const struct hash_entry *x = a, *y = b;
    if (x->high != y->high) return x->high < y->high ? -1 : 1;
    if (x->low != y->low) return x->low < y->low ? -1 : 1;
    return (x->document > y->document) - (x->document < y->document);
}

static void entries_sort(struct hash_entry *at, size_t n) {
    if (n > 4 * BUCKET_ENTRIES) { /* hashes that are not uniform */
        qsort(at, n, sizeof *at, entries_compare);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        const struct hash_entry e = at[i];
        size_t k = i;
        for (; k > 0 && entries_compare(&at[k - 1], &e) > 0; k--)
            at[k] = at[k - 1];
        at[k] = e;
    }
}

static void sort_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct hash_pass *p = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const size_t from = i > 0 ? p->ends[i - 1] : 0;
        entries_sort(p->sorted + from, p->ends[i] - from);
    }
}

static void choose_buckets(struct hash_pass *p) {
    const uint64_t wanted = p->n / BUCKET_ENTRIES < BUCKETS_MAX ? p->n / BUCKET_ENTRIES : BUCKETS_MAX;
    p->shift = 63;
    while (p->shift > 0 && (p->last - p->first) >> (p->shift - 1) < wanted)
        p->shift--;
    p->buckets = (size_t)((p->last - p->first) >> p->shift) + 1;
}

/* Moves the entries of all lists into their buckets, in which they are sorted. */
static enum status sort_entries(struct hash_pass *p) {
    p->n = 0;
    for (int i = 0; i < p->n_lists; i++)
        p->n += p->lists[i].n;
    choose_buckets(p);
    TRY(memory_allocate(&p->sorted, p->n));
    TRY(memory_allocate_zero(&p->ends, p->buckets + 1));
    for (int i = 0; i < p->n_lists; i++)
        for (size_t k = 0; k < p->lists[i].n; k++)
            p->ends[bucket_of(p, &p->lists[i].at[k]) + 1]++;
    for (size_t i = 1; i <= p->buckets; i++)
        p->ends[i] += p->ends[i - 1];
    for (int i = 0; i < p->n_lists; i++)
        for (size_t k = 0; k < p->lists[i].n; k++)
            p->sorted[p->ends[bucket_of(p, &p->lists[i].at[k])]++] = p->lists[i].at[k];
    threads_for(p->how->threads, (int64_t)p->buckets, BUCKETS_GRAIN, sort_body, p);
    return STATUS_OK;
}

/* ---- recording ---- */

static int by_number(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static enum status put_copies(const struct hash_pass *p, struct catalog_txn *t, size_t n) {
    qsort(p->copies, n, sizeof *p->copies, by_number);
    for (size_t i = 0; i < n; i++) {
        struct document_record d;
        TRY(record_get_document(t, p->w->catalog, &d, p->copies[i]));
        const struct deleted_record r = {p->copies[i], d.first_chunk, d.chunks, d.tokens};
        TRY(record_put_deleted(t, &r));
    }
    return STATUS_OK;
}

static enum status put_batch(const struct hash_pass *p, struct catalog_txn *t, size_t begin, size_t end) {
    size_t n_copies = 0;
    for (size_t i = begin; i < end; i++) {
        const struct hash_entry *e = &p->sorted[i], *before = e - 1;
        if (i > 0 && before->high == e->high && before->low == e->low) {
            p->copies[n_copies++] = e->document;
            continue;
        }
        const struct catalog_key high = catalog_key(e->high), low = catalog_key(e->low);
        uint8_t hash[16];
        for (int k = 0; k < 8; k++) {
            hash[k] = high.bytes[k];
            hash[8 + k] = low.bytes[k];
        }
        TRY(record_append_hash(t, hash, e->document));
    }
    TRY(put_copies(p, t, n_copies));
    return fault_point("store:join:hashes-before-commit");
}

static enum status record_batch(const struct hash_pass *p, size_t begin, size_t end) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, p->w->catalog, true));
    const enum status s = put_batch(p, t, begin, end);
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    TRY(catalog_commit(t));
    return fault_point("store:join:hashes-committed");
}

static enum status record_sorted(struct hash_pass *p, int64_t *done) {
    const struct progress *progress = p->how->progress;
    TRY(memory_allocate(&p->copies, BATCH));
    for (size_t i = 0; i < p->n; i += BATCH) {
        const size_t end = p->n - i < BATCH ? p->n : i + BATCH;
        TRY(record_batch(p, i, end));
        *done += (int64_t)(end - i);
        progress_step(progress, "join hashes", "documents", *done, p->w->sealed.documents);
        if (progress_stop_requested(progress))
            return fail(STATUS_INTERRUPTED, "%s: stopped: run the same command again to continue", p->w->dir);
    }
    return STATUS_OK;
}

static void pass_free(struct hash_pass *p) {
    memory_free(p->sorted);
    memory_free(p->ends);
    memory_free(p->copies);
    p->sorted = NULL;
    p->ends = NULL;
    p->copies = NULL;
}

/* ---- passes ---- */

static enum status read_pass(struct hash_pass *p) {
    for (int i = 0; i < p->n_lists; i++)
        p->lists[i].n = 0;
    threads_for(p->how->threads, p->w->sealed.documents, READ_DOCUMENTS, read_body, p);
    return threads_failure(&p->failure);
}

static enum status run_passes(struct hash_pass *p, bool read, int64_t most) {
    const uint64_t passes = read ? (uint64_t)((p->w->sealed.documents - 1) / most + 1) : 1;
    int64_t done = 0;
    for (uint64_t i = 0; i < passes; i++) {
        p->first = (uint64_t)((((unsigned __int128)1 << 64) * i) / passes);
        p->last = (uint64_t)((((unsigned __int128)1 << 64) * (i + 1)) / passes - 1);
        enum status s = read ? read_pass(p) : STATUS_OK;
        if (s == STATUS_OK) s = sort_entries(p);
        if (s == STATUS_OK) s = record_sorted(p, &done);
        pass_free(p);
        TRY(s);
    }
    return STATUS_OK;
}

enum status join_hashes(struct store_writer *w, const struct hash_list *all, int64_t most,
                        const struct store_publish *how) {
    struct hash_pass p = {.w = w, .how = how, .failure = THREADS_FAILURE_NONE};
    if (all) {
        struct hash_list list = *all;
        p.lists = &list;
        p.n_lists = 1;
        return run_passes(&p, false, most);
    }
    struct shard_record *shards = NULL;
    struct catalog_txn *t;
    p.n_lists = threads_count(how->threads);
    TRY(memory_allocate_zero(&p.lists, (size_t)p.n_lists));
    enum status s = catalog_begin(&t, w->catalog, false);
    if (s == STATUS_OK) {
        s = record_list_shards(t, w->catalog, &shards, w->sealed.shards);
        catalog_abort(t);
    }
    p.shards = shards;
    if (s == STATUS_OK) s = run_passes(&p, true, most);
    for (int i = 0; i < p.n_lists; i++)
        memory_free(p.lists[i].at);
    memory_free(p.lists);
    memory_free(shards);
    return s;
}
