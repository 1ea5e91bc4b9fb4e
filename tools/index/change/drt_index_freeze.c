/* drt_index_freeze.c -- drt-index freeze: an immutable snapshot of a store. */
#include "base/formats/json.h"
#include "store/change/freeze.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"

struct options {
    const char *store, *out;
    bool copy, json;
};

static void freeze_print(const struct options *o, const struct store_freeze_report *r) {
    if (o->json) {
        struct json_writer w;
        const struct json_number numbers[] = {{"generation", (int64_t)r->generation},
                                              {"documents", r->documents},
                                              {"chunks", r->chunks},
                                              {"linked", r->linked},
                                              {"copied", r->copied},
                                              {"already_frozen", r->already_frozen}};
        json_write_open(&w, stdout, 0);
        json_write_object(&w);
        json_write_key(&w, "store"), json_write_string(&w, o->out);
        drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
        json_write_object_end(&w);
        fputc('\n', stdout);
    } else if (r->already_frozen) {
        streams_printf(stdout, "%s: is the snapshot of generation %llu already\n", o->out,
                       (unsigned long long)r->generation);
    } else {
        streams_printf(stdout, "%s: snapshot of generation %llu: %lld documents, %lld chunks; files linked %lld, ",
                       o->out, (unsigned long long)r->generation, (long long)r->documents, (long long)r->chunks,
                       (long long)r->linked);
        printf("copied %lld\n", (long long)r->copied);
    }
}

int drt_index_freeze(int argc, char **argv, const char **operands) {
    struct options o = {0};
    const struct arg_option options[] = {
        {"store", ARG_PATH, &o.store, "STORE", "the store's folder; it is not changed", 0, 0},
        {"out", ARG_PATH, &o.out, "DIR", "folder of the snapshot; made by this command", 0, 0},
        {"copy", ARG_FLAG, &o.copy, NULL,
         "copy the data files and check their bytes, instead of linking them (hard links)", 0, 0},
        {"json", ARG_FLAG, &o.json, NULL, "print the report as one line of JSON", 0, 0},
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index freeze",
        .synopsis = "[--store] STORE --out DIR [options]",
        .about =
            "Makes a snapshot of a store's newest generation, which is never changed. Programs read it like any "
            "store, but take no lock and write nothing. So it may be on a network file system or on read-only "
            "media, and many hosts may read it at the same time. Commands that write refuse it.\n\n"
            "Data files, and keys of a token memory, are shared with the store by hard links, so a snapshot takes the "
            "space of a catalog; on another file system they are copied. The store may be written to afterwards. DIR "
            "is made as DIR.partial and then renamed. A killed run leaves DIR.partial, which the same command removes.",
        .examples = "  drt-index freeze --store store --out snapshots/2026-11-23\n"
                    "  drt-index freeze --store store --out /nfs/store --copy\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("freeze", "--store STORE is missing");
    if (!o.out) return drt_index_usage("freeze", "--out DIR is missing");
    struct progress_line *line;
    struct store_freeze_report report;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    const struct store_freeze how = {.copy = o.copy, .progress = progress_line_progress(line)};
    status = store_freeze(&report, o.store, o.out, &how);
    progress_line_end(line);
    if (status == STATUS_OK) freeze_print(&o, &report);
    return drt_index_exit(status);
}
