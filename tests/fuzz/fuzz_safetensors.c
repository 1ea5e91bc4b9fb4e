/* fuzz_safetensors.c -- any file: opening fails with a message, or every tensor can be read to its last byte. */
#include "base/formats/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct safetensors *f = NULL;
    if (safetensors_open(&f, path) == STATUS_OK) {
        volatile uint8_t sum = 0;
        for (int i = 0; i < safetensors_count(f); i++) {
            const struct tensor_view *t = safetensors_at(f, i);
            if (safetensors_find(f, t->name) != t) abort();
            size_t bytes = (size_t)t->count * safetensors_dtype_bytes(t->dtype);
            for (size_t k = 0; k < bytes; k++)
                sum = (uint8_t)(sum + ((const uint8_t *)t->data)[k]);
            float *numbers = malloc((size_t)t->count * sizeof *numbers + 1);
            if (!numbers) abort();
            enum status converted = safetensors_to_f32(numbers, t);
            (void)converted;
            free(numbers);
        }
        (void)safetensors_metadata(f, "k");
        safetensors_close(f);
    }
    close(fd);
    return 0;
}
