/* memory_folder.h -- reads the configuration of a model's token memory from the model's folder, and checks that it was
 * fitted for this model. The folder has memory.json, and may have memory-cpu.json, with fewer chunks, for a CPU that
 * computes their keys. */
#pragma once
#include "decoder/memory_config.h"
#include "session/engine.h"

/* Whether memory-cpu.json is the right one: the engine computes on a CPU, and its store has no keys of its model. */
bool memory_folder_small(const struct engine *e);
/* Makes the path of the model's memory.json, or if `small` of its memory-cpu.json if there is one. */
enum status memory_folder_path(char path[FILE_PATH_MAX], const struct model_folder *model, bool small);
/* Reads the file `path`; NULL: that of memory_folder_path.
 * STATUS_NOT_FOUND: the folder has none. STATUS_MISMATCH: it was fitted for another tokenizer, other weights or a model
 * of more layers. */
enum status memory_folder_load(struct memory_config *out, const struct model_folder *model, const char *path,
                               bool small);
bool memory_folder_has(const struct model_folder *model);
/* Writes the model's fingerprints into *out. */
void memory_folder_sign(struct memory_config *out, const struct model_folder *model);
