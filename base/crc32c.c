/* crc32c.c -- uses the processor's instruction if there is one, otherwise a 16-entry table. On x86-64 the build
 * determines that (SSE 4.2). On 64-bit ARM the instruction is optional in the first version of the architecture, so the
 * program asks the kernel at run time. */
#include "base/crc32c.h"
#include <string.h>

/* The remainder of one byte, computed bit by bit as a constant expression. */
#define POLY 0x82F63B78u
#define B1(c) (((c) >> 1) ^ (POLY & (0u - ((c)&1u))))
#define B2(c) B1(B1(c))
#define NIBBLE(c) B2(B2(c))
static const uint32_t nibble_table[16] = {
    NIBBLE(0u), NIBBLE(1u), NIBBLE(2u),  NIBBLE(3u),  NIBBLE(4u),  NIBBLE(5u),  NIBBLE(6u),  NIBBLE(7u),
    NIBBLE(8u), NIBBLE(9u), NIBBLE(10u), NIBBLE(11u), NIBBLE(12u), NIBBLE(13u), NIBBLE(14u), NIBBLE(15u),
};

uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint32_t c = ~crc;
    for (; bytes > 0; bytes--, p++) {
        c ^= *p;
        c = (c >> 4) ^ nibble_table[c & 15];
        c = (c >> 4) ^ nibble_table[c & 15];
    }
    return ~c;
}

/* The product of two polynomials modulo the checksum's. Bit 31 is the coefficient of x^0. */
static uint32_t crc32c_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = UINT32_C(1) << 31; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = B1(b);
    }
    return product;
}

/* A checksum is linear: bytes after a multiply its remainder by x^8 each. */
uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t bytes) {
    uint32_t power = UINT32_C(1) << 23; /* x^8 */
    for (; bytes > 0; bytes >>= 1) {
        if (bytes & 1) a = crc32c_multiply(a, power);
        power = crc32c_multiply(power, power);
    }
    return a ^ b;
}

#if defined(__SSE4_2__)
#include <nmmintrin.h>

/* An instruction's result takes three cycles, and one can begin in each. So three parts are computed at the same time,
 * and joined. */
enum { PART = 4096 };
static const uint32_t PART_POWER = UINT32_C(0x35D73A62); /* x^(8 * PART) */

static uint64_t crc32c_parts(uint64_t crc, const uint8_t *p) {
    uint64_t c[3] = {crc};
    for (size_t i = 0; i < PART; i += 8)
        for (size_t k = 0; k < 3; k++) {
            uint64_t word;
            memcpy(&word, p + k * PART + i, 8);
            c[k] = _mm_crc32_u64(c[k], word);
        }
    return crc32c_multiply(crc32c_multiply((uint32_t)c[0], PART_POWER) ^ (uint32_t)c[1], PART_POWER) ^ (uint32_t)c[2];
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint64_t c = (uint32_t)~crc;
    for (; bytes >= 3 * PART; bytes -= 3 * PART, p += 3 * PART)
        c = crc32c_parts(c, p);
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
    }
    for (; bytes > 0; bytes--, p++)
        c = _mm_crc32_u8((uint32_t)c, *p);
    return ~(uint32_t)c;
}

#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>

__attribute__((target("+crc"))) static uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint32_t c = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __crc32cd(c, word);
    }
    for (; bytes > 0; bytes--, p++)
        c = __crc32cb(c, *p);
    return ~c;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes) {
    enum { HAS_CRC32 = 1 << 7 }; /* HWCAP_CRC32 of the kernel's interface */
    return getauxval(AT_HWCAP) & HAS_CRC32 ? crc32c_instruction(crc, data, bytes) : crc32c_table(crc, data, bytes);
}

#else

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes) {
    return crc32c_table(crc, data, bytes);
}

#endif
