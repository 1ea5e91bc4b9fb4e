/* arrow_buffer.c -- see arrow_internal.h. A buffer of a compressed batch begins with its uncompressed length; -1: the
 * buffer is stored uncompressed. */
#include "base/little_endian.h"
#include "base/memory.h"
#include "data/readers/columnar/arrow_internal.h"

static const uint64_t window_bytes = 256 << 10;

enum status arrow_batch_fail(const struct arrow_body *body, const char *what) {
    return fail(STATUS_INVALID, "%s: record batch %llu at byte %llu: %s: write or fetch the file again",
                body->file->path, (unsigned long long)body->batch, (unsigned long long)body->at, what);
}

static enum status too_large(const struct arrow_body *body, uint64_t bytes) {
    return fail(STATUS_UNSUPPORTED,
                "%s: record batch %llu at byte %llu: a buffer takes %llu bytes, more than the limit of %llu: allow "
                "drt-index more memory (--max-ram), or write smaller batches",
                body->file->path, (unsigned long long)body->batch, (unsigned long long)body->at,
                (unsigned long long)bytes, (unsigned long long)body->block_max);
}

static enum status arrow_buffer_decompress(struct arrow_buffer *b, const struct arrow_body *body, uint64_t plain) {
    uint8_t *raw;
    if (plain > body->block_max || b->size > body->block_max) return too_large(body, plain > b->size ? plain : b->size);
    TRY(memory_grow(&b->bytes.data, &b->bytes.capacity, (size_t)plain + 1));
    TRY(memory_allocate(&raw, b->size));
    enum status status = columnar_file_read(body->file, raw, b->at, (size_t)b->size);
    if (status == STATUS_OK &&
        !codec_decompress(body->codec, (uint8_t *)b->bytes.data, (size_t)plain, raw, (size_t)b->size))
        status = arrow_batch_fail(body, "its compressed data is damaged");
    memory_free(raw);
    b->size = plain;
    b->loaded = true;
    return status;
}

enum status arrow_buffer_open(struct arrow_buffer *b, const struct arrow_body *body, const uint8_t *entry) {
    uint64_t at = little_endian_get(entry, 8), size = little_endian_get(entry + 8, 8);
    uint8_t head[8];
    if (at > body->bytes || size > body->bytes - at) return arrow_batch_fail(body, "a buffer lies outside of it");
    b->at = body->at + at;
    b->size = size;
    b->loaded = false;
    b->window = b->bytes.size = 0;
    if (body->codec == CODEC_NONE || size == 0) return STATUS_OK;
    if (size < sizeof head) return arrow_batch_fail(body, "a compressed buffer is too short");
    TRY(columnar_file_read(body->file, head, b->at, sizeof head));
    b->at += sizeof head;
    b->size -= sizeof head;
    uint64_t plain = little_endian_get(head, 8);
    return plain == UINT64_MAX ? STATUS_OK : arrow_buffer_decompress(b, body, plain);
}

enum status arrow_buffer_get(struct arrow_buffer *b, const uint8_t **out, const struct arrow_body *body, uint64_t at,
                             uint64_t bytes) {
    if (at > b->size || bytes > b->size - at) return arrow_batch_fail(body, "a row lies outside of its buffers");
    if (bytes == 0) {
        *out = (const uint8_t *)""; /* no buffer has been read yet */
        return STATUS_OK;
    }
    if (b->loaded) {
        *out = (const uint8_t *)b->bytes.data + at;
        return STATUS_OK;
    }
    bool held = at >= b->window && at - b->window <= b->bytes.size && bytes <= b->bytes.size - (at - b->window);
    if (!held) {
        uint64_t left = b->size - at, want = bytes > window_bytes ? bytes : window_bytes;
        if (want > left) want = left;
        TRY(memory_grow(&b->bytes.data, &b->bytes.capacity, (size_t)want + 1));
        b->bytes.size = 0;
        TRY(columnar_file_read(body->file, b->bytes.data, b->at + at, (size_t)want));
        b->window = at;
        b->bytes.size = (size_t)want;
    }
    *out = (const uint8_t *)b->bytes.data + (at - b->window);
    return STATUS_OK;
}
