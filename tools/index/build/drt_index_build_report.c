/* drt_index_build_report.c -- the final output of drt-index build, add and update. */
#include "base/formats/json.h"
#include "indexer/build/indexer.h"
#include "indexer/build/stored_keys.h"
#include "tools/index/drt_index.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"

static void write_keys(struct json_writer *w, const struct stored_keys_report *keys) {
    if (!keys) return;
    const struct json_number numbers[] = {{"keys_files", keys->files},
                                          {"keys_made", keys->made},
                                          {"keys_chunks", keys->chunks},
                                          {"keys_bytes", (int64_t)keys->bytes}};
    drt_index_numbers(w, numbers, ARRAY_LEN(numbers));
    json_write_key(w, "keys_seconds"), json_write_double(w, keys->seconds);
}

void drt_index_build_report(const struct indexer_report *r, const struct stored_keys_report *keys, const char *store,
                            bool json) {
    if (json) {
        struct json_writer w;
        json_write_open(&w, stdout, 0);
        json_write_object(&w);
        const struct json_number numbers[] = {
            {"documents", r->documents},
            {"chunks", r->chunks},
            {"tokens", r->tokens},
            {"duplicates", r->duplicates},
            {"empty", r->empty},
            {"replaced", r->replaced},
            {"passed_over", r->passed_over},
            {"skipped_lines", r->skipped_lines},
            {"resumed_documents", r->resumed_documents},
            {"resumed_chunks", r->resumed_chunks},
            {"generation", (int64_t)r->generation},
        };
        drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
        json_write_key(&w, "already_built"), json_write_bool(&w, r->already_built);
        json_write_key(&w, "seconds"), json_write_double(&w, r->seconds);
        json_write_key(&w, "encode_seconds"), json_write_double(&w, r->encode_seconds);
        json_write_key(&w, "tokenize_seconds"), json_write_double(&w, r->tokenize_seconds);
        json_write_key(&w, "publish_seconds"), json_write_double(&w, r->publish_seconds);
        write_keys(&w, keys);
        json_write_object_end(&w);
        fputc('\n', stdout);
        return;
    }
    if (r->already_built) {
        streams_printf(stdout, "%s: already built: generation %llu, %lld chunks of these inputs\n", store,
                       (unsigned long long)r->generation, (long long)r->resumed_chunks);
        return;
    }
    char time[32];
    streams_printf(stdout, "%s: generation %llu, %lld chunks and %lld tokens from %lld documents", store,
                   (unsigned long long)r->generation, (long long)r->chunks, (long long)r->tokens,
                   (long long)r->documents);
    if (r->resumed_chunks) printf(", after %lld chunks of an earlier run", (long long)r->resumed_chunks);
    printf("\nskipped: %lld exact duplicates, %lld empty", (long long)r->duplicates, (long long)r->empty);
    if (r->passed_over) printf(", %lld files that are not text", (long long)r->passed_over);
    if (r->skipped_lines) printf(", %lld bad lines", (long long)r->skipped_lines);
    printf("; invalid UTF-8 replaced %lld times\n", (long long)r->replaced);
    printf("%s in all; ", progress_time_text(time, r->seconds));
    if (r->encoded)
        printf("encoding %.1f s (%.0f chunks/s), tokenizing %.1f s beside it, ", r->encode_seconds,
               r->encode_seconds > 0 ? (double)r->chunks / r->encode_seconds : 0, r->tokenize_seconds);
    else
        printf("tokenizing %.1f s, ", r->tokenize_seconds);
    printf("index %.1f s\n", r->publish_seconds);
}

void drt_index_update_report(const struct indexer_report *r, const struct stored_keys_report *keys, const char *store,
                             bool dry_run, bool json) {
    const struct update_counts *u = &r->update;
    if (json) {
        struct json_writer w;
        const struct json_number numbers[] = {{"unchanged", u->unchanged},
                                              {"changed", u->changed},
                                              {"added", u->added},
                                              {"duplicates", u->duplicates},
                                              {"empty", u->empty},
                                              {"replaced_documents", u->replaced},
                                              {"chunks", r->chunks},
                                              {"tokens", r->tokens},
                                              {"resumed_chunks", r->resumed_chunks},
                                              {"generation", (int64_t)r->generation}};
        json_write_open(&w, stdout, 0);
        json_write_object(&w);
        drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
        json_write_key(&w, "dry_run"), json_write_bool(&w, dry_run);
        json_write_key(&w, "seconds"), json_write_double(&w, r->seconds);
        write_keys(&w, keys);
        json_write_object_end(&w);
        fputc('\n', stdout);
        return;
    }
    char time[32];
    streams_printf(stdout, "%s: generation %llu%s: %lld documents changed, %lld are new, %lld are as they were\n",
                   store, (unsigned long long)r->generation, dry_run ? ", would change" : "", (long long)u->changed,
                   (long long)u->added, (long long)u->unchanged);
    printf("%s %lld documents of the store; skipped: %lld exact duplicates, %lld empty\n",
           dry_run ? "would replace" : "replaced", (long long)u->replaced, (long long)u->duplicates,
           (long long)u->empty);
    if (dry_run) return;
    printf("%lld chunks, %lld tokens; %s in all\n", (long long)r->chunks, (long long)r->tokens,
           progress_time_text(time, r->seconds));
}
