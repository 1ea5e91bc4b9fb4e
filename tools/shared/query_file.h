/* query_file.h -- reads queries for a search one after another from a file or a pipe: texts or vectors.
 *
 * Memory has one line, or the rows that the caller requests, so it does not grow with the file. For one thread at a
 * time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* TXT: one query per line. JSONL: one object per line, whose string "text" or "query" is the query. NPY:
 * NumPy's float32 or float16, C order, [n, dim] or [dim]. FBIN: int32 n, int32 dim, float32 [n, dim]. All
 * numbers are little-endian. */
enum query_format { QUERY_AUTO, QUERY_TXT, QUERY_JSONL, QUERY_NPY, QUERY_FBIN };
enum { QUERY_LINE_MAX = 4 << 20 };       /* bytes */
enum { QUERY_DIM_MAX = 1 << 16 };

struct query_file;
/* path "-": standard input. QUERY_AUTO: selected by the suffix (.jsonl, .npy, .fbin), otherwise TXT. `dim`: dimensions
 * that vectors must have; 0: any, from 1 to QUERY_DIM_MAX. STATUS_INVALID, here and below: the message names the file
 * and the position that cannot be read. */
enum status query_file_open(struct query_file **out, const char *path, enum query_format format, int dim);
void query_file_close(struct query_file *q);              /* NULL is fine */
int query_file_dim(const struct query_file *q);           /* dimensions of its vectors */
bool query_file_has_vectors(const struct query_file *q);
int64_t query_file_total(const struct query_file *q);     /* number of queries in the file; 0: unknown */

/* Returns the next text without its newline, borrowed until the next call; *text is NULL at the end. An empty line is
 * an empty text, so that queries have the numbers of their lines. */
enum status query_file_text(struct query_file *q, const char **text, size_t *bytes);
/* Returns the next rows [*n, dim], at most `most`; *n is 0 at the end. All values are finite. */
enum status query_file_rows(struct query_file *q, float *rows, int64_t most, int64_t *n);
