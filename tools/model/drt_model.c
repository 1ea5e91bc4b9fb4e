/* drt_model.c -- drt-model: describes and makes model folders. */
#include "tools/model/drt_model.h"
#include "tools/shared/commands.h"

#include <string.h>

static const struct command commands[] = {
    {"info", "what a model is: variant, sizes, parameters, fingerprint, tensors", model_info},
    {"init", "a new model with random weights, from a config.json", model_init},
    {"project", "a copy of a model with short keys for a token memory", model_project},
    {"sketch", "a copy of a Base LM whose landmarks have a sketch of words", model_sketch},
    {"convert", "a model folder from a torch or safetensors checkpoint", model_convert},
};
static const struct command_program program = {
    .name = "drt-model",
    .about = "Shows and makes model folders (config.json, model.safetensors, tokenizer.json).\n",
    .commands = commands,
    .n_commands = ARRAY_LEN(commands)};

int model_failed(void) {
    fprintf(stderr, "drt-model: %s\n", status_message());
    return 1;
}

enum safetensors_dtype model_dtype(const char *name) {
    if (strcmp(name, "bf16") == 0) return SAFETENSORS_BF16;
    return strcmp(name, "f16") == 0 ? SAFETENSORS_F16 : SAFETENSORS_F32;
}

int main(int argc, char **argv) {
    return commands_main(&program, argc, argv);
}
