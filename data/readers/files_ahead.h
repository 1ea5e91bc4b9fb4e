/* files_ahead.h -- decompresses the files after the open one meanwhile, each by a thread of its own: one thread
 * decompresses less than many can tokenize. For compressed jsonl. Of each file a limited number of bytes waits. */
#pragma once
#include "data/readers/stream_ahead.h"

enum { FILES_AHEAD = 3 };
struct reader;
struct file_ahead { uint64_t file; struct stream *stream; struct stream_ahead *ahead; };   /* stream NULL: none */
struct files_ahead { struct file_ahead next[FILES_AHEAD]; uint64_t bytes; };   /* bytes: most memory, of all files */

/* Blocks that wait of a file, the open one included. */
int files_ahead_blocks(const struct reader *r);
/* Takes the open file, if it was begun. Returns false if it was not. */
bool files_ahead_take(struct reader *r, struct stream **stream, struct stream_ahead **ahead);
/* Begins the files after the open one. A file that cannot be opened is left for jsonl_open, which has the error. */
void files_ahead_begin(struct reader *r);
void files_ahead_close(struct reader *r);
