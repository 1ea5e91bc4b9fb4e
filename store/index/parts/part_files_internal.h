/* part_files_internal.h -- the files of lists of all parts in a work folder, checked against the plan and the store. */
#pragma once
#include "store/index/parts/index_parts_internal.h"
#include "store/index/parts/list_file_internal.h"

struct part_file { int part; int64_t run; struct list_file file; };
struct part_files {
    int parts;
    struct part_file *list; int64_t n; size_t capacity;   /* in order of their chunks */
    int64_t rows;
};
struct part_files_of {
    const struct index_parts_plan *plan;
    const char *dir, *work;              /* dir: the store's, for messages */
    struct index_parts_rows rows;
    struct store_dropped dropped;        /* chunks that no file may have */
};
/* Reads the headers of all files. Statuses as store_index_merge. */
enum status part_files_find(struct part_files *out, const struct part_files_of *of);
void part_files_free(struct part_files *f);               /* a zeroed struct is fine */
/* STATUS_MISMATCH: the lists or codes of a file are not those of the template. */
enum status part_files_check_lists(const struct part_files *f, const struct part_files_of *of, int64_t lists,
                                   int64_t code_bytes);
enum status part_file_path(char out[FILE_PATH_MAX], const char *work, int parts, const struct part_file *file);
/* Appends to this thread's message the command that makes a part again. Returns s. */
enum status part_files_remedy(enum status s, const struct part_files_of *of, int part, int parts);
