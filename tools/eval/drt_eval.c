/* drt_eval.c -- drt-eval: measures of a model. Subcommands are in drt_eval_<name>.c. */
#include "tools/eval/drt_eval.h"
#include "tools/shared/commands.h"
#include "tools/shared/log.h"

int eval_usage(const char *command, const char *what) {
    char from[64];
    snprintf(from, sizeof from, "drt-eval %s", command);
    log_line(LOG_ERROR, "usage", from, "%s; see drt-eval %s --help", what, command);
    return 2;
}
int eval_failed(enum status status) {
    log_failure("drt-eval", status);
    return 1;
}

static const struct command commands[] = {
    {"ppl", "perplexity and bits per byte, with and without retrieval, on the same positions", eval_ppl},
    {"fit-memory", "fit temperature and gate of a token memory to held-out text", eval_fit_memory},
    {"fit-order", "train the order in which a token memory reads the chunks that a search finds", eval_fit_order},
    {"tasks", "answers to the prompts of files: RULER's score, ROUGE", eval_tasks},
    {"ablation", "a table of many models, stores and modes against a Base LM, from one config", eval_ablation},
    {"niah", "needles in a text or in a store: how many are found, by length and depth", eval_niah},
};
static const struct command_program program = {
    .name = "drt-eval", .about = "Measures models.\n", .commands = commands, .n_commands = ARRAY_LEN(commands)};

int main(int argc, char **argv) {
    return commands_main(&program, argc, argv);
}
