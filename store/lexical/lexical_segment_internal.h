/* lexical_segment_internal.h -- one mapped lexical segment, whose lists are found by key and read block by block.
 *
 * Whatever bytes the file contains, no function reads outside the map or returns a chunk that is not in the segment. It
 * returns STATUS_CORRUPT, or false, instead. */
#pragma once
#include "base/file.h"
#include "store/lexical/lexical.h"
#include "store/lexical/lexical_format_internal.h"

struct lexical_segment {
    struct file_map map;
    struct lexical_frame frame;
    const uint8_t *parts[LEXICAL_PARTS];
    char path[FILE_PATH_MAX];
};
enum status lexical_segment_open(struct lexical_segment *out, const char *path);
void lexical_segment_close(struct lexical_segment *s);    /* a zeroed one is fine */

enum lexical_kind { LEXICAL_ABSENT, LEXICAL_SHORT, LEXICAL_DENSE, LEXICAL_BLOCKS };
struct lexical_list {
    const uint8_t *data;                 /* of a dense list: 2 bits per chunk */
    const uint8_t *skips;                /* table of the blocks */
    uint64_t bytes;                      /* without the table of the blocks */
    int64_t n;                           /* number of postings */
    uint32_t blocks, limit;              /* limit: chunks of the segment */
    enum lexical_kind kind;
    uint8_t form;                        /* of a list of one block */
};
enum status lexical_segment_find(const struct lexical_segment *s, struct lexical_list *out, uint64_t key);

/* Returns code + 1 of a chunk in a dense list; 0: the chunk is not in the list. */
static inline int lexical_dense_code(const uint8_t *data, int64_t chunk) {
    return data[chunk / 4] >> (chunk % 4 * 2) & 3;
}

/* Returns the first block whose last chunk is at least `chunk`; list->blocks: there is none. Never more than
 * list->blocks, whatever the bytes of the table. */
uint32_t lexical_list_seek(const struct lexical_list *list, uint32_t from, uint32_t chunk);
/* The same, block by block from `from` on: faster if the block is near. */
uint32_t lexical_list_next(const struct lexical_list *list, uint32_t from, uint32_t chunk);
/* Decodes a block. Its chunks ascend, and are between those of the adjacent blocks. Returns false if the block is
 * damaged. */
bool lexical_list_block(const struct lexical_list *list, struct lexical_block *out, uint32_t block);

/* Returns the number of entries of the dictionary's index. Each is for LEXICAL_KEYS keys, the last for at most as
 * many. */
int64_t lexical_segment_entries(const struct lexical_segment *s);
/* Checks every list of the keys of index entries from .. end-1, at least one entry, and adds their numbers of postings
 * to *postings. The second function checks the sum over all. */
enum status lexical_segment_check(const struct lexical_segment *s, int64_t *postings, int64_t from, int64_t end,
                                  const struct progress *progress);
enum status lexical_segment_check_count(const struct lexical_segment *s, int64_t postings);
