/* drt_index_repair.c -- drt-index repair: makes derived and recoverable files again. */
#include "base/system/processors.h"
#include "indexer/build/indexer.h"
#include "indexer/retrieve/reencode.h"
#include "indexer/search/clustering.h"
#include "session/device_choice.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <math.h>

/* With a model, the device is opened at once; otherwise when centroids are needed, because most repairs need none. */
struct repair {
    const char *dir, *model, *index;
    struct device_choice choice;
    uint64_t max_ram;
    int64_t threads;
    bool json;
    struct device *device;
    struct model_folder folder;
    struct weights weights;
    struct chunk_tower tower;
    struct reencode *reencode;
};

static enum status fit_late(void *context, float *centroids, const float *rows, int64_t n, int dim, int64_t lists,
                            const struct progress *progress) {
    struct repair *r = context;
    enum dtype type;
    if (!r->device && device_choose(&r->device, &type, &r->choice, (int)r->threads) != STATUS_OK) {
        char why[300]; /* STATUS_IO for any failure: after STATUS_NO_MEMORY FAISS would compute the centroids */
        snprintf(why, sizeof why, "%s", status_message());
        return fail(STATUS_IO, "%s", why);
    }
    const struct store_clustering there = clustering_on(r->device);
    return there.fit(there.context, centroids, rows, n, dim, lists, progress);
}

static enum status open_encoder(struct repair *r, uint64_t *max_ram) {
    struct store_fingerprint fingerprint;
    enum dtype type;
    TRY(model_folder_open(&r->folder, r->model));
    TRY(indexer_fingerprint(&fingerprint, &r->folder.config, r->folder.params, r->folder.tokenizer));
    TRY(device_choose(&r->device, &type, &r->choice, (int)r->threads));
    TRY(weights_open(&r->weights, r->device, r->folder.params, type));
    TRY(chunk_tower_open(&r->tower, r->device, &r->folder.config, &r->weights));
    TRY(indexer_free_ram(max_ram, r->max_ram, r->folder.params, r->device, r->tower.encoder));
    return reencode_create(&r->reencode, r->device, r->tower.encoder, r->tower.states, &fingerprint);
}

static enum status repair(struct repair *r, const struct progress *progress, int64_t *problems) {
    struct threads *pool = NULL;
    struct store_encoder encoder;
    struct store_publish how = {.index = r->index,
                                .max_ram = r->max_ram,
                                .seed = 1,
                                .progress = progress,
                                .clustering = {.fit = fit_late, .context = r}};
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
    if (r->device) weights_release(&r->weights, r->device);
    device_close(r->device);
    model_folder_close(&r->folder);
}

int drt_index_repair(int argc, char **argv, const char **operands) {
    struct repair r = {.index = "auto", .choice = DEVICE_CHOICE_DEFAULT, .max_ram = drt_index_max_ram()};
    const struct arg_option options[] = {
        OPTION_STORE(r.dir),
        {"model", ARG_PATH, &r.model, "DIR",
         "the model that made the store: landmarks that are damaged or missing are encoded again from their tokens", 0,
         0},
        {"index", ARG_STRING, &r.index, "auto|exact|FACTORY",
         "kind of a rebuilt index; auto keeps the store's own; another kind than that has it made anew", 0, 0},
        OPTION_MAX_RAM(r.max_ram, "memory that the run may use (default: as in build)"),
        {"device", ARG_CHOICE, &r.choice.device, "auto|cpu|cuda",
         "where chunks are encoded and the centroids of a rebuilt index computed; auto: a GPU if there is one; "
         "landmarks get their old bytes on the kind of device that made them",
         0, 0},
        OPTION_DTYPE(r.choice.dtype),
        OPTION_THREADS(r.threads),
        OPTION_JSON(r.json, "one JSON object for each problem that is left, then one with what was checked"),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index repair",
        .synopsis = "--store STORE [--model DIR] [options]",
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
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!r.dir) return drt_index_usage("repair", "--store STORE is missing");
    char ram[32];
    log_line(LOG_INFO, "start", "drt-index repair", "store %s, model %s, index %s, max-ram %s, device %s, threads %lld",
             r.dir, r.model ? r.model : "none", r.index, progress_bytes_text(ram, r.max_ram), r.choice.device,
             r.threads ? (long long)r.threads : (long long)processors_available());
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    int64_t problems = 0;
    status = repair(&r, progress_line_progress(line), &problems);
    progress_line_end(line);
    close_all(&r);
    return drt_index_conclude(status, r.dir, problems, "nothing is left to repair", r.json);
}
