/* codec.h -- decompresses independent blocks, such as parquet's pages and arrow's buffers. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbered as in parquet's CompressionCodec; LZ4_FRAME is arrow's. */
enum codec {
    CODEC_NONE, CODEC_SNAPPY, CODEC_GZIP, CODEC_LZO, CODEC_BROTLI, CODEC_LZ4_HADOOP, CODEC_ZSTD, CODEC_LZ4_RAW,
    CODEC_LZ4_FRAME
};
const char *codec_name(enum codec codec);
/* Whether the codec is supported; lzo and the old framing of lz4 are not. */
bool codec_known(int64_t codec);

/* Decompresses exactly out_bytes bytes. Returns false if the block is damaged, or has more or fewer bytes. Not
 * for CODEC_NONE. */
bool codec_decompress(enum codec codec, uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes);
