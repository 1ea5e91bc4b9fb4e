/* test_crc32c.c -- the processor's instruction and the table give the same sums, and those of RFC 3720; rows of 16-bit
 * floats are converted as single ones are. */
#include "base/crc32c.h"
#include "base/half.h"
#include "tests/test.h"

static void check_crc32c(void) {
    uint8_t zeros[32] = {0}, bytes[300];
    CHECK_EQ(crc32c(0, zeros, sizeof zeros), 0x8a9136aau);
    CHECK_EQ(crc32c_table(0, zeros, sizeof zeros), 0x8a9136aau);
    CHECK_EQ(crc32c(0, "123456789", 9), 0xe3069283u);
    CHECK_EQ(crc32c_table(0, "123456789", 9), 0xe3069283u);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i * 7 + i);
    for (size_t from = 0; from < 9; from++)
        for (size_t n = 0; n + from <= sizeof bytes; n++)
            CHECK_EQ(crc32c(77, bytes + from, n), crc32c_table(77, bytes + from, n));
    for (size_t n = 0; n <= sizeof bytes; n++)
        CHECK_EQ(crc32c_join(crc32c(0, bytes, n), crc32c(0, bytes + n, sizeof bytes - n), sizeof bytes - n),
                 crc32c(0, bytes, sizeof bytes));
}

/* Parts that are computed at the same time: at each alignment, sizes around one to three times three parts. */
static void check_crc32c_parts(void) {
    enum { PARTS = 3 * 4096, AROUND = 200, TIMES = 3 };
    static uint8_t bytes[TIMES * PARTS + AROUND + 16];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i * 7 + (i >> 9));
    for (size_t from = 0; from < 9; from++)
        for (size_t times = 1; times <= TIMES; times++) {
            size_t n = times * PARTS - 20;
            uint32_t expected = crc32c_table(77, bytes + from, n);
            for (; n <= times * PARTS + AROUND; n++) {
                CHECK_EQ(crc32c(77, bytes + from, n), expected);
                expected = crc32c_table(expected, bytes + from + n, 1);
            }
        }
}

/* Every fp16 number, in rows that do not fill a vector; and float32 numbers near each. */
static void check_half_rows(void) {
    enum { ROW = 13 };
    for (uint32_t first = 0; first < 0x10000; first += ROW) {
        uint16_t in[ROW], back[ROW];
        float out[ROW];
        for (uint32_t i = 0; i < ROW; i++)
            in[i] = (uint16_t)(first + i);
        half_from_f16_row(out, in, ROW);
        for (int i = 0; i < ROW; i++) {
            float one = half_from_f16(in[i]);
            CHECK(isnan(one) ? isnan(out[i]) : memcmp(&one, out + i, sizeof one) == 0);
            if (i % 3) out[i] = nextafterf(out[i] * (i % 2 ? 1.00048828125f : 0.99975f), 0.0f);
        }
        half_to_f16_row(back, out, ROW);
        for (int i = 0; i < ROW; i++)
            CHECK(isnan(out[i]) ? (back[i] & 0x7fff) > 0x7c00 : back[i] == half_to_f16(out[i]));
    }
}

int main(void) {
    check_crc32c();
    check_crc32c_parts();
    check_half_rows();
    return test_done();
}
