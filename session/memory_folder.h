/* memory_folder.h -- the configuration of a model's token memory: found in its folder, and only read for the model it
 * was fitted for. A folder has memory.json, and may have memory-cpu.json beside it: fewer chunks, for a CPU. */
#pragma once
#include "decoder/memory_config.h"
#include "session/model_folder.h"

/* Of `path`; NULL: of the model's folder (on_cpu: memory-cpu.json where it has one), STATUS_NOT_FOUND where there is
 * none. STATUS_MISMATCH: it was fitted for another tokenizer, other weights or a model of more layers. */
enum status memory_folder_load(struct memory_config *out, const struct model_folder *model, const char *path,
                               bool on_cpu);
bool memory_folder_has(const struct model_folder *model);
/* Fingerprints of the model into *out. */
void memory_folder_sign(struct memory_config *out, const struct model_folder *model);
