/* drt_train_run.c -- drt-train --config C --out RUN: one training run, or its continuation. */
#include "base/file.h"
#include "base/formats/text.h"
#include "base/system/processors.h"
#include "kernels/device/collective.h"
#include "session/device_choice.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include "tools/train/drt_train.h"
#include "tools/train/drt_train_processes.h"
#include "train/run/run.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *config, *out, *device;
    struct arg_strings data, valid, set;
    int64_t threads, steps, until, processes;
    double max_minutes;
    bool resume;
};

static enum status read_config(struct train_config *c, const struct options *o) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, o->out, "config.json"));
    if (!o->config && !file_exists(path))
        return fail(STATUS_NOT_FOUND, "%s: holds no run to resume: start one with --config", o->out);
    TRY(config_load(c, o->config ? o->config : path));
    for (int i = 0; i < o->set.count; i++)
        TRY(config_set(c, o->set.items[i]));
    if (o->data.count) TRY(config_set_strings(&c->data, o->data.items, o->data.count));
    if (o->valid.count) TRY(config_set_strings(&c->valid, o->valid.items, o->valid.count));
    if (o->steps) c->schedule.steps = o->steps;
    enum status s = config_check(c);
    return s == STATUS_OK ? s : fail_context(s, "%s", o->config ? o->config : path);
}

static void print_report(const struct options *o, const struct run_report *r) {
    char time[32];
    streams_printf(stdout, "%s: step %lld, %lld tokens", o->out, (long long)r->step, (long long)r->tokens);
    if (!isnan(r->loss)) printf(", loss %.4f", r->loss);
    if (!isnan(r->valid_loss)) printf(", valid %.4f, %.4f bits a byte", r->valid_loss, r->valid_bits_per_byte);
    printf(", %s%s", progress_time_text(time, r->seconds), r->finished ? "" : ", not finished: continue with --resume");
    if (r->skipped) printf(", %lld steps skipped", (long long)r->skipped);
    printf("\n");
    if (r->step > 0) printf("%s/checkpoints/step-%lld\n", o->out, (long long)r->step);
}

/* Divides the processors among the processes. */
static int threads_of(const struct options *o, const struct train_rank *rank) {
    if (o->threads > 0 || rank->world == 1) return (int)o->threads;
    int each = processors_available() / rank->world;
    return each > 0 ? each : 1;
}

static enum status train_run_train(const struct options *o, const struct train_rank *rank,
                                   const struct progress *progress) {
    struct train_config config;
    struct device *device = NULL;
    struct collective *group = NULL;
    const struct progress quiet = {.stop_requested = progress->stop_requested, .context = progress->context};
    struct run_report report;
    enum dtype type = DTYPE_F32;
    TRY(config_defaults(&config));
    enum status s;
    TRY_GOTO(s, read_config(&config, o), out);
    const struct device_choice choice = {.device = o->device, .dtype = config.type, .report = report_stderr};
    TRY_GOTO(s, device_choose(&device, &type, &choice, threads_of(o, rank)), out);
    if (rank->world > 1) TRY_GOTO(s, collective_open(&group, device, rank->rank, rank->world, rank->rendezvous), out);
    const struct run_options options = {.config = &config,
                                        .folder = o->out,
                                        .resume = o->resume,
                                        .device = device,
                                        .type = type,
                                        .until = o->until,
                                        .max_seconds = o->max_minutes * 60,
                                        .progress = rank->rank == 0 ? progress : &quiet,
                                        .group = group};
    s = run_train(&report, &options);
    if (s == STATUS_OK && rank->rank == 0) print_report(o, &report);
out:
    collective_close(group);
    device_close(device);
    config_free(&config);
    return s;
}

/* Makes the end of --help: examples, and the table of the config's keys. Free it with free. */
static char *help_end(void) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return NULL;
    fputs("  drt-train --config small.json --data train.u16 --valid valid.u16 --out runs/small\n"
          "  drt-train --out runs/small --resume\n"
          "  drt-train --config small.json --out runs/wide --set lr=3e-4 --set pool=batch\n\n"
          "Keys of a config (JSON; a.b: in the object a):\n",
          memory);
    config_help(memory);
    if (fclose(memory) == 0) return text;
    free(text);
    return NULL;
}

int drt_train_run(int argc, char **argv, const char **operands) {
    struct options o = {.device = "auto", .processes = 1};
    struct train_rank rank;
    char *examples = help_end();
    const struct arg_option options[] = {
        {"config", ARG_PATH, &o.config, "FILE", "the run's config (with --resume: default RUN/config.json)", 0, 0},
        {"out", ARG_PATH, &o.out, "RUN", "the run's folder (required)", 0, 0},
        {"resume", ARG_FLAG, &o.resume, NULL, "continue after the run's newest checkpoint", 0, 0},
        {"set", ARG_STRINGS, &o.set, "KEY=VALUE",
         "replace a value of the config, such as mlm.rate=0.15; may be repeated", 0, 0},
        {"data", ARG_STRINGS, &o.data, "FILE", "token file instead of the config's; may be repeated", 0, 0},
        {"valid", ARG_STRINGS, &o.valid, "FILE", "token file instead of the config's; may be repeated", 0, 0},
        {"steps", ARG_INT, &o.steps, "N", "steps of the whole run, also of the schedule; 0: the config's", 0, 1e12},
        {"until", ARG_INT, &o.until, "N", "stop after step N, with a checkpoint; 0: no", 0, 1e12},
        {"max-minutes", ARG_DOUBLE, &o.max_minutes, "T", "stop after T minutes, with a checkpoint; 0: no", 0, 1e7},
        OPTION_DEVICE(o.device, "where to compute"),
        {"processes", ARG_INT, &o.processes, "N",
         "start N processes that train one model, each on a GPU of its own (or on the CPU)", 1, 64},
        OPTION_THREADS(o.threads),
    };
    const struct arg_program program = {
        .name = "drt-train",
        .synopsis = "--config FILE --out RUN [--resume] [options]",
        .about =
            "Trains a model from token files (drt-tokenizer encode makes them). RUN gets config.json (every default\n"
            "written out), log.jsonl (a line a step; the same in\n"
            "events.out.tfevents.drt, for TensorBoard), checkpoints/step-N (model folders: drt-generate --model loads\n"
            "them) and samples. A run that was stopped (Ctrl-C, SIGTERM, SIGHUP, --until, --max-minutes) or killed\n"
            "continues with --resume, and gives the same losses, bit for bit, as a run that was not stopped.\n"
            "drt-train plot RUN... draws what runs logged (drt-train plot --help).",
        .examples = examples,
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n, code = args_parse(&program, argc, argv, operands, &n);
    free(examples);
    if (code >= 0) return code;
    if (!o.out || (!o.config && !o.resume)) {
        fprintf(stderr, "drt-train: --%s is missing; see drt-train --help\n", o.out ? "config" : "out");
        return 2;
    }
    enum status s = train_rank_detect(&rank);
    if (s == STATUS_OK && rank.world == 1 && o.processes > 1) {
        s = train_processes_start(&rank, &code, (int)o.processes);
        if (s == STATUS_OK && code >= 0) return code;
    }
    if (s == STATUS_OK && rank.world > 1 && device_built("cuda") && strcmp(o.device, "cpu") != 0)
        s = train_rank_show_gpu(&rank);
    struct progress_line *line;
    if (s == STATUS_OK) s = progress_line_start(&line, "drt-train");
    if (s != STATUS_OK) return drt_train_exit(s);
    s = train_run_train(&o, &rank, progress_line_progress(line));
    progress_line_end(line);
    return drt_train_exit(s);
}
