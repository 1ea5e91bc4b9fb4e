/* drt_index_lexical.c -- drt-index lexical: makes the lexical index of a store that was built without one, or removes
 * it. */
#include "store/lexical/lexical.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include <math.h>
#include <string.h>

struct options {
    const char *store;
    uint64_t max_ram;
    bool remove;
};

static enum status print_result(const char *dir) {
    struct opened_store s;
    const struct lexical *index;
    TRY(opened_store_open(&s, dir));
    enum status status = s.info.lexical ? store_view_lexical(&index, s.view) : STATUS_OK;
    if (status == STATUS_OK && !s.info.lexical) {
        streams_printf(stdout, "%s: generation %llu, no lexical index\n", dir, (unsigned long long)s.info.generation);
    } else if (status == STATUS_OK) {
        struct lexical_info info;
        lexical_info(index, &info);
        streams_printf(stdout,
                       "%s: generation %llu, lexical index of %lld chunks: %lld tokens, %lld keys, %lld segments, %llu "
                       "bytes (%.1f a chunk)\n",
                       dir, (unsigned long long)s.info.generation, (long long)info.chunks, (long long)info.tokens,
                       (long long)info.keys, (long long)info.segments, (unsigned long long)info.bytes,
                       info.chunks > 0 ? (double)info.bytes / (double)info.chunks : 0);
    }
    opened_store_close(&s);
    return status;
}

static enum status index_lexical(const struct options *o, const struct progress *progress) {
    const struct store_publish how = {.lexical = o->remove ? STORE_LEXICAL_OFF : STORE_LEXICAL_ON,
                                      .max_ram = o->max_ram,
                                      .seed = 1,
                                      .progress = progress};
    return store_lexical(o->store, &how);
}

enum store_lexical_choice drt_index_lexical_choice(const char *text) {
    if (!text) return STORE_LEXICAL_KEEP;
    return strcmp(text, "on") == 0 ? STORE_LEXICAL_ON : STORE_LEXICAL_OFF;
}

int drt_index_lexical(int argc, char **argv, const char **operands) {
    struct options o = {.max_ram = drt_index_max_ram()};
    const struct arg_option options[] = {
        OPTION_STORE(o.store),
        {"remove", ARG_FLAG, &o.remove, NULL, "take the lexical index out of the store", 0, 0},
        OPTION_MAX_RAM(o.max_ram, "memory that the run may use (default: as in build)"),
        OPTION_LOG_JSON,
        {"out", ARG_REMOVED, NULL, NULL,
         "the index is part of the store now: leave --out DIR out, and remove the folder of an earlier one", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-index lexical",
        .synopsis = "[--store] STORE [options]",
        .about = "Makes the lexical index of a store that has none: chunks found by their tokens and pairs of tokens "
                 "(BM25), for drt-index search --searcher lexical or hybrid and for token memories (--memory corpus). "
                 "drt-index build makes it with a new store, unless --lexical off; drt-index add keeps it complete. "
                 "It takes about 200 bytes a chunk.\n\n"
                 "Readers see all of it or nothing. A run that was stopped or killed leaves the store as it was.",
        .examples = "  drt-index lexical --store store\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n_operands, code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code < 0 && !o.store) code = drt_index_usage("lexical", "--store STORE is missing");
    if (code >= 0) return code;
    struct progress_line *line = NULL;
    enum status s = progress_line_start(&line, "drt-index");
    if (s == STATUS_OK) s = index_lexical(&o, progress_line_progress(line));
    progress_line_end(line);
    if (s == STATUS_OK) s = print_result(o.store);
    return drt_index_exit(s);
}
