/* lexical_folder.c -- see lexical_folder.h. The first file is removed before the others are replaced and comes last, so
 * that a folder whose writing was cut short cannot be opened. */
#include "store/lexical/lexical_folder.h"
#include "base/file.h"
#include "base/memory.h"
#include "store/lexical/lexical_build.h"
#include <stdio.h>

enum { SEGMENTS_MAX = 4096, STEP = 1 << 14 };

static enum status segment_path(char out[FILE_PATH_MAX], const char *folder, int64_t number) {
    char name[32];
    snprintf(name, sizeof name, "%05lld.lex", (long long)number);
    return file_join(out, folder, name);
}

/* Chunks first .. end-1 as the segment at `path`. */
static enum status segment_write(struct store_view *view, const char *path, int64_t first, int64_t end,
                                 uint64_t max_ram, const struct progress *progress) {
    struct store_info info;
    struct lexical_builder *builder = NULL;
    int32_t *ids = NULL;
    uint64_t bytes;
    uint32_t crc;
    store_view_info(view, &info);
    const struct lexical_build how = {
        .vocab_size = info.fingerprint.vocab_size, .first_chunk = first, .max_ram = max_ram, .progress = progress};
    TRY(memory_allocate(&ids, (size_t)info.fingerprint.chunk_tokens));
    enum status s = lexical_builder_create(&builder, path, &how);
    for (int64_t i = first; i < end && s == STATUS_OK; i++) {
        struct store_chunk chunk;
        s = store_view_chunk(view, &chunk, ids, i);
        if (s == STATUS_OK) s = lexical_builder_add(builder, ids, chunk.n_tokens);
        if (s != STATUS_OK || i % STEP > 0) continue;
        progress_step(progress, "read chunks", "chunks", i, info.chunks);
        if (progress_stop_requested(progress)) s = fail(STATUS_INTERRUPTED, "%s: stopped before it was written", path);
    }
    memory_free(ids);
    if (s == STATUS_OK) return lexical_builder_publish(builder, &bytes, &crc);
    lexical_builder_discard(builder);
    return s;
}

enum status lexical_folder_write(struct store_view *view, const char *folder, int64_t segment_chunks, uint64_t max_ram,
                                 const struct progress *progress) {
    struct store_info info;
    char path[FILE_PATH_MAX];
    store_view_info(view, &info);
    int64_t size = segment_chunks > 0 ? segment_chunks : LEXICAL_CHUNKS_MAX;
    int64_t segments = (info.chunks + size - 1) / size;
    if (segments > SEGMENTS_MAX)
        return fail(STATUS_INVALID, "%s: %lld segments of %lld chunks: at most %d, take larger ones", folder,
                    (long long)segments, (long long)size, SEGMENTS_MAX);
    TRY(file_make_directory(folder));
    for (int64_t i = 0; i < SEGMENTS_MAX; i++) {
        TRY(segment_path(path, folder, i));
        if (i > 0 && i >= segments && !file_exists(path)) break;
        if (i == 0 || i >= segments) TRY(file_remove(path));
    }
    for (int64_t i = segments - 1; i >= 0; i--) {
        int64_t end = i + 1 < segments ? (i + 1) * size : info.chunks;
        TRY(segment_path(path, folder, i));
        TRY(segment_write(view, path, i * size, end, max_ram, progress));
    }
    return STATUS_OK;
}

enum status lexical_folder_open(struct lexical **out, const char *folder) {
    char **paths = NULL;
    int64_t n = 0;
    enum status s = STATUS_OK;
    TRY(memory_allocate_zero(&paths, (size_t)SEGMENTS_MAX));
    for (; n < SEGMENTS_MAX && s == STATUS_OK; n++) {
        char path[FILE_PATH_MAX];
        s = segment_path(path, folder, n);
        if (s != STATUS_OK || !file_exists(path)) break;
        s = memory_copy_string(&paths[n], path);
    }
    if (s == STATUS_OK && n == 0)
        s = fail(STATUS_NOT_FOUND, "%s: has no lexical index: write one with drt-index lexical", folder);
    if (s == STATUS_OK) s = lexical_open(out, (const char *const *)paths, n);
    for (int64_t i = 0; i < n; i++)
        memory_free(paths[i]);
    memory_free(paths);
    return s;
}
