/* little_endian.h -- numbers of 1 to 8 bytes in files, least significant byte first. They need not be aligned. */
#pragma once
#include <stdint.h>

static inline uint64_t little_endian_get(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}
static inline void little_endian_put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> 8 * i);
}
