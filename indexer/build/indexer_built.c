/* indexer_built.c -- what a store has before a build: whether a published one holds what the build would put into it,
 * and whether it has landmarks. */
#include "base/memory.h"
#include "indexer/build/indexer.h"
#include "indexer/build/indexer_internal.h"
#include <string.h>

/* After the last sealed shard there may only be duplicates, and documents without text. */
static enum status check_rest(struct reader *reader, struct store_view *view) {
    for (int more = 1; more;) {
        struct document d;
        uint8_t hash[16];
        int64_t found = -1;
        TRY(reader_next(reader, &d, &more));
        if (!more || d.bytes + d.n_ids == 0) continue;
        indexer_document_hash(hash, &d);
        TRY(store_view_find_document(view, &found, hash));
        if (found < 0)
            return fail(STATUS_MISMATCH, "%s: the document at byte %llu is not in it", d.source,
                        (unsigned long long)d.offset);
    }
    return STATUS_OK;
}

static enum status check_inputs(struct store_view *view, const struct built_request *request, const uint8_t *bytes,
                                size_t n) {
    struct cursor now, cursor;
    struct reader *reader;
    cursor_describe(&now, request->reader, request->shard_chunks);
    TRY(cursor_unpack(&cursor, bytes, n, &now, request->store));
    TRY(reader_open(&reader, request->reader));
    enum status status = reader_seek(reader, cursor.position, cursor.marks, cursor.n_marks);
    if (status == STATUS_OK) status = check_rest(reader, view);
    reader_close(reader);
    return status;
}

enum status built_check(struct store_view *view, const struct built_request *request) {
    struct store_info info;
    uint8_t *bytes;
    size_t n;
    store_view_info(view, &info);
    TRY(store_check_fingerprint(request->store, &info.fingerprint, "the model", request->fingerprint));
    if (request->part) {
        struct store_part part;
        TRY(store_view_part(view, &part));
        if (memcmp(&part, request->part, sizeof part) != 0)
            return fail(STATUS_MISMATCH, "it is part %d of %d, or of another corpus or other options", part.part,
                        part.parts);
    }
    if (request->type != STORE_LANDMARKS_KEEP && request->type != info.landmarks)
        return fail(STATUS_MISMATCH,
                    "its landmarks are of type %s, not %s (drt-index compact --landmarks %s makes a store of "
                    "that type from it)",
                    store_landmarks_name(info.landmarks), store_landmarks_name(request->type),
                    store_landmarks_name(request->type));
    if (strcmp(request->index, "auto") != 0 && strcmp(request->index, info.index) != 0)
        return fail(STATUS_MISMATCH, "its index is %s, not %s (drt-index repair --index %s makes it so)", info.index,
                    request->index, request->index);
    if (request->lexical != STORE_LEXICAL_KEEP && info.lexical != (request->lexical == STORE_LEXICAL_ON))
        return fail(STATUS_MISMATCH, "it has %s lexical index (drt-index lexical --store %s%s changes that)",
                    info.lexical ? "a" : "no", request->store, info.lexical ? " --remove" : "");
    TRY(memory_allocate(&bytes, STORE_CURSOR_MAX));
    enum status status = store_view_cursor(view, bytes, &n);
    if (status == STATUS_OK) status = check_inputs(view, request, bytes, n);
    memory_free(bytes);
    return status;
}

enum status indexer_store_without_landmarks(bool *out, const char *store) {
    struct store *opened;
    struct store_view *view;
    struct store_info info;
    *out = false;
    enum status s = store_open(&opened, store);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    s = store_view_open(&view, opened);
    if (s == STATUS_OK) {
        store_view_info(view, &info);
        *out = info.landmarks == STORE_LANDMARKS_NONE;
        store_view_close(view);
    }
    store_close(opened);
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}
