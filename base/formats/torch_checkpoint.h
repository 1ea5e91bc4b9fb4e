/* torch_checkpoint.h -- reads tensors, and no other objects, from a file that torch.save wrote.
 *
 * Such a file is a zip archive (stored, not compressed) with a pickle and one member for each storage. A pickle is a
 * program. This reader runs only the few instructions that build dictionaries of tensors. It supports only the globals
 * collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter and the torch.*Storage
 * types. Any other is refused with a message that names it. Every offset, stride and size is checked; memory is bounded
 * by fixed limits. Files of versions before torch 1.6 (no zip) are refused with a remedy.
 *
 * Tensors of nested dictionaries are named "outer.inner". Values that are not tensors are counted and left out. Tensors
 * may share storage (tied weights). Data is borrowed until torch_checkpoint_close. For one thread at a time. */
#pragma once
#include "base/formats/safetensors.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct torch_checkpoint;
enum status torch_checkpoint_open(struct torch_checkpoint **out, const char *path);
/* Reads the file from `bytes` in memory, borrowed until close. Messages use `name` as the file's name. */
enum status torch_checkpoint_open_memory(struct torch_checkpoint **out, const char *name, const void *data,
                                         size_t bytes);
void torch_checkpoint_close(struct torch_checkpoint *c);  /* NULL is fine */

int torch_checkpoint_count(const struct torch_checkpoint *c);
const struct tensor_view *torch_checkpoint_at(const struct torch_checkpoint *c, int index);   /* in file order */
int64_t torch_checkpoint_left_out(const struct torch_checkpoint *c);

/* Whether the first bytes are those of a torch file (zip or older), for any file name. */
bool torch_checkpoint_looks_like(const void *data, size_t bytes);
