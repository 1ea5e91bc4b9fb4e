/* replay.c -- feeds every file of a folder to a fuzz target, for compilers without libFuzzer and for ctest.
 * Each file is also fed truncated at up to 64 positions and with up to 64 flipped bytes, so that a corpus of valid
 * files also covers damaged ones. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A new copy of exact size each time, so that AddressSanitizer sees reads past the end. */
static void feed(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) exit(1);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    DIR *folder = opendir(argv[1]);
    if (!folder) {
        perror(argv[1]);
        return 1;
    }
    int files = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        FILE *file = fopen(path, "rb");
        if (!file) {
            perror(path);
            return 1;
        }
        fseek(file, 0, SEEK_END);
        size_t size = (size_t)ftell(file);
        rewind(file);
        uint8_t *data = malloc(size ? size : 1);
        if (!data || fread(data, 1, size, file) != size) return 1;
        fclose(file);
        feed(data, size);
        for (size_t i = 0; i < 64 && i < size; i++) {
            size_t at = size <= 64 ? i : i * size / 64;
            feed(data, at);
            uint8_t old = data[at];
            data[at] = (uint8_t)(old ^ (uint8_t)(1u << (i % 8)));
            feed(data, size);
            data[at] = old;
        }
        free(data);
        files++;
    }
    closedir(folder);
    printf("%d files replayed\n", files);
    if (files == 0) fprintf(stderr, "%s: no files to replay\n", argv[1]);
    return files == 0;
}
