/* torch_checkpoint.h -- reads tensors, and nothing else, from a file that torch.save wrote.
 *
 * Such a file is a zip archive (stored, not compressed) with a pickle and one member for each storage. A pickle is a
 * program. This reader runs only the few instructions that build dictionaries of tensors. It knows only the globals
 * collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter and the torch.*Storage
 * types, and refuses any other by name. Every offset, stride and size is checked; memory is bounded by fixed limits.
 * Files from before torch 1.6 (no zip) are refused with the remedy.
 *
 * Tensors of nested dictionaries are named "outer.inner". Values that are not tensors are counted and left out. Tensors
 * may share storage (tied weights). Data is borrowed until torch_checkpoint_close. One thread at a time. */
#pragma once
#include "base/formats/safetensors.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct torch_checkpoint;
enum status torch_checkpoint_open(struct torch_checkpoint **out, const char *path);
/* The same from `bytes` in memory, borrowed until close; messages use `name` as the file's name. */
enum status torch_checkpoint_open_memory(struct torch_checkpoint **out, const char *name, const void *data,
                                         size_t bytes);
void torch_checkpoint_close(struct torch_checkpoint *c);  /* NULL is fine */

int torch_checkpoint_count(const struct torch_checkpoint *c);
const struct tensor_view *torch_checkpoint_at(const struct torch_checkpoint *c, int index);   /* in file order */
int64_t torch_checkpoint_left_out(const struct torch_checkpoint *c);

/* Whether the first bytes are those of a torch file (zip or older), whatever the file's name is. */
bool torch_checkpoint_looks_like(const void *data, size_t bytes);
