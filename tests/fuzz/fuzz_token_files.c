/* fuzz_token_files.c -- any bytes as token files: the first byte picks u16, u32 or Megatron; for Megatron the second
 * byte times 8 is the size of the .bin, and the other bytes are the .idx. */
#include "data/readers/reader.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) fprintf(stderr, "%s was left\n", folder);
}

static void put(const char *name, const uint8_t *data, size_t bytes) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || close(fd) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/tmp/fuzz-tokens-XXXXXX");
        if (!mkdtemp(folder)) abort();
        atexit(remove_folder);
    }
    static const enum reader_format formats[] = {READER_U16, READER_U32, READER_MEGATRON};
    enum reader_format format = formats[data[0] % 3];
    size_t bin = format == READER_MEGATRON && (size_t)data[1] * 8 < size - 2 ? (size_t)data[1] * 8 : size - 2;
    put("x.bin", data + 2, bin);
    put("x.idx", data + 2 + bin, size - 2 - bin);
    char path[128];
    snprintf(path, sizeof path, "%s/x.bin", folder);
    const char *inputs[] = {path};
    struct reader_config config = {
        .inputs = inputs, .n_inputs = 1, .format = format, .eod_id = (int)data[0] - 128, .max_document_bytes = 4096};
    struct reader *r;
    if (reader_open(&r, &config) != STATUS_OK) return 0;
    struct document d;
    int more = 1;
    uint64_t sum = 0;
    for (int count = 0; count < 5000 && reader_next(r, &d, &more) == STATUS_OK && more; count++) {
        if (d.text || d.n_ids > 4096) abort();
        for (size_t i = 0; i < d.n_ids; i++)
            sum += d.ids[i];
        if (format == READER_U16 && sum > (uint64_t)65535 * 5000 * 4096) abort();
    }
    reader_close(r);
    return 0;
}
