/* drt_index_verify.c -- drt-index verify and repair: damage found, named, and where possible made good. */
#include "base/formats/json.h"
#include "base/system/processors.h"
#include "indexer/clustering.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/device_choice.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include <math.h>
#include <string.h>

static void print_problem(void *context, const char *file, const char *problem, const char *remedy) {
    const bool *json = context;
    if (!*json) {
        streams_printf(stdout, "%s: %s: %s\n", file, problem, remedy);
        return;
    }
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "file"), json_write_string(&w, file);
    json_write_key(&w, "problem"), json_write_string(&w, problem);
    json_write_key(&w, "remedy"), json_write_string(&w, remedy);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

/* The last line: what was looked at. A store that is too damaged to be opened has no numbers. */
static void print_summary(const char *dir, int64_t problems, const char *sound) {
    struct opened_store s;
    struct json_writer w;
    bool opened = opened_store_open(&s, dir) == STATUS_OK;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "store"), json_write_string(&w, dir);
    json_write_key(&w, "problems"), json_write_int(&w, problems);
    if (problems == 0) json_write_key(&w, "result"), json_write_string(&w, sound);
    if (opened) {
        const struct json_number numbers[] = {{"generation", (int64_t)s.info.generation},
                                              {"shards", s.info.shards},
                                              {"segments", s.info.segments},
                                              {"documents", s.info.documents},
                                              {"chunks", s.info.chunks},
                                              {"tokens", s.info.tokens}};
        drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
    }
    json_write_object_end(&w);
    fputc('\n', stdout);
    opened_store_close(&s);
}

/* 0 when the store is sound, 1 when problems are left. */
static int conclude(enum status status, const char *dir, int64_t problems, const char *sound, bool json) {
    if (status != STATUS_OK) return drt_index_exit(status);
    if (json) print_summary(dir, problems, sound);
    if (problems == 0) {
        if (!json) streams_printf(stdout, "%s: %s\n", dir, sound);
        return 0;
    }
    fflush(stdout);
    streams_printf(stderr, "drt-index: %s: %lld problems\n", dir, (long long)problems);
    return 1;
}

int drt_index_verify(int argc, char **argv, const char **operands) {
    const char *dir = NULL;
    bool deep = false, json = false;
    const struct arg_option options[] = {
        {"store", ARG_PATH, &dir, "STORE", "the store's folder", 0, 0},
        {"deep", ARG_FLAG, &deep, NULL, "read every byte and compare it with its checksum", 0, 0},
        {"json", ARG_FLAG, &json, NULL, "one JSON object for each problem, then one with what was checked", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-index verify",
        .synopsis = "--store STORE [--deep]",
        .about = "Compares the store's files with its catalog: names, sizes and ranges of ids; with --deep every byte. "
                 "Prints one line for each problem: the file's name and the remedy. Exit code 1 if there is a problem. "
                 "Changes nothing.",
        .options = options,
        .n_options = ARRAY_LEN(options),
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!dir) return drt_index_usage("verify", "--store STORE is missing");
    streams_printf(stderr, "drt-index verify: store %s%s\n", dir, deep ? ", deep" : "");
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    int64_t problems = 0;
    status = store_verify(dir, deep, progress_line_progress(line), print_problem, &json, &problems);
    progress_line_end(line);
    return conclude(status, dir, problems,
                    deep ? "every byte is as recorded" : "all files are there, with the recorded sizes", json);
}

/* A device that is opened when centroids are needed for the first time: most repairs need none. */
struct late_device {
    struct device_choice choice;
    int threads;
    struct device *device;
};

static enum status fit_late(void *context, float *centroids, const float *rows, int64_t n, int dim, int64_t lists,
                            const struct progress *progress) {
    struct late_device *d = context;
    enum dtype type;
    if (!d->device && device_choose(&d->device, &type, &d->choice, d->threads) != STATUS_OK) {
        char why[300]; /* STATUS_IO: another status would make the store fall back to FAISS */
        snprintf(why, sizeof why, "%s", status_message());
        return fail(STATUS_IO, "%s", why);
    }
    const struct store_clustering there = clustering_on(d->device);
    return there.fit(there.context, centroids, rows, n, dim, lists, progress);
}

int drt_index_repair(int argc, char **argv, const char **operands) {
    const char *dir = NULL, *index = "auto";
    struct late_device late = {.choice = DEVICE_CHOICE_DEFAULT};
    bool json = false;
    int64_t threads = 0;
    uint64_t max_ram = drt_index_max_ram();
    const struct arg_option options[] = {
        {"store", ARG_PATH, &dir, "STORE", "the store's folder", 0, 0},
        {"index", ARG_STRING, &index, "auto|exact|FACTORY",
         "kind of the rebuilt index; auto: the store's own; another kind than the store's own rebuilds the index", 0,
         0},
        {"max-ram", ARG_BYTES, &max_ram, "SIZE", "memory for rebuilding the index (default: as in build)", 1, INFINITY},
        {"device", ARG_CHOICE, &late.choice.device, "auto|cpu|cuda",
         "where the centroids of a rebuilt index are computed; auto: a GPU if there is one", 0, 0},
        {"threads", ARG_INT, &threads, "N",
         "threads to use; 0: one for each processor that the affinity mask and CPU quota allow", 0, THREADS_MAX},
        {"json", ARG_FLAG, &json, NULL, "one JSON object for each problem that is left, then one with what was checked",
         0, 0},
    };
    const struct arg_program program = {
        .name = "drt-index repair",
        .synopsis = "--store STORE [options]",
        .about = "Rebuilds derived files (index, template, table of document hashes) and removes files that no record "
                 "names. Prints the problems that are left, with exit code 1: a store with damaged tokens or landmarks "
                 "must be built again.",
        .options = options,
        .n_options = ARRAY_LEN(options),
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!dir) return drt_index_usage("repair", "--store STORE is missing");
    char ram[32];
    streams_printf(stderr, "drt-index repair: store %s, index %s, max-ram %s, device %s, threads %lld\n", dir, index,
                   progress_bytes_text(ram, max_ram), late.choice.device,
                   threads ? (long long)threads : (long long)processors_available());
    struct progress_line *line;
    struct threads *pool = NULL;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    int64_t problems = 0;
    late.threads = (int)threads;
    status = threads_create(&pool, late.threads);
    if (status == STATUS_OK) {
        const struct store_publish how = {.index = index,
                                          .max_ram = max_ram,
                                          .seed = 1,
                                          .threads = pool,
                                          .progress = progress_line_progress(line),
                                          .clustering = {.fit = fit_late, .context = &late}};
        status = store_repair(dir, &how, print_problem, &json, &problems);
    }
    progress_line_end(line);
    device_close(late.device);
    threads_free(pool);
    return conclude(status, dir, problems, "nothing is left to repair", json);
}
