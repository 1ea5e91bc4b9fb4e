/* drt_index_lexical.c -- drt-index lexical: the chunks of a store into lexical segments, files of their own. */
#include "store/lexical/lexical_folder.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/progress_line.h"
#include <math.h>

struct options {
    const char *store, *out;
    int64_t segment_chunks;
    uint64_t max_ram;
};

static enum status lexical(const struct options *o, const struct progress *progress) {
    struct store *store = NULL;
    struct store_view *view = NULL;
    struct lexical *index = NULL;
    enum status s = store_open(&store, o->store);
    if (s == STATUS_OK) s = store_view_open(&view, store);
    if (s == STATUS_OK) s = lexical_folder_write(view, o->out, o->segment_chunks, o->max_ram, progress);
    if (s == STATUS_OK) s = lexical_folder_open(&index, o->out);
    if (s == STATUS_OK) {
        struct lexical_info info;
        lexical_info(index, &info);
        printf("%lld chunks, %lld tokens, %lld keys, %lld segments, %llu bytes\n", (long long)info.chunks,
               (long long)info.tokens, (long long)info.keys, (long long)info.segments, (unsigned long long)info.bytes);
    }
    lexical_close(index);
    store_view_close(view);
    store_close(store);
    return s;
}

int drt_index_lexical(int argc, char **argv, const char **operands) {
    struct options o = {.segment_chunks = LEXICAL_CHUNKS_MAX, .max_ram = drt_index_max_ram()};
    const struct arg_option options[] = {
        {"store", ARG_PATH, &o.store, "STORE", "the store (required)", 0, 0},
        {"out", ARG_PATH, &o.out, "DIR", "folder of the index, made when missing (required)", 0, 0},
        {"segment-chunks", ARG_INT, &o.segment_chunks, "N", "chunks of a segment file at most", 1, LEXICAL_CHUNKS_MAX},
        {"max-ram", ARG_BYTES, &o.max_ram, "SIZE",
         "memory for sorting (default: three quarters of what the machine or its container allows, at most 4 GiB)", 1,
         INFINITY},
    };
    const struct arg_program program = {
        .name = "drt-index lexical",
        .synopsis = "--store STORE --out DIR [options]",
        .about =
            "Writes an index of a store's chunks by their tokens and pairs of tokens (BM25), for the token memory of "
            "drt-eval and drt-generate (--lexical DIR). It belongs to the store as it is now: after drt-index add, "
            "write it again.",
        .examples = "  drt-index lexical --store docs.store --out docs.lexical\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands, code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code < 0 && !o.store) code = drt_index_usage("lexical", "--store STORE is missing");
    if (code < 0 && !o.out) code = drt_index_usage("lexical", "--out DIR is missing");
    if (code >= 0) return code;
    struct progress_line *line = NULL;
    enum status s = progress_line_start(&line, "drt-index");
    if (s == STATUS_OK) s = lexical(&o, progress_line_progress(line));
    progress_line_end(line);
    return drt_index_exit(s);
}
