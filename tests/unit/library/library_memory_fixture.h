/* library_memory_fixture.h -- a configuration of a token memory for the model of library_fixture.h. */
#pragma once
#include "session/memory_folder.h"
#include "tests/library_fixture.h"

/* Writes a memory.json with one weight for all tokens. */
[[maybe_unused]] static const char *library_memory_file(const struct library_world *w) {
    static char path[700];
    struct memory_config c = {.key_layer = 2, .k = 4, .every = 16, .before = 0, .after = 1};
    struct model_folder model;
    CHECK_OK(model_folder_open(&model, w->folder));
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        c.mixture[kind] = (struct memory_mixture){
            .given = true, .tau = {4, 4}, .gate = memory_gate_fixed((enum memory_kind)kind, 0.4)};
    memory_folder_sign(&c, &model);
    model_folder_close(&model);
    snprintf(path, sizeof path, "%s/memory-of-the-world.json", test_folder());
    CHECK_OK(memory_config_save(&c, path));
    return path;
}
