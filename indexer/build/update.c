/* update.c -- see update.h.
 *
 * Memory grows with the corpus, not with the store. First the corpus is read into a table by (source, key). Then every
 * document of the store is looked up in it. The text of a replaced document counts as free, so that two documents may
 * exchange their texts. */
#include "indexer/build/update.h"
#include "base/memory.h"
#include "indexer/build/indexer.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { NONE = -1, STEP = 1 << 14 };
enum update_fate { FATE_NEW, FATE_CHANGED, FATE_UNCHANGED, FATE_DUPLICATE, FATE_EMPTY };

struct update_entry {
    uint8_t name[16], text[16]; /* XXH3-128 of source and key, and of the text */
    uint64_t line;
    uint8_t fate;
};
struct update_plan {
    struct update_entry *entries;
    int64_t n;
    size_t capacity;
    int64_t *slots; /* open addressing, entry or NONE: by name, later by the texts that are taken */
    size_t n_slots;
    int64_t *replaced, n_replaced;
    size_t replaced_capacity;
    uint64_t generation;
    struct update_counts counts;
};

static void update_name(uint8_t out[16], const char *source, const char *key) {
    XXH128_canonical_t parts[2];
    XXH128_canonicalFromHash(&parts[0], XXH3_128bits(source, strlen(source)));
    XXH128_canonicalFromHash(&parts[1], XXH3_128bits(key, strlen(key)));
    XXH128_canonicalFromHash(&parts[0], XXH3_128bits(parts, sizeof parts));
    memcpy(out, parts[0].digest, 16);
}

/* Returns the slot of the entry whose field at offset `field` has the hash, or the free slot where it belongs. */
static size_t update_slot(const struct update_plan *p, size_t field, const uint8_t hash[16]) {
    uint64_t h;
    memcpy(&h, hash, sizeof h);
    size_t i = (size_t)h & (p->n_slots - 1);
    while (p->slots[i] != NONE && memcmp((const uint8_t *)&p->entries[p->slots[i]] + field, hash, 16) != 0)
        i = (i + 1) & (p->n_slots - 1);
    return i;
}
enum { BY_NAME = offsetof(struct update_entry, name), BY_TEXT = offsetof(struct update_entry, text) };

static enum status update_grow(struct update_plan *p) {
    if (p->n_slots > 2 * (size_t)p->n) return STATUS_OK;
    size_t n = p->n_slots ? 2 * p->n_slots : 1024;
    int64_t *slots;
    TRY(memory_allocate(&slots, n));
    memory_free(p->slots);
    p->slots = slots;
    p->n_slots = n;
    memset(slots, 0xff, n * sizeof *slots);
    for (int64_t i = 0; i < p->n; i++)
        slots[update_slot(p, BY_NAME, p->entries[i].name)] = i;
    return STATUS_OK;
}

/* ---- the corpus ------------------------------------------------------------------------------------------------ */

static enum status update_same_name(const struct document *d, const struct update_entry *first) {
    if (d->key[0])
        return fail(STATUS_INVALID,
                    "%s: line %llu: has the id \"%.100s\" of line %llu: in an update each document of a source needs "
                    "an id of its own",
                    d->source, (unsigned long long)d->line, d->key, (unsigned long long)first->line);
    return fail(
        STATUS_INVALID,
        "%s: line %llu: has no id, nor has line %llu: in an update each document of a source needs an id of its "
        "own (jsonl: \"id\" or \"meta\": {\"id\"}), to be found in the store",
        d->source, (unsigned long long)d->line, (unsigned long long)first->line);
}

static enum status update_take_name(struct update_plan *p, const struct update_request *r, const struct document *d) {
    struct update_entry e = {.line = d->line};
    update_name(e.name, r->source ? r->source : d->source, d->key);
    indexer_document_hash(e.text, d);
    if (d->bytes == 0 && d->n_ids == 0) e.fate = FATE_EMPTY;
    TRY(memory_grow(&p->entries, &p->capacity, (size_t)p->n + 1));
    TRY(update_grow(p));
    size_t slot = update_slot(p, BY_NAME, e.name);
    if (p->slots[slot] != NONE) return update_same_name(d, &p->entries[p->slots[slot]]);
    p->slots[slot] = p->n;
    p->entries[p->n++] = e;
    return STATUS_OK;
}

static enum status update_read_corpus(struct update_plan *p, const struct update_request *r, struct reader *reader) {
    for (;;) {
        struct document d;
        int more;
        TRY(reader_next(reader, &d, &more));
        if (!more) return STATUS_OK;
        TRY(update_take_name(p, r, &d));
        if (p->n % STEP != 0) continue;
        int64_t done, total;
        reader_progress(reader, &done, &total);
        progress_step(r->progress, "compare", "bytes", done, total);
        if (progress_stop_requested(r->progress))
            return fail(STATUS_INTERRUPTED, "%s: stopped; nothing was changed", r->store);
    }
}

/* ---- the store ------------------------------------------------------------------------------------------------- */

/* Compares a document of the store with the corpus. If several have the same source and key, those with another text
 * than the corpus are replaced. */
static enum status update_look(struct update_plan *p, const struct store_document *d) {
    uint8_t name[16];
    update_name(name, d->source, d->key);
    int64_t found = p->slots[update_slot(p, BY_NAME, name)];
    if (found == NONE) return STATUS_OK;
    struct update_entry *e = &p->entries[found];
    if (memcmp(e->text, d->hash, 16) == 0) {
        e->fate = FATE_UNCHANGED;
        return STATUS_OK;
    }
    if (e->fate == FATE_NEW) e->fate = FATE_CHANGED;
    TRY(memory_grow(&p->replaced, &p->replaced_capacity, (size_t)p->n_replaced + 1));
    p->replaced[p->n_replaced++] = d->id;
    return STATUS_OK;
}

static enum status update_read_store(struct update_plan *p, const struct update_request *r, struct store_view *view,
                                     const struct store_info *info) {
    const struct store_dropped gone = store_view_dropped(view);
    for (int64_t i = 0; i < info->documents; i++) {
        struct store_document d;
        enum status s = store_view_document(view, &d, i);
        if (s == STATUS_OK) s = update_look(p, &d);
        if (s != STATUS_OK && !(s == STATUS_NOT_FOUND && gone.n > 0)) return s;
        if (i % STEP != 0) continue;
        progress_step(r->progress, "look for documents", "documents", i, info->documents);
        if (progress_stop_requested(r->progress))
            return fail(STATUS_INTERRUPTED, "%s: stopped; nothing was changed", r->store);
    }
    return STATUS_OK;
}

static int update_order(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Whether the text exists without this document: in the store and not in a replaced document, or in a document taken
 * before. */
static enum status update_is_known(struct update_plan *p, struct store_view *view, int64_t i, bool *known) {
    int64_t holder;
    TRY(store_view_find_document(view, &holder, p->entries[i].text));
    *known = holder >= 0 &&
             (p->n_replaced == 0 || !bsearch(&holder, p->replaced, (size_t)p->n_replaced, sizeof holder, update_order));
    if (*known) return STATUS_OK;
    size_t slot = update_slot(p, BY_TEXT, p->entries[i].text);
    *known = p->slots[slot] != NONE;
    if (!*known) p->slots[slot] = i;
    return STATUS_OK;
}

static enum status update_decide(struct update_plan *p, struct store_view *view) {
    struct update_counts *c = &p->counts;
    c->replaced = p->n_replaced;
    if (p->n_slots) memset(p->slots, 0xff, p->n_slots * sizeof *p->slots);
    for (int64_t i = 0; i < p->n; i++) {
        struct update_entry *e = &p->entries[i];
        bool known = false;
        if (e->fate == FATE_NEW || e->fate == FATE_CHANGED) TRY(update_is_known(p, view, i, &known));
        if (known) e->fate = FATE_DUPLICATE;
        c->unchanged += e->fate == FATE_UNCHANGED;
        c->changed += e->fate == FATE_CHANGED;
        c->added += e->fate == FATE_NEW;
        c->duplicates += e->fate == FATE_DUPLICATE;
        c->empty += e->fate == FATE_EMPTY;
    }
    return STATUS_OK;
}

static enum status update_with_store(struct update_plan *p, const struct update_request *r) {
    struct store *store;
    struct store_view *view = NULL;
    struct store_info info;
    TRY(store_open(&store, r->store));
    enum status s = store_view_open(&view, store);
    if (s == STATUS_OK) {
        store_view_info(view, &info);
        p->generation = info.generation;
        s = store_check_fingerprint(r->store, &info.fingerprint, "the model", r->fingerprint);
    }
    if (s == STATUS_OK && p->n > 0) s = update_read_store(p, r, view, &info);
    if (s == STATUS_OK) s = update_decide(p, view);
    store_view_close(view);
    store_close(store);
    return s;
}

/* ---- the plan -------------------------------------------------------------------------------------------------- */

enum status update_plan_make(struct update_plan **out, const struct update_request *request) {
    struct update_plan *p;
    struct reader *reader;
    for (int i = 0; i < request->reader->n_inputs; i++)
        if (strcmp(request->reader->inputs[i], "-") == 0)
            return fail(STATUS_UNSUPPORTED,
                        "an update reads its input twice, and standard input can be read once: write it to a file");
    TRY(memory_allocate_zero(&p, 1));
    enum status s = reader_open(&reader, request->reader);
    if (s == STATUS_OK) {
        s = update_read_corpus(p, request, reader);
        reader_close(reader);
    }
    if (s == STATUS_OK) s = update_with_store(p, request);
    if (s == STATUS_OK)
        *out = p;
    else
        update_plan_free(p);
    return s;
}

void update_plan_free(struct update_plan *p) {
    if (!p) return;
    memory_free(p->entries);
    memory_free(p->slots);
    memory_free(p->replaced);
    memory_free(p);
}

struct update_counts update_plan_counts(const struct update_plan *p) {
    return p->counts;
}

uint64_t update_plan_generation(const struct update_plan *p) {
    return p->generation;
}

bool update_plan_takes(const struct update_plan *p, int64_t index) {
    return index < p->n && (p->entries[index].fate == FATE_NEW || p->entries[index].fate == FATE_CHANGED);
}

enum status update_plan_check(const struct update_plan *p, int64_t index, const struct store_new_document *d) {
    if (index < p->n && memcmp(p->entries[index].text, d->hash, 16) == 0) return STATUS_OK;
    return fail(STATUS_MISMATCH, "%s: byte %llu: changed while the update was at work: run the same command again",
                d->source, (unsigned long long)d->offset);
}

const int64_t *update_plan_replaced(const struct update_plan *p, int64_t *n) {
    *n = p->n_replaced;
    return p->replaced;
}
