/* crc32c.h -- CRC-32C (Castagnoli, reflected, RFC 3720 appendix B.4), as used for every file of a store. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the start) over the bytes; crc32c(crc32c(0,a),b) == crc32c(0, a then b). */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
/* The same checksum without the processor's instruction: for processors without one, and for tests. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes);
/* The checksum of a, then b, from that of a, that of b and the number of bytes of b. */
uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t bytes);
