/* lexical_folder.h -- the lexical index of a store as a folder of segments of its own: 00000.lex, 00001.lex and so on.
 *
 * It covers the chunks of the view it was written from. lexical_info names them, so that a reader can compare. */
#pragma once
#include "store/lexical/lexical.h"

/* Writes all chunks of the view, segment_chunks (0: LEXICAL_CHUNKS_MAX) to a file; the folder is made when missing,
 * files of an earlier index are replaced or removed. max_ram: bytes for sorting, 0: 1 GiB. STATUS_INTERRUPTED on a
 * stop request. */
enum status lexical_folder_write(struct store_view *view, const char *folder, int64_t segment_chunks, uint64_t max_ram,
                                 const struct progress *progress);
/* lexical_open of its files. STATUS_NOT_FOUND: there are none. */
enum status lexical_folder_open(struct lexical **out, const char *folder);
