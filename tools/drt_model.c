/* drt_model.c -- drt-model: what a model folder holds, and ways to make one. */
#include "tools/drt_model.h"
#include "tools/streams.h"

#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} COMMANDS[] = {
    {"info", model_info, "what a model is: variant, sizes, parameters, fingerprint, tensors"},
    {"init", model_init, "a new model with random weights, from a config.json"},
    {"convert", model_convert, "a model folder from a torch or safetensors checkpoint"},
};

static void help(FILE *out) {
    fputs("Usage: drt-model COMMAND ...\n\nShows and makes model folders (config.json, model.safetensors, "
          "tokenizer.json).\n\nCommands:\n",
          out);
    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        fprintf(out, "  %-10s%s\n", COMMANDS[i].name, COMMANDS[i].help);
    fputs("\ndrt-model COMMAND --help says more.\n", out);
}

int model_failed(void) {
    fprintf(stderr, "drt-model: %s\n", status_message());
    return 1;
}

enum safetensors_dtype model_dtype(const char *name) {
    if (strcmp(name, "bf16") == 0) return SAFETENSORS_BF16;
    return strcmp(name, "f16") == 0 ? SAFETENSORS_F16 : SAFETENSORS_F32;
}

int main(int argc, char **argv) {
    streams_reserve();
    if (argc >= 2) {
        for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
            if (strcmp(argv[1], COMMANDS[i].name) == 0) return COMMANDS[i].run(argc - 1, argv + 1);
        if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
            help(stdout);
            return 0;
        }
        fprintf(stderr, "drt-model: unknown command '%s': info, init or convert; see drt-model --help\n", argv[1]);
        return 2;
    }
    help(stderr);
    return 2;
}
