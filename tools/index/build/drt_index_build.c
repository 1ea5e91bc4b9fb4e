/* drt_index_build.c -- drt-index build, add and update: a corpus into a store. */
#include "base/file.h"
#include "base/formats/json.h"
#include "base/system/processors.h"
#include "base/system/threads.h"
#include "decoder/decoder_passages.h"
#include "session/device_choice.h"
#include "tools/index/build/drt_index_models.h"
#include "tools/index/build/drt_index_store_keys.h"
#include "tools/index/drt_index_landmarks.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum command { COMMAND_BUILD, COMMAND_ADD, COMMAND_UPDATE };
static const char *const names[] = {"build", "add", "update"};

struct options {
    enum command command;
    struct device_choice where;
    struct landmark_options landmarks;
    const char *store, *model, *index, *lexical, *format, *text_field, *source, *devices;
    struct drt_index_part part;
    int64_t eod_id, shard_chunks, threads;
    uint64_t max_ram;
    bool restart, json, append, skip_bad_lines, no_follow, dry_run, keys;
};

/* A part has no index: the joined store gets its own. */
static const char *index_of(const struct options *o) {
    return o->part.parts ? "exact" : o->index ? o->index : "auto";
}

static void log_configuration(const struct options *o, const struct model_folder *m, const char *const *inputs, int n) {
    struct json_writer *w = log_begin(LOG_INFO, "start");
    log_string(w, "command", names[o->command]);
    json_write_key(w, "corpus");
    json_write_array(w);
    for (int i = 0; i < n; i++)
        json_write_string(w, inputs[i]);
    json_write_array_end(w);
    log_string(w, "store", o->store);
    log_string(w, "model", m->path);
    log_string(w, "index", index_of(o));
    log_string(w, "lexical", o->part.parts ? "off" : o->lexical ? o->lexical : o->append ? NULL : "on");
    log_string(w, "format", o->format);
    log_string(w, "text_field", o->text_field);
    log_int(w, "eod_id", o->eod_id);
    log_int(w, "part", o->part.part);
    log_int(w, "parts", o->part.parts);
    log_int(w, "max_ram", (int64_t)o->max_ram);
    log_int(w, "shard_chunks", o->shard_chunks);
    log_int(w, "threads", o->threads ? o->threads : processors_available());
    log_string(w, "devices", o->devices);
    log_bool(w, "restart", o->restart);
    log_string(w, "encoder", o->landmarks.encoder);
    log_string(w, "vectors", o->landmarks.vectors);
    log_string(w, "landmarks", o->landmarks.type);
    log_bool(w, "keys", o->keys);
    log_end();
}

static void print_configuration(const struct options *o, const struct model_folder *m, const char *const *inputs,
                                int n) {
    char ram[32];
    if (*log_json()) {
        log_configuration(o, m, inputs, n);
        return;
    }
    fprintf(stderr, "drt-index %s: corpus", names[o->command]);
    for (int i = 0; i < n; i++)
        streams_printf(stderr, " %s", inputs[i]);
    const char *lexical = o->part.parts ? "off" : o->lexical ? o->lexical : o->append ? "as it is" : "on";
    streams_printf(stderr, "\n  store %s, model %s, index %s, lexical %s, format %s, text-field %s, eod-id %lld,\n",
                   o->store, m->path, index_of(o), lexical, o->format, o->text_field, (long long)o->eod_id);
    if (o->part.parts)
        fprintf(stderr, "  part %d of %d, whose indexes drt-index join makes,\n", o->part.part, o->part.parts);
    fprintf(stderr, "  max-ram %s, shard-chunks %lld, threads %lld%s\n", progress_bytes_text(ram, o->max_ram),
            (long long)o->shard_chunks, o->threads ? (long long)o->threads : (long long)processors_available(),
            o->restart ? ", restart" : "");
    if (o->devices) streams_printf(stderr, "  devices %s\n", o->devices);
    if (o->landmarks.encoder) streams_printf(stderr, "  landmarks of the encoder %s\n", o->landmarks.encoder);
    if (o->landmarks.vectors) streams_printf(stderr, "  landmarks from %s\n", o->landmarks.vectors);
    if (o->landmarks.type) fprintf(stderr, "  landmarks of type %s\n", o->landmarks.type);
    if (o->keys) fprintf(stderr, "  keys of a token memory\n");
}

/* What encodes with the model itself. */
struct tower {
    const struct options *o;
    const struct model_folder *model;
    pthread_t warming; /* starts the device */
    bool warms;
    struct device *device;
    enum dtype type;
    struct weights weights;
    struct chunk_tower chunks;
};

static void *warm_device(void *context) {
    device_warm(context);
    return NULL;
}

static void tower_warmed(struct tower *t) {
    if (t->warms) pthread_join(t->warming, NULL);
    t->warms = false;
}

static enum status tower_device(struct tower *t) {
    tower_warmed(t);
    return t->device ? STATUS_OK : device_choose(&t->device, &t->type, &t->o->where, (int)t->o->threads);
}

static enum status tower_open(struct tower *t) {
    TRY(tower_device(t));
    TRY(weights_open(&t->weights, t->device, t->model->params, t->type));
    return chunk_tower_open(&t->chunks, t->device, &t->model->config, &t->weights);
}

/* For a thread of the build. */
static enum status tower_opening(void *context, struct encode_device *out) {
    struct tower *t = context;
    TRY(tower_open(t));
    *out = (struct encode_device){.device = t->device, .encoder = t->chunks.encoder};
    return STATUS_OK;
}

static void tower_close(struct tower *t) {
    tower_warmed(t);
    chunk_tower_close(&t->chunks);
    if (t->device) weights_release(&t->weights, t->device);
    device_close(t->device);
}

/* Whether the model's encoder and its GPU can be opened while documents are read already. With the device "auto" they
 * cannot: whether there is a GPU decides how a build is divided. */
static bool opens_later(const struct options *o, const struct model_folder *model) {
    return strcmp(o->where.device, "cuda") == 0 && device_built("cuda") && o->where.devices == 0 &&
           !model->config.base_lm && !o->landmarks.encoder && !o->landmarks.vectors &&
           !landmark_options_none(&o->landmarks);
}

static enum status build_store(struct indexer_report *report, const struct options *o, const char *const *inputs,
                               int n_inputs, const struct progress *progress) {
    struct model_folder model;
    struct tower tower = {.o = o, .model = &model};
    struct index_models models = {0};
    struct landmark_maker source = {0};
    struct store_fingerprint fingerprint;
    struct indexer_config config = {
        .reader = {.inputs = inputs,
                   .n_inputs = n_inputs,
                   .text_field = o->text_field,
                   .skip_bad_lines = o->skip_bad_lines,
                   .no_follow = o->no_follow,
                   .part = o->part.part,
                   .parts = o->part.parts},
        .store = o->store,
        .index = index_of(o),
        .lexical = o->part.parts ? STORE_LEXICAL_OFF : drt_index_lexical_choice(o->lexical),
        .max_ram = o->max_ram,
        .shard_chunks = o->shard_chunks,
        .append = o->append,
        .restart = o->restart,
        .update = o->command == COMMAND_UPDATE,
        .dry_run = o->dry_run,
        .source = o->source,
        .progress = progress,
    };
    TRY(reader_format_parse(&config.reader.format, o->format));
    TRY(store_landmarks_parse(&config.type, o->landmarks.type));
    tower.warms = threads_start(&tower.warming, warm_device, (void *)(uintptr_t)o->where.device);
    enum status s = model_folder_open(&model, o->model);
    if (s != STATUS_OK) {
        tower_close(&tower);
        return s;
    }
    const bool later = opens_later(o, &model);
    print_configuration(o, &model, inputs, n_inputs);
    if (o->keys) TRY_GOTO(s, decoder_passages_check(&model.config), out);
    TRY_GOTO(s, indexer_fingerprint(&fingerprint, &model.config, model.params, model.tokenizer), out);
    if (!later) TRY_GOTO(s, tower_device(&tower), out);
    const struct external_encoder_config external = {
        .device = tower.device, .type = tower.type, .tokenizer = model.tokenizer, .model = &model.config};
    TRY_GOTO(s, landmark_maker_open(&source, &o->landmarks, &external, o->store, o->append), out);
    const bool own = !source.landmarks.encoder.encode; /* the model makes them */
    if (own && later) config.opening = (struct encode_opening){tower_opening, &tower};
    if (own && !later) {
        TRY_GOTO(s, tower_open(&tower), out);
        TRY_GOTO(s, index_models_open(&models, tower.device, &o->where, &model.config, model.params, tower.type), out);
    }
    if (!own) TRY_GOTO(s, tower_device(&tower), out); /* an addition to a store without landmarks */
    config.more = models.devices, config.n_more = models.n;
    config.landmarks = own ? NULL : &source.landmarks;
    config.reader.eod_id = o->eod_id == -1 ? model.config.eos_id : o->eod_id;
    config.tokenizer = model.tokenizer;
    config.model = &model.config;
    config.params = model.params;
    config.device = tower.device;
    config.threads = (int)o->threads;
    config.encoder = tower.chunks.encoder, config.states = tower.chunks.states;
    s = indexer_run(report, &config);
out:
    landmark_maker_close(&source);
    index_models_close(&models);
    tower_close(&tower);
    model_folder_close(&model);
    return s;
}

static void print_report(const struct options *o, const struct indexer_report *r,
                         const struct stored_keys_report *keys) {
    if (o->command == COMMAND_UPDATE)
        drt_index_update_report(r, keys, o->store, o->dry_run, o->json);
    else
        drt_index_build_report(r, keys, o->store, o->json);
}

/* Keys are made when the chunks are published and their model's memory is free. Text is printed before that, and JSON
 * after it, as one object. */
static enum status build_run(const struct options *o, const char *const *inputs, int n_inputs,
                             const struct progress *progress) {
    struct indexer_report report;
    struct stored_keys_report keys = {0};
    struct keys_job job = {
        .store = o->store, .model = o->model, .where = o->where, .threads = (int)o->threads, .progress = progress};
    if (o->keys) TRY(keys_job_check(&job));
    TRY(build_store(&report, o, inputs, n_inputs, progress));
    if (!o->json) print_report(o, &report, NULL);
    enum status s = STATUS_OK;
    if (!o->dry_run && (o->keys || o->append)) s = keys_job_follow(&keys, &job, o->keys);
    const bool made = s == STATUS_OK && keys.spec.size > 0;
    if (o->json)
        print_report(o, &report, made ? &keys : NULL);
    else if (made)
        keys_job_print(o->store, &keys);
    return s;
}

static int build_with_progress(struct options *o, const char **operands, int n_operands) {
    struct progress_line *line = NULL;
    enum status s = drt_index_part_enter(&o->part, &o->store);
    if (s == STATUS_OK) s = progress_line_start(&line, "drt-index");
    if (s == STATUS_OK) s = build_run(o, operands, n_operands, progress_line_progress(line));
    progress_line_end(line);
    drt_index_part_leave(&o->part, s);
    return drt_index_exit(s);
}

#define MAX_RAM_HELP                                                                                                   \
    "memory that the run may use, model included (default: three quarters of what the machine or its container "       \
    "allows, at most 4 GiB)"

#define PART_HELP                                                                                                      \
    "build only part i of N, into STORE/part-i-of-N; drt-index join makes one store of all parts. A part has the "     \
    "i-th share of the corpus in bytes; compressed and text files are not divided"
#define TYPE_HELP                                                                                                      \
    "how landmarks are stored: f16, numbers of 16 bits; i8, codes of 8 bits and a scale for each chunk, which take "   \
    "half the bytes and lose some precision (docs/store-format.md); none: no chunk is encoded, and chunks are found "  \
    "only by words, as a token memory does (default: f16)"
#define KEYS_HELP                                                                                                      \
    "also compute the keys of all tokens for a token memory with the model, as drt-index keys does by default"
#define ADD_KEYS_HELP                                                                                                  \
    "make the keys of all tokens for a token memory, as in build; a store that has those of this model always gets "   \
    "those of its new chunks"
#define UPDATE_SOURCE_HELP                                                                                             \
    "the source of all these documents in the store (drt-index get), instead of the path of their file"
#define BUILD_ABOUT                                                                                                    \
    "Reads documents, divides them into chunks, encodes each chunk into a landmark vector, and publishes all chunks "  \
    "at once.\n\nCORPUS is a file, a folder, or - for standard input: jsonl (also .gz .zst .xz), parquet, arrow, "     \
    "folders of text files, raw u16 or u32 token files, Megatron .bin/.idx. docs/inputs.md describes them. "
#define UPDATE_ABOUT                                                                                                   \
    "Updates a store to a newer state of its corpus. A document is identified by its source (the path of its file as " \
    "it was given) and its id. Unchanged documents stay. Changed documents are replaced and get new ids. Documents "   \
    "that the store lacks are added. Documents that the corpus lacks stay (drt-index delete). All of it is one "       \
    "transaction: a program sees either the old documents or the new ones.\n\n"                                        \
    "CORPUS is as in drt-index build, except for standard input, because it is read twice. Documents of one source "   \
    "need different ids. Exact copies of other documents are skipped and counted.\n\n"
#define RESUME_ABOUT                                                                                                   \
    "A run that was stopped (Ctrl-C, SIGTERM, SIGHUP) or killed continues when the same command is run again, if the " \
    "documents read so far are unchanged. Readers see nothing of a run before it is complete."

static const struct {
    const char *name, *synopsis, *store_missing, *about, *examples;
    /* numbers of rows of the table that the command lacks, at the beginning and at the end */
    int first_option, last_options;
} programs[] = {
    [COMMAND_BUILD] = {"drt-index build", "CORPUS... --out STORE [options]", "--out STORE is missing",
                       BUILD_ABOUT "Exact copies of earlier documents are skipped and counted.\n\n" RESUME_ABOUT,
                       "  drt-index build corpus/ --out store\n"
                       "  drt-index build data/train-*.parquet --text-field text --out store\n"
                       "  drt-index build pile.jsonl.zst --out store --index IVF4096_HNSW32,SQ8 --max-ram 16G\n"
                       "  zcat x.gz | drt-index build - --format jsonl --out store\n",
                       2, 0},
    [COMMAND_ADD] = {"drt-index add", "CORPUS... --store STORE [options]", "--store STORE is missing",
                     BUILD_ABOUT "Exact copies of earlier documents are skipped and counted.\n\n" RESUME_ABOUT,
                     "  drt-index add new.jsonl --store store\n", 2, 2},
    [COMMAND_UPDATE] = {"drt-index update", "CORPUS... --store STORE [options]", "--store STORE is missing",
                        UPDATE_ABOUT RESUME_ABOUT,
                        "  drt-index update corpus/ --store store --dry-run\n"
                        "  drt-index update /new/wiki.jsonl --store store --source /old/wiki.jsonl\n",
                        0, 4},
};

static int build_or_add(enum command command, int argc, char **argv, const char **operands) {
    const bool append = command != COMMAND_BUILD;
    struct options o = {.where = DEVICE_CHOICE_DEFAULT,
                        .format = "auto",
                        .text_field = "text",
                        .eod_id = -1,
                        .shard_chunks = 16384,
                        .max_ram = drt_index_max_ram(),
                        .command = command,
                        .append = append};
    const struct arg_option options[] = {
        {"source", ARG_STRING, &o.source, "NAME", UPDATE_SOURCE_HELP, 0, 0},
        {"dry-run", ARG_FLAG, &o.dry_run, NULL, "only count the changes, and make none", 0, 0},
        {append ? "store" : "out", ARG_PATH, &o.store, "STORE",
         append ? "the store to change" : "the store's folder; made if it is missing", 0, 0},
        OPTION_MODEL(o.model),
        OPTIONS_OF_ENCODER(o.landmarks),
        {"index", ARG_STRING, &o.index, "auto|exact|FACTORY",
         append ? "as in build; auto keeps the store's own (default: auto)"
                : "exact: no index, searches scan all landmarks; FACTORY: a FAISS factory string such as IVF4096,SQ8; "
                  "auto: exact up to 256 MiB of landmarks, an IVF index above (default: auto)",
         0, 0},
        {"lexical", ARG_CHOICE, &o.lexical, "on|off",
         append ? "whether the store has an index of all its chunks by their tokens (default: as before)"
                : "make an index of the chunks by their tokens, too, about 200 bytes per chunk (default: on)",
         0, 0},
        OPTION_MAX_RAM(o.max_ram, MAX_RAM_HELP),
        OPTION_FORMAT(o.format, "the corpus"),
        OPTIONS_OF_TEXTS(o),
        OPTION_EOD_ID(o.eod_id),
        {"shard-chunks", ARG_INT, &o.shard_chunks, "N",
         "a shard is sealed at the first end of a document after N chunks; small shards of earlier additions are "
         "merged up to N chunks, or 16384",
         1, 1e9},
        OPTION_DEVICE(o.where.device, "where chunks are encoded and the index's centroids computed"),
        OPTION_DEVICES(o.devices,
                       "encode, and make keys (whole files of 16,384 chunks), on several GPUs, with the same "
                       "result"),
        OPTION_DTYPE(o.where.dtype),
        OPTION_THREADS(o.threads),
        {"restart", ARG_FLAG, &o.restart, NULL, "discard an unfinished run instead of resuming it", 0, 0},
        OPTION_JSON_REPORT(o.json),
        OPTION_LOG_JSON,
        {"keys", ARG_FLAG, &o.keys, NULL, append ? ADD_KEYS_HELP : KEYS_HELP, 0, 0},
        OPTIONS_OF_VECTORS(o.landmarks),
        {"part", ARG_STRING, &o.part.text, "i/N", PART_HELP, 0, 0},
        {"landmarks", ARG_CHOICE, &o.landmarks.type, "f16|i8|none", TYPE_HELP, 0, 0},
    };
    const struct arg_program program = {
        .name = programs[command].name,
        .synopsis = programs[command].synopsis,
        .about = programs[command].about,
        .examples = programs[command].examples,
        .options = options + programs[command].first_option,
        .n_options = (int)ARRAY_LEN(options) - programs[command].first_option - programs[command].last_options,
        .min_operands = 1,
        .max_operands = -1,
    };
    int n_operands, code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code < 0 && !o.store) code = drt_index_usage(names[command], programs[command].store_missing);
    if (code < 0) code = landmark_options_check(names[command], &o.landmarks, append);
    if (code < 0 && landmark_options_none(&o.landmarks) && o.lexical && strcmp(o.lexical, "off") == 0)
        code = drt_index_usage(names[command],
                               "--landmarks none: its chunks are found by words, so leave out --lexical off");
    const bool others = o.landmarks.encoder || o.landmarks.vectors || landmark_options_none(&o.landmarks);
    if (code < 0 && o.devices && others && !o.keys)
        code = drt_index_usage(names[command],
                               "--devices: only landmarks of the model itself, and keys, are computed on several GPUs");
    if (code < 0 && devices_choose(&o.where, o.devices) != STATUS_OK)
        code = drt_index_usage(names[command], status_message());
    /* A build has two streams. CUDA makes a context with two connections in half of the time that its default takes. */
    if (code < 0) (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 0);
    if (code < 0) code = drt_index_part_check(&o.part, o.index, o.landmarks.vectors);
    return code < 0 ? build_with_progress(&o, operands, n_operands) : code;
}

int drt_index_build(int argc, char **argv, const char **operands) {
    return build_or_add(COMMAND_BUILD, argc, argv, operands);
}
int drt_index_add(int argc, char **argv, const char **operands) {
    return build_or_add(COMMAND_ADD, argc, argv, operands);
}
int drt_index_update(int argc, char **argv, const char **operands) {
    return build_or_add(COMMAND_UPDATE, argc, argv, operands);
}
