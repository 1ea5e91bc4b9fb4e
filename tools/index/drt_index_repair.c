/* drt_index_repair.c -- drt-index repair: makes derived and recoverable files again. */
#include "base/system/processors.h"
#include "indexer/build/indexer.h"
#include "indexer/retrieve/reencode.h"
#include "tools/index/build/drt_index_devices.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <math.h>

struct repair {
    const char *dir, *model, *index;
    struct index_devices on;
    uint64_t max_ram;
    int64_t threads;
    bool json;
    struct model_folder folder;
    struct weights weights;
    struct chunk_tower tower;
    struct reencode *reencode;
};

static enum status open_encoder(struct repair *r, uint64_t *max_ram) {
    struct store_fingerprint fingerprint;
    TRY(model_folder_open(&r->folder, r->model));
    TRY(indexer_fingerprint(&fingerprint, &r->folder.config, r->folder.params, r->folder.tokenizer));
    TRY(index_devices_open(&r->on));
    struct device *device = r->on.first;
    TRY(weights_open(&r->weights, device, r->folder.params, r->on.type));
    TRY(chunk_tower_open(&r->tower, device, &r->folder.config, &r->weights));
    TRY(indexer_free_ram(max_ram, r->max_ram, r->folder.params, device, r->tower.encoder));
    return reencode_create(&r->reencode, device, r->tower.encoder, r->tower.states, &fingerprint);
}

static enum status index_repair(struct repair *r, const struct progress *progress, int64_t *problems) {
    struct threads *pool = NULL;
    struct store_encoder encoder;
    struct store_publish how = {.index = r->index, .max_ram = r->max_ram, .seed = 1, .progress = progress};
    TRY(index_devices_late(&r->on, &how, false));
    if (r->model) {
        TRY(open_encoder(r, &how.max_ram));
        encoder = reencode_encoder(r->reencode);
    }
    TRY(threads_create(&pool, (int)r->threads));
    how.threads = pool;
    enum status s = store_repair(r->dir, &how, r->model ? &encoder : NULL, drt_index_problem, &r->json, problems);
    threads_free(pool);
    return s;
}

static void close_all(struct repair *r) {
    reencode_free(r->reencode);
    chunk_tower_close(&r->tower);
    if (r->on.first) weights_release(&r->weights, r->on.first);
    index_devices_close(&r->on);
    model_folder_close(&r->folder);
}

int drt_index_repair(int argc, char **argv, const char **operands) {
    struct repair r = {.index = "auto", .on = INDEX_DEVICES_DEFAULT, .max_ram = drt_index_max_ram()};
    const struct arg_option options[] = {
        OPTION_STORE(r.dir),
        {"model", ARG_PATH, &r.model, "DIR",
         "the model that made the store: landmarks that are damaged or missing are encoded again from their tokens", 0,
         0},
        {"index", ARG_STRING, &r.index, "auto|exact|FACTORY",
         "type of a rebuilt index; auto: the store's own type; with another type the index is made again", 0, 0},
        OPTION_MAX_RAM(r.max_ram, "memory that the run may use (default: as in build)"),
        {"device", ARG_CHOICE, &r.on.choice.device, "auto|cpu|cuda",
         "where chunks are encoded, the centroids of a rebuilt index computed and chunks assigned to its lists; auto: "
         "a GPU if there is one; landmarks get their old bytes on the kind of device that made them",
         0, 0},
        OPTION_DEVICES(r.on.devices, "assign chunks to lists on several GPUs, with the same result"),
        OPTION_DTYPE(r.on.choice.dtype),
        OPTION_THREADS(r.threads),
        OPTION_JSON(r.json, "one JSON object for each problem that is left, then one with what was checked"),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index repair",
        .synopsis = "[--store] STORE [--model DIR] [options]",
        .about =
            "Makes derived data again: the index and its template from the landmarks, the lexical index from the "
            "tokens, the table of document hashes from the documents, and with --model damaged landmarks from "
            "their tokens. Removes files that no record names. If problems remain, prints them with their remedies "
            "and ends with exit code 1: lost tokens cannot be made again (see drt-index drop).\n\n"
            "A run that was stopped or killed leaves a store that the same command repairs.",
        .examples = "  drt-index repair --store store\n"
                    "  drt-index repair --store store --model model\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!r.dir) return drt_index_usage("repair", "--store STORE is missing");
    code = index_devices_check(&r.on, "repair", r.threads);
    if (code >= 0) return code;
    char ram[32];
    log_line(LOG_INFO, "start", "drt-index repair", "store %s, model %s, index %s, max-ram %s, device %s, threads %lld",
             r.dir, r.model ? r.model : "none", r.index, progress_bytes_text(ram, r.max_ram), r.on.choice.device,
             r.threads ? (long long)r.threads : (long long)processors_available());
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    int64_t problems = 0;
    status = index_repair(&r, progress_line_progress(line), &problems);
    progress_line_end(line);
    close_all(&r);
    return drt_index_conclude(status, r.dir, problems, "nothing is left to repair", r.json);
}
