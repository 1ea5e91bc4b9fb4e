/* lexical_scan.h -- the chunks with the greatest sums of weights over compressed lists of postings (BM25's scores).
 *
 * Segments hold consecutive chunks. A query has lists in each: a posting adds the list's weight of its code to the sum
 * of its chunk. Sums are integers, so they have the same bits in any order. index (chunk ids) and score [n*k]: score =
 * (float)sum * unit, best sum first, equal sums by smaller id; only chunks of a sum above 0, the rest is -1, -inf. Both
 * are written once and never read: they may be memory of this process that the device can reach (device_reach).
 *
 * Bytes of a list, little-endian, at any address; `n` postings in rising order of chunk (of its segment, from 0):
 *   dense    2 bits a chunk, from the low ones up: 0: absent, else code + 1
 *   n <= 128 one block; its form is in the list
 *   else     blocks of 128 and a last one of the rest; then, after `bytes`, the table of 8 bytes a block: 24 bits
 *            last chunk, 8 bits form, 32 bits offset of the block's end from the list's first byte
 * Block: steps of `width` bits between chunks, less one (the first from the chunk after the last of the block before);
 * if the greatest code is above 0, a bit for each posting of code 1 or 2; if it is 2, a bit for each posting so marked,
 * of code 2. Form: width | greatest code << 5. Steps of 128 postings lie in four lanes: step i is bits i/4*width .. of
 * the lane of words i%4, i%4+4, ...; fewer steps, and the marks, follow one another bit by bit.
 *
 * The caller must have checked the lists, because an op reads at every offset in them. Sums of all weights of a query
 * fit in 30 bits. */
#pragma once
#include "kernels/device/device.h"

enum {
    LEXICAL_SCAN_WINDOW = 1 << 13,       /* chunks that are summed together; a segment begins with a window */
    LEXICAL_SCAN_WINDOWS_MAX = 1 << 16,
    LEXICAL_SCAN_K_MAX = 1024,
    LEXICAL_SCAN_PAD = 64,               /* bytes after the last list that may be read, of any content */
    LEXICAL_SCAN_BLOCK = 128, LEXICAL_SCAN_CODES = 3,
};

struct lexical_scan_list {
    uint64_t begin;                      /* in `postings` */
    uint32_t bytes, n;                   /* bytes: without the table */
    uint32_t form;                       /* of a list of one block */
    /* of a list of one block: its first chunk, and the one after its last, so that windows without any of its postings
     * need not decode it; until 0: unknown */
    uint32_t from, until;
    int32_t weight[LEXICAL_SCAN_CODES];  /* of each code, at least 0 */
};
struct lexical_scan_segment { int64_t first_chunk; int32_t chunks, first_window; }; /* chunks: at most 2^24 */
struct lexical_scan_part { int32_t first, sparse, dense; };       /* a query's lists in a segment: dense ones last */
struct lexical_scan_query { int64_t hole[2]; float unit; };       /* ids hole[0] .. hole[1]-1 are never found */

/* Pointers are memory of the device. */
struct lexical_scan {
    const uint8_t *postings;
    const struct lexical_scan_segment *segments;        /* at least 1; chunk ids and windows rise */
    const struct lexical_scan_list *lists;
    const struct lexical_scan_part *parts;              /* [queries, segments] */
    const struct lexical_scan_query *queries;
    const uint8_t *absent;               /* [windows, WINDOW / 8] a bit for each chunk never to be found; NULL: none */
    int64_t n_segments, n_queries;
    int64_t windows;                     /* of all segments, at most WINDOWS_MAX */
};

struct lexical_scan_ops {
    /* k: 1 .. LEXICAL_SCAN_K_MAX */
    void (*forward)(struct device *dev, int64_t *index, float *score, const struct lexical_scan *scan, int k);
    /* The scores of given chunks: score, chunk [n_queries*n]. Of a chunk that no segment has, such as -1, it is 0.
     * Holes and `absent` are not read. */
    void (*score)(struct device *dev, float *score, const struct lexical_scan *scan, const int64_t *chunk, int n);
};
extern const struct lexical_scan_ops lexical_scan_cpu;
