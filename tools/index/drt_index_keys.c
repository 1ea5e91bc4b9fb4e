/* drt_index_keys.c -- drt-index keys: computes the keys of all tokens of a store for a token memory, or removes them.
 */
#include "base/formats/json.h"
#include "tools/index/build/drt_index_store_keys.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"

struct options {
    const char *store, *model, *devices;
    struct device_choice where;
    struct drt_index_part part;
    int64_t layer, step, threads;
    bool remove, verify, json;
};

static void print_report(const struct options *o, const struct stored_keys_report *r) {
    const struct store_keys_spec *s = &r->spec;
    if (!o->json) {
        keys_job_print(o->store, r);
        return;
    }
    const struct json_number numbers[] = {{"files", r->files}, {"made", r->made}, {"chunks", r->chunks},
                                          {"layer", s->layer}, {"size", s->size}, {"bytes", (int64_t)r->bytes}};
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
    json_write_key(&w, "seconds"), json_write_double(&w, r->seconds);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

static enum status keys_check(const struct keys_job *job, struct engine *e) {
    struct store_keys *keys;
    uint8_t weights[16];
    int layer;
    TRY(keys_job_layer(&layer, job, &e->model.config));
    params_fingerprint(e->model.params, weights);
    const struct store_keys_spec spec = stored_keys_spec(&e->model.config, weights, layer, 0);
    TRY(store_keys_open(&keys, e->view, &spec, e->model.path));
    const enum status s = store_keys_verify(keys, job->progress);
    store_keys_close(keys);
    if (s == STATUS_OK) streams_printf(stdout, "%s: the keys are complete and undamaged\n", job->store);
    return s;
}

static enum status keys_verify(const struct keys_job *job) {
    struct engine e;
    const struct engine_config config = {
        .model = job->model, .store = job->store, .where = job->where, .threads = job->threads, .memory = true};
    TRY(engine_open(&e, &config));
    const enum status s = keys_check(job, &e);
    engine_close(&e);
    return s;
}

static enum status keys_remove(const struct options *o) {
    int64_t removed;
    TRY(store_keys_remove(&removed, o->store));
    streams_printf(stdout, "%s: %lld files of keys removed\n", o->store, (long long)removed);
    return STATUS_OK;
}

static enum status index_keys(const struct options *o, const struct progress *progress) {
    struct stored_keys_report report;
    const struct keys_job job = {.store = o->store,
                                 .model = o->model,
                                 .where = o->where,
                                 .layer = (int)o->layer,
                                 .step = (int)o->step,
                                 .part = o->part.part,
                                 .parts = o->part.parts,
                                 .threads = (int)o->threads,
                                 .progress = progress};
    if (o->remove) return keys_remove(o);
    if (o->verify) return keys_verify(&job);
    TRY(keys_job_run(&report, &job));
    print_report(o, &report);
    return STATUS_OK;
}

int drt_index_keys(int argc, char **argv, const char **operands) {
    struct options o = {.where = DEVICE_CHOICE_DEFAULT, .step = KEY_STEP};
    const struct arg_option options[] = {
        OPTION_STORE(o.store),
        {"model", ARG_PATH, &o.model, "DIR", "the model that will read the keys; its tokenizer made the store", 0, 0},
        {"layer", ARG_INT, &o.layer, "N", "layer whose states are keys; 0: the model's memory_layer, or the last", 0,
         1024},
        {"step", ARG_INT, &o.step, "N",
         "the model reads windows of 8 chunks, and the keys of the last N are kept. With a smaller N a key depends on "
         "more text before it, and the store is read 8 / N times",
         1, KEY_WINDOW},
        {"part", ARG_STRING, &o.part.text, "i/N",
         "make only every N-th file, from the i-th on; N processes, on one host or on several, make all", 0, 0},
        OPTION_DEVICE(o.where.device, "where the model reads the store"),
        OPTION_DEVICES(o.devices, "each makes whole files of keys, with the same result"),
        OPTION_DTYPE(o.where.dtype),
        OPTION_THREADS(o.threads),
        {"verify", ARG_FLAG, &o.verify, NULL, "make nothing; check that the keys are complete, and their checksums", 0,
         0},
        {"remove", ARG_FLAG, &o.remove, NULL, "remove the keys of every model from the store", 0, 0},
        OPTION_JSON_REPORT(o.json),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index keys",
        .synopsis = "[--store] STORE --model DIR [options]",
        .about =
            "Computes once what a token memory needs of a store: the keys of all tokens. Generation then copies the "
            "keys of the chunks that it finds (--memory-keys stored). Without them the model encodes these chunks. The "
            "model reads each document in windows, so keys also depend on the text before a chunk.\n\n"
            "A token takes one byte for each number of a key, and 4 bytes. drt-model project makes a model with "
            "short keys: with 128 numbers a chunk takes 8.3 KB.\n\n"
            "The keys are files beside the store's own, of 16,384 chunks each. The command makes those that are "
            "missing, so it continues a run that was stopped or killed. It does not replace keys of another model, "
            "layer, step or rounding (--dtype). drt-index build --keys makes them with the store; add and update then "
            "make those of new chunks.",
        .examples =
            "  drt-model project --model models/base --store store --size 128 --out base-128\n"
            "  drt-index keys --store store --model base-128\n"
            "  drt-generate --store store --model base-128 --memory both --memory-keys stored -p \"The kernel\"\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n_operands, code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code < 0 && !o.store) code = drt_index_usage("keys", "--store STORE is missing");
    if (code < 0 && !o.model && !o.remove) code = drt_index_usage("keys", "--model DIR is missing");
    if (code < 0 && o.part.text && !drt_index_part_parse(&o.part))
        code = drt_index_usage("keys", "--part takes i/N, with i from 1 to N, N at most 1000000");
    if (code < 0 && devices_choose(&o.where, o.devices) != STATUS_OK) code = drt_index_usage("keys", status_message());
    if (code >= 0) return code;
    struct progress_line *line = NULL;
    enum status s = progress_line_start(&line, "drt-index");
    if (s == STATUS_OK) s = index_keys(&o, progress_line_progress(line));
    progress_line_end(line);
    return drt_index_exit(s);
}
