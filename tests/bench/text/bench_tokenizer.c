/* bench_tokenizer.c -- tokenizing speed on one core: MB of text a second of processor time, and the share of words that
 * were in the cache.
 *
 *   bench_tokenizer TOKENIZER.json TEXT [ROUNDS] [--json FILE]
 *
 * One line for each round; the first round starts with an empty cache. The text is divided at line ends into documents
 * of about 8 KB, like a corpus. tests/bench/peers/tokenizer_peer.py runs this beside the Python package on the same
 * text. */
#include "base/file.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "tests/bench/result.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DOCUMENT_BYTES = 8 << 10 };

/* Processor time of this thread, which other work on the machine does not change. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static size_t document_end(const struct file_map *map, size_t begin) {
    if (map->size - begin <= DOCUMENT_BYTES) return map->size;
    const uint8_t *line = memchr(map->data + begin + DOCUMENT_BYTES, '\n', map->size - begin - DOCUMENT_BYTES);
    return line ? (size_t)(line - map->data) + 1 : map->size;
}

static enum status tokenizer_run(const char *tokenizer, const char *text, int rounds) {
    struct tokenizer *t;
    struct file_map map;
    double start = seconds();
    TRY(tokenizer_open(&t, tokenizer));
    printf("open_ms,%.1f\n", 1e3 * (seconds() - start));
    TRY(file_map(&map, text));
    printf("round,mb_per_s,tokens,bytes_per_token,cache_hit_rate,tokens_hash\n");
    struct tokenizer_scratch *s;
    TRY(tokenizer_scratch_create(&s, t));
    struct samples rates = {0};
    for (int round = 0; round < rounds; round++) {
        uint64_t tokens = 0, hash = 0;
        s->hits = s->misses = 0;
        start = seconds();
        for (size_t begin = 0; begin < map.size;) {
            size_t end = document_end(&map, begin), n;
            const int32_t *ids;
            TRY(tokenizer_encode(t, s, (const char *)map.data + begin, end - begin, TOKENIZER_LITERAL, &ids, &n));
            tokens += n;
            for (size_t i = 0; i < n; i++)
                hash = (hash ^ (uint64_t)ids[i]) * 0x100000001B3u;
            begin = end;
        }
        double taken = seconds() - start;
        samples_add(&rates, (double)map.size / taken * 1e-6);
        printf("%d,%.1f,%" PRIu64 ",%.3f,%.4f,%016" PRIx64 "\n", round, (double)map.size / taken * 1e-6, tokens,
               (double)map.size / (double)tokens, (double)s->hits / (double)(s->hits + s->misses), hash);
    }
    result_figure(&(struct figure){.unit = "MB/s", .values = rates.at, .count = rates.count},
                  "tokenizing, one thread, processor time");
    samples_free(&rates);
    result_end();
    tokenizer_scratch_free(s);
    file_unmap(&map);
    tokenizer_free(t);
    return STATUS_OK;
}

int main(int argc, char **argv) {
    result_begin("bench_tokenizer", &argc, argv);
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER.json TEXT [ROUNDS]\n");
        return 2;
    }
    long rounds = argc == 4 ? strtol(argv[3], NULL, 10) : 3;
    if (tokenizer_run(argv[1], argv[2], rounds > 0 && rounds < 1000 ? (int)rounds : 3) == STATUS_OK) return 0;
    fprintf(stderr, "%s\n", status_message());
    return 1;
}
