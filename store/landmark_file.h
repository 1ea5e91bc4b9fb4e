/* landmark_file.h -- a landmark file of a store, mapped for as long as its caller wants: for arrays that outlive the
 * view. */
#pragma once
#include "store/store.h"

struct landmark_file;
/* The file that holds chunk `first`. STATUS_NOT_FOUND: the view has no such chunk, or it was dropped. */
enum status landmark_file_open(struct landmark_file **out, struct store_view *v, int64_t first);
/* Unmaps it; NULL is fine. Until then the rows stay, whatever becomes of the view, the store and its files. */
void landmark_file_close(struct landmark_file *f);

/* The rows of chunks first .. first+rows.n-1: to the end of the file, or to the next chunk that is dropped or that the
 * view does not have. */
struct landmark_rows { struct store_rows rows; int64_t first; };
struct landmark_rows landmark_file_rows(const struct landmark_file *f);
