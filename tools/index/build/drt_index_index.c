/* drt_index_index.c -- drt-index index: trains the index of a store, fills its parts, merges them; or
 * does all of this. */
#include "base/formats/json.h"
#include "base/system/processors.h"
#include "indexer/search/clustering.h"
#include "store/index/parts/index_parts.h"
#include "tools/index/build/drt_index_devices.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <math.h>
#include <string.h>

enum step { STEP_TRAIN, STEP_FILL, STEP_MERGE, STEP_ALL, STEPS };
static const char *const step_names[STEPS] = {"train", "fill", "merge", "all steps"};

struct options {
    enum step step;
    const char *store, *work, *index, *assign;
    struct drt_index_part part;
    struct index_devices on;
    uint64_t max_ram;
    int64_t threads;
    bool json;
    char default_work[FILE_PATH_MAX];
};

/* ---- reports ---- */

static void print_json(const struct options *o, const struct store_index_parts_report *r) {
    struct json_writer w;
    const struct json_number train[] = {{"chunks", r->chunks}, {"lists", r->lists}};
    const struct json_number fill[] = {{"part", o->part.part}, {"parts", r->parts}, {"begin", r->begin},
                                       {"end", r->end},        {"rows", r->rows},   {"files", r->files},
                                       {"kept", r->kept}};
    const struct json_number merge[] = {{"parts", r->parts},
                                        {"segments", r->segments},
                                        {"bytes", (int64_t)r->bytes},
                                        {"added", r->added},
                                        {"generation", (int64_t)r->generation}};
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "store");
    json_write_string(&w, o->store);
    json_write_key(&w, "index");
    json_write_string(&w, r->index);
    drt_index_numbers(&w, train, o->step == STEP_FILL ? 1 : ARRAY_LEN(train));
    if (o->step == STEP_FILL) drt_index_numbers(&w, fill, ARRAY_LEN(fill));
    if (o->step >= STEP_MERGE) drt_index_numbers(&w, merge, ARRAY_LEN(merge));
    json_write_key(&w, "already");
    json_write_bool(&w, r->already);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

static void print_merged(const struct options *o, const struct store_index_parts_report *r) {
    if (r->already) {
        streams_printf(stdout, "%s: has this index already (%s, generation %llu)\n", o->store, r->index,
                       (unsigned long long)r->generation);
        return;
    }
    streams_printf(stdout, "%s: generation %llu, index %s of %lld chunks from %d parts, %lld segments, %llu bytes\n",
                   o->store, (unsigned long long)r->generation, r->index, (long long)r->chunks, r->parts,
                   (long long)r->segments, (unsigned long long)r->bytes);
    if (r->added > 0)
        printf("  %lld chunks were added after the training: they have a segment of their own\n", (long long)r->added);
    if (o->step == STEP_MERGE) streams_printf(stdout, "  %s is not needed any more\n", o->work);
}

static void print_report(const struct options *o, const struct store_index_parts_report *r) {
    if (o->json) {
        print_json(o, r);
        return;
    }
    if (o->step == STEP_TRAIN)
        streams_printf(stdout, "%s: index %s of %lld chunks of %s %s: fill its parts\n", o->work, r->index,
                       (long long)r->chunks, o->store, r->already ? "is trained already" : "trained");
    else if (o->step == STEP_FILL)
        streams_printf(stdout, "%s: part %d of %d %s: %lld chunks in %lld files\n", o->work, o->part.part,
                       o->part.parts, r->already ? "is filled already" : "filled", (long long)r->rows,
                       (long long)r->files);
    else
        print_merged(o, r);
}

/* ---- steps ---- */

/* Opens the devices that compute centroids and assign chunks to lists. */
static enum status open_devices(struct options *o, struct store_publish *how) {
    TRY(index_devices_open(&o->on));
    const struct store_assignment assignment = index_devices_assignment(&o->on);
    how->clustering = clustering_on(o->on.first);
    if (strcmp(o->assign, "gpu") == 0 && !assignment.open)
        return fail(STATUS_UNSUPPORTED,
                    "--assign gpu: this process computes on the CPU: choose --device cuda, or leave "
                    "out --assign");
    if (strcmp(o->assign, "cpu") != 0) how->assignment = assignment;
    return STATUS_OK;
}

static enum status index_index_train(struct options *o, struct store_index_parts_report *r, struct store_publish how) {
    TRY(open_devices(o, &how));
    return store_index_train(r, o->store, o->work, &how);
}

/* A GPU is opened only if the training chose that GPUs assign. */
static enum status index_index_fill(struct options *o, struct store_index_parts_report *r, struct store_publish how) {
    enum store_assign_method method;
    TRY(store_index_assigned(&method, o->work));
    if (method != STORE_ASSIGN_FAISS) TRY(open_devices(o, &how));
    return store_index_fill(r, o->store, o->work, o->part.part, o->part.parts, &how);
}

/* Whether the store already has this index in one segment. */
static enum status is_made(const struct options *o, struct store_index_parts_report *r) {
    struct opened_store s;
    if (!o->index || strcmp(o->index, "auto") == 0) return STATUS_OK;
    /* the old index may be damaged, which is no failure here */
    if (opened_store_open(&s, o->store) != STATUS_OK) return STATUS_OK;
    r->already = s.info.segments == 1 && strcmp(s.info.index, o->index) == 0;
    r->generation = s.info.generation;
    r->chunks = s.info.chunks;
    snprintf(r->index, sizeof r->index, "%s", s.info.index);
    opened_store_close(&s);
    return STATUS_OK;
}

/* A snapshot is refused before the work, not after it. */
static enum status all_steps(struct options *o, struct store_index_parts_report *r, struct store_publish how) {
    TRY(store_index_check_writable(o->store));
    TRY(is_made(o, r));
    if (!r->already) {
        TRY(open_devices(o, &how));
        TRY(store_index_train(r, o->store, o->work, &how));
        TRY(store_index_make(r, o->store, o->work, &how));
    }
    return store_index_parts_remove(o->work, r->index);
}

static enum status index_run(struct options *o, const struct progress *progress) {
    struct threads *pool;
    struct store_index_parts_report report = {0};
    TRY(threads_create(&pool, (int)o->threads));
    const struct store_publish how = {
        .index = o->index, .max_ram = o->max_ram, .seed = 1, .threads = pool, .progress = progress};
    enum status s = o->step == STEP_TRAIN   ? index_index_train(o, &report, how)
                    : o->step == STEP_FILL  ? index_index_fill(o, &report, how)
                    : o->step == STEP_MERGE ? store_index_merge(&report, o->store, o->work, &how)
                                            : all_steps(o, &report, how);
    if (s == STATUS_OK) print_report(o, &report);
    index_devices_close(&o->on);
    threads_free(pool);
    return s;
}

/* ---- options ---- */

/* Returns -1, or the exit code of a usage error. */
static int index_index_check(struct options *o, const char *const *operands, int n) {
    o->step = STEP_ALL;
    for (int i = 0; n == 1 && i < STEP_ALL; i++)
        if (strcmp(operands[0], step_names[i]) == 0) o->step = (enum step)i;
    if (n == 1 && o->step == STEP_ALL)
        return drt_index_usage("index", "the step is train, fill or merge; without one all of them are done");
    if (!o->store) return drt_index_usage("index", "--store STORE is missing");
    if (o->step == STEP_FILL && !o->part.text) return drt_index_usage("index", "fill needs --part i/N");
    if (o->step != STEP_FILL && o->part.text) return drt_index_usage("index", "--part is an option of fill alone");
    if (o->part.text && !drt_index_part_parse(&o->part))
        return drt_index_usage("index", "--part takes i/N, with i from 1 to N, N at most 1000000");
    if (o->index && (o->step == STEP_FILL || o->step == STEP_MERGE))
        return drt_index_usage("index", "--index is an option of train: fill and merge read it in --work");
    if (strcmp(o->assign, "auto") != 0 && (o->step == STEP_FILL || o->step == STEP_MERGE))
        return drt_index_usage("index", "--assign is an option of train: fill reads it in --work");
    const int code = index_devices_check(&o->on, "index", o->threads);
    if (code >= 0) return code;
    if (!o->work) {
        size_t length = strlen(o->store);
        while (length > 1 && o->store[length - 1] == '/')
            length--;
        if (snprintf(o->default_work, sizeof o->default_work, "%.*s.index", (int)length, o->store) >= FILE_PATH_MAX)
            return drt_index_usage("index", "the path of --store is too long");
        o->work = o->default_work;
    }
    return -1;
}

int drt_index_index(int argc, char **argv, const char **operands) {
    struct options o = {.on = INDEX_DEVICES_DEFAULT, .max_ram = drt_index_max_ram(), .assign = "auto"};
    const struct arg_option options[] = {
        OPTION_STORE(o.store),
        {"work", ARG_PATH, &o.work, "DIR",
         "folder that the steps share; train makes it (default: STORE.index, beside the store)", 0, 0},
        {"index", ARG_STRING, &o.index, "auto|FACTORY",
         "train: type of the index, an inverted file as IVF4096_HNSW32,SQ8 or OPQ64_256,IVF65536_HNSW32,PQ64np "
         "(default: auto, as in build)",
         0, 0},
        {"part", ARG_STRING, &o.part.text, "i/N", "fill: the i-th of N equal ranges of chunks", 0, 0},
        OPTION_MAX_RAM(o.max_ram, "memory that a step may use (default: as in build)"),
        OPTIONS_OF_INDEX_DEVICES(o.on),
        {"assign", ARG_CHOICE, &o.assign, "auto|cpu|gpu",
         "train: what assigns chunks to lists. gpu: each chunk to the nearest of all centroids, for types of flat or "
         "scalar codes; every fill then needs a GPU. cpu: FAISS. auto: gpu if train uses one",
         0, 0},
        OPTION_THREADS(o.threads),
        OPTION_JSON_REPORT(o.json),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index index",
        .synopsis = "[train|fill|merge] --store STORE [options]",
        .about =
            "Makes the index of a store, or another one, in three steps. train computes centroids and codes once, from "
            "a sample of all chunks. fill assigns the i-th of N ranges of chunks to the lists. N processes do this, on "
            "any hosts; they only read the store, or a snapshot of it (drt-index freeze). merge writes the lists of "
            "all "
            "parts into one file and publishes it in one transaction. Without a step, one process does all three and "
            "removes the work folder.\n\n"
            "For any N the index has the bytes that a single process makes with the same template. --max-ram limits "
            "the memory for any number of chunks. A step that was stopped or killed continues when the same command "
            "is run again; a step that is done already prints that. Readers see nothing before the end. Documents "
            "that are added meanwhile get a separate segment.",
        .examples = "  drt-index index --store store --index IVF4096_HNSW32,SQ8\n"
                    "  drt-index index train --store store --index IVF65536_HNSW32,SQ8\n"
                    "  drt-index index fill --store store --part 3/8\n"
                    "  drt-index index merge --store store\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .max_operands = 1,
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code < 0) code = index_index_check(&o, operands, n);
    if (code >= 0) return code;
    char ram[32];
    log_line(LOG_INFO, "start", "drt-index index", "%s, store %s, work %s%s%s, max-ram %s, threads %lld",
             step_names[o.step], o.store, o.work, o.part.text ? ", part " : "", o.part.text ? o.part.text : "",
             progress_bytes_text(ram, o.max_ram), o.threads ? (long long)o.threads : (long long)processors_available());
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    status = index_run(&o, progress_line_progress(line));
    progress_line_end(line);
    return drt_index_exit(status);
}
