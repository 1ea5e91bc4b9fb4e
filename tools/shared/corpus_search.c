/* corpus_search.c -- see corpus_search.h. */
#include "tools/shared/corpus_search.h"
#include <stdio.h>

/* Left for what a program allocates after the landmarks: caches of chunks, states, logits. */
#define RESERVE_BYTES (UINT64_C(1) << 30)

enum status corpus_search_open(struct searcher **out, const struct searcher_config *config) {
    struct searcher_config used = *config;
    used.reserve = RESERVE_BYTES;
    TRY(searcher_open(out, &used));
    const struct searcher_description d = searcher_describe(*out, 1, 0);
    if (searcher_fallback(*out))
        fprintf(stderr, "corpus search by the store, on the CPU: %s\n", searcher_fallback(*out));
    if (d.device_bytes > 0)
        fprintf(stderr, "corpus search %s, %.2f GiB of landmarks on the GPU\n", d.text,
                (double)d.device_bytes / (1 << 30));
    return STATUS_OK;
}
