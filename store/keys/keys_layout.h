/* keys_layout.h -- how the chunks of a store are divided into files of keys.
 *
 * The chunks are in sections. A file has STORE_KEYS_CHUNKS chunks of one section, the last file of a section the rest.
 * The numbers of files continue from section to section. An ordinary store has one section. A store that was joined
 * from parts with keys has one for each part that has chunks, so that the files of the parts are its files. The last
 * section also has all chunks that were added later. Sections never change after the first generation. */
#pragma once
#include "store/store.h"

enum { STORE_KEYS_CHUNKS = 16384 };
struct keys_section { int64_t chunk, file; };             /* the first ones */
struct keys_layout {
    int64_t chunks, files;
    struct keys_section *section; int64_t sections;
};
/* Of the chunks of a view. Call keys_layout_free afterwards. */
enum status keys_layout_open(struct keys_layout *out, struct store_view *view);
void keys_layout_free(struct keys_layout *l);             /* a zeroed struct is fine */
/* The chunks of a file, and its number in its section. */
struct keys_range { int64_t begin, end, number; };
struct keys_range keys_layout_range(const struct keys_layout *l, int64_t file);
int64_t keys_layout_file(const struct keys_layout *l, int64_t chunk);     /* the file that has a chunk */
