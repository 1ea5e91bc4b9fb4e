/* drt_index_compact.c -- drt-index compact: a new store of the documents that remain after deletions. */
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

struct options {
    const char *store, *out, *index, *landmarks;
    int64_t threads, shard_chunks;
    uint64_t max_ram;
    struct index_devices on;
};

static enum status index_compact(struct options *o, const struct progress *progress) {
    struct threads *pool;
    struct store_compact_report r;
    TRY(threads_create(&pool, (int)o->threads));
    struct store_compact how = {
        .shard_chunks = o->shard_chunks,
        .publish = {.index = o->index, .max_ram = o->max_ram, .seed = 1, .threads = pool, .progress = progress}};
    enum status s = store_landmarks_parse(&how.landmarks, o->landmarks);
    if (s == STATUS_OK) s = index_devices_late(&o->on, &how.publish, true);
    if (s == STATUS_OK) s = store_compact(&r, o->store, o->out, &how);
    if (s == STATUS_OK)
        streams_printf(stdout, "%s: %lld documents and %lld chunks of %s%s\n", o->out, (long long)r.documents,
                       (long long)r.chunks, o->store, r.tokens > 0 ? "" : ", made before");
    if (s == STATUS_OK && r.keys_chunks > 0)
        streams_printf(stdout, "%s: keys of a token memory of %lld chunks\n", o->out, (long long)r.keys_chunks);
    index_devices_close(&o->on);
    threads_free(pool);
    return s;
}

int drt_index_compact(int argc, char **argv, const char **operands) {
    struct options o = {.on = INDEX_DEVICES_DEFAULT, .max_ram = drt_index_max_ram()};
    const struct arg_option options[] = {
        {"store", ARG_PATH, &o.store, "STORE", "the store's folder; it is only read", 0, 0},
        {"out", ARG_PATH, &o.out, "NEW", "folder of the new store", 0, 0},
        {"index", ARG_STRING, &o.index, "auto|exact|FACTORY",
         "index of the new store (default: that of STORE, or auto if auto chose that)", 0, 0},
        {"shard-chunks", ARG_INT, &o.shard_chunks, "N", "chunks of a shard; 0: 16384", 0, 1e9},
        {"landmarks", ARG_CHOICE, &o.landmarks, "f16|i8",
         "how the new store has its landmarks: from f16 to i8 they are rounded, from i8 to f16 they keep their numbers "
         "(default: as STORE has them)",
         0, 0},
        OPTION_MAX_RAM(o.max_ram, "memory for making the index (default: as in build)"),
        OPTIONS_OF_INDEX_DEVICES(o.on),
        OPTION_THREADS(o.threads),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index compact",
        .synopsis = "[--store] STORE --out NEW [options]",
        .about = "Makes a new store of the documents that are left after delete and drop. Nothing is encoded again: "
                 "tokens, landmarks and keys of a token memory are copied as they are (but see --landmarks). Chunks "
                 "and documents get new ids, in the same order. A run that was stopped or killed continues when the "
                 "same command is run again.",
        .examples = "  drt-index compact --store store --out store.new\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("compact", "--store STORE is missing");
    if (!o.out) return drt_index_usage("compact", "--out NEW is missing");
    code = index_devices_check(&o.on, "compact", o.threads);
    if (code >= 0) return code;
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    status = index_compact(&o, progress_line_progress(line));
    progress_line_end(line);
    return drt_index_exit(status);
}
