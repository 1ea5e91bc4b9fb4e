/* lexical_segment_internal.h -- one mapped lexical segment: lists found by key and read block by block.
 *
 * No bytes of a file make a function read outside the map or return a chunk beyond the segment's: it returns
 * STATUS_CORRUPT, or false, instead. */
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
    const uint8_t *data;                 /* dense: 2 bits a chunk */
    const uint8_t *skips;                /* of blocks */
    uint64_t bytes;                      /* without skips */
    int64_t n;                           /* postings */
    uint32_t blocks, limit;              /* limit: chunks of the segment */
    enum lexical_kind kind;
    uint8_t form;                        /* of a short list */
};
enum status lexical_segment_find(const struct lexical_segment *s, struct lexical_list *out, uint64_t key);

/* Code + 1 of a chunk in a dense list, 0: absent. */
static inline int lexical_dense_code(const uint8_t *data, int64_t chunk) {
    return data[chunk / 4] >> (chunk % 4 * 2) & 3;
}

/* The first block whose last chunk is at least `chunk`; list->blocks: none. At most list->blocks for any skips. */
uint32_t lexical_list_seek(const struct lexical_list *list, uint32_t from, uint32_t chunk);
/* Greatest code in a block, from its form alone. */
int lexical_list_code(const struct lexical_list *list, uint32_t block);
/* false: damaged. Chunks of a block rise and lie between those of its neighbours. */
bool lexical_list_block(const struct lexical_list *list, struct lexical_block *out, uint32_t block);

/* Entries of the dictionary's index, each of LEXICAL_KEYS keys but for the last. */
int64_t lexical_segment_entries(const struct lexical_segment *s);
/* Every list of the keys of index entries from .. end-1, at least one: adds their postings. Then the sum of all. */
enum status lexical_segment_check(const struct lexical_segment *s, int64_t *postings, int64_t from, int64_t end,
                                  const struct progress *progress);
enum status lexical_segment_check_count(const struct lexical_segment *s, int64_t postings);

/* Walks over all keys in order, from the first of an index entry. */
struct lexical_keys { struct lexical_bytes at; uint64_t key, offset; int64_t done; };
void lexical_keys_begin(const struct lexical_segment *s, struct lexical_keys *k, int64_t entry);
enum status lexical_keys_next(const struct lexical_segment *s, struct lexical_keys *k, struct lexical_list *out);
