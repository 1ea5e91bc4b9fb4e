/* fuzz_torch_checkpoint.c -- torch files. An input that begins with '-' is followed by the pickle of a valid archive,
 * because a fuzzer cannot guess CRCs; any other input is a whole file. */
#include "base/formats/torch_checkpoint.h"
#include "base/formats/zip.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint8_t *put(uint8_t *out, const void *data, size_t n) {
    memcpy(out, data, n);
    return out + n;
}
static uint8_t *put_number(uint8_t *out, uint64_t value, int n) {
    for (int i = 0; i < n; i++)
        *out++ = (uint8_t)(value >> (8 * i));
    return out;
}

/* Two members: a/data.pkl (the input) and a/data/0 (64 bytes). */
static size_t wrap(uint8_t *out, const uint8_t *pickle, size_t bytes) {
    uint8_t storage[64] = {1, 2, 3}, *at = out;
    const struct {
        const char *name;
        const uint8_t *data;
        size_t bytes;
    } members[] = {{"a/data.pkl", pickle, bytes}, {"a/data/0", storage, sizeof storage}};
    size_t local[2], directory;
    for (int i = 0; i < 2; i++) {
        local[i] = (size_t)(at - out);
        at = put_number(put_number(at, 0x04034b50, 4), 0, 4);
        at = put_number(at, 0, 6);
        at = put_number(at, zip_crc32(members[i].data, members[i].bytes), 4);
        at = put_number(put_number(at, members[i].bytes, 4), members[i].bytes, 4);
        at = put_number(at, strlen(members[i].name), 4);
        at = put(put(at, members[i].name, strlen(members[i].name)), members[i].data, members[i].bytes);
    }
    directory = (size_t)(at - out);
    for (int i = 0; i < 2; i++) {
        at = put_number(put_number(put_number(at, 0x02014b50, 4), 0, 6), 0, 6);
        at = put_number(at, zip_crc32(members[i].data, members[i].bytes), 4);
        at = put_number(put_number(at, members[i].bytes, 4), members[i].bytes, 4);
        at = put_number(put_number(at, strlen(members[i].name), 6), 0, 8);
        at = put_number(at, local[i], 4);
        at = put(at, members[i].name, strlen(members[i].name));
    }
    size_t end = (size_t)(at - out);
    at = put_number(put_number(put_number(put_number(at, 0x06054b50, 4), 0, 4), 2, 2), 2, 2);
    at = put_number(put_number(put_number(at, end - directory, 4), directory, 4), 0, 2);
    return (size_t)(at - out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct torch_checkpoint *c;
    uint8_t *made = NULL;
    if (bytes && data[0] == '-') {
        made = malloc(bytes + 512);
        if (!made) return 0;
        bytes = wrap(made, data + 1, bytes - 1);
        data = made;
    }
    if (torch_checkpoint_open_memory(&c, "fuzz", data, bytes) == STATUS_OK) {
        volatile uint8_t sum = 0;
        for (int i = 0; i < torch_checkpoint_count(c); i++) {
            const struct tensor_view *t = torch_checkpoint_at(c, i);
            const uint8_t *p = t->data;
            for (size_t k = 0; k < (size_t)t->count * safetensors_dtype_bytes(t->dtype); k++)
                sum = (uint8_t)(sum + p[k]);
        }
        torch_checkpoint_close(c);
    }
    free(made);
    return 0;
}
