/* drt_index_delete.c -- drt-index delete: removes documents from a store by number, key or source. Also the list of
 * such documents, which drop prints, too. */
#include "base/formats/json.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include <errno.h>
#include <stdlib.h>

enum { LISTED = 10 }; /* documents that are printed without --all */

void drt_index_listing_add(void *context, int64_t shard, const struct store_document *d) {
    struct drt_index_listing *l = context;
    if (l->json) {
        struct json_writer w;
        json_write_open(&w, stdout, 0);
        json_write_object(&w);
        const struct json_number numbers[] = {
            {"document", d->id},       {"shard", shard},      {"first_chunk", d->first_chunk},
            {"chunks", d->chunks},     {"tokens", d->tokens}, {"offset", (int64_t)d->offset},
            {"line", (int64_t)d->line}};
        drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
        json_write_key(&w, "source"), json_write_string(&w, d->source);
        json_write_key(&w, "key"), json_write_string(&w, d->key);
        json_write_object_end(&w);
        fputc('\n', stdout);
    } else if (l->all || l->listed < LISTED) {
        streams_printf(stdout, "  document %lld: %s %s (shard %lld, chunks %lld to %lld)\n", (long long)d->id,
                       d->source, d->key, (long long)shard, (long long)d->first_chunk,
                       (long long)(d->first_chunk + d->chunks - 1));
    }
    l->listed++;
}

void drt_index_listing_end(const struct drt_index_listing *l, int64_t documents) {
    if (!l->json && !l->all && documents > LISTED)
        printf("  and %lld more (--all names them)\n", (long long)(documents - LISTED));
}

void drt_index_listing_report(const struct drt_index_listing *l, const char *text) {
    if (l->json)
        log_line(LOG_INFO, "report", NULL, "%s", text);
    else
        streams_printf(stdout, "%s\n", text);
}

struct options {
    const char *store;
    struct arg_strings documents, keys, sources;
    bool dry_run;
    struct drt_index_listing listing;
};

static enum status delete_documents(struct options *o, const int64_t *ids, const struct progress *progress) {
    const struct store_delete how = {.documents = ids,
                                     .n_documents = o->documents.count,
                                     .sources = o->sources.items,
                                     .n_sources = o->sources.count,
                                     .dry_run = o->dry_run,
                                     .document = drt_index_listing_add,
                                     .context = &o->listing,
                                     .progress = progress,
                                     .keys = o->keys.items,
                                     .n_keys = o->keys.count};
    struct store_delete_report r;
    TRY(store_delete(&r, o->store, &how));
    if (o->documents.count == 0 && r.documents == 0)
        progress_note(progress, "%s: no document that is left has a matching %s (search and get print them)", o->store,
                      o->keys.count == 0      ? "source"
                      : o->sources.count == 0 ? "key"
                                              : "key and source");
    drt_index_listing_end(&o->listing, r.documents);
    char text[FILE_PATH_MAX + 200];
    snprintf(text, sizeof text, "%s: generation %llu: %s %lld documents, %lld chunks and %lld tokens", o->store,
             (unsigned long long)r.generation, o->dry_run ? "would delete" : "deleted", (long long)r.documents,
             (long long)r.chunks, (long long)r.tokens);
    drt_index_listing_report(&o->listing, text);
    return STATUS_OK;
}

static bool parse_numbers(int64_t *out, const struct arg_strings *from) {
    for (int i = 0; i < from->count; i++) {
        const char *text = from->items[i];
        char *end;
        errno = 0;
        out[i] = strtoll(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno) return false;
    }
    return true;
}

int drt_index_delete(int argc, char **argv, const char **operands) {
    struct options o = {0};
    int64_t ids[ARRAY_LEN(o.documents.items)];
    const struct arg_option options[] = {
        OPTION_STORE(o.store),
        {"document", ARG_STRINGS, &o.documents, "ID", "number of a document; may be repeated", 0, 0},
        {"key", ARG_STRINGS, &o.keys, "KEY",
         "all documents with this key (the id in their jsonl, parquet or arrow file), with --source only those that "
         "match both; may be repeated",
         0, 0},
        {"source", ARG_STRINGS, &o.sources, "PATTERN",
         "all documents whose source (the input file's path as it was given) matches: * any characters, ? one, [...] "
         "one of; may be repeated",
         0, 0},
        {"dry-run", ARG_FLAG, &o.dry_run, NULL, "only print the documents, and delete nothing", 0, 0},
        {"all", ARG_FLAG, &o.listing.all, NULL, "name all documents, not the first 10", 0, 0},
        OPTION_JSON(o.listing.json, "one JSON object for each deleted document"),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index delete",
        .synopsis = "[--store] STORE --document ID | --key KEY | --source PATTERN [options]",
        .about = "Deletes documents. Programs that open the store afterwards find neither them nor their chunks. "
                 "Programs that have it open keep them. Ids of all other chunks and documents stay, and the files keep "
                 "their sizes. The same text may be added again, under new ids.",
        .examples = "  drt-index delete --store store --source 'corpus/old/*' --dry-run\n"
                    "  drt-index delete --store store --document 17 --document 18\n"
                    "  drt-index delete --store store --key user-4711\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("delete", "--store STORE is missing");
    if ((o.documents.count > 0) == (o.keys.count + o.sources.count > 0))
        return drt_index_usage("delete", "give --document ID, or --key KEY or --source PATTERN");
    if (!parse_numbers(ids, &o.documents))
        return drt_index_usage("delete", "--document takes the number of a document");
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    status = delete_documents(&o, ids, progress_line_progress(line));
    progress_line_end(line);
    return drt_index_exit(status);
}
