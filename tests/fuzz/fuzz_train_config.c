/* fuzz_train_config.c -- any bytes as a run's config: refused, or values inside their ranges that read back as written.
 */
#include "train/run/config.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct train_config c, again;
    char *text = NULL;
    size_t bytes = 0;
    if (config_defaults(&c) != STATUS_OK || config_defaults(&again) != STATUS_OK) abort();
    if (config_read(&c, "fuzz", data, size) == STATUS_OK && c.model_json) {
        FILE *f = open_memstream(&text, &bytes);
        config_write(&c, f);
        fclose(f);
        if (config_read(&again, "again", text, bytes) != STATUS_OK) abort();
        if (c.sequences < 1 || c.schedule.lr != again.schedule.lr || c.data.count != again.data.count ||
            c.pool != again.pool)
            abort();
        /* The check would read files of that name, and the file system is not fuzzed. */
        if (!c.start_from && config_check(&c) == STATUS_OK && config_chunks(&c) < 1) abort();
    }
    free(text);
    config_free(&c);
    config_free(&again);
    return 0;
}
