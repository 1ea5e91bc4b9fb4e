/* landmark_file.h -- maps one landmark file of a store, for arrays that outlive the view. */
#pragma once
#include "store/store.h"

struct landmark_file;
/* Maps the file that contains chunk `first`. STATUS_NOT_FOUND: the view has no such chunk, or it was dropped. */
enum status landmark_file_open(struct landmark_file **out, struct store_view *v, int64_t first);
/* Unmaps the file; NULL is fine. Before that the rows stay readable, also after the view is closed or the file is
 * removed. */
void landmark_file_close(struct landmark_file *f);

/* The rows of chunks first .. first+rows.n-1. They end at the end of the file, or before the next chunk that is dropped
 * or not in the view. */
struct landmark_rows { struct store_rows rows; int64_t first; };
struct landmark_rows landmark_file_rows(const struct landmark_file *f);
