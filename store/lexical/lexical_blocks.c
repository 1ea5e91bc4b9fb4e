/* lexical_blocks.c -- header, footer and posting blocks of a lexical segment: see lexical_format_internal.h. */
#include "base/crc32c.h"
#include "store/lexical/lexical.h"
#include "store/lexical/lexical_format_internal.h"
#include <assert.h>
#include <string.h>

static const char header_magic[8] = "DRTLEXIC", footer_magic[8] = "DRTLXEND";

void lexical_header_make(uint8_t out[LEXICAL_HEADER_BYTES], const struct lexical_frame *f) {
    memset(out, 0, LEXICAL_HEADER_BYTES);
    memcpy(out, header_magic, 8);
    little_endian_put(out + 8, LEXICAL_VERSION, 4);
    little_endian_put(out + 12, (uint64_t)f->vocab_size, 4);
    little_endian_put(out + 16, (uint64_t)f->first_chunk, 8);
}

void lexical_footer_make(uint8_t out[LEXICAL_FOOTER_BYTES], const struct lexical_frame *f) {
    uint8_t header[LEXICAL_HEADER_BYTES];
    memset(out, 0, LEXICAL_FOOTER_BYTES);
    memcpy(out, footer_magic, 8);
    little_endian_put(out + 8, (uint64_t)f->chunks, 8);
    little_endian_put(out + 16, (uint64_t)f->tokens, 8);
    little_endian_put(out + 24, (uint64_t)f->keys, 8);
    little_endian_put(out + 32, (uint64_t)f->postings, 8);
    for (int i = 0; i < LEXICAL_PARTS; i++) {
        little_endian_put(out + 40 + 8 * i, f->bytes[i], 8);
        little_endian_put(out + 64 + 4 * i, f->crc[i], 4);
    }
    lexical_header_make(header, f);
    little_endian_put(out + 92, crc32c(crc32c(0, header, sizeof header), out, 92), 4);
}

static bool frame_fits(const struct lexical_frame *f, uint64_t size) {
    uint64_t left = size - LEXICAL_HEADER_BYTES - LEXICAL_FOOTER_BYTES;
    for (int i = 0; i < LEXICAL_PARTS; i++) {
        if (f->bytes[i] > left) return false;
        left -= f->bytes[i];
    }
    uint64_t entries = ((uint64_t)f->keys + LEXICAL_KEYS - 1) / LEXICAL_KEYS;
    return left == 0 && f->vocab_size >= 1 && f->vocab_size <= LEXICAL_VOCAB_MAX && f->first_chunk >= 0 &&
           f->first_chunk <= INT64_MAX - LEXICAL_CHUNKS_MAX && f->chunks >= 0 && f->chunks <= LEXICAL_CHUNKS_MAX &&
           f->tokens >= f->chunks && f->keys >= 0 && f->keys <= (int64_t)1 << 48 && f->postings >= f->keys &&
           f->bytes[LEXICAL_INDEX] == entries * LEXICAL_INDEX_BYTES;
}

enum status lexical_frame_read(struct lexical_frame *out, const uint8_t *file, uint64_t size, const char *path) {
    assert(size >= LEXICAL_HEADER_BYTES + LEXICAL_FOOTER_BYTES);
    const uint8_t *end = file + size - LEXICAL_FOOTER_BYTES;
    if (memcmp(file, header_magic, 8) != 0 || memcmp(end, footer_magic, 8) != 0)
        return fail(STATUS_CORRUPT, "%s: is not a lexical segment, or is cut short: run drt-index repair", path);
    uint32_t version = (uint32_t)little_endian_get(file + 8, 4);
    if (version > LEXICAL_VERSION)
        return fail(STATUS_VERSION, "%s: lexical format %u, this program reads up to %d: use a newer one", path,
                    version, LEXICAL_VERSION);
    struct lexical_frame f = {
        .vocab_size = (int64_t)little_endian_get(file + 12, 4),
        .first_chunk = (int64_t)little_endian_get(file + 16, 8),
        .chunks = (int64_t)little_endian_get(end + 8, 8),
        .tokens = (int64_t)little_endian_get(end + 16, 8),
        .keys = (int64_t)little_endian_get(end + 24, 8),
        .postings = (int64_t)little_endian_get(end + 32, 8),
    };
    for (int i = 0; i < LEXICAL_PARTS; i++) {
        f.bytes[i] = little_endian_get(end + 40 + 8 * i, 8);
        f.crc[i] = (uint32_t)little_endian_get(end + 64 + 4 * i, 4);
    }
    uint8_t header[LEXICAL_HEADER_BYTES], footer[LEXICAL_FOOTER_BYTES];
    lexical_header_make(header, &f);
    lexical_footer_make(footer, &f);
    if (memcmp(header, file, sizeof header) != 0 || memcmp(footer, end, sizeof footer) != 0 || !frame_fits(&f, size))
        return fail(STATUS_CORRUPT, "%s: header or footer is damaged: run drt-index repair", path);
    *out = f;
    return STATUS_OK;
}

/* ---- steps of fixed width ---- */

typedef uint32_t lanes __attribute__((vector_size(16)));
enum { LANES = 4, LANE_STEPS = LEXICAL_BLOCK / LANES };

static inline lanes load_lanes(const uint8_t *p) {
    lanes x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Inlined with a constant width, so that every shift is one instruction. */
static inline __attribute__((always_inline)) void unpack_lanes(uint32_t *out, const uint8_t *in, int width) {
    lanes mask = (lanes){0} + (uint32_t)(((uint64_t)1 << width) - 1);
#pragma GCC unroll 32
    for (int j = 0; j < LANE_STEPS; j++) {
        int word = j * width / 32, shift = j * width % 32;
        lanes x = load_lanes(in + 16 * word) >> shift;
        if (shift + width > 32) x |= load_lanes(in + 16 * (word + 1)) << (32 - shift);
        x &= mask;
        memcpy(out + LANES * j, &x, sizeof x);
    }
}

static void unpack_whole(uint32_t out[LEXICAL_BLOCK], const uint8_t *in, int width) {
    switch (width) {
#define WIDTH(w)                                                                                                       \
    case w:                                                                                                            \
        unpack_lanes(out, in, w);                                                                                      \
        return
        WIDTH(1);
        WIDTH(2);
        WIDTH(3);
        WIDTH(4);
        WIDTH(5);
        WIDTH(6);
        WIDTH(7);
        WIDTH(8);
        WIDTH(9);
        WIDTH(10);
        WIDTH(11);
        WIDTH(12);
        WIDTH(13);
        WIDTH(14);
        WIDTH(15);
        WIDTH(16);
        WIDTH(17);
        WIDTH(18);
        WIDTH(19);
        WIDTH(20);
        WIDTH(21);
        WIDTH(22);
        WIDTH(23);
        WIDTH(24);
#undef WIDTH
    default:
        memset(out, 0, LEXICAL_BLOCK * sizeof *out);
    }
}

/* 32 steps of a lane fill `width` words. The lanes are packed side by side. */
static void pack_whole(uint8_t *out, const uint32_t steps[LEXICAL_BLOCK], int width) {
    lanes words = {0};
    int bits = 0;
    for (int j = 0; j < LANE_STEPS && width > 0; j++) {
        lanes x;
        memcpy(&x, steps + LANES * j, sizeof x);
        words |= x << bits;
        bits += width;
        if (bits < 32) continue;
        memcpy(out, &words, sizeof words); /* numbers are little-endian here, too */
        out += sizeof words;
        bits -= 32;
        words = bits > 0 ? x >> (width - bits) : (lanes){0};
    }
}

/* Writes up to 3 bytes after the packed ones. */
static void pack_part(uint8_t *out, const uint32_t *steps, int n, int width) {
    uint64_t word = 0;
    int bits = 0;
    for (int i = 0; i < n; i++) {
        word |= (uint64_t)steps[i] << bits;
        bits += width;
        if (bits < 32) continue;
        little_endian_put(out, word, 4);
        out += 4;
        word >>= 32;
        bits -= 32;
    }
    little_endian_put(out, word, 4);
}

static void unpack_part(uint32_t *out, const uint8_t *in, int n, int width) {
    uint8_t padded[LEXICAL_BLOCK_BYTES + 8] = {0};
    memcpy(padded, in, lexical_packed_bytes(n, width));
    uint32_t mask = (uint32_t)(((uint64_t)1 << width) - 1);
    for (int i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, padded + i * width / 8, sizeof word); /* a width of 24 and a shift of 7 fit */
        out[i] = word >> (i * width % 8) & mask;
    }
}

/* ---- sums of steps ---- */

/* Turns differences (each less one) into chunk numbers, from `base`. It sums within four lanes, then adds the last
 * number before them, so that only one addition in four depends on the previous one. */
static void sum_steps(uint32_t *steps, int n, uint32_t base) {
    const lanes zero = {0};
    lanes before = zero + (base - 1);
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes x;
        memcpy(&x, steps + i, sizeof x);
        x += 1;
        x += __builtin_shufflevector(zero, x, 0, 4, 5, 6);
        x += __builtin_shufflevector(zero, x, 0, 1, 4, 5);
        x += before;
        before = __builtin_shufflevector(x, x, 3, 3, 3, 3);
        memcpy(steps + i, &x, sizeof x);
    }
    for (uint32_t at = before[0]; i < n; i++)
        at = steps[i] += at + 1;
}

/* ---- blocks ---- */

/* Which codes are at least 1, and which are 2. */
struct planes {
    uint64_t twice[2], thrice[2];
};

/* The lowest bits of eight bytes, which have no other bits, as one byte. */
static uint64_t low_bits_of(uint64_t bytes) {
    return bytes * UINT64_C(0x0102040810204080) >> 56;
}

static struct planes planes_of(const uint8_t *codes, int n) {
    struct planes p = {{0, 0}, {0, 0}};
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t x;
        memcpy(&x, codes + i, sizeof x);
        if (x == 0) continue;
        const uint64_t ones = UINT64_C(0x0101010101010101);
        p.twice[i / 64] |= low_bits_of((x | x >> 1) & ones) << (i % 64);
        p.thrice[i / 64] |= low_bits_of(x >> 1 & ones) << (i % 64);
    }
    for (; i < n; i++) {
        p.twice[i / 64] |= (uint64_t)(codes[i] >= 1) << (i % 64);
        p.thrice[i / 64] |= (uint64_t)(codes[i] >= 2) << (i % 64);
    }
    return p;
}

/* Writes the planes of a block: a bit for each posting, then a bit for each one that is set in these. */
static size_t encode_planes(uint8_t *out, const struct planes *p, int n, bool thrice) {
    const size_t bytes = ((size_t)n + 7) / 8;
    memcpy(out, p->twice, bytes);
    if (!thrice) return bytes;
    uint64_t dense[2] = {0, 0};
    int bits = 0;
    for (int half = 0; half < 2; half++)
        for (uint64_t left = p->twice[half]; left; left &= left - 1, bits++)
            dense[bits / 64] |= (p->thrice[half] >> __builtin_ctzll(left) & 1) << (bits % 64);
    memcpy(out + bytes, dense, ((size_t)bits + 7) / 8);
    return bytes + ((size_t)bits + 7) / 8;
}

size_t lexical_block_encode(uint8_t *out, unsigned *form, const uint32_t *chunks, const uint8_t *codes, int n,
                            uint32_t base) {
    uint32_t steps[LEXICAL_BLOCK], any = chunks[0] - base;
    assert(n > 0 && n <= LEXICAL_BLOCK && chunks[0] >= base);
    steps[0] = any;
    for (int i = 1; i < n; i++) {
        steps[i] = chunks[i] - chunks[i - 1] - 1;
        any |= steps[i];
    }
    const struct planes planes = planes_of(codes, n);
    const bool twice = planes.twice[0] | planes.twice[1], thrice = planes.thrice[0] | planes.thrice[1];
    int width = any ? 32 - __builtin_clz(any) : 0;
    assert(width <= LEXICAL_WIDTH_MAX);
    if (n == LEXICAL_BLOCK)
        pack_whole(out, steps, width);
    else
        pack_part(out, steps, n, width);
    *form = (unsigned)width | (unsigned)(twice + thrice) << 5;
    const size_t bytes = lexical_packed_bytes(n, width);
    return bytes + (twice ? encode_planes(out + bytes, &planes, n, thrice) : 0);
}

static int popcount128(const uint64_t bits[2]) {
    return __builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1]);
}

static uint64_t low_bits(int n) {
    return n <= 0 ? 0 : n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

/* Reads `bits` bits from `in`. Returns false if a padding bit after them is set. */
static bool read_plane(uint64_t out[2], const uint8_t *in, int bits) {
    out[0] = out[1] = 0;
    memcpy(out, in, ((size_t)bits + 7) / 8); /* numbers are little-endian here, too */
    return !(out[0] & ~low_bits(bits)) && !(out[1] & ~low_bits(bits - 64));
}

/* Moves bit i of `dense` to the position of the i-th set bit of `selected`. */
static void deposit(uint64_t out[2], const uint64_t dense[2], const uint64_t selected[2]) {
    int i = 0;
    for (int half = 0; half < 2; half++) {
        out[half] = 0;
        for (uint64_t left = selected[half]; left; left &= left - 1, i++)
            if (dense[i / 64] >> (i % 64) & 1) out[half] |= left & (~left + 1);
    }
}

bool lexical_block_decode(struct lexical_block *out, const uint8_t *in, size_t bytes, int n, unsigned form,
                          uint32_t base, uint32_t limit) {
    int width = lexical_form_width(form), greatest = lexical_form_code(form);
    size_t used = lexical_packed_bytes(n, width);
    if (n < 1 || n > LEXICAL_BLOCK || width > LEXICAL_WIDTH_MAX || greatest >= LEXICAL_CODES || used > bytes)
        return false;
    if (n == LEXICAL_BLOCK)
        unpack_whole(out->chunks, in, width);
    else
        unpack_part(out->chunks, in, n, width);
    /* 128 differences below 2^24 and a base below 2^24: the sum cannot wrap, so the last number is the greatest. */
    sum_steps(out->chunks, n, base);
    memset(out->twice, 0, sizeof out->twice);
    memset(out->thrice, 0, sizeof out->thrice);
    out->n = n;
    if (greatest > 0) {
        size_t plane = ((size_t)n + 7) / 8;
        if (plane > bytes - used || !read_plane(out->twice, in + used, n)) return false;
        used += plane;
    }
    if (greatest > 1) {
        int some = popcount128(out->twice);
        size_t plane = ((size_t)some + 7) / 8;
        uint64_t dense[2];
        if (plane > bytes - used || !read_plane(dense, in + used, some)) return false;
        used += plane;
        deposit(out->thrice, dense, out->twice);
    }
    return used == bytes && base < LEXICAL_CHUNKS_MAX && out->chunks[n - 1] < limit;
}
