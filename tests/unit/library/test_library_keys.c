/* test_library_keys.c -- drt.h: keys of a token memory made with a store, extended by an addition, and left as they are
 * by another model or rounding; stops, a failure and parts. Keys have the bytes of a store that was built at once. */
#include "tests/library_fixture.h"
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES_MAX = 1 << 20, FIRST = 6, ALL = 9 };
static char notes[2000];
static struct drt_model *exact, *other, *default_model; /* of float32 products; of other weights */

static void keep_notes(void *context, const struct drt_progress_event *event) {
    (void)context;
    if (event->note) snprintf(notes, sizeof notes, "%s", event->note);
}

enum path_name { WHOLE, GROWN, WITHOUT, APART, STOPPED, STOPPED_FILE, CORPUS, PART_1, PART_2, JOINED, PATHS };
static const char *path_of(enum path_name p) {
    static const char *const name[] = {
        "whole",        "grown",  "without", "apart", "stopped", "stopped/keys/00000.keys",
        "corpus.jsonl", "part-1", "part-2",  "joined"};
    static char path[PATHS][700];
    snprintf(path[p], sizeof path[p], "%s/%s", test_folder(), name[p]);
    return path[p];
}

/* Documents first .. first + n - 1. */
static enum drt_status build(struct drt_report *report, const char *path, struct drt_model *model, int first, int n,
                             struct drt_build_config config) {
    struct library_corpus corpus = {.next = first, .documents = first + n};
    config.size = sizeof config;
    config.next = library_next, config.next_context = &corpus;
    config.progress.report = keep_notes;
    *report = (struct drt_report){.size = sizeof *report};
    notes[0] = 0;
    return drt_store_build(path, model, &config, report);
}

static size_t read_keys(uint8_t out[BYTES_MAX], const char *path) {
    char name[800];
    snprintf(name, sizeof name, "%s/keys/00000.keys", path);
    FILE *f = fopen(name, "rb");
    if (!f) return 0;
    const size_t n = fread(out, 1, BYTES_MAX, f);
    CHECK(n > 128 && n < BYTES_MAX);
    fclose(f);
    return n;
}
static void same_keys(const char *path, const char *as) {
    static uint8_t a[BYTES_MAX], b[BYTES_MAX];
    const size_t n = read_keys(a, path);
    CHECK(n > 0);
    CHECK_EQ(read_keys(b, as), n);
    CHECK_EQ(memcmp(a, b, n), 0);
}

static struct drt_store_info info_of(const char *path) {
    struct drt_store *store = NULL;
    struct drt_store_info info = {.size = sizeof info};
    CALL_OK(drt_store_open(&store, path));
    CALL_OK(drt_store_info(store, &info));
    drt_store_close(store);
    return info;
}
static void complete(const char *path) {
    const struct drt_store_info info = info_of(path);
    CHECK(info.keys_files == 1 && info.keys_chunks == info.chunks);
}

/* The store "whole" has no landmarks and is built with keys at once; "grown" gets its keys in two parts. */
static void extended(void) {
    const struct drt_build_config keys = {.keys = true}, none = {.keys = true, .landmarks = "none"}, plain = {0},
                                  add = {.append = true};
    const char *whole = path_of(WHOLE), *grown = path_of(GROWN);
    struct drt_report r;
    CALL_OK(build(&r, whole, default_model, 0, ALL, none));
    CHECK(r.keys_files == 1 && r.keys_made == 1 && r.keys_chunks == r.chunks && r.keys_bytes > 0 && !r.keys_lacking);
    CHECK(r.keys_seconds > 0);
    complete(whole);
    CALL_OK(build(&r, whole, default_model, 0, ALL, none)); /* nothing is left to do */
    CHECK(r.already_built && r.keys_files == 1 && r.keys_made == 0);

    CALL_OK(build(&r, grown, default_model, 0, FIRST, plain));
    CHECK(r.keys_files == 0 && info_of(grown).keys_files == 0);
    CALL_OK(build(&r, grown, default_model, 0, FIRST, keys)); /* of a store that is there */
    CHECK(r.already_built && r.keys_made == 1);
    CALL_OK(build(&r, grown, default_model, FIRST, ALL - FIRST, add));
    CHECK(r.keys_made == 1 && r.keys_chunks == r.chunks && r.chunks > 0 && r.keys_lacking == 0);
    CHECK_STR(notes, "");
    complete(grown);
    same_keys(grown, whole);
    CALL_OK(build(&r, grown, default_model, 0, ALL, add)); /* nothing new */
    CHECK(r.chunks == 0 && r.keys_files == 0 && r.keys_lacking == 0);

    const char *without = path_of(WITHOUT); /* without keys an addition makes none, unless they are wanted */
    CALL_OK(build(&r, without, default_model, 0, FIRST, plain));
    CALL_OK(build(&r, without, default_model, FIRST, 1, add));
    CHECK(r.keys_files == 0 && r.keys_lacking == 0 && info_of(without).keys_files == 0);
    CALL_OK(
        build(&r, without, default_model, FIRST, ALL - FIRST, (struct drt_build_config){.append = true, .keys = true}));
    CHECK(r.keys_chunks == info_of(without).chunks);
    same_keys(without, whole);
}

/* The keys lack the new chunks; the report and a note say so. With `keys` the call is refused before it adds. */
static void kept_apart(struct drt_model *model, const char *note, const char *refusal) {
    const struct drt_build_config add = {.append = true}, both = {.append = true, .keys = true};
    const char *path = path_of(APART);
    char command[1600];
    struct drt_report r;
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", path, path_of(WHOLE), path);
    CHECK_EQ(system(command), 0);
    CALL_FAILS(build(&r, path, model, ALL, 1, both), DRT_MISMATCH, refusal);
    complete(path);
    CHECK_EQ(info_of(path).generation, 1);
    CALL_OK(build(&r, path, model, ALL, 1, add));
    CHECK(r.chunks > 0 && r.keys_lacking == r.chunks && r.keys_made == 0);
    CHECK(strstr(notes, note) && strstr(notes, "run drt-index keys --store") && strstr(notes, path));
    struct drt_store_info info = info_of(path);
    CHECK_EQ(info.keys_chunks + r.chunks, info.chunks);
    CALL_OK(build(&r, path, default_model, ALL, 1, add)); /* the keys' model makes them */
    CHECK(r.chunks == 0 && r.keys_made == 1 && r.keys_chunks > 0 && r.keys_lacking == 0);
    complete(path);
}

static bool stop_in_keys(void *context) {
    (void)context;
    char folder[800];
    snprintf(folder, sizeof folder, "%s/keys", path_of(STOPPED));
    return access(folder, F_OK) == 0;
}

/* A stop or a failure of the keys leaves the published chunks; the same call again makes the keys. */
static void stopped(void) {
    struct drt_build_config keys = {.keys = true, .landmarks = "none", .progress = {NULL, stop_in_keys, NULL}};
    const char *path = path_of(STOPPED), *file = path_of(STOPPED_FILE);
    struct drt_report r;
    CALL_FAILS(build(&r, path, default_model, 0, ALL, keys), DRT_INTERRUPTED, "stopped while keys were computed");
    CHECK(info_of(path).keys_files == 0 && info_of(path).generation == 1);
    keys.progress.stop = NULL;
    CHECK_EQ(mkdir(file, 0700), 0); /* no file can get this name */
    CALL_FAILS(build(&r, path, default_model, 0, ALL, keys), DRT_INVALID, "00000.keys");
    CHECK_EQ(rmdir(file), 0);
    CALL_OK(build(&r, path, default_model, 0, ALL, keys));
    CHECK(r.already_built && r.keys_made == 1);
    same_keys(path, path_of(WHOLE));
    CHECK_EQ(truncate(file, 1000), 0);
    CALL_OK(build(&r, path, other, ALL, 1, (struct drt_build_config){.append = true}));
    CHECK_EQ(r.keys_lacking, info_of(path).chunks);
    CHECK(strstr(notes, "its keys are damaged and do not have the new chunks"));
}

/* Parts of a file have keys, and so has what is joined of them. */
static void parts(void) {
    char text[4096];
    const char *corpus = path_of(CORPUS), *const inputs[] = {corpus};
    FILE *f = fopen(corpus, "w");
    CHECK(f);
    for (int i = 0; i < ALL; i++) {
        library_text(text, i);
        fprintf(f, "{\"text\": \"%s\"}\n", text);
    }
    CHECK_EQ(fclose(f), 0);
    for (int i = 1; i <= 2; i++) {
        const struct drt_build_config part = {
            .size = sizeof part, .inputs = inputs, .n_inputs = 1, .part = i, .parts = 2, .keys = true};
        struct drt_report r = {.size = sizeof r};
        CALL_OK(drt_store_build(path_of(i == 1 ? PART_1 : PART_2), default_model, &part, &r));
        CHECK(r.keys_made == 1 && r.keys_chunks == r.chunks);
    }
    const char *const folders[] = {path_of(PART_1), path_of(PART_2)}, *joined = path_of(JOINED);
    CALL_OK(drt_store_join(joined, folders, 2, NULL, NULL));
    const struct drt_store_info info = info_of(joined);
    CHECK(info.keys_files == 2 && info.keys_chunks == info.chunks && info.chunks == info_of(path_of(WHOLE)).chunks);
}

int main(int argc, char **argv) {
    char folder[600];
    test_start(argc, argv, 1);
    snprintf(folder, sizeof folder, "%s/other", test_folder());
    model_fixture(folder, 4);
    other = library_model(folder);
    snprintf(folder, sizeof folder, "%s/model", test_folder());
    model_fixture(folder, 3);
    default_model = library_model(folder);
    const struct drt_model_config f32 = {.size = sizeof f32, .device = "cpu", .threads = 1, .dtype = "f32"};
    CALL_OK(drt_model_open(&exact, folder, &f32));
    extended();
    kept_apart(other, "its keys are of another model and do not have the new chunks", "keys of another model");
    static uint8_t keys[BYTES_MAX];
    CHECK(read_keys(keys, path_of(WHOLE)) > 0);
    if (keys[80] == 2) /* this processor rounds products to bf16 */
        kept_apart(exact, "its keys were computed with bf16 products, this run computes f32",
                   "take --dtype auto, or run");
    parts();
    stopped();
    drt_model_close(exact);
    drt_model_close(other);
    drt_model_close(default_model);
    return test_done();
}
