/* lexical_format_internal.h -- the bytes of a lexical segment: postings of tokens and token pairs in a range of chunks.
 *
 *   header      64 bytes   magic, version, vocabulary, first chunk
 *   postings               the lists, one after the other, in the order of their keys
 *   dictionary             for each key: difference from the previous key, document frequency, form of its list
 *   index                  for every 64th key: the key, its offset in the dictionary, its list's offset in the postings
 *   footer      96 bytes   magic, counts, bytes and CRC32C of the three parts, CRC32C of header and footer
 *
 * The key of a token is its id; the key of the pair (a, b) is vocabulary + a * vocabulary + b. Numbers are
 * little-endian. A chunk is written as its number in the segment. A term frequency is one of three codes, 0: once, 1:
 * twice, 2: three times or more.
 *
 * There are three kinds of list, by document frequency n:
 *   n <= 128                   one block, whose form is in the dictionary
 *   n * 8 >= chunks            dense: 2 bits a chunk, 0: absent, else code + 1. Any chunk is read without decoding.
 *   else                       blocks of 128, then 8 bytes per block: last chunk | form << 24, end in the list
 * A block has the differences between its chunks, less one, in `width` bits each. If any frequency is above one, a bit
 * per posting follows that says which are. If any is above two, a bit per posting of these follows. The form is width |
 * greatest code << 5, so a search can bound the scores in a block without decoding it. The differences of a block of
 * 128 are in four lanes of 32 bits (difference i in lane i % 4); those of a shorter block are contiguous. */
#pragma once
#include "base/little_endian.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LEXICAL_VERSION = 1, LEXICAL_HEADER_BYTES = 64, LEXICAL_FOOTER_BYTES = 96,
    LEXICAL_BLOCK = 128, LEXICAL_WIDTH_MAX = 24, LEXICAL_CODES = 3, LEXICAL_SKIP_BYTES = 8,
    LEXICAL_BLOCK_BYTES = LEXICAL_BLOCK * LEXICAL_WIDTH_MAX / 8 + 2 * LEXICAL_BLOCK / 8, /* the most bytes of a block */
    LEXICAL_DENSE_SHARE = 8, LEXICAL_KEYS = 64, LEXICAL_INDEX_BYTES = 24,
};
enum lexical_part { LEXICAL_POSTINGS, LEXICAL_DICTIONARY, LEXICAL_INDEX, LEXICAL_PARTS };

struct lexical_frame {                   /* contents of header and footer */
    int64_t vocab_size, first_chunk;
    int64_t chunks, tokens, keys, postings;
    uint64_t bytes[LEXICAL_PARTS];
    uint32_t crc[LEXICAL_PARTS];
};
void lexical_header_make(uint8_t out[LEXICAL_HEADER_BYTES], const struct lexical_frame *f);
void lexical_footer_make(uint8_t out[LEXICAL_FOOTER_BYTES], const struct lexical_frame *f);
/* STATUS_CORRUPT, STATUS_VERSION. `size`: bytes of the file, at least those of header and footer. Bounded time. */
enum status lexical_frame_read(struct lexical_frame *out, const uint8_t *file, uint64_t size, const char *path);

/* A number in groups of 7 bits, low groups first, one group per byte. The top bit of a byte is set if another byte
 * follows. */
enum { LEXICAL_VARINT_BYTES = 10 };
static inline int lexical_put_varint(uint8_t *at, uint64_t value) {
    int n = 0;
    for (; value >= 128; value >>= 7) at[n++] = (uint8_t)(value | 128);
    at[n++] = (uint8_t)value;
    return n;
}
/* A range of bytes that is being read. `bad` is set when the range ends inside a number or a number is too long; that
 * number is read as 0. */
struct lexical_bytes { const uint8_t *at, *end; bool bad; };
static inline uint64_t lexical_get_varint(struct lexical_bytes *r) {
    uint64_t value = 0;
    for (int shift = 0; shift < 63 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
    r->bad = true;
    return 0;
}

/* The frequency that a code stands for. The last code stands for all frequencies from three on, most of which are three
 * or four. */
static inline double lexical_frequency(int code) { return code == LEXICAL_CODES - 1 ? 4.0 : code + 1.0; }
static inline size_t lexical_packed_bytes(int n, int width) { return ((size_t)n * (size_t)width + 7) / 8; }
static inline int lexical_form_width(unsigned form) { return (int)(form & 31); }
static inline int lexical_form_code(unsigned form) { return (int)(form >> 5); }

struct lexical_block {
    uint32_t chunks[LEXICAL_BLOCK];
    uint64_t twice[2], thrice[2];        /* bit i: frequency of posting i is at least two, at least three */
    int n;
};
static inline int lexical_block_code(const struct lexical_block *b, int i) {
    return (int)(b->twice[i / 64] >> (i % 64) & 1) + (int)(b->thrice[i / 64] >> (i % 64) & 1);
}
/* Writes a block to out[LEXICAL_BLOCK_BYTES] and returns its bytes. chunks[n] ascend, and the first is at least
 * `base`. */
size_t lexical_block_encode(uint8_t *out, unsigned *form, const uint32_t *chunks, const uint8_t *codes, int n,
                            uint32_t base);
/* Returns false unless the bytes are exactly those of such a block over chunks base .. limit - 1. LEXICAL_PAD bytes
 * after them may be read, of any content: in a file these are other parts and the footer. */
enum { LEXICAL_PAD = 64 };
bool lexical_block_decode(struct lexical_block *out, const uint8_t *in, size_t bytes, int n, unsigned form,
                          uint32_t base, uint32_t limit);

/* Vectors of 128 bits of any target, or AVX-512, where this processor has it. Results are the same. */
enum lexical_vectors { LEXICAL_NARROW, LEXICAL_WIDE };
enum lexical_vectors lexical_vectors_widest(void);          /* the widest that this processor has */
/* Writes the chunks of a block's n postings from its packed differences: base + the sum of the differences up to each
 * posting + its position. May read LEXICAL_PAD bytes after them. WIDE is for whole blocks; others use NARROW. */
void lexical_unpack(uint32_t out[LEXICAL_BLOCK], const uint8_t *in, int n, int width, uint32_t base,
                    enum lexical_vectors vectors);
