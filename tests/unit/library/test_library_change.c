/* test_library_change.c -- drt.h: verify, delete, compact, join and freeze of whole stores; each result is compared
 * with the documents that must remain; the rules of the programs apply: BUSY, READ_ONLY, a stop that changes
 * nothing. */
#include "tests/library_fixture.h"
#include <fcntl.h>
#include <unistd.h>

enum { DIM = 32 };

struct findings {
    int64_t n;
    char file[1200], remedy[300];
};
static void keep_finding(void *context, const struct drt_finding *finding) {
    struct findings *f = context;
    f->n++;
    CHECK(finding->file[0] && finding->problem[0] && finding->remedy[0]);
    snprintf(f->file, sizeof f->file, "%s", finding->file);
    snprintf(f->remedy, sizeof f->remedy, "%s", finding->remedy);
}
static void count_reports(void *context, const struct drt_progress_event *event) {
    *(int *)context += event->stage != NULL;
}
static bool at_once(void *context) {
    (void)context;
    return true;
}

static int64_t verify(const char *path, bool deep, struct findings *found) {
    const struct drt_verify_config config = {
        .size = sizeof config, .deep = deep, .on_finding = keep_finding, .context = found};
    int64_t problems = -1;
    *found = (struct findings){0};
    CALL_OK(drt_store_verify(path, &config, &problems));
    CHECK_EQ(found->n, problems);
    return problems;
}

/* A store of the documents first .. first + n - 1, with 64 chunks in a shard. */
static void build(struct library_world *w, char path[700], const char *name, int first, int n) {
    struct library_corpus corpus = {.next = first, .documents = first + n};
    const struct drt_build_config config = {
        .size = sizeof config, .next = library_next, .next_context = &corpus, .shard_chunks = 64};
    snprintf(path, 700, "%s/%s", test_folder(), name);
    CALL_OK(drt_store_build(path, w->model, &config, NULL));
}

/* The texts of the store are those of these documents, in order; a search does not find dropped ones. */
static void holds(struct library_world *w, const char *path, const int *documents, int n) {
    struct drt_store *store = NULL;
    struct drt_store_info info = {.size = sizeof info};
    char text[4096], *stored = NULL;
    size_t bytes;
    int seen = 0;
    CALL_OK(drt_store_open(&store, path));
    CALL_OK(drt_store_info(store, &info));
    for (int64_t i = 0; i < info.documents; i++) {
        enum drt_status status = drt_store_document_text(store, drt_model_tokenizer(w->model), &stored, &bytes, i);
        if (status == DRT_NOT_FOUND) continue;
        CALL_OK(status);
        CHECK(seen < n);
        library_text(text, documents[seen++]);
        CHECK_STR(stored, text);
        drt_free(stored);
    }
    CHECK_EQ(seen, n);
    CHECK_EQ(info.documents - info.dropped_documents, n);
    drt_store_close(store);
}

/* A changed byte of the landmarks: only a deep check finds it, with the file and a remedy. */
static void verified(struct library_world *w) {
    struct findings found;
    char path[700], file[1000];
    int reports = 0;
    int64_t problems;
    build(w, path, "verified", 0, 20);
    CHECK_EQ(verify(path, false, &found), 0);
    CHECK_EQ(verify(path, true, &found), 0);
    const struct drt_verify_config watched = {
        .size = sizeof watched, .deep = true, .progress = {count_reports, NULL, &reports}};
    CALL_OK(drt_store_verify(path, &watched, &problems));
    CHECK(problems == 0 && reports > 0);
    CALL_OK(drt_store_verify(path, NULL, &problems));
    snprintf(file, sizeof file, "%s/landmarks/00000.f16", path);
    int fd = open(file, O_RDWR);
    char byte;
    CHECK(fd >= 0 && pread(fd, &byte, 1, 700) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, 700) == 1 && close(fd) == 0);
    CHECK_EQ(verify(path, false, &found), 0);
    CHECK_EQ(verify(path, true, &found), 1);
    CHECK(strstr(found.file, "00000.f16") && strstr(found.remedy, "repair"));
    const struct drt_verify_config stopped = {.size = sizeof stopped, .deep = true, .progress = {NULL, at_once, NULL}};
    CALL_FAILS(drt_store_verify(path, &stopped, &problems), DRT_INTERRUPTED, "");
    CALL_FAILS(drt_store_verify("/no/store", NULL, &problems), DRT_NOT_FOUND, "/no/store");
    CALL_FAILS(drt_store_verify(w->store_path, NULL, &problems), DRT_BUSY, "close it first");
    CALL_FAILS(drt_store_verify(NULL, NULL, &problems), DRT_INVALID, "path is NULL");
    CALL_FAILS(drt_store_verify(path, NULL, NULL), DRT_INVALID, "problems is NULL");
}

struct listed {
    int64_t ids[8];
    int n;
    char key[32];
};
static void list_document(void *context, const struct drt_document *document) {
    struct listed *l = context;
    CHECK(l->n < 8 && document->chunks > 0 && document->bytes > 0);
    CHECK_STR(document->source, "memory");
    snprintf(l->key, sizeof l->key, "%s", document->key);
    l->ids[l->n++] = document->id;
}

/* Deleted by number, by key and by source, also as a dry run; then compacted. */
static void deleted(struct library_world *w) {
    const int64_t gone[] = {7, 3};
    const int left[] = {0, 1, 2, 4, 5, 6, 8, 9};
    const char *const sources[] = {"mem*", NULL}, *const others[] = {"other/*"};
    const char *const keys[] = {"doc-9", "doc-7", "doc-1", NULL};
    struct findings found;
    char path[700], compact[700];
    struct listed listed = {0};
    struct drt_delete_config config = {.size = sizeof config,
                                       .documents = gone,
                                       .n_documents = 2,
                                       .dry_run = true,
                                       .on_document = list_document,
                                       .context = &listed};
    struct drt_change_report report = {.size = sizeof report}, again = {.size = sizeof again};
    build(w, path, "deleted", 0, 10);
    CALL_OK(drt_store_delete(path, &config, &report));
    CHECK(report.documents == 2 && report.chunks > 2 && report.tokens > 2 * 63 && report.generation == 1);
    CHECK(listed.n == 2 && listed.ids[0] == 3 && listed.ids[1] == 7);
    CHECK_STR(listed.key, "doc-7");
    holds(w, path, (const int[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 10);
    config.dry_run = false;
    config.on_document = NULL;
    CALL_OK(drt_store_delete(path, &config, &again));
    CHECK(again.documents == 2 && again.chunks == report.chunks && again.tokens == report.tokens);
    CHECK_EQ(again.generation, 2);
    CALL_OK(drt_store_delete(path, &config, &again)); /* skipped */
    CHECK(again.documents == 0 && again.chunks == 0);
    holds(w, path, left, 8);
    CHECK_EQ(verify(path, true, &found), 0);

    snprintf(compact, sizeof compact, "%s/compact", test_folder());
    struct drt_compact_config how = {.size = sizeof how, .threads = 1, .progress = {NULL, at_once, NULL}};
    CALL_FAILS(drt_store_compact(compact, path, &how, NULL), DRT_INTERRUPTED, "");
    how.progress.stop = NULL;
    CALL_OK(drt_store_compact(compact, path, &how, &report));
    CHECK(report.documents == 8 && report.chunks > 8 && report.generation == 1);
    holds(w, compact, left, 8);
    holds(w, path, left, 8);
    CHECK_EQ(verify(compact, true, &found), 0);
    CALL_FAILS(drt_store_compact(w->store_path, path, NULL, NULL), DRT_BUSY, "close it first");
    CALL_FAILS(drt_store_compact(compact, w->store_path, NULL, NULL), DRT_BUSY, "close it first");
    CALL_FAILS(drt_store_compact(compact, NULL, NULL, NULL), DRT_INVALID, "from is NULL");
    CALL_FAILS(drt_store_compact(NULL, path, NULL, NULL), DRT_INVALID, "path is NULL");
    how.threads = -1;
    CALL_FAILS(drt_store_compact(compact, path, &how, NULL), DRT_INVALID, "threads is -1");

    config = (struct drt_delete_config){.size = sizeof config, .sources = others, .n_sources = 1};
    CALL_OK(drt_store_delete(path, &config, &report));
    CHECK_EQ(report.documents, 0);
    config.keys = keys, config.n_keys = 3;
    CALL_OK(drt_store_delete(path, &config, &report));
    CHECK_EQ(report.documents, 0); /* other sources */
    config.sources = sources;
    config.on_document = list_document, config.context = &listed;
    listed = (struct listed){0};
    CALL_OK(drt_store_delete(path, &config, &report));
    CHECK(report.documents == 2 && listed.n == 2 && listed.ids[0] == 1 && listed.ids[1] == 9); /* doc-7 is deleted */
    config.on_document = NULL;
    config.n_keys = 4;
    CALL_FAILS(drt_store_delete(path, &config, NULL), DRT_INVALID, "keys[3] is NULL");
    config.keys = NULL, config.n_keys = 0;
    CALL_OK(drt_store_delete(path, &config, NULL));
    holds(w, path, NULL, 0);
    CALL_FAILS(drt_store_compact(w->folder, path, NULL, NULL), DRT_INVALID, "no document");
    config.n_sources = 2;
    CALL_FAILS(drt_store_delete(path, &config, NULL), DRT_INVALID, "sources[1] is NULL");
    config.documents = gone, config.n_documents = 1;
    CALL_FAILS(drt_store_delete(path, &config, NULL), DRT_INVALID, "either");
    config = (struct drt_delete_config){.size = sizeof config, .documents = (const int64_t[]){1000}, .n_documents = 1};
    CALL_FAILS(drt_store_delete(path, &config, NULL), DRT_NOT_FOUND, "1000");
    CALL_FAILS(drt_store_delete(w->store_path, &config, NULL), DRT_BUSY, "close it first");
    CALL_FAILS(drt_store_delete(path, NULL, NULL), DRT_INVALID, "config is NULL");
}

/* Without GPUs a call that names some fails before it makes anything. With GPUs the stores are whole. */
static void by_gpus(struct library_world *w, const char *from, const char *const *parts, int n_parts) {
    char path[700];
    struct drt_compact_config compact = {.size = sizeof compact, .threads = 1, .index = "IVF4,Flat", .devices = -2};
    struct drt_join_config join = {.size = sizeof join, .threads = 1, .index = "IVF4,Flat", .devices = -2};
    struct drt_model *gpu = NULL;
    const struct drt_model_config there = {.size = sizeof there, .device = "cuda"};
    struct findings found;
    snprintf(path, sizeof path, "%s/by-gpus-0", test_folder());
    CALL_FAILS(drt_store_compact(path, from, &compact, NULL), DRT_INVALID, "devices is -2");
    CALL_FAILS(drt_store_join(path, parts, n_parts, &join, NULL), DRT_INVALID, "devices is -2");
    const enum drt_status none = drt_model_open(&gpu, w->folder, &there);
    drt_model_close(none == DRT_OK ? gpu : NULL);
    for (int devices = -1; devices <= 1; devices += 2) {
        compact.devices = join.devices = devices;
        snprintf(path, sizeof path, "%s/compact-by-%d", test_folder(), devices);
        enum drt_status status = drt_store_compact(path, from, &compact, NULL);
        CHECK_EQ(status, none);
        CHECK_EQ(access(path, F_OK) == 0, none == DRT_OK);
        if (status == DRT_OK) CHECK_EQ(verify(path, true, &found), 0);
        snprintf(path, sizeof path, "%s/join-by-%d", test_folder(), devices);
        status = drt_store_join(path, parts, n_parts, &join, NULL);
        CHECK_EQ(status, none);
        CHECK_EQ(access(path, F_OK) == 0, none == DRT_OK);
        if (status == DRT_OK) CHECK_EQ(verify(path, true, &found), 0);
    }
    compact.devices = join.devices = 1000;
    CHECK(drt_store_compact(path, from, &compact, NULL) != DRT_OK);
    CHECK(drt_store_join(path, parts, n_parts, &join, NULL) != DRT_OK);
}

/* Parts of a file, joined, are the store of the whole file. */
static void joined(struct library_world *w) {
    char corpus[700], text[4096], path[3][700];
    const char *const inputs[] = {corpus}, *const parts[] = {path[1], path[0]};
    struct drt_join_report report = {.size = sizeof report};
    struct findings found;
    int every[30];
    snprintf(corpus, sizeof corpus, "%s/corpus.jsonl", test_folder());
    FILE *file = fopen(corpus, "w");
    CHECK(file);
    for (int i = 0; i < 30; i++) {
        library_text(text, every[i] = i);
        fprintf(file, "{\"text\": \"%s\"}\n", text);
    }
    CHECK(fclose(file) == 0);
    for (int i = 0; i < 2; i++) {
        struct drt_build_config config = {
            .size = sizeof config, .inputs = inputs, .n_inputs = 1, .part = i + 1, .parts = 2};
        snprintf(path[i], sizeof path[i], "%s/part-%d", test_folder(), i);
        CALL_OK(drt_store_build(path[i], w->model, &config, NULL));
        config.part = 3;
        CALL_FAILS(drt_store_build(path[i], w->model, &config, NULL), DRT_INVALID, "part is 3 of 2");
        config.part = 1, config.index = "Flat";
        CALL_FAILS(drt_store_build(path[i], w->model, &config, NULL), DRT_INVALID, "index is Flat");
        config.index = NULL, config.append = true;
        CALL_FAILS(drt_store_build(path[i], w->model, &config, NULL), DRT_INVALID, "not appended");
    }
    struct library_corpus given = {.documents = 1};
    const struct drt_build_config callback = {
        .size = sizeof callback, .next = library_next, .next_context = &given, .part = 1, .parts = 2};
    CALL_FAILS(drt_store_build(path[0], w->model, &callback, NULL), DRT_INVALID, "have no parts");
    snprintf(path[2], sizeof path[2], "%s/joined", test_folder());
    CALL_FAILS(drt_store_join(path[2], parts, 1, NULL, NULL), DRT_MISMATCH, "");
    const struct drt_join_config config = {.size = sizeof config, .threads = 1, .lexical = true};
    CALL_OK(drt_store_join(path[2], parts, 2, &config, &report));
    CHECK(report.documents == 30 && report.chunks > 30 && report.copies == 0 && report.linked > 0 && !report.copied);
    CHECK(report.generation > 0 && !report.already_joined && report.shards >= 2);
    holds(w, path[2], every, 30);
    CHECK_EQ(verify(path[2], true, &found), 0);
    CALL_OK(drt_store_join(path[2], parts, 2, &config, &report));
    CHECK(report.already_joined);
    by_gpus(w, path[2], parts, 2);
    CALL_FAILS(drt_store_join(path[2], parts, 0, NULL, NULL), DRT_INVALID, "n_parts is 0");
    CALL_FAILS(drt_store_join(path[2], NULL, 2, NULL, NULL), DRT_INVALID, "parts is NULL");
    CALL_FAILS(drt_store_join(NULL, parts, 2, NULL, NULL), DRT_INVALID, "path is NULL");
    CALL_FAILS(drt_store_join(path[2], (const char *const[]){path[0], NULL}, 2, NULL, NULL), DRT_INVALID,
               "parts[1] is NULL");
}

static void frozen(struct library_world *w) {
    char path[700], snap[700];
    struct drt_freeze_report report = {.size = sizeof report};
    struct findings found;
    const struct drt_freeze_config copied = {.size = sizeof copied, .copy = true};
    const struct drt_delete_config first = {.size = sizeof first, .documents = (const int64_t[]){0}, .n_documents = 1};
    const int every[] = {5, 6, 7, 8};
    build(w, path, "live", 5, 4);
    snprintf(snap, sizeof snap, "%s/snap", test_folder());
    CALL_OK(drt_store_freeze(snap, path, &copied, &report));
    CHECK(report.documents == 4 && report.chunks > 4 && report.copied > 0 && !report.linked && !report.already_frozen);
    CHECK_EQ(report.generation, 1);
    CALL_OK(drt_store_freeze(snap, path, NULL, &report));
    CHECK(report.already_frozen);
    CALL_OK(drt_store_delete(path, &first, NULL));
    holds(w, path, every + 1, 3);
    holds(w, snap, every, 4);
    CALL_FAILS(drt_store_delete(snap, &first, NULL), DRT_READ_ONLY, "");
    CHECK_EQ(verify(snap, true, &found), 0);
    CALL_FAILS(drt_store_freeze(snap, NULL, NULL, NULL), DRT_INVALID, "from is NULL");
    CALL_FAILS(drt_store_freeze(NULL, path, NULL, NULL), DRT_INVALID, "path is NULL");
    CALL_FAILS(drt_store_freeze(snap, w->store_path, NULL, NULL), DRT_BUSY, "close it first");
}

/* Relative paths are those of the moment of the call: a callback changes the working directory, as any thread may. */
static void leave(void *context, const struct drt_progress_event *event) {
    (void)event;
    CHECK_EQ(chdir(context), 0);
}

static void left(struct library_world *w) {
    char elsewhere[600], corpus[700];
    const char *const inputs[] = {corpus}, *const parts[] = {"left-1", "left-0"};
    struct findings found;
    int64_t problems = 1;
    const int every[] = {0, 1, 2, 3, 4, 5}, joined[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
                                                        15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", test_folder());
    snprintf(corpus, sizeof corpus, "%s/corpus.jsonl", test_folder()); /* of `joined` */
    CHECK_EQ(mkdir(elsewhere, 0777), 0);
    const struct drt_progress leaves = {.report = leave, .context = elsewhere};
    for (int i = 0; i < 2; i++) {
        struct library_corpus given = {.next = 3 * i, .documents = 3 * i + 3};
        const struct drt_build_config whole = {
            .size = sizeof whole, .next = library_next, .next_context = &given, .append = i > 0, .progress = leaves};
        const struct drt_build_config part = {
            .size = sizeof part, .inputs = inputs, .n_inputs = 1, .part = i + 1, .parts = 2, .progress = leaves};
        CHECK_EQ(chdir(test_folder()), 0);
        CALL_OK(drt_store_build("left", w->model, &whole, NULL));
        CHECK_EQ(chdir(test_folder()), 0);
        CALL_OK(drt_store_build(parts[1 - i], w->model, &part, NULL));
    }
    const struct drt_verify_config verifying = {.size = sizeof verifying, .deep = true, .progress = leaves};
    const struct drt_delete_config first = {
        .size = sizeof first, .documents = (const int64_t[]){0}, .n_documents = 1, .progress = leaves};
    const struct drt_compact_config compacting = {.size = sizeof compacting, .threads = 1, .progress = leaves};
    const struct drt_freeze_config freezing = {.size = sizeof freezing, .progress = leaves};
    const struct drt_join_config joining = {.size = sizeof joining, .threads = 1, .progress = leaves};
    struct drt_change_report report = {.size = sizeof report};
    CHECK_EQ(chdir(test_folder()), 0);
    CALL_OK(drt_store_verify("left", &verifying, &problems));
    CHECK_EQ(problems, 0);
    CHECK_EQ(chdir(test_folder()), 0);
    CALL_OK(drt_store_delete("left", &first, NULL));
    CHECK_EQ(chdir(test_folder()), 0);
    CALL_OK(drt_store_compact("left-compact", "left", &compacting, &report));
    CHECK(report.generation > 0);
    CHECK_EQ(chdir(test_folder()), 0);
    CALL_OK(drt_store_freeze("left-frozen", "left", &freezing, NULL));
    CHECK_EQ(chdir(test_folder()), 0);
    CALL_OK(drt_store_join("left-joined", parts, 2, &joining, NULL));
    CHECK_EQ(chdir(test_folder()), 0);
    holds(w, "left", every + 1, 5);
    holds(w, "left-compact", every + 1, 5);
    holds(w, "left-frozen", every + 1, 5);
    holds(w, "left-joined", joined, 30);
    CHECK_EQ(verify("left-joined", true, &found), 0);
    CHECK_EQ(chdir("/"), 0);
    CHECK_EQ(rmdir(elsewhere), 0); /* nothing was made there */
}

int main(int argc, char **argv) {
    struct library_world w;
    test_start(argc, argv, 1);
    library_world_open(&w);
    verified(&w);
    deleted(&w);
    joined(&w);
    frozen(&w);
    left(&w);
    library_world_close(&w);
    return test_done();
}
