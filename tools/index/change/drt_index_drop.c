/* drt_index_drop.c -- drt-index drop: removes shards with lost tokens from a store. */
#include "base/memory.h"
#include "base/system/processors.h"
#include "tools/index/build/drt_index_devices.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <math.h>
#include <stdlib.h>

struct options {
    const char *store;
    struct arg_strings shards;
    struct store_range ranges[ARRAY_LEN(((struct arg_strings *)0)->items)];
    int64_t threads;
    uint64_t max_ram;
    bool dry_run;
    struct index_devices on;
    struct drt_index_listing listing;
};

static void print_report(const struct options *o, const struct store_drop_report *r) {
    drt_index_listing_end(&o->listing, r->documents);
    char text[FILE_PATH_MAX + 200];
    snprintf(text, sizeof text, "%s: generation %llu: %s %lld documents, %lld chunks and %lld tokens of %lld shards",
             o->store, (unsigned long long)r->generation, o->dry_run ? "would drop" : "dropped",
             (long long)r->documents, (long long)r->chunks, (long long)r->tokens, (long long)r->shards);
    drt_index_listing_report(&o->listing, text);
}

static enum status index_drop(struct options *o, const struct progress *progress) {
    struct threads *pool;
    TRY(threads_create(&pool, (int)o->threads));
    struct store_drop how = {
        .ranges = o->ranges,
        .n_ranges = o->shards.count,
        .dry_run = o->dry_run,
        .publish = {.max_ram = o->max_ram, .seed = 1, .threads = pool, .progress = progress},
        .document = drt_index_listing_add,
        .context = &o->listing,
    };
    struct store_drop_report report;
    enum status s = index_devices_late(&o->on, &how.publish, false);
    if (s == STATUS_OK) s = store_drop(&report, o->store, &how);
    if (s == STATUS_OK) print_report(o, &report);
    index_devices_close(&o->on);
    threads_free(pool);
    return s;
}

static bool parse_number(int64_t *out, const char **text) {
    char *end;
    if (**text < '0' || **text > '9') return false;
    *out = strtoll(*text, &end, 10);
    *text = end;
    return *out < INT64_MAX;
}

/* Parses "N", or "N-M", which includes both. */
static bool parse_shards(struct options *o) {
    for (int i = 0; i < o->shards.count; i++) {
        const char *text = o->shards.items[i];
        struct store_range *r = &o->ranges[i];
        if (!parse_number(&r->begin, &text)) return false;
        r->end = r->begin;
        if (*text == '-' && (text++, !parse_number(&r->end, &text))) return false;
        if (*text || r->end++ < r->begin) return false;
    }
    return true;
}

static void print_start(const struct options *o) {
    char ram[32], shards[1024] = "";
    for (int i = 0, n = 0; i < o->shards.count && n < (int)sizeof shards; i++)
        n += snprintf(shards + n, sizeof shards - (size_t)n, " %s", o->shards.items[i]);
    log_line(LOG_INFO, "start", "drt-index drop", "store %s, shards%s, max-ram %s, threads %lld%s", o->store, shards,
             progress_bytes_text(ram, o->max_ram),
             o->threads ? (long long)o->threads : (long long)processors_available(), o->dry_run ? ", dry run" : "");
}

int drt_index_drop(int argc, char **argv, const char **operands) {
    struct options o = {.on = INDEX_DEVICES_DEFAULT, .max_ram = drt_index_max_ram()};
    const struct arg_option options[] = {
        OPTION_STORE(o.store),
        {"shard", ARG_STRINGS, &o.shards, "N",
         "number of a shard, as in tokens/0000N.tok, or N-M of those in one file; may be repeated", 0, 0},
        {"dry-run", ARG_FLAG, &o.dry_run, NULL, "only print the documents, and drop nothing", 0, 0},
        {"all", ARG_FLAG, &o.listing.all, NULL, "name all documents, not the first 10", 0, 0},
        OPTION_MAX_RAM(o.max_ram, "memory for filling the index (default: as in build)"),
        OPTIONS_OF_INDEX_DEVICES(o.on),
        OPTION_THREADS(o.threads),
        OPTION_JSON(o.listing.json, "one JSON object for each removed document"),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index drop",
        .synopsis = "[--store] STORE --shard N [--shard N ...] [options]",
        .about = "Removes shards with lost tokens from a store (drt-index verify names them), and prints their "
                 "documents, which drt-index add can add again. Ids of all other chunks and documents stay; those of "
                 "the shard are not used again. The change is one transaction.\n\n"
                 "If the tokens are undamaged and landmarks are damaged, use drt-index repair --model instead.",
        .examples = "  drt-index drop --store store --shard 3 --dry-run\n"
                    "  drt-index drop --store store --shard 3\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("drop", "--store STORE is missing");
    if (o.shards.count == 0) return drt_index_usage("drop", "--shard N is missing");
    code = index_devices_check(&o.on, "drop", o.threads);
    if (code >= 0) return code;
    if (!parse_shards(&o)) return drt_index_usage("drop", "--shard takes the number of a shard, or N-M");
    print_start(&o);
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    status = index_drop(&o, progress_line_progress(line));
    progress_line_end(line);
    return drt_index_exit(status);
}
