/* codec.c -- see codec.h. Each library checks its input. The size of the output is compared with the expected one. */
#include "data/readers/columnar/codec.h"
#include <brotli/decode.h>
#include <limits.h>
#include <lz4.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

const char *codec_name(enum codec codec) {
    static const char *const names[] = {"none",          "snappy", "gzip",    "lzo",      "brotli",
                                        "lz4 of Hadoop", "zstd",   "lz4_raw", "lz4 frame"};
    return names[codec];
}

bool codec_known(int64_t codec) {
    return codec >= CODEC_NONE && codec <= CODEC_LZ4_FRAME && codec != CODEC_LZO && codec != CODEC_LZ4_HADOOP;
}

/* Several consecutive gzip members form one block. In both formats a block has less than 2 GiB. */
static bool gzip_block(uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes) {
    z_stream z = {
        .next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)in_bytes, .next_out = out, .avail_out = (uInt)out_bytes};
    if (in_bytes > UINT_MAX || out_bytes > UINT_MAX || inflateInit2(&z, 15 + 32) != Z_OK) return false;
    int result = inflate(&z, Z_FINISH);
    while (result == Z_STREAM_END && z.avail_in > 0 && inflateReset(&z) == Z_OK)
        result = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return result == Z_STREAM_END && z.avail_out == 0 && z.avail_in == 0;
}

static bool lz4_frame(uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes) {
    LZ4F_dctx *context;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION))) return false;
    size_t made = 0, used = 0, hint = 1;
    while (hint != 0 && !LZ4F_isError(hint)) {
        size_t to = out_bytes - made, from = in_bytes - used;
        hint = LZ4F_decompress(context, out + made, &to, in + used, &from, NULL);
        made += to;
        used += from;
        if (to == 0 && from == 0) break;
    }
    LZ4F_freeDecompressionContext(context);
    return hint == 0 && made == out_bytes && used == in_bytes;
}

bool codec_decompress(enum codec codec, uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes) {
    size_t made = out_bytes;
    switch (codec) {
    case CODEC_SNAPPY:
        return snappy_uncompressed_length((const char *)in, in_bytes, &made) == SNAPPY_OK && made == out_bytes &&
               snappy_uncompress((const char *)in, in_bytes, (char *)out, &made) == SNAPPY_OK && made == out_bytes;
    case CODEC_GZIP:
        return gzip_block(out, out_bytes, in, in_bytes);
    case CODEC_BROTLI:
        return BrotliDecoderDecompress(in_bytes, in, &made, out) == BROTLI_DECODER_RESULT_SUCCESS && made == out_bytes;
    case CODEC_ZSTD:
        return ZSTD_decompress(out, out_bytes, in, in_bytes) == out_bytes;
    case CODEC_LZ4_RAW:
        return in_bytes <= INT_MAX && out_bytes <= INT_MAX &&
               LZ4_decompress_safe((const char *)in, (char *)out, (int)in_bytes, (int)out_bytes) == (int)out_bytes;
    case CODEC_LZ4_FRAME:
        return lz4_frame(out, out_bytes, in, in_bytes);
    case CODEC_NONE:
    case CODEC_LZO:
    case CODEC_LZ4_HADOOP:
        break;
    }
    return false;
}
