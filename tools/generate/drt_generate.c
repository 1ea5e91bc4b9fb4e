/* drt_generate.c -- drt-generate: continues a prompt, with retrieval from a store, from the text's own past, from both
 * or from neither. */
#include "tools/generate/drt_generate.h"
#include "base/memory.h"
#include "data/tokenizer/utf8.h"
#include "tools/shared/commands.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"

#include <string.h>
#include <unistd.h>

static int generate_failed(void) {
    fprintf(stderr, "drt-generate: %s\n", status_message());
    return 1;
}

static enum status generate_open_and_run(const struct generate_options *o, const struct progress *progress,
                                         bool *interrupted) {
    struct engine engine;
    char *text = NULL;
    size_t bytes = 0;
    struct engine_config config = {.model = o->model,
                                   .store = o->store,
                                   .encoder = o->encoder,
                                   .where = o->where,
                                   .threads = (int)o->threads,
                                   .retrieval = o->corpus || o->own_past,
                                   .memory = strcmp(o->memory, "none") != 0,
                                   .decoding = true};
    char key[NETWORK_KEY_MAX];
    TRY(worker_options_remote(&config.workers, key, &o->workers));
    enum status status = engine_open(&engine, &config);
    if (status == STATUS_OK && o->prompt_file) status = streams_read_file(&text, &bytes, o->prompt_file);
    if (status == STATUS_OK && o->prompt_stdin) status = streams_read(&text, &bytes, STDIN_FILENO, "standard input");
    const char *prompt = text ? text : o->prompt ? o->prompt : "";
    if (!text) bytes = strlen(prompt);
    if (text) {
        const size_t mark = utf8_mark(text, bytes);
        prompt += mark, bytes -= mark;
    }
    if (status == STATUS_OK) status = generate_run(interrupted, &engine, o, prompt, bytes, progress);
    engine_close(&engine);
    memory_free(text);
    return status;
}

static int generate_main(int argc, char **argv, const char **operands) {
    struct generate_options o = {.where = DEVICE_CHOICE_DEFAULT,
                                 .searcher = "landmark",
                                 .memory = "none",
                                 .max_tokens = 256,
                                 .temperature = 0.8,
                                 .top_p = 0.95,
                                 .repeat_penalty = 1,
                                 .repeat_last = 64};
    int code = generate_options_parse(&o, argc, argv, operands);
    if (code >= 0) return code;
    struct progress_line *line = NULL;
    bool interrupted = false;
    if (progress_line_start(&line, "drt-generate") != STATUS_OK) return generate_failed();
    enum status status = o.interactive ? progress_line_converse(line) : STATUS_OK;
    if (status == STATUS_OK) status = generate_open_and_run(&o, progress_line_progress(line), &interrupted);
    progress_line_end(line);
    if (status != STATUS_OK) return generate_failed();
    if (!interrupted) return 0;
    fprintf(stderr, "drt-generate: stopped by a signal\n");
    return 1;
}

int main(int argc, char **argv) {
    return commands_run("drt-generate", generate_main, argc, argv);
}
