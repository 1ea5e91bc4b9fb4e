/* query_file.h -- queries for a search, read one after the other from a file or a pipe: texts or vectors.
 *
 * Memory does not grow with the file: one line, or the rows that the caller takes. One thread at a time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* TXT: a query a line. JSONL: an object a line, with the query in its string "text" or "query". NPY: NumPy's float32 or
 * float16, C order, [n, dim] or [dim]. FBIN: int32 n, int32 dim, float32 [n, dim]. All little-endian. */
enum query_format { QUERY_AUTO, QUERY_TXT, QUERY_JSONL, QUERY_NPY, QUERY_FBIN };
enum { QUERY_LINE_MAX = 4 << 20 };       /* bytes */
enum { QUERY_DIM_MAX = 1 << 16 };

struct query_file;
/* path "-": standard input. QUERY_AUTO: by the name's ending (.jsonl, .npy, .fbin), else TXT. `dim`: what vectors must
 * have; 0: any, from 1 to QUERY_DIM_MAX. STATUS_INVALID names the file and the position of what cannot be read, here
 * and below. */
enum status query_file_open(struct query_file **out, const char *path, enum query_format format, int dim);
void query_file_close(struct query_file *q);              /* NULL is fine */
int query_file_dim(const struct query_file *q);           /* of its vectors */
bool query_file_has_vectors(const struct query_file *q);
int64_t query_file_total(const struct query_file *q);     /* queries in the file; 0: not known */

/* The next text, without its newline; *text NULL: there are no more. Borrowed until the next call. An empty line is an
 * empty text, so that numbers of queries are numbers of lines. */
enum status query_file_text(struct query_file *q, const char **text, size_t *bytes);
/* The next rows [*n, dim], at most `most`; 0: there are no more. Every value is a finite number. */
enum status query_file_rows(struct query_file *q, float *rows, int64_t most, int64_t *n);
