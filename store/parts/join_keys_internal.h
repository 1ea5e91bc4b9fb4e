/* join_keys_internal.h -- gives a joined store the keys of its parts (store/keys/store_keys.h). */
#pragma once
#include "store/parts/take_file_internal.h"
#include "store/writer_internal.h"

struct keys_part { const char *dir; int64_t chunks; };
struct keys_join {
    const struct keys_part *parts; int n_parts;           /* in the order of their numbers */
    struct file_taking taking;
};
/* Links or copies the files of keys of all parts, if all have keys of all chunks, of one spec. Otherwise the joined
 * store gets none, and a note says why if a part has keys. Call it before the store is published; a call that was
 * killed can be repeated. *files: number of files of the joined store. */
enum status keys_join(int64_t *files, struct store_writer *w, const struct keys_join *j);
