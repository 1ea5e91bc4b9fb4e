/* merge_window_internal.h -- a range of lists of all files of parts, read and put together by several threads. */
#pragma once
#include "store/index/parts/part_files_internal.h"

struct merge_window_source {
    const struct part_file *file;
    struct list_stream *streams;         /* [LIST_SECTIONS] */
    uint64_t *begin; /* [lists + 1]: rows of the file in the window before each list; set by the caller */
    uint8_t *codes, *ids;                /* of these rows; in the window's memory */
    enum status status;
    char message[1024];
};
struct merge_window {
    struct merge_window_source *sources; int64_t n_sources;
    int64_t lists, lists_max;            /* lists_max: capacity of `begin` and of `output` */
    uint64_t code_bytes, capacity;       /* capacity: bytes of `memory` */
    uint64_t *output;                    /* [lists + 1]: where each list begins in the output */
    uint8_t *memory;
    const char *work; int parts;         /* for paths */
    const struct merge_window_source *failed;             /* set by a failure of merge_window_read */
};
/* Reads the codes and ids of all lists of the window, each file by one thread, and checks the ids. Before it, `lists`
 * and the rows of all sources must be set, which fit in the memory. It sets `output`. */
enum status merge_window_read(struct merge_window *w, struct threads *threads);
/* For file_write_blocks: bytes of the lists as in a segment, each with the codes of all files, then their ids. */
void merge_window_fill(void *window, uint8_t *out, uint64_t at, size_t n);
/* STATUS_CORRUPT: ids that are not of the file's chunks, or do not ascend from *before. */
enum status merge_check_ids(const struct list_file_head *h, const char *path, const uint8_t *bytes, size_t n,
                            int64_t *before);
