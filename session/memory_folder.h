/* memory_folder.h -- the memory.json of a model: found in its folder, and only read for the model it was fitted for. */
#pragma once
#include "decoder/memory_config.h"
#include "session/model_folder.h"

/* Of `path`; NULL: of the model's folder, STATUS_NOT_FOUND where it has none. STATUS_MISMATCH: it was fitted for
 * another tokenizer, other weights or a model of more layers. */
enum status memory_folder_load(struct memory_config *out, const struct model_folder *model, const char *path);
bool memory_folder_has(const struct model_folder *model);
/* Fingerprints of the model into *out. */
void memory_folder_sign(struct memory_config *out, const struct model_folder *model);
