/* library_change.c -- checks and changes whole stores: verify, delete, compact, join, freeze. */
#include "base/memory.h"
#include "base/system/threads.h"
#include "indexer/search/assignment.h"
#include "indexer/search/clustering.h"
#include "library/library_internal.h"
#include "store/change/freeze.h"
#include "store/parts/parts.h"
#include <string.h>

/* ---- verify ------------------------------------------------------------------------------------------------- */

static void library_finding(void *context, const char *file, const char *problem, const char *remedy) {
    const struct drt_verify_config *c = context;
    const struct drt_finding finding = {.file = file, .problem = problem, .remedy = remedy};
    if (c->on_finding) c->on_finding(c->context, &finding);
}

enum drt_status drt_store_verify(const char *path, const struct drt_verify_config *config, int64_t *problems) {
    struct drt_verify_config c;
    char absolute[FILE_PATH_MAX];
    LIBRARY_NEEDS(path);
    LIBRARY_NEEDS(problems);
    LIBRARY_TRY(library_take(&c, sizeof c, config, "struct drt_verify_config"));
    const struct progress progress = library_progress(&c.progress);
    int64_t found = 0;
    LIBRARY_TRY(library_store_path(absolute, path));
    LIBRARY_TRY(store_verify(absolute, c.deep, &progress, library_finding, &c, &found));
    *problems = found;
    return DRT_OK;
}

/* ---- delete ------------------------------------------------------------------------------------------------- */

static void library_deleted(void *context, int64_t shard, const struct store_document *d) {
    const struct drt_delete_config *c = context;
    const struct drt_document document = library_document_of(d);
    (void)shard;
    c->on_document(c->context, &document);
}

enum drt_status drt_store_delete(const char *path, const struct drt_delete_config *config,
                                 struct drt_change_report *report) {
    struct drt_delete_config c;
    struct store_delete_report done;
    char absolute[FILE_PATH_MAX];
    LIBRARY_NEEDS(path);
    LIBRARY_NEEDS(config);
    LIBRARY_TRY(library_take(&c, sizeof c, config, "struct drt_delete_config"));
    LIBRARY_CHECK((c.n_documents > 0) != (c.n_sources > 0 || c.n_keys > 0),
                  "%s: give either documents, or keys or sources", __func__);
    LIBRARY_CHECK(c.n_documents == 0 || c.documents, "%s: documents is NULL", __func__);
    for (int i = 0; i < c.n_sources; i++)
        LIBRARY_CHECK(c.sources && c.sources[i], "%s: sources[%d] is NULL", __func__, i);
    for (int i = 0; i < c.n_keys; i++)
        LIBRARY_CHECK(c.keys && c.keys[i], "%s: keys[%d] is NULL", __func__, i);
    const struct progress progress = library_progress(&c.progress);
    const struct store_delete how = {.documents = c.documents,
                                     .n_documents = c.n_documents,
                                     .sources = c.sources,
                                     .n_sources = c.n_sources,
                                     .dry_run = c.dry_run,
                                     .document = c.on_document ? library_deleted : NULL,
                                     .context = &c,
                                     .progress = &progress,
                                     .keys = c.keys,
                                     .n_keys = c.n_keys};
    LIBRARY_TRY(library_store_path(absolute, path));
    LIBRARY_TRY(store_delete(&done, absolute, &how));
    if (!report) return DRT_OK;
    const struct drt_change_report filled = {
        .documents = done.documents, .chunks = done.chunks, .tokens = done.tokens, .generation = done.generation};
    return (enum drt_status)library_fill(report, &filled, sizeof filled, "struct drt_change_report");
}

/* ---- compact ------------------------------------------------------------------------------------------------ */

/* The threads and GPUs that make an index. */
struct library_makers {
    struct threads *threads;
    struct device *first; /* NULL: the CPU makes it */
    struct device_group one, all;
};

static void library_makers_close(struct library_makers *m) {
    if (m->all.n > 0) device_group_close(&m->all);
    device_close(m->first);
    threads_free(m->threads);
}

static enum status library_makers_gpus(struct library_makers *m, int n_threads, int devices) {
    const struct device_choice choice = {.device = "cuda", .dtype = "auto", .devices = devices};
    enum dtype type;
    TRY(device_choose(&m->first, &type, &choice, n_threads));
    m->one = (struct device_group){&m->first, 1};
    return device_choose_group(&m->all, m->first, &choice);
}

/* The caller closes it, also after a failure. The GPUs are opened before the work, so that a call that names too many
 * fails at once. */
static enum status library_makers_open(struct library_makers *m, int n_threads, int devices) {
    *m = (struct library_makers){0};
    if (n_threads < 0 || n_threads > THREADS_MAX)
        return fail(STATUS_INVALID, "threads is %d, and must be 0 to %d", n_threads, (int)THREADS_MAX);
    if (devices < -1) return fail(STATUS_INVALID, "devices is %d, and must be -1, 0 or more", devices);
    TRY(threads_create(&m->threads, n_threads));
    return devices == 0 ? STATUS_OK : library_makers_gpus(m, n_threads, devices);
}

/* Sets the options for making an index. */
static struct store_publish library_publish(const struct library_makers *m, const char *index, uint64_t max_ram,
                                            const struct progress *progress) {
    struct store_publish how = {
        .index = index, .max_ram = max_ram, .seed = 1, .threads = m->threads, .progress = progress};
    if (!m->first) return how;
    how.clustering = clustering_on(m->first);
    how.assignment = assignment_on(m->all.n > 0 ? &m->all : &m->one);
    return how;
}

static enum status library_generation(uint64_t *out, const char *path) {
    struct store *store = NULL;
    struct store_view *view = NULL;
    struct store_info info;
    TRY(store_open(&store, path));
    enum status status = store_view_open(&view, store);
    if (status == STATUS_OK) {
        store_view_info(view, &info);
        *out = info.generation;
    }
    store_view_close(view);
    store_close(store);
    return status;
}

enum drt_status drt_store_compact(const char *path, const char *from, const struct drt_compact_config *config,
                                  struct drt_change_report *report) {
    struct drt_compact_config c;
    struct store_compact_report done;
    struct store_compact how = {0};
    struct library_makers makers;
    char to[FILE_PATH_MAX], source[FILE_PATH_MAX];
    LIBRARY_NEEDS(path);
    LIBRARY_NEEDS(from);
    LIBRARY_TRY(library_take(&c, sizeof c, config, "struct drt_compact_config"));
    LIBRARY_CHECK(c.shard_chunks >= 0, "%s: shard_chunks is %lld", __func__, (long long)c.shard_chunks);
    const struct progress progress = library_progress(&c.progress);
    how.shard_chunks = c.shard_chunks;
    LIBRARY_TRY(store_landmarks_parse(&how.landmarks, c.landmarks));
    LIBRARY_TRY(library_store_path(source, from));
    LIBRARY_TRY(library_store_path(to, path));
    enum status status = library_makers_open(&makers, c.threads, c.devices);
    how.publish = library_publish(&makers, c.index, c.max_ram, &progress);
    if (status == STATUS_OK) status = store_compact(&done, source, to, &how);
    library_makers_close(&makers);
    LIBRARY_TRY(status);
    if (!report) return DRT_OK;
    struct drt_change_report filled = {.documents = done.documents, .chunks = done.chunks, .tokens = done.tokens};
    LIBRARY_TRY(library_generation(&filled.generation, to));
    return (enum drt_status)library_fill(report, &filled, sizeof filled, "struct drt_change_report");
}

/* ---- join --------------------------------------------------------------------------------------------------- */

/* The absolute paths of the parts. The caller frees *paths and *memory, also after a failure. */
static enum status library_part_paths(const char ***paths, char (**memory)[FILE_PATH_MAX], const char *const *parts,
                                      int n_parts) {
    TRY(memory_allocate(paths, (size_t)n_parts));
    TRY(memory_allocate(memory, (size_t)n_parts));
    for (int i = 0; i < n_parts; i++) {
        TRY(library_store_path((*memory)[i], parts[i]));
        (*paths)[i] = (*memory)[i];
    }
    return STATUS_OK;
}

static enum status library_join(struct store_join_report *done, const char *path, const char *const *parts, int n_parts,
                                const struct drt_join_config *c) {
    struct library_makers makers = {0};
    char to[FILE_PATH_MAX], (*memory)[FILE_PATH_MAX] = NULL;
    const char **paths = NULL;
    const struct progress progress = library_progress(&c->progress);
    enum status status = library_part_paths(&paths, &memory, parts, n_parts);
    if (status == STATUS_OK) status = library_store_path(to, path);
    if (status == STATUS_OK) status = library_makers_open(&makers, c->threads, c->devices);
    struct store_join how = {.parts = paths,
                             .n_parts = n_parts,
                             .copy = c->copy,
                             .publish = library_publish(&makers, c->index, c->max_ram, &progress)};
    how.publish.lexical = c->lexical ? STORE_LEXICAL_ON : STORE_LEXICAL_KEEP;
    if (status == STATUS_OK) status = store_join(done, to, &how);
    library_makers_close(&makers);
    memory_free(paths);
    memory_free(memory);
    return status;
}

enum drt_status drt_store_join(const char *path, const char *const *parts, int n_parts,
                               const struct drt_join_config *config, struct drt_join_report *report) {
    struct drt_join_config c;
    struct store_join_report done;
    LIBRARY_NEEDS(path);
    LIBRARY_NEEDS(parts);
    LIBRARY_CHECK(n_parts > 0, "%s: n_parts is %d", __func__, n_parts);
    LIBRARY_TRY(library_take(&c, sizeof c, config, "struct drt_join_config"));
    for (int i = 0; i < n_parts; i++)
        LIBRARY_CHECK(parts[i], "%s: parts[%d] is NULL", __func__, i);
    LIBRARY_TRY(library_join(&done, path, parts, n_parts, &c));
    if (!report) return DRT_OK;
    const struct drt_join_report filled = {.shards = done.shards,
                                           .documents = done.documents,
                                           .chunks = done.chunks,
                                           .tokens = done.tokens,
                                           .copies = done.copies,
                                           .linked = done.linked,
                                           .copied = done.copied,
                                           .generation = done.generation,
                                           .already_joined = done.already_joined};
    return (enum drt_status)library_fill(report, &filled, sizeof filled, "struct drt_join_report");
}

/* ---- freeze ------------------------------------------------------------------------------------------------- */

enum drt_status drt_store_freeze(const char *path, const char *from, const struct drt_freeze_config *config,
                                 struct drt_freeze_report *report) {
    struct drt_freeze_config c;
    struct store_freeze_report done;
    char to[FILE_PATH_MAX], source[FILE_PATH_MAX];
    LIBRARY_NEEDS(path);
    LIBRARY_NEEDS(from);
    LIBRARY_TRY(library_take(&c, sizeof c, config, "struct drt_freeze_config"));
    const struct progress progress = library_progress(&c.progress);
    const struct store_freeze how = {.copy = c.copy, .progress = &progress};
    LIBRARY_TRY(library_store_path(source, from));
    LIBRARY_TRY(library_store_path(to, path));
    LIBRARY_TRY(store_freeze(&done, source, to, &how));
    if (!report) return DRT_OK;
    const struct drt_freeze_report filled = {.documents = done.documents,
                                             .chunks = done.chunks,
                                             .linked = done.linked,
                                             .copied = done.copied,
                                             .generation = done.generation,
                                             .already_frozen = done.already_frozen};
    return (enum drt_status)library_fill(report, &filled, sizeof filled, "struct drt_freeze_report");
}
