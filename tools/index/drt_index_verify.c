/* drt_index_verify.c -- drt-index verify: finds and prints damage. */
#include "base/formats/json.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"

void drt_index_problem(void *context, const char *file, const char *problem, const char *remedy) {
    const bool *json = context;
    if (*log_json()) {
        struct json_writer *w = log_begin(LOG_ERROR, "problem");
        log_string(w, "file", file);
        log_string(w, "message", problem);
        log_string(w, "remedy", remedy);
        log_end();
    }
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

/* Prints the last line, which says what was checked. A store that is too damaged to be opened has no numbers. */
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
                                              {"lexical_segments", s.info.lexical_segments},
                                              {"documents", s.info.documents - s.info.dropped_documents},
                                              {"chunks", s.info.chunks - s.info.dropped_chunks},
                                              {"tokens", s.info.tokens - s.info.dropped_tokens}};
        drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
    }
    json_write_object_end(&w);
    fputc('\n', stdout);
    opened_store_close(&s);
}

int drt_index_conclude(enum status status, const char *dir, int64_t problems, const char *sound, bool json) {
    if (status != STATUS_OK) return drt_index_exit(status);
    if (json) print_summary(dir, problems, sound);
    if (problems == 0) {
        if (!json) streams_printf(stdout, "%s: %s\n", dir, sound);
        return drt_index_exit(STATUS_OK);
    }
    fflush(stdout);
    log_line(LOG_ERROR, "problems", "drt-index", "%s: %lld problem%s", dir, (long long)problems,
             problems > 1 ? "s" : "");
    return 1;
}

int drt_index_verify(int argc, char **argv, const char **operands) {
    const char *dir = NULL;
    bool deep = false, json = false;
    const struct arg_option options[] = {
        OPTION_STORE(dir),
        {"deep", ARG_FLAG, &deep, NULL, "read every byte and compare it with its checksum", 0, 0},
        OPTION_JSON(json, "one JSON object for each problem, then one with what was checked"),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index verify",
        .synopsis = "[--store] STORE [--deep]",
        .about = "Compares the store's files with its catalog: names, sizes and ranges of ids; with --deep every byte. "
                 "Prints one line for each problem: the file's name and the remedy. Exit code 1 if there is a problem. "
                 "Changes nothing.",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!dir) return drt_index_usage("verify", "--store STORE is missing");
    log_line(LOG_INFO, "start", "drt-index verify", "store %s%s", dir, deep ? ", deep" : "");
    struct progress_line *line;
    enum status status = progress_line_start(&line, "drt-index");
    if (status != STATUS_OK) return drt_index_exit(status);
    int64_t problems = 0;
    status = store_verify(dir, deep, progress_line_progress(line), drt_index_problem, &json, &problems);
    progress_line_end(line);
    return drt_index_conclude(status, dir, problems,
                              deep ? "every byte is as recorded" : "all files are there, with the recorded sizes",
                              json);
}
