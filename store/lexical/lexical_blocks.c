/* lexical_blocks.c -- header, footer and posting blocks of a lexical segment: see lexical_format_internal.h. */
#include "base/crc32c.h"
#include "store/lexical/lexical.h"
#include "store/lexical/lexical_format_internal.h"
#include <assert.h>
#include <string.h>
#if defined(__BMI2__)
#include <immintrin.h>
#endif

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

static int lexical_blocks_popcount128(const uint64_t bits[2]) {
    return __builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1]);
}

static uint64_t low_bits(int n) {
    return n <= 0 ? 0 : n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

/* Reads `bits` bits, at most 128, that end before `end`, at least `before` bytes after the block's begin. Returns false
 * if a padding bit after them is set. Numbers are little-endian here, too. */
static bool read_plane(uint64_t out[2], const uint8_t *end, size_t before, int bits) {
    const int bytes = (bits + 7) / 8;
    out[0] = out[1] = 0;
    if (before >= LEXICAL_BLOCK / 8 && bytes > 0) { /* one load, without a branch for each byte */
        unsigned __int128 all;
        memcpy(&all, end - LEXICAL_BLOCK / 8, sizeof all);
        all >>= LEXICAL_BLOCK - 8 * bytes;
        out[0] = (uint64_t)all;
        out[1] = (uint64_t)(all >> 64);
    } else {
        memcpy(out, end - bytes, (size_t)bytes);
    }
    return !(out[0] & ~low_bits(bits)) && !(out[1] & ~low_bits(bits - 64));
}

/* Moves bit i of `dense` to the position of the i-th set bit of `selected`. */
static uint64_t deposit_half(uint64_t dense, uint64_t selected) {
#if defined(__BMI2__)
    return _pdep_u64(dense, selected);
#else
    uint64_t out = 0;
    for (uint64_t left = selected; left; left &= left - 1, dense >>= 1)
        if (dense & 1) out |= left & (~left + 1);
    return out;
#endif
}

static void lexical_blocks_deposit(uint64_t out[2], const uint64_t dense[2], const uint64_t selected[2]) {
    const int first = __builtin_popcountll(selected[0]);
    const uint64_t rest = first == 64 ? dense[1] : first == 0 ? dense[0] : dense[0] >> first | dense[1] << (64 - first);
    out[0] = deposit_half(dense[0], selected[0]);
    out[1] = deposit_half(rest, selected[1]);
}

bool lexical_block_decode(struct lexical_block *out, const uint8_t *in, size_t bytes, int n, unsigned form,
                          uint32_t base, uint32_t limit) {
    int width = lexical_form_width(form), greatest = lexical_form_code(form);
    size_t used = lexical_packed_bytes(n, width);
    if (n < 1 || n > LEXICAL_BLOCK || width > LEXICAL_WIDTH_MAX || greatest >= LEXICAL_CODES || used > bytes)
        return false;
    /* 128 differences below 2^24 and a base below 2^24: the sum cannot wrap, so the last number is the greatest. */
    lexical_unpack(out->chunks, in, n, width, base, lexical_vectors_widest());
    memset(out->twice, 0, sizeof out->twice);
    memset(out->thrice, 0, sizeof out->thrice);
    out->n = n;
    if (greatest > 0) {
        size_t plane = ((size_t)n + 7) / 8;
        if (plane > bytes - used) return false;
        used += plane;
        if (!read_plane(out->twice, in + used, used, n)) return false;
    }
    if (greatest > 1) {
        int some = lexical_blocks_popcount128(out->twice);
        size_t plane = ((size_t)some + 7) / 8;
        uint64_t dense[2];
        if (plane > bytes - used) return false;
        used += plane;
        if (!read_plane(dense, in + used, used, some)) return false;
        lexical_blocks_deposit(out->thrice, dense, out->twice);
    }
    return used == bytes && base < LEXICAL_CHUNKS_MAX && out->chunks[n - 1] < limit;
}
