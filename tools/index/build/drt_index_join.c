/* drt_index_join.c -- drt-index join: makes one store of the separately built parts of a corpus. Also the options
 * of build --part. */
#include "base/formats/json.h"
#include "base/system/processors.h"
#include "store/parts/parts.h"
#include "tools/index/build/drt_index_devices.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <glob.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PARTS_MAX = 1000000 };

bool drt_index_part_parse(struct drt_index_part *p) {
    char rest;
    return sscanf(p->text, "%d/%d%c", &p->part, &p->parts, &rest) == 2 && p->part >= 1 && p->part <= p->parts &&
           p->parts <= PARTS_MAX;
}

int drt_index_part_check(struct drt_index_part *p, const char *index, const char *vectors) {
    if (!p->text) return -1;
    if (!drt_index_part_parse(p))
        return drt_index_usage("build", "--part takes i/N, with i from 1 to N, N at most 1000000");
    if (vectors)
        return drt_index_usage("build", "--vectors has a row for each chunk of a whole corpus: leave out --part");
    if (index && strcmp(index, "exact") != 0)
        return drt_index_usage("build", "--index cannot be given with --part: drt-index join makes the index");
    return -1;
}

/* The folder of a part's store has a name with the part's number, so that the parts of one build can
 * be in one folder. */
/* Another part's process that fails may remove the empty STORE between the two calls. */
static enum status part_folders_make(struct drt_index_part *p) {
    enum status s = STATUS_NOT_FOUND;
    for (int i = 0; i < 100 && s == STATUS_NOT_FOUND; i++) {
        const bool folder = file_exists(p->folder), store = file_exists(p->store);
        TRY(file_make_directory(p->folder));
        p->made_folder = !folder;
        s = file_make_directory(p->store);
        p->made_store = s == STATUS_OK && !store;
    }
    return s;
}

enum status drt_index_part_enter(struct drt_index_part *p, const char **store) {
    char name[64];
    if (p->parts == 0) return STATUS_OK;
    snprintf(name, sizeof name, "part-%d-of-%d", p->part, p->parts);
    TRY(file_join(p->store, *store, name));
    p->folder = *store;
    *store = p->store;
    return part_folders_make(p);
}

void drt_index_part_leave(const struct drt_index_part *p, enum status s) {
    if (s == STATUS_OK) return;
    if (p->made_store) (void)rmdir(p->store);
    if (p->made_folder) (void)rmdir(p->folder);
}

struct options {
    const char *store, *index, *lexical;
    bool copy, json;
    struct index_devices on;
    int64_t threads;
    uint64_t max_ram;
};

static void print_report(const struct options *o, const struct store_join_report *r, int parts) {
    if (o->json) {
        struct json_writer w;
        const struct json_number numbers[] = {{"generation", (int64_t)r->generation},
                                              {"parts", parts},
                                              {"shards", r->shards},
                                              {"documents", r->documents},
                                              {"copies", r->copies},
                                              {"chunks", r->chunks},
                                              {"tokens", r->tokens},
                                              {"linked", r->linked},
                                              {"copied", r->copied},
                                              {"keys_files", r->keys_files},
                                              {"already_joined", r->already_joined}};
        json_write_open(&w, stdout, 0);
        json_write_object(&w);
        json_write_key(&w, "store");
        json_write_string(&w, o->store);
        drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
        json_write_object_end(&w);
        fputc('\n', stdout);
        return;
    }
    if (r->already_joined) {
        streams_printf(stdout, "%s: these %d parts are joined here already (generation %llu)\n", o->store, parts,
                       (unsigned long long)r->generation);
        return;
    }
    streams_printf(stdout, "%s: %d parts joined, generation %llu\n", o->store, parts,
                   (unsigned long long)r->generation);
    printf("  documents %lld, of which %lld are copies of one in an earlier part and not in view\n",
           (long long)r->documents, (long long)r->copies);
    printf("  chunks %lld, tokens %lld, shards %lld\n", (long long)r->chunks, (long long)r->tokens,
           (long long)r->shards);
    printf("  files linked %lld, copied %lld", (long long)r->linked, (long long)r->copied);
    if (r->keys_files) printf("; keys of a token memory in %lld files", (long long)r->keys_files);
    printf("\n");
}

/* Parts that were joined before keep the indexes that the store has now. Names those that this call requests and that
 * the store lacks. */
static enum status note_indexes(const struct options *o, const struct progress *progress) {
    struct opened_store s;
    TRY(opened_store_open(&s, o->store));
    const bool named = o->index && strcmp(o->index, "auto") != 0 && strcmp(o->index, "exact") != 0;
    if (named && strcmp(o->index, s.info.index) != 0)
        progress_note(progress, "%s: has the index %s, not %s: run drt-index index --store %s --index %s", o->store,
                      s.info.index, o->index, o->store, o->index);
    if (strcmp(o->lexical, "on") == 0 && !s.info.lexical)
        progress_note(progress, "%s: has no lexical index: run drt-index lexical --store %s", o->store, o->store);
    opened_store_close(&s);
    return STATUS_OK;
}

/* A folder of parts is not a part. */
static int check_parts(const char *const *parts, int n) {
    for (int i = 0; i < n; i++) {
        char pattern[FILE_PATH_MAX + 32], what[FILE_PATH_MAX + 200];
        glob_t found = {0};
        snprintf(pattern, sizeof pattern, "%s/part-*-of-*", parts[i]);
        const bool is_folder = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
        globfree(&found);
        snprintf(what, sizeof what, "%s is a folder of parts: give the parts in it, as %s/*", parts[i], parts[i]);
        if (is_folder) return drt_index_usage("join", what);
    }
    return -1;
}

static enum status index_join(struct options *o, const char *const *parts, int n, const struct progress *progress) {
    struct threads *pool;
    TRY(threads_create(&pool, (int)o->threads));
    struct store_join how = {
        .parts = parts,
        .n_parts = n,
        .copy = o->copy,
        .publish = {.index = o->index,
                    .lexical = strcmp(o->lexical, "on") == 0 ? STORE_LEXICAL_ON : STORE_LEXICAL_KEEP,
                    .max_ram = o->max_ram,
                    .seed = 1,
                    .threads = pool,
                    .progress = progress}};
    struct store_join_report report;
    enum status s = index_devices_late(&o->on, &how.publish, o->index && strcmp(o->index, "exact") != 0);
    if (s == STATUS_OK) s = store_join(&report, o->store, &how);
    if (s == STATUS_OK) print_report(o, &report, n);
    if (s == STATUS_OK && report.already_joined) s = note_indexes(o, progress);
    index_devices_close(&o->on);
    threads_free(pool);
    return s;
}

int drt_index_join(int argc, char **argv, const char **operands) {
    struct options o = {.on = INDEX_DEVICES_DEFAULT, .lexical = "off", .max_ram = drt_index_max_ram()};
    const struct arg_option options[] = {
        {"out", ARG_PATH, &o.store, "STORE", "the joined store's folder; made if it is missing", 0, 0},
        {"copy", ARG_FLAG, &o.copy, NULL,
         "copy the parts' files and check their bytes, instead of linking them (hard links)", 0, 0},
        {"index", ARG_STRING, &o.index, "auto|exact|FACTORY",
         "index to make over all chunks, as in build (default: none; the next add, or drt-index index, selects one)", 0,
         0},
        {"lexical", ARG_CHOICE, &o.lexical, "on|off",
         "make a lexical index over all chunks, too; it reads all tokens (drt-index lexical makes one later)", 0, 0},
        OPTION_MAX_RAM(o.max_ram, "memory for making the indexes (default: as in build)"),
        OPTIONS_OF_INDEX_DEVICES(o.on),
        OPTION_THREADS(o.threads),
        OPTION_JSON_REPORT(o.json),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index join",
        .synopsis = "PART... --out STORE [options]",
        .about =
            "Makes one store of all parts of a corpus that drt-index build --part built, given in any order. Ids "
            "follow the numbers of the parts. If several parts have the same document, the first copy is kept.\n\n"
            "The store's files are hard links to those of the parts, which may be removed afterwards. On another "
            "file system they are copied. Without --index and --lexical no landmark or token is read. If all parts "
            "have keys of a token memory by one model, the store has them, too. A join that was stopped or killed "
            "continues when the same command is run again.",
        .examples = "  drt-index join parts/* --out store\n"
                    "  drt-index join parts/* --out /other/disk/store --copy --index IVF65536_HNSW32,SQ8\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = -1,
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("join", "--out STORE is missing");
    code = check_parts(operands, n);
    if (code < 0) code = index_devices_check(&o.on, "join", o.threads);
    if (code >= 0) return code;
    char ram[32];
    log_line(LOG_INFO, "start", "drt-index join",
             "%d parts, store %s, index %s, lexical %s, max-ram %s, threads %lld%s", n, o.store,
             o.index ? o.index : "none", o.lexical, progress_bytes_text(ram, o.max_ram),
             o.threads ? (long long)o.threads : (long long)processors_available(), o.copy ? ", copy" : "");
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    status = index_join(&o, operands, n, progress_line_progress(line));
    progress_line_end(line);
    return drt_index_exit(status);
}
